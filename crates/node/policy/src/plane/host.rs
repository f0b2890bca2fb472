//! The node itself as a workload: a Node or an ExternalNode by name, whose addresses nobody asks for. What comes in through
//! hook input is for it, and what goes out through hook output is from it. Of what it forwards that is so which others take for the
//! node's ([`Passage`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use model::policy::output::{Direction, MemberKind, NamedPort};
use node_nft::Key;

use super::{Bound, Packet, Passage, Plane, endpoints::DIRECTIONS};
use crate::{
    compile::Compiled,
    l4::{Decision, L4},
    layout::{self, Place},
    object::{ObjectError, ObjectId, ObjectKind, Permit, WorkloadId},
    programs::ProgramId,
};

#[derive(Default)]
pub(super) struct Host {
    /// `None`: the node does not guard itself.
    fail_safes: Option<Bound>,
    /// What it is called where policies apply to it.
    pub(super) ids: BTreeSet<WorkloadId>,
    /// By family, then out and in.
    programs: [[Option<ProgramId>; 2]; 2],
    dirty: bool,
}

impl Host {
    pub(super) fn note(&mut self, id: &WorkloadId, is_here: bool) {
        if is_here {
            self.ids.insert(id.clone());
            self.dirty = true;
        } else {
            self.dirty |= self.ids.remove(id);
        }
    }
}

impl Plane {
    pub(super) fn take_host(&mut self, fail_safes: &[Permit], released: &mut Vec<u32>) {
        let bound = self.bind(Compiled::fail_safes(fail_safes));
        let old = self.host.fail_safes.replace(bound);
        released.extend(old.into_iter().flat_map(|bound| bound.features));
        self.host.dirty = true;
        let may_be_it = self.selected_by.keys().filter(|id| self.is_self(id)).cloned();
        let may_be_it: Vec<WorkloadId> = may_be_it.collect();
        self.dirty_workloads.extend(may_be_it);
    }

    /// Whether this is the node, if it is here. The agent of an ExternalNode calls itself `namespace/name`; another
    /// ExternalEntity is not the node that it names.
    pub(super) fn is_self(&self, id: &WorkloadId) -> bool {
        let is_it = match id.kind {
            MemberKind::Node => *id.name == *self.options.node,
            MemberKind::ExternalEntity => {
                self.options.node.split_once('/').is_some_and(|(namespace, _)| namespace == &*id.namespace)
            }
            MemberKind::Pod | MemberKind::Service => false,
        };
        is_it && self.host.fail_safes.is_some() && !self.workloads.contains_key(id)
    }

    /// Whether policies restrict the node itself: what comes in, and what goes out.
    pub fn host_restricted(&self) -> (bool, bool) {
        let any = |slot: usize| self.host.programs.iter().any(|programs| programs[slot].is_some());
        (any(1), any(0))
    }

    /// Puts in force what applies to the node itself.
    pub(super) fn refresh_host(&mut self) {
        if !std::mem::take(&mut self.host.dirty) {
            return;
        }
        let (sets, ports) = self.host_sets_and_ports();
        let old = self.host.programs;
        for ipv6 in [false, true] {
            let mut programs = [None; 2];
            for (slot, direction) in DIRECTIONS.into_iter().enumerate() {
                // Without a policy nothing is restricted, and nothing needs to be saved.
                if !self.program(&sets, None, direction, ipv6, &ports).restricts() {
                    continue;
                }
                let fail_safes = self.host.fail_safes.as_ref();
                let program = self.program(&sets, fail_safes, direction, ipv6, &ports);
                let before = old[usize::from(ipv6)][slot];
                let number = self.programs.acquire(program, before, &self.peers, &mut self.mirror);
                programs[slot] = Some(number);
            }
            self.host.programs[usize::from(ipv6)] = programs;
            self.put_in_force(layout::host(ipv6), programs);
        }
        for program in old.into_iter().flatten().flatten() {
            self.programs.release(program);
        }
    }

    /// The sets that the node itself is in, and the ports that names stand for at it.
    pub(super) fn host_sets_and_ports(&self) -> (BTreeSet<Arc<str>>, Vec<NamedPort>) {
        let ids = self.host.ids.iter();
        let sets = ids.clone().filter_map(|id| self.selected_by.get(id)).flatten().cloned().collect();
        let ports: BTreeSet<NamedPort> = ids.flat_map(|id| self.known_ports(id)).collect();
        (sets, ports.into_iter().collect())
    }

