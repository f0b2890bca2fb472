//! The same decisions by the simplest means: everything is looked at for every packet. For tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use model::policy::{
    antrea::BASELINE_TIER_PRIORITY,
    output::{
        Action, Direction, Member, MemberKind, NamedPort, NetworkPolicy, PortRef, Protocol, Rule, Service,
    },
};

use crate::{
    Change, Decision, L4, LOCKDOWN_TIERS, LocalChange, ObjectKind, Packet, Passage, Permit, SetKind,
    Workload, WorkloadId,
};

/// Everything that was said, as it was said.
#[derive(Clone, Debug, Default)]
pub struct Naive {
    node: String,
    sets: BTreeMap<String, Vec<Member>>,
    applied: BTreeMap<String, Vec<Member>>,
    policies: BTreeMap<String, NetworkPolicy>,
    workloads: BTreeMap<WorkloadId, Workload>,
    /// What passes at the node itself, if it guards itself.
    host: Option<Vec<Permit>>,
}

impl Naive {
    /// Of the node with this name.
    pub fn new(node: impl Into<String>) -> Self {
        Self { node: node.into(), ..Self::default() }
    }

    pub fn take(&mut self, change: Change) {
        match change {
            Change::PutSet { kind, name, replace, put, removed } => {
                let sets = if kind == SetKind::Address { &mut self.sets } else { &mut self.applied };
                let members = sets.entry(name).or_default();
                if replace {
                    members.clear();
                }
                let same = |a: &Member, b: &Member| {
                    a.same_workload(b) && a.addresses == b.addresses && a.node == b.node
                };
                members.retain(|member| !removed.iter().chain(&put).any(|other| same(member, other)));
                for member in put {
                    members.retain(|other| !same(other, &member));
                    members.push(member);
                }
            }
            Change::PutPolicy { name, policy } => {
                self.policies.insert(name, *policy);
            }
            Change::Remove { kind: ObjectKind::Policy, name } => drop(self.policies.remove(&name)),
            Change::Remove { kind: ObjectKind::AddressSet, name } => drop(self.sets.remove(&name)),
            Change::Remove { kind: ObjectKind::AppliedToSet, name } => drop(self.applied.remove(&name)),
        }
    }

    pub fn take_local(&mut self, change: LocalChange) {
        match change {
            LocalChange::Put(workload) => drop(self.workloads.insert(workload.id.clone(), workload)),
            LocalChange::Remove(id) => drop(self.workloads.remove(&id)),
            LocalChange::Host { fail_safes } => self.host = Some(fail_safes),
        }
    }

    /// Everything again, as to someone who knows nothing.
    pub fn tell(&self) -> (Vec<Change>, Vec<LocalChange>) {
        let set = |kind: SetKind| {
            move |(name, members): (&String, &Vec<Member>)| Change::PutSet {
                kind,
                name: name.clone(),
                replace: true,
                put: members.clone(),
                removed: Vec::new(),
            }
        };
        let mut changes: Vec<Change> = self.sets.iter().map(set(SetKind::Address)).collect();
        changes.extend(self.applied.iter().map(set(SetKind::AppliedTo)));
        changes.extend(self.policies.iter().map(|(name, policy)| Change::PutPolicy {
            name: name.clone(),
            policy: Box::new(policy.clone()),
        }));
        let host = self.host.clone().map(|fail_safes| LocalChange::Host { fail_safes });
        let workloads = self.workloads.values().cloned().map(LocalChange::Put);
        (changes, workloads.chain(host).collect())
    }

    /// From somebody else to the node itself.
    pub fn decide_input(&self, packet: &Packet) -> Decision {
        match self.side(&self.locals(), Direction::Out, packet.source, packet.destination, packet.l4) {
            Decision::Permit => self.host_side(Direction::In, packet.source, packet.l4),
            refused => refused,
        }
    }

    /// From the node itself to somebody else; it reaches its own workloads.
    pub fn decide_output(&self, packet: &Packet) -> Decision {
        let locals = self.locals();
        if self.is_local(packet.destination) {
            return Decision::Permit;
        }
        match self.side(&locals, Direction::In, packet.destination, packet.source, packet.l4) {
            Decision::Permit => self.host_side(Direction::Out, packet.destination, packet.l4),
            refused => refused,
        }
    }

