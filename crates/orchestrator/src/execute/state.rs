//! The stored facts in memory, and what steps under way are about to store.
//!
//! The facts are what the store's watch has told ([`super::keeper`]), and nothing else. Beside them are the steps that
//! were started: what they have chosen is not free for others, and what they begin to take away is not there for others,
//! from before their first write. A step that ends leaves nothing here but what it stored.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use model::{
    ResourceName,
    allow::{End, Permission},
};
use store::{Key, Revision};
use tracing::warn;

use super::{
    Job,
    facts::{Fact, Strange},
};
use crate::plan::{
    Action, GatewayRecord, Intent, Inventory, LinkRecord, NetworkRecord, Phase, Subject, UnreadableRecord,
};

/// Everything stored, and at which revision. Plans hold the two halves while they are made; a write meanwhile copies.
#[derive(Default)]
pub(super) struct State {
    /// Without the tag graph and the clouds, which are put in for each plan.
    pub intent: Arc<Intent>,
    pub inventory: Arc<Inventory>,
    pub jobs: BTreeMap<String, Job>,
    pub revisions: BTreeMap<Key, Revision>,
    /// Steps under way, by object.
    started: BTreeMap<String, Action>,
    /// The inventory with these; none if it must be made anew.
    ahead: Option<Arc<Inventory>>,
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match (map.entry(key), value) {
        (Entry::Occupied(mut entry), Some(value)) => drop(entry.insert(value)),
        (Entry::Occupied(entry), None) => drop(entry.remove()),
        (Entry::Vacant(entry), Some(value)) => drop(entry.insert(value)),
        (Entry::Vacant(_), None) => {}
    }
}

/// For rules, which are two maps deep; the outer one holds no empty maps.
fn set_deep<K: Ord + Clone, L: Ord, V>(
    map: &mut BTreeMap<K, BTreeMap<L, V>>,
    key: K,
    name: L,
    value: Option<V>,
) {
    let inner = map.entry(key.clone()).or_default();
    set(inner, name, value);
    if inner.is_empty() {
        map.remove(&key);
    }
}

impl State {
    /// A step starts. What it has chosen (a space, a number, addresses) is chosen.
    pub fn start(&mut self, object: String, action: Action) {
        self.started.insert(object, action);
        self.ahead = None;
    }

    /// A step has ended, and has stored what it did.
    pub fn end(&mut self, object: &str) {
        self.started.remove(object);
        self.ahead = None;
    }

    /// Steps that were started and are no more: their driver has ended.
    pub fn end_all(&mut self) {
        self.started.clear();
        self.ahead = None;
    }

    /// What was made, as it will be once the steps under way have written first. For whoever chooses.
    pub fn ahead(&mut self) -> Arc<Inventory> {
        // Most steps choose nothing, and a copy costs.
        if !self.started.values().any(chooses) {
            return Arc::clone(&self.inventory);
        }
        let (inventory, started) = (&self.inventory, &self.started);
        let ahead = self.ahead.get_or_insert_with(|| {
            let mut ahead = Inventory::clone(inventory);
            started.values().for_each(|action| choose(&mut ahead, action));
            Arc::new(ahead)
        });
        Arc::clone(ahead)
    }

    /// Takes the place of what was known: the whole of what is stored. The steps under way are still under way.
    pub fn replace(&mut self, stored: Self) {
        let started = std::mem::take(&mut self.started);
        *self = Self { started, ..stored };
    }

    /// What comes back if a request that replaces a fact is taken back: the fact, unless a job put it that is still
    /// running; that was never granted, and what it found comes back.
    pub fn before(&self, fact: Fact) -> Fact {
        let key = fact.key();
        let Some(revision) = self.revisions.get(&key) else { return fact };
        let putter = self.jobs.values().find(|job| job.is_running() && self.is_put_by(&key, job, *revision));
        putter.and_then(|job| job.undo_of(&key)).cloned().unwrap_or(fact)
    }

    /// Whether what is stored under a key is what a job put: both were written at once. Jobs are not written again
    /// before they end.
    fn is_put_by(&self, key: &Key, job: &Job, revision: Revision) -> bool {
        self.revisions.get(&job.key()) == Some(&revision) && job.undo_of(key).is_some()
    }