    /// What passes at the node itself before policies are asked, if some restrict it in this direction.
    pub(super) fn host_list(&self, direction: Direction, ipv6: bool) -> Option<&Bound> {
        let slot = usize::from(direction == Direction::In);
        self.host.programs[usize::from(ipv6)][slot].and(self.host.fail_safes.as_ref())
    }

    /// What becomes of the first packet of a connection from somebody else to the node itself.
    pub fn decide_input(&self, packet: &Packet) -> Decision {
        match self.side(packet.source, packet.destination, Direction::Out, packet.l4) {
            Decision::Permit => {
                let host = layout::host(packet.source.is_ipv6());
                self.side(host, packet.source, Direction::In, packet.l4)
            }
            refused => refused,
        }
    }

    /// What becomes of the first packet of a connection from the node itself to somebody else.
    pub fn decide_output(&self, packet: &Packet) -> Decision {
        let Packet { source, destination, l4 } = *packet;
        if self.is_local(destination) && self.options.host_to_own {
            return Decision::Permit;
        }
        match self.side(destination, source, Direction::In, l4) {
            Decision::Permit => {
                self.side(layout::host(destination.is_ipv6()), destination, Direction::Out, l4)
            }
            refused => refused,
        }
    }

    /// What becomes of the first packet of a connection that the node forwards. Workloads here are judged as such, and the node only
    /// where neither is one.
    pub fn decide_forwarded(&self, packet: &Packet, passage: Passage) -> Decision {
        let Packet { source, destination, l4 } = *packet;
        let decided = self.decide(packet);
        if decided != Decision::Permit || self.is_local(destination) {
            return decided;
        }
        let host = layout::host(source.is_ipv6());
        match passage {
            Passage::Inner => Decision::Permit,
            Passage::Published(port) => self.side(host, source, Direction::In, L4 { second: port, ..l4 }),
            Passage::Routed => match self.side(host, source, Direction::In, l4) {
                Decision::Permit => self.side(host, destination, Direction::Out, l4),
                refused => refused,
            },
        }
    }

    /// What becomes of it when it leaves under the node's address.
    pub fn decide_hidden(&self, packet: &Packet) -> Decision {
        let Packet { destination, l4, .. } = *packet;
        if self.is_local(destination) {
            return Decision::Permit;
        }
        match self.side(layout::host(destination.is_ipv6()), destination, Direction::Out, l4) {
            Decision::Permit => Decision::Permit,
            // Too late to say so.
            Decision::Drop | Decision::Reject => Decision::Drop,
        }
    }

    /// Whether a workload of this node has this address.
    pub fn is_local(&self, address: IpAddr) -> bool {
        let key = Key::new().address(address);
        self.mirror.get(Place::Locals(address.is_ipv6()), key.as_bytes()).is_some()
    }

    /// Policies of which somebody might believe that they are in force here, and that are not.
    pub(super) fn host_errors(&self) -> Vec<ObjectError> {
        let mut hosts: BTreeMap<&Arc<str>, Vec<String>> = BTreeMap::new();
        for id in &self.hosts {
            let sets = self.selected_by.get(id).into_iter().flatten();
            for policy in sets.filter_map(|set| self.applied_by.get(set)).flatten() {
                hosts.entry(policy).or_default().push(id.to_string());
            }
        }
        let error = |(policy, mut ids): (&Arc<str>, Vec<String>)| {
            ids.sort_unstable();
            ids.dedup();
            let who = if self.host.fail_safes.is_some() { "itself and its Pods" } else { "its Pods" };
            let message =
                format!("not enforced for {}: this node enforces policies for {who}", ids.join(", "));
            ObjectError { object: ObjectId::new(ObjectKind::Policy, &**policy), message }
        };
        hosts.into_iter().map(error).chain(self.observed()).collect()
    }

    /// All that apply to somebody here, if nothing is in force.
    fn observed(&self) -> impl Iterator<Item = ObjectError> {
        let here = self.endpoints.keys().chain(&self.host.ids).filter(|_| self.options.observe);
        let sets = here.filter_map(|id| self.selected_by.get(id)).flatten();
        let policies: BTreeSet<&Arc<str>> =
            sets.filter_map(|set| self.applied_by.get(set)).flatten().collect();
        policies.into_iter().map(|policy| ObjectError {
            object: ObjectId::new(ObjectKind::Policy, &**policy),
            message:
                "only observed: the agent runs with --observe, counts what it would refuse and lets it pass"
                    .to_owned(),
        })
    }
}