    /// What the node forwards.
    pub fn decide_forwarded(&self, packet: &Packet, passage: Passage) -> Decision {
        let Packet { source, destination, l4 } = *packet;
        let decided = self.decide(packet);
        if decided != Decision::Permit || self.is_local(destination) {
            return decided;
        }
        let published = match passage {
            Passage::Inner => return Decision::Permit,
            Passage::Published(port) => Some(L4 { second: port, ..l4 }),
            Passage::Routed => None,
        };
        match (self.host_side(Direction::In, source, published.unwrap_or(l4)), published) {
            (Decision::Permit, None) => self.host_side(Direction::Out, destination, l4),
            (decided, _) => decided,
        }
    }

    /// What leaves under the node's address.
    pub fn decide_hidden(&self, packet: &Packet) -> Decision {
        let decided = self.host_side(Direction::Out, packet.destination, packet.l4);
        let passes = decided == Decision::Permit || self.is_local(packet.destination);
        if passes { Decision::Permit } else { Decision::Drop }
    }

    fn is_local(&self, address: IpAddr) -> bool {
        self.locals().values().any(|workload| workload.addresses.contains(&address))
    }

    fn is_self(&self, id: &WorkloadId) -> bool {
        let is_it = match id.kind {
            MemberKind::Node => *id.name == *self.node,
            MemberKind::ExternalEntity => {
                self.node.split_once('/').is_some_and(|(namespace, _)| *id.namespace == *namespace)
            }
            MemberKind::Pod | MemberKind::Service => false,
        };
        is_it && self.host.is_some() && !self.workloads.contains_key(id)
    }

    fn is_here(&self, member: &Member) -> bool {
        !self.node.is_empty() && member.node.as_deref() == Some(&*self.node)
    }

    fn host_side(&self, direction: Direction, peer: IpAddr, l4: L4) -> Decision {
        let members = || self.applied.values().flatten();
        let hosts: BTreeSet<WorkloadId> = members()
            .filter(|member| self.is_here(member))
            .map(WorkloadId::of)
            .filter(|id| self.is_self(id))
            .collect();
        let mut host = Workload::new(WorkloadId::new(MemberKind::Node, "", &*self.node), []);
        let own = members().filter(|member| hosts.contains(&WorkloadId::of(member)));
        host.ports = own.flat_map(|member| member.ports.iter().cloned()).collect();
        let is_in = |set: &String| {
            let members = self.applied.get(set).into_iter().flatten();
            members.into_iter().any(|one| hosts.contains(&WorkloadId::of(one)))
        };
        self.judge(&host, &is_in, self.host.as_deref().unwrap_or_default(), direction, peer, l4)
    }

    pub fn decide(&self, packet: &Packet) -> Decision {
        let locals = self.locals();
        let is_itself = |(_, workload): (&WorkloadId, &Workload)| {
            workload.addresses.contains(&packet.source) && workload.addresses.contains(&packet.destination)
        };
        if locals.iter().any(is_itself) {
            return Decision::Permit;
        }
        match self.side(&locals, Direction::Out, packet.source, packet.destination, packet.l4) {
            Decision::Permit => {
                self.side(&locals, Direction::In, packet.destination, packet.source, packet.l4)
            }
            refused => refused,
        }
    }

    /// The workloads of this node with their addresses and ports.
    fn locals(&self) -> BTreeMap<WorkloadId, Workload> {
        let mut locals = self.workloads.clone();
        for member in self.applied.values().flatten() {
            let id = WorkloadId::of(member);
            if self.is_here(member) && !self.is_self(&id) {
                locals.entry(id.clone()).or_insert_with(|| Workload::new(id, []));
            }
        }
        for (id, workload) in &mut locals {
            if workload.addresses.is_empty() {
                let known = self.sets.values().flatten().filter(|member| WorkloadId::of(member) == *id);
                let addresses: BTreeSet<IpAddr> =
                    known.flat_map(|member| member.addresses.as_slice().iter().copied()).collect();
                workload.addresses = addresses.into_iter().collect();
            }
            if workload.ports.is_empty() {
                let known = self.applied.values().flatten().filter(|member| WorkloadId::of(member) == *id);
                workload.ports = known.flat_map(|member| member.ports.iter().cloned()).collect();
            }
        }
        locals
    }

