//! Puts a plan together: first what must be there, then the steps from what is there.

mod endings;
mod links;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use ipnet::Ipv4Net;
use model::{Address, ExistingNetwork, LinkName, NetworkName, PeeringName, ResourceName, Site};

use super::{
    Action, Class, Draft, Intent, Inventory, List, Phase, Places, Plan, Problem, ProblemKind, Step, StepId,
    adoptable,
    agreement::Ask,
    difference,
    lists::Resolver,
    paths::{Path, Paths},
    unreadable::{Record, Subject},
};

pub(super) struct Builder<'i> {
    intent: &'i Intent,
    inventory: &'i Inventory,
    plan: Plan,
    /// The networks that shall be, with those to be made.
    networks: BTreeMap<Cow<'i, NetworkName>, Ipv4Net>,
    /// Where each wanted resource lives; none for those that cannot be placed.
    homes: BTreeMap<&'i ResourceName, NetworkName>,
    /// Networks to be adopted.
    adopting: BTreeMap<NetworkName, &'i ExistingNetwork>,
    creating: BTreeMap<Object, StepId>,
    deleting: BTreeMap<Object, StepId>,
    /// Sites where nothing is taken away that something unreadable may need.
    held: BTreeSet<Site>,
}

/// Things that steps wait for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    Network(NetworkName),
    Resource(ResourceName),
    Gateway(Site),
    Path(Path),
}

impl<'i> Builder<'i> {
    pub(super) fn new(intent: &'i Intent, inventory: &'i Inventory) -> Self {
        Self {
            intent,
            inventory,
            plan: Plan::default(),
            networks: BTreeMap::new(),
            homes: BTreeMap::new(),
            adopting: BTreeMap::new(),
            creating: BTreeMap::new(),
            deleting: BTreeMap::new(),
            held: inventory.unreadable.sites(),
        }
    }

    pub(super) fn build(mut self) -> Plan {
        self.networks();
        self.resources();
        let (networks, homes) = (std::mem::take(&mut self.networks), std::mem::take(&mut self.homes));
        let mut paths = Paths::new(self.inventory);
        let lists = self.lists(&networks, &homes, &mut paths);
        let closing = self.permit(&lists, &homes);
        let waiting = std::mem::take(&mut paths.waiting);
        let wanted = std::mem::take(&mut paths.wanted);
        drop(paths);
        self.paths(wanted);
        self.remove_resources(&closing);
        self.remove_networks(&networks);
        self.wait_for_paths(&waiting);
        self.plan
    }

    fn push(&mut self, action: Action, after: impl IntoIterator<Item = StepId>) -> StepId {
        self.plan.steps.push(Step { action, after: after.into_iter().collect() });
        self.plan.steps.len() - 1
    }

    /// Whether a cloud can be asked for anything. What is in another stays as it is until its plugin is back.
    fn knows(&self, cloud: &model::Segment) -> bool {
        self.intent.clouds.contains_key(cloud)
    }

    /// Whether what was made there can be taken down. What cannot stays, and is on record for whoever needs it again.
    fn deletes(&self, cloud: &model::Segment) -> bool {
        self.intent.clouds.get(cloud).is_none_or(|traits| traits.deletes)
    }

    fn knows_link(&self, link: &LinkName) -> bool {
        link.ends().iter().all(|end| self.knows(&end.cloud))
    }

    fn waits(&mut self, resource: &ResourceName, step: StepId) {
        self.plan.waiting.entry(resource.clone()).or_default().insert(step);
    }

    fn problem(&mut self, resource: &ResourceName, kind: ProblemKind) {
        self.plan.problems.push(Problem { resource: resource.clone(), rule: None, kind });
    }