    /// What a job that ends badly takes back: what it put, unless somebody has changed it since.
    pub fn undo(&self, job: &Job) -> Vec<Fact> {
        let still = |fact: &&Fact| {
            let key = fact.key();
            self.revisions.get(&key).is_some_and(|revision| self.is_put_by(&key, job, *revision))
        };
        let undo = job.undo().iter().filter(still).cloned();
        undo.flat_map(|fact| {
            // A resource takes its rules with it; they would hold for the next one of its name.
            let rules = match &fact {
                Fact::Resource(name, None) => self.rules_off(name),
                _ => Vec::new(),
            };
            rules.into_iter().chain([fact])
        })
        .collect()
    }

    /// What deletes the rules of a resource, also those that cannot be read, and the permissions that name it.
    pub fn rules_off(&self, name: &ResourceName) -> Vec<Fact> {
        let rules = self.intent.rules.get(name).into_iter().flat_map(BTreeMap::keys);
        let rules = rules.chain(self.inventory.unreadable.rules_of(name));
        let rules = rules.map(|rule| Fact::Rule(name.clone(), rule.clone(), None));
        let names = |permission: &Permission| {
            permission.ends().into_iter().any(|end| matches!(end, End::Resource(end) if end == name))
        };
        let permissions = self.intent.permissions.iter().filter(|(_, permission)| names(permission));
        let permissions = permissions.map(|(permission, _)| Fact::Permission(permission.clone(), None));
        rules.chain(permissions).collect()
    }

    /// Whether a resource is wanted, also if it cannot be read how.
    pub fn wants(&self, name: &ResourceName) -> bool {
        self.intent.resources.contains_key(name) || self.unreadable(Subject::Wanted(name.clone())).is_some()
    }

    pub fn unreadable(&self, subject: Subject) -> Option<&UnreadableRecord> {
        self.inventory.unreadable.get(&subject)
    }

    /// Takes in what the store has under a key since a revision, or, without a value, that it has nothing. Answers whether
    /// that is news to whoever plans: no step under way has written it.
    pub fn take_in(&mut self, key: &Key, value: Option<&[u8]>, revision: Revision) -> bool {
        match Fact::read(key, value) {
            Ok(fact) => self.take_in_fact(key, fact, revision),
            Err(strange) => self.take_in_unreadable(key, value.map(|_| revision), *strange),
        }
    }

    /// The same, of what was read already.
    pub fn take_in_fact(&mut self, key: &Key, fact: Fact, revision: Revision) -> bool {
        self.know(key, (!fact.is_gone()).then_some(revision));
        let is_news = fact.object().is_none_or(|object| !self.started.contains_key(&object));
        if !self.inventory.unreadable.is_empty() {
            Arc::make_mut(&mut self.inventory).unreadable.remove(&fact.subject());
        }
        self.apply(fact);
        is_news
    }

    /// What cannot be read takes the place of what could.
    fn take_in_unreadable(&mut self, key: &Key, at: Option<Revision>, strange: Strange) -> bool {
        let Strange { subject, reason } = strange;
        self.know(key, at);
        if let Ok(gone) = Fact::read(key, None) {
            self.apply(gone);
        }
        let unreadable = &mut Arc::make_mut(&mut self.inventory).unreadable;
        let record = key.as_str().to_owned();
        match at {
            Some(_) => {
                warn!(record, reason, "a stored record cannot be read; what it is about is left as it is");
                unreadable.put(subject, UnreadableRecord { record, reason });
            }
            None => unreadable.remove(&subject),
        }
        true
    }

    fn know(&mut self, key: &Key, at: Option<Revision>) {
        self.ahead = None;
        match at {
            Some(revision) => drop(self.revisions.insert(key.clone(), revision)),
            None => drop(self.revisions.remove(key)),
        }
    }

    fn apply(&mut self, fact: Fact) {
        if let Fact::Job(id, job) = fact {
            return set(&mut self.jobs, id, job);
        }
        match fact {
            Fact::Resource(..)
            | Fact::Rule(..)
            | Fact::TagRule(..)
            | Fact::Permission(..)
            | Fact::Link(..) => {
                apply_intent(Arc::make_mut(&mut self.intent), fact);
            }
            _ => apply_inventory(Arc::make_mut(&mut self.inventory), fact),
        }
    }
}

/// Whether a step that is started changes what others may choose or find.
fn chooses(action: &Action) -> bool {
    !matches!(
        action,
        Action::CreateResource { .. }
            | Action::AttachResource { .. }
            | Action::Close { .. }
            | Action::Open { .. }
            | Action::CreatePeering { .. }
            | Action::CreateNat { .. }
    )
}

