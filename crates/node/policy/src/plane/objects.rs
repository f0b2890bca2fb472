//! Taking in what the controller and the local registry say.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use model::policy::output::Member;

use super::{Bound, Local, Plane, PolicyRecord};
use crate::{
    compile::{Compiled, FeatureKey},
    functions::FunctionId,
    layout,
    object::{Change, LocalChange, ObjectKind, SetKind, WorkloadId},
    sets::{AddressSet, AppliedToSet, Peer},
};

/// Whether the member has the feature, if it is in the set at all.
pub fn has(peer: &Peer, key: &FeatureKey) -> bool {
    match key {
        FeatureKey::Set(_) => true,
        FeatureKey::Named { name, protocol, port, .. } => peer
            .ports
            .iter()
            .any(|known| known.name == *name && known.protocol == *protocol && known.port == *port),
        FeatureKey::Block(_) => false,
    }
}

impl Plane {
    pub(super) fn take(&mut self, change: Change) {
        match change {
            Change::PutSet { kind: SetKind::Address, name, replace, put, removed } => {
                self.put_addresses(name.into(), replace, put, &removed);
            }
            Change::PutSet { kind: SetKind::AppliedTo, name, replace, put, removed } => {
                self.put_applied(name.into(), replace, put, &removed);
            }
            Change::PutPolicy { name, policy } => {
                let name: Arc<str> = name.into();
                let record = PolicyRecord { policy: None, bound: Bound::default() };
                self.policies.entry(name.clone()).or_insert(record).policy = Some(policy);
                self.dirty_policies.insert(name);
            }
            Change::Remove { kind, name } => self.remove(kind, &name.into()),
        }
    }

    fn remove(&mut self, kind: ObjectKind, name: &Arc<str>) {
        match kind {
            ObjectKind::Policy => {
                if let Some(record) = self.policies.get_mut(name) {
                    record.policy = None;
                    self.dirty_policies.insert(name.clone());
                }
            }
            ObjectKind::AddressSet => {
                self.clear_addresses(name);
                self.sets.remove(name);
                self.dirty_policies.extend(self.named_by.get(name).into_iter().flatten().cloned());
            }
            ObjectKind::AppliedToSet => {
                self.clear_applied(name);
                self.applied.remove(name);
            }
        }
    }

    fn put_addresses(&mut self, name: Arc<str>, replace: bool, put: Vec<Member>, removed: &[Member]) {
        if replace {
            self.clear_addresses(&name);
        }
        let mut renamed = !self.sets.contains_key(&name);
        self.sets.entry(name.clone()).or_default();
        for member in removed {
            let set = self.sets.get_mut(&name).expect("made above");
            let id = WorkloadId::of(member);
            let (peer, other_numbers) = set.remove(&id, &member.addresses);
            renamed |= other_numbers;
            peer.iter().for_each(|peer| self.leave(&name, peer));
            self.note_address_change(id);
        }
        for member in put {
            let id = WorkloadId::of(&member);
            if self.named_by.contains_key(&name) {
                let new = Peer { addresses: member.addresses.clone(), ports: member.ports.clone() };
                // The old one last, so that an address that stays does not go in between.
                self.enter(&name, &new);
            }
            let set = self.sets.get_mut(&name).expect("made above");
            let (old, other_numbers) = set.put(&id, member);
            renamed |= other_numbers;
            old.iter().for_each(|peer| self.leave(&name, peer));
            self.note_address_change(id);
        }
        if renamed {
            self.dirty_policies.extend(self.named_by.get(&name).into_iter().flatten().cloned());
        }
    }

    fn clear_addresses(&mut self, name: &Arc<str>) {
        let Some(set) = self.sets.get_mut(name).map(std::mem::take) else { return };
        for peer in set.peers() {
            self.leave(name, peer);
        }
        for id in set.ids() {
            self.note_address_change(id.clone());
        }
        self.dirty_policies.extend(self.named_by.get(name).into_iter().flatten().cloned());
    }