    fn side(
        &self,
        locals: &BTreeMap<WorkloadId, Workload>,
        direction: Direction,
        subject: IpAddr,
        peer: IpAddr,
        l4: L4,
    ) -> Decision {
        let claimants = locals.values().filter(|workload| workload.addresses.contains(&subject));
        let Some(workload) = claimants.max_by_key(|workload| (workload.interface.is_some(), &workload.id))
        else {
            return Decision::Permit;
        };
        if workload.pending {
            return Decision::Drop;
        }
        let is_in = |set: &String| {
            self.applied.get(set).is_some_and(|set| set.iter().any(|one| WorkloadId::of(one) == workload.id))
        };
        self.judge(workload, &is_in, &[], direction, peer, l4)
    }

    /// What applies to one who is in these sets, and where something does, what passes but for the first tiers.
    fn judge(
        &self,
        workload: &Workload,
        is_in: &dyn Fn(&String) -> bool,
        fail_safes: &[Permit],
        direction: Direction,
        peer: IpAddr,
        l4: L4,
    ) -> Decision {
        let mut rules = Vec::new();
        for policy in self.policies.values() {
            for (index, rule) in policy.rules.iter().enumerate() {
                let sets = if policy.applied_to_per_rule {
                    &rule.applied_to_groups
                } else {
                    &policy.applied_to_groups
                };
                if rule.direction == direction && sets.iter().map(ToString::to_string).any(|set| is_in(&set))
                {
                    rules.push((policy, index, rule));
                }
            }
        }
        let case = Case { naive: self, direction, workload, peer, l4 };
        let ranked = |tiers: std::ops::Range<i32>| {
            let mut of_stage: Vec<_> = rules
                .iter()
                .filter(|(policy, ..)| policy.tier_priority.is_some_and(|tier| tiers.contains(&tier)))
                .collect();
            of_stage.sort_by(|(a, i, x), (b, j, y)| {
                let name =
                    |p: &NetworkPolicy| (p.source.kind, p.source.namespace.clone(), p.source.name.clone());
                (a.tier_priority.cmp(&b.tier_priority))
                    .then(a.priority.unwrap_or(0.0).total_cmp(&b.priority.unwrap_or(0.0)))
                    .then(x.priority.cmp(&y.priority))
                    .then_with(|| name(a).cmp(&name(b)))
                    .then(i.cmp(j))
            });
            of_stage.into_iter().find_map(|(_, _, rule)| case.act(rule))
        };
        let saved = || {
            let some = !rules.is_empty() && fail_safes.iter().any(|permit| case.is_on_list(permit));
            some.then_some(Action::Allow)
        };
        let first = ranked(i32::MIN..LOCKDOWN_TIERS).or_else(saved);
        match first.or_else(|| ranked(LOCKDOWN_TIERS..BASELINE_TIER_PRIORITY)) {
            Some(Action::Allow) => return Decision::Permit,
            Some(Action::Drop) => return Decision::Drop,
            Some(Action::Reject) => return Decision::Reject,
            Some(Action::Pass) | None => {}
        }
        let mut kubernetes = rules
            .iter()
            .filter(|(policy, ..)| policy.tier_priority.is_none())
            .map(|(_, _, rule)| *rule)
            .peekable();
        if kubernetes.peek().is_some() || workload.permits.is_some() {
            let mut own = workload.permits.iter().flatten();
            let permitted = kubernetes.any(|rule| rule.action == Some(Action::Allow) && case.permits(rule))
                || own.any(|permit| case.is_on_list(permit));
            return if permitted { Decision::Permit } else { Decision::Drop };
        }
        match ranked(BASELINE_TIER_PRIORITY..i32::MAX) {
            Some(Action::Drop) => Decision::Drop,
            Some(Action::Reject) => Decision::Reject,
            Some(Action::Allow | Action::Pass) | None => Decision::Permit,
        }
    }
}

