//! The plane: holds what it was told, and turns each change into transactions.
//!
//! ```text
//!   Change, LocalChange ─► sets, policies, workloads
//!                              │
//!      1 refine   features that new policies ask for; addresses change classes, decisions stay     neutral
//!      2 switch   programs of the workloads concerned                                              at once for each packet
//!      3 coarsen  features that nobody asks for any more                                           neutral
//! ```
//!
//! A step that fits into one transaction is one. A larger one is torn only where nothing that is decided changes
//! ([`mod@crate::phases`]), so that each packet meets the old policies or the new ones. Cost: O(members changed) + O(local workloads concerned ×
//! their policies); a policy that names a set first also O(its members).

mod endpoints;
mod host;
mod objects;
mod ruling;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use model::policy::output::Direction;
use node_nft::{Table, Transaction};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    Options,
    compile::{Compiled, FeatureKey, Sets},
    l4::{Decision, L4},
    layout,
    mirror::Mirror,
    object::{Change, LocalChange, ObjectError, ObjectId, ObjectKind, Workload, WorkloadId},
    peers::Peers,
    phases::{Budget, Phase, Switch, transactions},
    programs::{ProgramId, Programs},
    sets::{AddressSet, AppliedToSet},
};
use endpoints::Endpoint;
pub use ruling::{Ruling, Subject};

/// What a change of the plane's state means for the kernel.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// To be committed in this order. Empty: nothing to do.
    pub transactions: Vec<Transaction>,
    /// Every object that is not in force as it is written now, whether this step changed it or not.
    pub errors: Vec<ObjectError>,
}

impl Step {
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }
}

/// A packet between two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub l4: L4,
}

/// How the node forwards a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// From a container or a machine within the node, or to one by an address of its own: not the node's.
    Inner,
    /// From one network of the node into another.
    Routed,
    /// To a port that the node publishes for somebody; the port that was asked for.
    Published(u16),
}

#[derive(Default)]
pub struct Plane {
    options: Options,
    sets: BTreeMap<Arc<str>, AddressSet>,
    applied: FxHashMap<Arc<str>, AppliedToSet>,
    policies: BTreeMap<Arc<str>, PolicyRecord>,
    workloads: FxHashMap<WorkloadId, Local>,
    /// Address set → policies that name it.
    named_by: FxHashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Applied-to set → policies that apply to it.
    applied_by: FxHashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Workload → applied-to sets it is in.
    selected_by: FxHashMap<WorkloadId, BTreeSet<Arc<str>>>,
    endpoints: FxHashMap<WorkloadId, Endpoint>,
    /// Address → workloads that claim it; the last one has it, and one with an interface comes after one without.
    claims: FxHashMap<IpAddr, BTreeSet<(bool, WorkloadId)>>,
    /// Address → programs in force, out and in.
    placed: FxHashMap<IpAddr, [Option<ProgramId>; 2]>,
    counted: FxHashMap<(layout::Place, Box<[u8]>), usize>,
    peers: Peers,
    programs: Programs,
    mirror: Mirror,
    /// Policies of which something cannot be expressed.
    faulty: BTreeSet<Arc<str>>,
    /// Workloads of which neither address nor interface is known.
    unknown: BTreeSet<WorkloadId>,
    /// What policies apply to here and is neither a Pod nor the node itself: other entities, and node ports of Services.
    hosts: BTreeSet<WorkloadId>,
    host: host::Host,
    dirty_policies: BTreeSet<Arc<str>>,
    dirty_workloads: FxHashSet<WorkloadId>,
}

struct PolicyRecord {
    /// `None`: to be removed.
    policy: Option<Box<model::policy::output::NetworkPolicy>>,
    bound: Bound,
}

/// Rules, and the numbers of the features they name.
#[derive(Default)]
struct Bound {
    compiled: Compiled,
    features: Vec<u32>,
}

struct Local {
    workload: Workload,
    permits: Option<Bound>,
}

impl Sets for BTreeMap<Arc<str>, AddressSet> {
    fn exists(&self, set: &str) -> bool {
        self.contains_key(set)
    }

    fn named_ports(&self, set: &str, name: &str, protocol: model::policy::output::Protocol) -> Vec<u16> {
        self.get(set).map(|set| set.named_ports(name, protocol)).unwrap_or_default()
    }
}

impl Plane {
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Takes changes in, in their order, and says what they mean for the kernel.
    pub fn step(
        &mut self,
        changes: impl IntoIterator<Item = Change>,
        local: impl IntoIterator<Item = LocalChange>,
    ) -> Step {
        let mut phases = Vec::new();
        let before = Budget::new(&self.mirror, self.options.limits);
        self.take_all(changes, local, &mut phases);
        let budget = Budget::new(&self.mirror, self.options.limits).or_more(before);
        Step { transactions: transactions(phases, &budget), errors: self.errors() }
    }

    /// As [`Self::step`], for who compares the whole table afterwards anyway: what changed is not worked out.
    pub fn load(
        &mut self,
        changes: impl IntoIterator<Item = Change>,
        local: impl IntoIterator<Item = LocalChange>,
    ) {
        self.mirror.quiet = true;
        self.take_all(changes, local, &mut Vec::new());
        self.mirror.quiet = false;
    }