    fn enter(&mut self, set: &Arc<str>, peer: &Peer) {
        for feature in self.features_of(set, peer) {
            peer.addresses().for_each(|address| self.peers.enter(address, feature));
        }
    }

    fn leave(&mut self, set: &Arc<str>, peer: &Peer) {
        for feature in self.features_of(set, peer) {
            peer.addresses().for_each(|address| self.peers.leave(address, feature));
        }
    }

    /// Those that some policy asks for.
    fn features_of(&self, set: &Arc<str>, peer: &Peer) -> Vec<u32> {
        if !self.named_by.contains_key(set) {
            return Vec::new();
        }
        let named = peer.ports.iter().map(|port| FeatureKey::Named {
            set: set.clone(),
            name: port.name.clone(),
            protocol: port.protocol,
            port: port.port,
        });
        let named: BTreeSet<_> = named.collect();
        let keys = [FeatureKey::Set(set.clone())].into_iter().chain(named);
        keys.filter_map(|key| self.peers.find(&key)).collect()
    }

    /// A workload of this node that the registry has no address for lives by the controller's.
    fn note_address_change(&mut self, id: WorkloadId) {
        let by_controller = match self.workloads.get(&id) {
            Some(local) => local.workload.addresses.is_empty(),
            None => self.endpoints.contains_key(&id) || self.is_on_node(&id),
        };
        if by_controller {
            self.dirty_workloads.insert(id);
        }
    }

    fn put_applied(&mut self, name: Arc<str>, replace: bool, put: Vec<Member>, removed: &[Member]) {
        if replace {
            self.clear_applied(&name);
        }
        let mut changed: BTreeSet<WorkloadId> = removed.iter().map(WorkloadId::of).collect();
        changed.extend(put.iter().map(WorkloadId::of));
        let set = self.applied.entry(name.clone()).or_default();
        removed.iter().for_each(|member| set.remove(member));
        put.into_iter().for_each(|member| set.put(member));
        for id in changed {
            if set.contains(&id) {
                self.selected_by.entry(id.clone()).or_default().insert(name.clone());
            } else {
                unselect(&mut self.selected_by, &id, &name);
            }
            self.dirty_workloads.insert(id);
        }
    }

    fn clear_applied(&mut self, name: &Arc<str>) {
        let Some(set) = self.applied.get_mut(name).map(std::mem::take) else { return };
        for id in set.ids() {
            unselect(&mut self.selected_by, id, name);
            self.dirty_workloads.insert(id.clone());
        }
    }

    /// What the workload's former permit list asked for is released when the step is over.
    pub(super) fn take_local(&mut self, change: LocalChange, released: &mut Vec<u32>) {
        let (id, old) = match change {
            LocalChange::Host { fail_safes } => return self.take_host(&fail_safes, released),
            LocalChange::Put(workload) => {
                let permits = workload.permits.as_deref().map(Compiled::permits);
                let permits = permits.map(|compiled| self.bind(compiled));
                let id = workload.id.clone();
                (id.clone(), self.workloads.insert(id, Local { workload, permits }))
            }
            LocalChange::Remove(id) => {
                let old = self.workloads.remove(&id);
                (id, old)
            }
        };
        released.extend(old.and_then(|old| old.permits).into_iter().flat_map(|bound| bound.features));
        self.dirty_workloads.insert(id);
    }

    /// Puts new rules in the place of a policy's; `bound` then has the old ones.
    pub(super) fn exchange(&mut self, name: &Arc<str>, bound: &mut Bound) {
        let Some(record) = self.policies.get_mut(name) else { return };
        std::mem::swap(&mut record.bound, bound);
        let gone = record.policy.is_none();
        let (old, new) = (names(bound), names(&record.bound));
        if gone || record.bound.compiled.errors.is_empty() {
            self.faulty.remove(name);
        } else {
            self.faulty.insert(name.clone());
        }
        if gone {
            self.policies.remove(name);
        }
        for set in old.1.difference(&new.1) {
            unselect(&mut self.named_by, set, name);
        }
        for set in &new.1 {
            self.named_by.entry(set.clone()).or_default().insert(name.clone());
        }
        for set in old.0.difference(&new.0) {
            unselect(&mut self.applied_by, set, name);
        }
        for set in &new.0 {
            self.applied_by.entry(set.clone()).or_default().insert(name.clone());
        }
        for set in old.0.union(&new.0) {
            self.mark_selected(set);
        }
    }

