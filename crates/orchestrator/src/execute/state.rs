//! The stored facts in memory.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use model::ResourceName;
use store::{Key, Revision};

use super::{Job, facts::Fact, perform::new_key};
use crate::plan::{Action, GatewayRecord, Intent, Inventory, LinkRecord, NetworkRecord, Phase};

/// Everything stored, and at which revision. Plans hold the two halves while they are made; a write meanwhile copies.
#[derive(Default)]
pub(super) struct State {
    /// Without the tag graph and the clouds, which are put in for each plan.
    pub intent: Arc<Intent>,
    pub inventory: Arc<Inventory>,
    pub jobs: BTreeMap<String, Job>,
    pub revisions: BTreeMap<Key, Revision>,
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
    /// Remembers what a step that starts has chosen (a space, a number, addresses, a key), so that a plan made before
    /// the step's first write does not choose the same for something else. And what a step begins to take away is not
    /// there for a plan made before that is written.
    pub fn choose(&mut self, action: &Action) {
        let phase = Phase::Making;
        match action {
            Action::CreateNetwork { network, space } => {
                let inventory = Arc::make_mut(&mut self.inventory);
                let record = NetworkRecord::made(phase, *space);
                inventory.networks.entry(network.clone()).or_insert(record);
            }
            Action::AdoptNetwork { network, existing } => {
                let inventory = Arc::make_mut(&mut self.inventory);
                let record = || NetworkRecord::adopted(phase, existing.clone());
                inventory.networks.entry(network.clone()).or_insert_with(record);
            }
            Action::CreateGateway { gateway, asn } => {
                let inventory = Arc::make_mut(&mut self.inventory);
                let record = GatewayRecord { phase, asn: *asn, state: None };
                inventory.gateways.entry(gateway.clone()).or_insert(record);
            }
            Action::CreateLink { link, bgp, spaces } => {
                let inventory = Arc::make_mut(&mut self.inventory);
                let record =
                    || LinkRecord { phase, bgp: bgp.clone(), spaces: spaces.clone(), shared_key: new_key() };
                inventory.links.entry(link.clone()).or_insert_with(record);
            }
            Action::DeleteNetwork { .. }
            | Action::ReleaseNetwork { .. }
            | Action::DetachResource { .. }
            | Action::DeleteGateway { .. }
            | Action::DeleteLink { .. }
            | Action::DeletePeering { .. }
            | Action::DeleteNat { .. }
            | Action::DeleteResource { .. } => self.begin_to_remove(action),
            Action::CreateResource { .. }
            | Action::AttachResource { .. }
            | Action::Close { .. }
            | Action::Open { .. }
            | Action::CreatePeering { .. }
            | Action::CreateNat { .. } => {}
        }
    }

    fn begin_to_remove(&mut self, action: &Action) {
        let inventory = Arc::make_mut(&mut self.inventory);
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

    /// What deletes the rules of a resource.
    pub fn rules_off(&self, name: &ResourceName) -> Vec<Fact> {
        let rules = self.intent.rules.get(name).into_iter().flatten();
        rules.map(|(rule, _)| Fact::Rule(name.clone(), rule.clone(), None)).collect()
    }

    /// Takes in a fact that was stored (or deleted) at a revision.
    pub fn apply(&mut self, fact: Fact, revision: Revision) {
        let key = fact.key();
        match fact.value() {
            Some(_) => drop(self.revisions.insert(key, revision)),
            None => drop(self.revisions.remove(&key)),
        }
        if let Fact::Job(id, job) = fact {
            return set(&mut self.jobs, id, job);
        }
        match fact {
            Fact::Resource(..) | Fact::Rule(..) | Fact::TagRule(..) | Fact::Link(..) => {
                apply_intent(Arc::make_mut(&mut self.intent), fact);
            }
            _ => apply_inventory(Arc::make_mut(&mut self.inventory), fact),
        }
    }
}

/// Takes a fact into copies, to try out what a request would do.
pub(super) fn try_out(intent: &mut Intent, inventory: &mut Inventory, fact: Fact) {
    match fact {
        Fact::Resource(..) | Fact::Rule(..) | Fact::TagRule(..) | Fact::Link(..) => {
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
        Fact::Reserved(space, value) => set(&mut inventory.reserved, space, value),
        _ => {}
    }
}