/// What a step that was started has chosen, and what it begins to take away.
fn choose(inventory: &mut Inventory, action: &Action) {
    let phase = Phase::Making;
    match action {
        Action::CreateNetwork { network, space } => {
            let record = NetworkRecord::made(phase, *space);
            inventory.networks.entry(network.clone()).or_insert(record);
        }
        Action::AdoptNetwork { network, existing } => {
            let record = || NetworkRecord::adopted(phase, existing.clone());
            inventory.networks.entry(network.clone()).or_insert_with(record);
        }
        Action::CreateGateway { gateway, asn } => {
            let record = GatewayRecord { phase, asn: *asn, state: None };
            inventory.gateways.entry(gateway.clone()).or_insert(record);
        }
        Action::CreateLink { link, bgp, spaces } => {
            // The step chooses the key, when it writes.
            let shared_key = model::Secret::new("");
            let record = || {
                let (bgp, spaces) = (bgp.clone(), spaces.clone());
                LinkRecord { phase, bgp, spaces, shared_key, stood: false }
            };
            inventory.links.entry(link.clone()).or_insert_with(record);
        }
        Action::DeleteNetwork { .. }
        | Action::ReleaseNetwork { .. }
        | Action::DetachResource { .. }
        | Action::DeleteGateway { .. }
        | Action::DeleteLink { .. }
        | Action::DeletePeering { .. }
        | Action::DeleteNat { .. }
        | Action::DeleteResource { .. } => begin_to_remove(inventory, action),
        action => debug_assert!(!chooses(action), "{action}"),
    }
}

fn begin_to_remove(inventory: &mut Inventory, action: &Action) {
    let phase = match action {
        Action::DeleteNetwork { network } | Action::ReleaseNetwork { network } => {
            inventory.networks.get_mut(network).map(|it| &mut it.phase)
        }
        Action::DeleteGateway { gateway } => inventory.gateways.get_mut(gateway).map(|it| &mut it.phase),
        Action::DeleteLink { link } => inventory.links.get_mut(link).map(|it| &mut it.phase),
        Action::DeletePeering { peering } => inventory.peerings.get_mut(peering).map(|it| &mut it.phase),
        Action::DeleteNat { network } => inventory.nats.get_mut(network).map(|it| &mut it.phase),
        Action::DeleteResource { resource } | Action::DetachResource { resource } => {
            inventory.resources.get_mut(resource).map(|it| &mut it.phase)
        }
        _ => None,
    };
    if let Some(phase) = phase {
        *phase = Phase::Removing;
    }
}

/// Takes a fact into copies, to try out what a request would do.
pub(super) fn try_out(intent: &mut Intent, inventory: &mut Inventory, fact: Fact) {
    match fact {
        Fact::Resource(..) | Fact::Rule(..) | Fact::TagRule(..) | Fact::Permission(..) | Fact::Link(..) => {
            apply_intent(intent, fact)
        }
        _ => apply_inventory(inventory, fact),
    }
}

fn apply_intent(intent: &mut Intent, fact: Fact) {
    match fact {
        Fact::Resource(name, value) => set(&mut intent.resources, name, value),
        Fact::Rule(resource, rule, value) => set_deep(&mut intent.rules, resource, rule, value),
        Fact::TagRule(tag, rule, value) => set_deep(&mut intent.tag_rules, tag, rule, value),
        Fact::Permission(name, value) => set(&mut intent.permissions, name, value),
        Fact::Link(name, Some(())) => drop(intent.links.insert(name)),
        Fact::Link(name, None) => drop(intent.links.remove(&name)),
        _ => {}
    }
}

fn apply_inventory(inventory: &mut Inventory, fact: Fact) {
    match fact {
        Fact::Network(name, value) => set(&mut inventory.networks, name, value),
        Fact::MadeResource(name, value) => set(&mut inventory.resources, name, value),
        Fact::Peering(name, value) => set(&mut inventory.peerings, name, value),
        Fact::Nat(name, value) => set(&mut inventory.nats, name, value),
        Fact::Gateway(site, value) => set(&mut inventory.gateways, site, value),
        Fact::MadeLink(name, value) => set(&mut inventory.links, name, value),
        _ => {}
    }
}