    /// The smaller of the set and the node is walked.
    fn mark_selected(&mut self, set: &Arc<str>) {
        let Some(set) = self.applied.get(set) else { return };
        if set.len() <= self.endpoints.len() + self.workloads.len() {
            self.dirty_workloads.extend(set.ids().cloned());
        } else {
            let here = self.endpoints.keys().chain(self.workloads.keys()).chain(&self.host.ids);
            self.dirty_workloads.extend(here.filter(|id| set.contains(id)).cloned());
        }
    }

    pub(super) fn is_on_node(&self, id: &WorkloadId) -> bool {
        let node = &self.options.node;
        let sets = self.selected_by.get(id).into_iter().flatten();
        !node.is_empty() && sets.filter_map(|set| self.applied.get(set)).any(|set| set.is_on(id, node))
    }

    pub(super) fn applied_sets<'a>(&'a self, id: &WorkloadId) -> impl Iterator<Item = &'a AppliedToSet> {
        self.selected_by.get(id).into_iter().flatten().filter_map(|set| self.applied.get(set))
    }

    pub(crate) fn features_of_address(&self, address: IpAddr) -> Vec<FeatureKey> {
        let signature = self.peers.signature(self.peers.class_of(address));
        let features = signature.into_iter().flat_map(|signature| signature.features.iter());
        features.filter_map(|feature| self.peers.key(*feature).cloned()).collect()
    }

    pub(crate) fn policies_with_blocks(&self, ipv6: bool) -> Vec<Arc<str>> {
        let is_block =
            |key: &FeatureKey| matches!(key, FeatureKey::Block(block) if block.cidr.addr().is_ipv6() == ipv6);
        let with = self.policies.iter().filter(|(_, one)| one.bound.compiled.features.iter().any(is_block));
        with.map(|(name, _)| name.clone()).collect()
    }

    /// Whom the function decides about.
    pub(crate) fn addresses_with(&self, function: FunctionId) -> BTreeSet<IpAddr> {
        self.programs.addresses_with(function).collect()
    }

    /// Those that apply to the workload that has the address.
    pub(crate) fn policies_of_address(&self, address: IpAddr) -> Vec<Arc<str>> {
        let owner = self.claims.get(&address).and_then(|claims| claims.last()).map(|(_, id)| id);
        let hosts = self.host.ids.iter().filter(|_| address == layout::host(address.is_ipv6()));
        let sets = owner.into_iter().chain(hosts).filter_map(|id| self.selected_by.get(id)).flatten();
        let policies: BTreeSet<_> =
            sets.filter_map(|set| self.applied_by.get(set)).flatten().cloned().collect();
        policies.into_iter().collect()
    }

    pub(super) fn address_sets(&self) -> impl Iterator<Item = &AddressSet> {
        self.sets.values()
    }
}

type Names = BTreeSet<Arc<str>>;

/// The sets that the rules apply to, and those that they name.
fn names(bound: &Bound) -> (Names, Names) {
    let compiled = &bound.compiled;
    let per_rule = compiled.rules.iter().flat_map(|rule| &rule.applied_to);
    let applied = compiled.applied_to.iter().flatten().chain(per_rule).cloned().collect();
    let named = compiled.features.iter().filter_map(|key| match key {
        FeatureKey::Set(set) | FeatureKey::Named { set, .. } => Some(set.clone()),
        FeatureKey::Block(_) => None,
    });
    (applied, named.collect())
}

fn unselect<K: std::hash::Hash + Eq + Clone>(
    index: &mut rustc_hash::FxHashMap<K, BTreeSet<Arc<str>>>,
    key: &K,
    name: &Arc<str>,
) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}