/// One packet on one side.
struct Case<'a> {
    naive: &'a Naive,
    direction: Direction,
    workload: &'a Workload,
    peer: IpAddr,
    l4: L4,
}

impl Case<'_> {
    /// What an ordered rule does with the packet, if anything.
    fn act(&self, rule: &Rule) -> Option<Action> {
        let action = rule.action?;
        if !rule.detail.untranslatable.is_empty() {
            return (action != Action::Allow).then_some(Action::Drop);
        }
        let is_unknown = !rule.detail.fqdns.is_empty()
            || rule.address_groups.iter().any(|set| !self.naive.sets.contains_key(&set.to_string()));
        let matches =
            if action != Action::Allow && is_unknown { self.service(rule, true) } else { self.permits(rule) };
        matches.then_some(action)
    }

    fn permits(&self, rule: &Rule) -> bool {
        if !rule.detail.untranslatable.is_empty() {
            return false;
        }
        let is_peer = self.members(rule).next().is_some()
            || rule.detail.ip_blocks.iter().any(|block| block.contains(self.peer));
        is_peer && self.service(rule, is_peer)
            || self.direction == Direction::Out
                && self.members(rule).any(|member| self.named(rule, &member.ports))
    }

    /// Members of the rule's sets that have the peer's address.
    fn members<'a>(&'a self, rule: &'a Rule) -> impl Iterator<Item = &'a Member> {
        let sets = rule.address_groups.iter().filter_map(|set| self.naive.sets.get(&set.to_string()));
        sets.flatten().filter(|member| member.addresses.as_slice().contains(&self.peer))
    }

    fn service(&self, rule: &Rule, is_peer: bool) -> bool {
        let services = &rule.detail.services;
        let own_name = self.direction == Direction::In && self.named(rule, &self.workload.ports);
        let by_name = || {
            self.members(rule)
                .any(|member| self.direction == Direction::Out && self.named(rule, &member.ports))
        };
        is_peer && (services.is_empty() || services.iter().any(|service| self.numeric(service)) || own_name)
            || by_name()
    }

    fn named(&self, rule: &Rule, ports: &[NamedPort]) -> bool {
        rule.detail.services.iter().any(|service| {
            let Some(PortRef::Name(name)) = &service.port else { return false };
            let is_meant = |port: &NamedPort| {
                port.name == *name && port.protocol == service.protocol && port.port == self.l4.second
            };
            self.protocol(service) && self.source(service) && ports.iter().any(is_meant)
        })
    }

    fn numeric(&self, service: &Service) -> bool {
        let [kind, code] = self.l4.first.to_be_bytes();
        if service.protocol == Protocol::Icmp {
            return self.protocol(service)
                && service
                    .icmp_type
                    .is_none_or(|wanted| wanted == kind && service.icmp_code.is_none_or(|c| c == code));
        }
        let port = match service.port {
            None => true,
            Some(PortRef::Number(first)) => {
                (first..=service.end_port.unwrap_or(first)).contains(&self.l4.second)
            }
            Some(PortRef::Name(_)) => false,
        };
        self.protocol(service) && port && self.source(service)
    }

    fn source(&self, service: &Service) -> bool {
        service
            .source_port
            .is_none_or(|first| (first..=service.source_end_port.unwrap_or(first)).contains(&self.l4.first))
    }

    fn protocol(&self, service: &Service) -> bool {
        self.l4.protocol == service.protocol.number(self.peer.is_ipv6())
    }

    fn is_on_list(&self, permit: &Permit) -> bool {
        let within = |range: Option<(u16, u16)>, number| {
            range.is_none_or(|(first, last)| (first..=last).contains(&number))
        };
        permit.direction == self.direction
            && permit.prefixes.iter().any(|prefix| prefix.contains(&self.peer))
            && permit.protocol.is_none_or(|protocol| {
                protocol == self.l4.protocol
                    && within(permit.source_ports, self.l4.first)
                    && within(permit.ports, self.l4.second)
            })
    }
}