    fn unreadable(&self, subject: Subject) -> Option<&'i Record> {
        self.inventory.unreadable.get(&subject)
    }

    /// Decides which networks shall be and creates those that are not there.
    fn networks(&mut self) {
        let mut missing: BTreeMap<NetworkName, Vec<&'i ResourceName>> = BTreeMap::new();
        for (name, resource) in &self.intent.resources {
            if !self.intent.clouds.contains_key(&name.cloud) {
                self.problem(name, ProblemKind::UnknownCloud { cloud: name.cloud.clone() });
                continue;
            }
            // What was made stays where it was made.
            let recorded = self.inventory.resources.get(name).map(|record| record.network.clone());
            let home = recorded.unwrap_or_else(|| resource.network(name));
            let made = self.unreadable(Subject::Resource(name.clone()));
            let network = self.unreadable(Subject::Network(home.clone()));
            for record in
                [made, network, self.unreadable(Subject::Wanted(name.clone()))].into_iter().flatten()
            {
                self.problem(name, record.into());
            }
            match self.inventory.networks.get_key_value(&home) {
                Some((key, record)) => {
                    self.networks.insert(Cow::Borrowed(key), record.space);
                }
                // Nobody knows its space: who lives in it stays, and nobody else comes.
                None if network.is_some() && self.inventory.resources.contains_key(name) => {}
                None if network.is_some() || made.is_some() => continue,
                None if resource.adopts.is_some() => {}
                None => missing.entry(home.clone()).or_default().push(name),
            }
            if made.is_none() {
                self.homes.insert(name, home);
            }
        }
        self.adopt();
        self.allocate(missing);
        let networks: Vec<_> =
            self.networks.iter().map(|(name, space)| (name.clone().into_owned(), *space)).collect();
        for (network, space) in networks {
            let phase = self.inventory.networks.get(&network).map(|record| record.phase);
            match phase {
                Some(Phase::Ready) => continue,
                // It goes first, and comes back with the next plan; unless somebody lives in it, who would hold it.
                Some(Phase::Removing) if !self.has_residents(&network) => {
                    let step = self.push(self.end_of(&network), []);
                    self.deleting.insert(Object::Network(network.clone()), step);
                }
                Some(Phase::Making | Phase::Removing) | None => {
                    let action = match self.existing(&network).cloned() {
                        Some(existing) => Action::AdoptNetwork { network: network.clone(), existing },
                        None => Action::CreateNetwork { network: network.clone(), space },
                    };
                    let step = self.push(action, []);
                    self.creating.insert(Object::Network(network.clone()), step);
                }
            }
        }
    }

    /// Decides which existing networks are adopted; where that cannot be, the resources are told.
    fn adopt(&mut self) {
        for (name, resource) in &self.intent.resources {
            let (Some(existing), Some(home)) = (&resource.adopts, self.homes.get(name).cloned()) else {
                continue;
            };
            // What was attached stays attached.
            let is_home = self.inventory.networks.contains_key(&home)
                || self.unreadable(Subject::Network(home.clone())).is_some();
            if self.inventory.resources.contains_key(name) && is_home {
                continue;
            }
            let others = self.adopting.iter().filter(|(other, _)| **other != home);
            let others: Vec<Ipv4Net> = others.flat_map(|(_, other)| other.blocks()).collect();
            let known = self.adopting.get(&home).map_or(existing.space, |known| known.space);
            let verdict = match known == existing.space {
                true => adoptable(self.inventory, others, &home, existing),
                false => Err(ProblemKind::OtherBlock {
                    network: Box::new(home.clone()),
                    block: existing.space,
                    known,
                }),
            };
            match verdict {
                Ok(()) => {
                    self.networks.entry(Cow::Owned(home.clone())).or_insert(existing.space);
                    self.adopting.insert(home, existing);
                }
                Err(kind) => {
                    self.homes.remove(name);
                    self.problem(name, kind);
                }
            }
        }
    }

    /// What a network is, if somebody else made it.
    fn existing(&self, network: &NetworkName) -> Option<&ExistingNetwork> {
        let recorded = self.inventory.networks.get(network).and_then(|record| record.adopted.as_ref());
        recorded.or_else(|| self.adopting.get(network).copied())
    }

    fn has_residents(&self, network: &NetworkName) -> bool {
        self.held.contains(&network.site)
            || self.inventory.resources.values().any(|record| record.network == *network)
    }

    /// Chooses spaces; where there is none, the resources are told.
    fn allocate(&mut self, missing: BTreeMap<NetworkName, Vec<&'i ResourceName>>) {
        if let Some(record) = self.inventory.unreadable.hides_a_space() {
            for resource in missing.into_values().flatten() {
                self.homes.remove(resource);
                self.problem(resource, record.into());
            }
            return;
        }
        let adopting = self.adopting.values().flat_map(|existing| existing.blocks());
        let mut used: Vec<Ipv4Net> =
            self.inventory.used_spaces().chain(adopting).chain(self.intent.taken.iter().copied()).collect();
        let all = self.intent.pools.find(used.iter().copied(), &vec![0; missing.len()]).ok();
        for (place, (network, resources)) in missing.into_iter().enumerate() {
            let found = match &all {
                Some(spaces) => Ok(spaces[place]),
                None => self.intent.pools.find(used.iter().copied(), &[0]).map(|spaces| spaces[0]),
            };
            match found {
                Ok(space) => {
                    used.push(space);
                    self.networks.insert(Cow::Owned(network), space);
                }
                Err(error) => {
                    for resource in resources {
                        self.homes.remove(resource);
                        self.problem(resource, ProblemKind::NoSpace { error: error.clone() });
                    }
                }
            }
        }
    }

    fn resources(&mut self) {
        let homes: Vec<_> = self.homes.iter().map(|(name, home)| (*name, home.clone())).collect();
        for (resource, network) in homes {
            // It stays as it is: nobody knows how it is wanted, or where it would live.
            if self.unreadable(Subject::Wanted(resource.clone())).is_some()
                || self.unreadable(Subject::Network(network.clone())).is_some()
            {
                continue;
            }
            match self.inventory.resources.get(resource).map(|record| record.phase) {
                Some(Phase::Ready) => {}
                Some(Phase::Removing) => {
                    let step = self.push(self.end_of_resource(resource), []);
                    self.deleting.insert(Object::Resource(resource.clone()), step);
                    self.waits(resource, step);
                }
                Some(Phase::Making) | None => {
                    if self.deleting.contains_key(&Object::Network(network.clone())) {
                        continue;
                    }
                    let after = self.creating.get(&Object::Network(network.clone())).copied();
                    let is_there = self.intent.resources.get(resource).is_some_and(|wanted| wanted.attach);
                    let name = resource.clone();
                    let action = match is_there {
                        true => Action::AttachResource { resource: name, network },
                        false => Action::CreateResource { resource: name, network },
                    };
                    let step = self.push(action, after);
                    self.creating.insert(Object::Resource(resource.clone()), step);
                    self.waits(resource, step);
                    if let Some(after) = after {
                        self.waits(resource, after);
                    }
                }
            }
        }
    }

    /// The entries every wanted resource shall have, and the paths they need.
    fn lists<'p>(
        &mut self,
        networks: &'p BTreeMap<Cow<'i, NetworkName>, Ipv4Net>,
        homes: &'p BTreeMap<&'i ResourceName, NetworkName>,
        paths: &mut Paths<'p>,
    ) -> BTreeMap<&'i ResourceName, List>
    where
        'i: 'p,
    {
        // Networks that only the inventory knows (about to go) still hold their addresses.
        let known = self.inventory.networks.iter().map(|(name, record)| (name, record.space));
        let places = Places::new(known.chain(networks.iter().map(|(name, space)| (name.as_ref(), *space))));
        let clouds = &self.intent.clouds;
        let goes = |network: &NetworkName| {
            !networks.contains_key(network) && clouds.contains_key(&network.site.cloud)
        };
        let mut resolver = Resolver::new(self.intent, self.inventory);
        // The policy engine may not know yet who leaves.
        let gone = self.inventory.resources.iter();
        let gone = gone.filter(|(name, _)| !self.intent.resources.contains_key(*name));
        let leaving: BTreeSet<Address> =
            gone.filter_map(|(_, record)| Some(record.state.as_ref()?.address)).collect();
        let mut drafts: BTreeMap<&'i ResourceName, Vec<Draft>> = BTreeMap::new();
        for (resource, rules) in resolver.effective() {
            let of_rules = rules.into_iter().map(|effective| resolver.draft(resource, effective));
            drafts.entry(resource).or_default().extend(of_rules);
        }
        for (resource, draft) in resolver.permitted() {
            drafts.entry(resource).or_default().push(draft);
        }
        // A policy may open a resource that has no rules.
        let spoken_of = self.intent.verdicts.keys();
        for (name, _) in spoken_of.filter_map(|name| self.intent.resources.get_key_value(name)) {
            drafts.entry(name).or_default();
        }
        let mut lists: BTreeMap<&ResourceName, List> = BTreeMap::new();
        for (resource, mut drafts) in drafts {
            let Some((name, home)) = homes.get_key_value(resource) else { continue };
            if let Some(verdicts) = self.intent.verdicts.get(resource) {
                let (decided, closed) = verdicts.decide(drafts);
                drafts = decided;
                for draft in drafts.iter_mut().filter(|draft| draft.name.is_of_policy()) {
                    draft.targets.retain(|target| !leaving.contains(target));
                }
                for error in closed {
                    self.problem(resource, ProblemKind::TooManyPieces { error });
                }
            }
            let list = lists.entry(resource).or_default();
            let in_force = self.inventory.resources.get(resource).map(|record| &record.permit);
            let hidden = self.inventory.unreadable.hides_a_space();
            for mut draft in drafts {
                draft.targets.retain(|target| {
                    let class = places.classify(*target);
                    // It may be in the network whose space nobody can read: what is permitted stays.
                    if class == Class::Unplaced
                        && let Some(record) = hidden
                    {
                        resolver.problem(resource, &draft.name, record.into());
                        let entry = in_force.and_then(|list| list.get(&draft.name));
                        return entry.is_some_and(|entry| entry.targets().contains(target));
                    }
                    // Nobody is joined to a network that is about to go; what joined it would hold it.
                    if !matches!(&class, Class::Inside(network) if goes(network)) {
                        let ask = Ask { resource: name, traffic: draft.traffic, target: *target };
                        paths.add(ask, home, &class, draft.build);
                    }
                    if class == Class::Unplaced {
                        let kind = ProblemKind::Unplaced { target: *target };
                        resolver.problem(resource, &draft.name, kind);
                    }
                    class != Class::Unplaced
                });
                if let Some(entry) = draft.entry() {
                    list.insert(entry.name.clone(), entry);
                }
            }
        }
        let placed = self.inventory.resources.iter();
        paths.settle(placed.filter_map(|(name, record)| Some((name, record.state.as_ref()?.address))));
        self.plan.problems.append(&mut resolver.problems);
        lists
    }

    /// Steps that change permit lists. Answers which step takes which targets away.
    fn permit(
        &mut self,
        lists: &BTreeMap<&'i ResourceName, List>,
        homes: &BTreeMap<&'i ResourceName, NetworkName>,
    ) -> Vec<(StepId, BTreeSet<model::Address>)> {
        let mut closing = Vec::new();
        let (nothing, unsure) = (List::new(), BTreeMap::new());
        for resource in homes.keys() {
            let desired = lists.get(resource).unwrap_or(&nothing);
            let record = self.inventory.resources.get(*resource);
            if self.deleting.contains_key(&Object::Resource((*resource).clone())) {
                continue;
            }
            let (current, changing) =
                record.map_or((&nothing, &unsure), |record| (&record.permit, &record.changing));
            if current == desired && changing.is_empty() {
                continue;
            }
            let (close, open) = difference(current, changing, desired);
            let made = self.creating.get(&Object::Resource((*resource).clone())).copied();
            if made.is_none() && record.is_none() {
                continue;
            }
            let mut after = made;
            if !close.is_empty() {
                let gone = close.unset.iter().flat_map(|entry| entry.targets().iter().copied()).collect();
                let step = self.push(Action::Close { resource: (*resource).clone(), change: close }, after);
                self.waits(resource, step);
                closing.push((step, gone));
                after = Some(step);
            }
            if !open.is_empty() {
                let step = self.push(Action::Open { resource: (*resource).clone(), change: open }, after);
                self.waits(resource, step);
            }
        }
        closing
    }

    fn paths(&mut self, mut wanted: BTreeSet<Path>) {
        wanted.extend(self.intent.links.iter().cloned().map(Path::Link));
        let mut links = BTreeSet::new();
        for path in &wanted {
            match path {
                Path::Peering(_) | Path::Nat(_) if self.unreadable_path(path).is_some() => {}
                Path::Peering(peering) if self.knows(peering.cloud()) => self.peering(peering),
                // The way out of somebody else's network is theirs.
                Path::Nat(network) if self.existing(network).is_some() => {}
                Path::Nat(network) if self.knows(&network.site.cloud) => self.nat(network),
                Path::Peering(_) | Path::Nat(_) => {}
                Path::Link(link) => {
                    links.insert(link.clone());
                }
            }
        }
        self.links(&links);
        let stale = |path: Path, cloud| self.knows(cloud) && self.deletes(cloud) && !wanted.contains(&path);
        let is_held = |network: &NetworkName| self.held.contains(&network.site);
        let peerings = self.inventory.peerings.keys().filter(|name| !name.ends().into_iter().any(is_held));
        let stale_peerings: Vec<_> =
            peerings.filter(|name| stale(Path::Peering((*name).clone()), name.cloud())).cloned().collect();
        let nats = self.inventory.nats.keys().filter(|name| !is_held(name));
        let stale_nats: Vec<_> =
            nats.filter(|name| stale(Path::Nat((*name).clone()), &name.site.cloud)).cloned().collect();
        for peering in stale_peerings {
            let step = self.push(Action::DeletePeering { peering: peering.clone() }, []);
            self.deleting.insert(Object::Path(Path::Peering(peering)), step);
        }
        for network in stale_nats {
            let step = self.push(Action::DeleteNat { network: network.clone() }, []);
            self.deleting.insert(Object::Path(Path::Nat(network)), step);
        }
        self.remove_links(&links);
    }

    fn unreadable_path(&self, path: &Path) -> Option<&'i Record> {
        self.unreadable(match path.clone() {
            Path::Peering(name) => Subject::Peering(name),
            Path::Nat(name) => Subject::Nat(name),
            Path::Link(name) => Subject::MadeLink(name),
        })
    }

    /// Makes, or takes away what is half removed so that it can be made again.
    fn ensure(
        &mut self,
        path: Path,
        phase: Option<Phase>,
        create: Action,
        delete: Action,
        after: Vec<StepId>,
    ) {
        match phase {
            Some(Phase::Ready) => {}
            Some(Phase::Removing) => {
                let step = self.push(delete, []);
                self.deleting.insert(Object::Path(path), step);
            }
            Some(Phase::Making) | None => {
                let step = self.push(create, after);
                self.creating.insert(Object::Path(path), step);
            }
        }
    }

    fn created(&self, network: &NetworkName) -> Option<StepId> {
        self.creating.get(&Object::Network(network.clone())).copied()
    }

    fn peering(&mut self, peering: &PeeringName) {
        let after = peering.ends().into_iter().filter_map(|end| self.created(end)).collect();
        let phase = self.inventory.peerings.get(peering).map(|record| record.phase);
        let (create, delete) = (
            Action::CreatePeering { peering: peering.clone() },
            Action::DeletePeering { peering: peering.clone() },
        );
        self.ensure(Path::Peering(peering.clone()), phase, create, delete, after);
    }

    fn nat(&mut self, network: &NetworkName) {
        let after = self.created(network).into_iter().collect();
        let phase = self.inventory.nats.get(network).map(|record| record.phase);
        let (create, delete) =
            (Action::CreateNat { network: network.clone() }, Action::DeleteNat { network: network.clone() });
        self.ensure(Path::Nat(network.clone()), phase, create, delete, after);
    }

    fn wait_for_paths(&mut self, waiting: &BTreeMap<Path, BTreeSet<&ResourceName>>) {
        for (path, resources) in waiting {
            let absent = match path {
                Path::Link(link) => link.ends().into_iter().find(|end| !self.knows(&end.cloud)),
                // They are of the cloud that the resource is in.
                Path::Peering(_) | Path::Nat(_) => None,
            };
            if let Some(Site { cloud, .. }) = absent {
                for resource in resources {
                    self.problem(resource, ProblemKind::UnknownCloud { cloud: cloud.clone() });
                }
            }
            if let Some(record) = self.unreadable_path(path) {
                resources.iter().for_each(|resource| self.problem(resource, record.into()));
            }
            let object = Object::Path(path.clone());
            let Some(step) = self.creating.get(&object).or_else(|| self.deleting.get(&object)).copied()
            else {
                continue;
            };
            for resource in resources {
                self.waits(resource, step);
            }
        }
    }
}