    fn take_all(
        &mut self,
        changes: impl IntoIterator<Item = Change>,
        local: impl IntoIterator<Item = LocalChange>,
        phases: &mut Vec<Phase>,
    ) {
        // What is named goes after what names it.
        let is_removed_set =
            |change: &Change| matches!(change, Change::Remove { kind: ObjectKind::AddressSet, .. });
        let (removed, changes): (Vec<_>, Vec<_>) = changes.into_iter().partition(is_removed_set);
        self.round(changes, local, phases);
        if !removed.is_empty() {
            self.round(removed, [], phases);
        }
    }

    fn round(
        &mut self,
        changes: Vec<Change>,
        local: impl IntoIterator<Item = LocalChange>,
        phases: &mut Vec<Phase>,
    ) {
        let mut released = Vec::new();
        changes.into_iter().for_each(|change| self.take(change));
        local.into_iter().for_each(|change| self.take_local(change, &mut released));

        let mut replaced = self.compile_dirty();
        self.settle();
        phases.push(Phase::Neutral(self.mirror.take()));

        for (name, bound) in &mut replaced {
            self.exchange(name, bound);
        }
        for id in std::mem::take(&mut self.dirty_workloads) {
            self.refresh(id);
        }
        self.refresh_host();
        phases.extend(Switch::take(&mut self.mirror, self.options.limits));

        released.extend(replaced.into_iter().flat_map(|(_, bound)| bound.features));
        released.into_iter().for_each(|feature| self.release(feature));
        self.settle();
        self.programs.sweep(&mut self.mirror);
        phases.push(Phase::Neutral(self.mirror.take()));
    }

    /// The whole table, as all steps so far lead to it. O(everything).
    pub fn table(&self) -> Table {
        let mut table = layout::table(&self.options);
        self.mirror.fill(&mut table, self.options.observe);
        table
    }

    /// Every object that is not in force as it is written. O(those).
    pub fn errors(&self) -> Vec<ObjectError> {
        let mut errors = Vec::new();
        for (name, record) in self.faulty.iter().filter_map(|name| self.policies.get_key_value(name)) {
            let object = || ObjectId::new(ObjectKind::Policy, &**name);
            let of = |message: &String| ObjectError { object: object(), message: message.clone() };
            errors.extend(record.bound.compiled.errors.iter().map(of));
        }
        errors.extend(self.endpoint_errors());
        errors.extend(self.host_errors());
        errors.sort_unstable();
        errors
    }

    /// What becomes of the first packet of a connection between two others than the node itself.
    pub fn decide(&self, packet: &Packet) -> Decision {
        let Packet { source, destination, l4 } = *packet;
        if self.is_itself(source, destination) {
            return Decision::Permit;
        }
        match self.side(source, destination, Direction::Out, l4) {
            Decision::Permit => self.side(destination, source, Direction::In, l4),
            refused => refused,
        }
    }

    /// What the rules of one of both ends say.
    fn side(&self, subject: IpAddr, peer: IpAddr, direction: Direction, l4: L4) -> Decision {
        let slot = usize::from(direction == Direction::In);
        let program = self.placed.get(&subject).and_then(|programs| programs[slot]);
        program.map_or(Decision::Permit, |id| self.programs.decide(id, self.peers.class_of(peer), l4))
    }

    /// Whether policies restrict the workload that has this address, in any direction.
    pub fn restricts(&self, address: IpAddr) -> bool {
        self.placed.contains_key(&address)
    }

    /// Number of workloads enforced, policies and sets held.
    pub fn counts(&self) -> Counts {
        Counts {
            workloads: self.endpoints.len(),
            policies: self.policies.len(),
            sets: self.sets.len() + self.applied.len(),
        }
    }

    fn settle(&mut self) {
        let settled = self.peers.settle(&mut self.mirror);
        self.programs.follow(&settled, &self.peers, &mut self.mirror);
    }

    /// Compiles policies that changed, or whose sets did, and acquires what they ask for. Yields the policies with
    /// what takes the place of their rules.
    fn compile_dirty(&mut self) -> Vec<(Arc<str>, Bound)> {
        let mut replaced = Vec::new();
        for name in std::mem::take(&mut self.dirty_policies) {
            let Some(record) = self.policies.get(&name) else { continue };
            let compiled = match &record.policy {
                Some(policy) => Compiled::policy(policy, &self.sets),
                None => Compiled::default(),
            };
            let bound = self.bind(compiled);
            replaced.push((name, bound));
        }
        replaced
    }

    fn bind(&mut self, compiled: Compiled) -> Bound {
        let mut features = Vec::with_capacity(compiled.features.len());
        for key in &compiled.features {
            let (id, is_new) = self.peers.acquire(key);
            if is_new {
                self.each_member_with(key, |peers, address| peers.enter(address, id));
            }
            features.push(id);
        }
        Bound { compiled, features }
    }

    fn release(&mut self, feature: u32) {
        let Some(key) = self.peers.key(feature).cloned() else { return };
        if self.peers.release(feature) {
            self.each_member_with(&key, |peers, address| peers.leave(address, feature));
        }
    }

    /// O(members of the set).
    fn each_member_with(&mut self, key: &FeatureKey, mut act: impl FnMut(&mut Peers, IpAddr)) {
        let (FeatureKey::Set(set) | FeatureKey::Named { set, .. }) = key else { return };
        let Some(set) = self.sets.get(set) else { return };
        let with = set.peers().filter(|peer| objects::has(peer, key));
        let mut addresses: Vec<IpAddr> = with.flat_map(|peer| peer.addresses()).collect();
        addresses.sort_unstable();
        addresses.into_iter().for_each(|address| act(&mut self.peers, address));
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub workloads: usize,
    pub policies: usize,
    pub sets: usize,
}
