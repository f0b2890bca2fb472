//! One side of a connection: the rules about an end in one direction, and what those that are about a peer open.

use std::{cmp::Ordering, collections::BTreeSet, sync::Arc};

use model::{
    Open, Openings, ProtocolClass,
    policy::{
        antrea::BASELINE_TIER_PRIORITY,
        output::{Action, Direction, NamedPort, PortRef, Protocol, Service},
    },
};

use crate::{
    engine::{
        Engine,
        policies::{CompiledRule, Record},
        tables::{GroupId, Id, IdSet, PolicyId},
    },
    explain::{decide::rank, meets::Asked},
};

/// The rules of all policies applied to an end, in the order in which they decide.
#[derive(Debug, Default)]
pub(super) struct Rules {
    list: Vec<Ranked>,
    /// Where Kubernetes rules begin and end in the list; baseline rules follow.
    kubernetes: (usize, usize),
}

#[derive(Debug)]
struct Ranked {
    record: Arc<Record>,
    index: usize,
}

/// A rule that is about a peer, by its place in the list, and whether a group of it contains the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Met {
    pub(super) rule: u32,
    pub(super) in_group: bool,
}

impl Rules {
    pub(super) fn of(engine: &Engine, applied_to: &IdSet<GroupId>, direction: Direction) -> Self {
        let groups = applied_to.iter().map(|group| &engine.groups.rows[*group]);
        let policies: IdSet<PolicyId> =
            groups.flat_map(|group| group.links.ids()).map(|id| PolicyId::from_index(id as usize)).collect();
        let mut found: [Vec<(PolicyId, usize)>; 3] = Default::default();
        for id in policies.iter() {
            let Some(record) = engine.policies.rows[*id].record.as_ref() else { continue };
            let stage = match record.tier_priority {
                None => 1,
                Some(tier) if tier < BASELINE_TIER_PRIORITY => 0,
                Some(_) => 2,
            };
            let about = |rule: &CompiledRule| {
                rule.direction == direction
                    && (!record.applied_to_per_rule
                        || rule.applied_to.iter().any(|group| applied_to.contains(*group)))
            };
            let rules = record.rules.iter().enumerate().filter(|(_, rule)| about(rule));
            found[stage].extend(rules.map(|(index, _)| (*id, index)));
        }
        for at in [0, 2] {
            found[at].sort_by(|a, b| {
                let (a, b) = (rank(engine, a.0, a.1), rank(engine, b.0, b.1));
                a.partial_cmp(&b).unwrap_or(Ordering::Equal)
            });
        }
        let kubernetes = (found[0].len(), found[0].len() + found[1].len());
        let record = |id: PolicyId| {
            Arc::clone(
                engine.policies.rows[id].record.as_ref().expect("only policies with a record are found"),
            )
        };
        let list =
            found.concat().into_iter().map(|(id, index)| Ranked { record: record(id), index }).collect();
        Self { list, kubernetes }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CompiledRule> {
        self.list.iter().map(Ranked::rule)
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether some rule looks up a name among the destination's ports.
    pub(super) fn names_ports(&self) -> bool {
        let services = self.iter().flat_map(|rule| &rule.detail.services);
        services.into_iter().any(|service| matches!(service.port, Some(PortRef::Name(_))))
    }

    /// What is open with a peer, given the rules about it, ascending, and the destination's named ports.
    pub(super) fn open(&self, met: &[Met], direction: Direction, ports: &[NamedPort]) -> Open {
        let services = || met.iter().flat_map(|met| &self.rule(*met).detail.services);
        let is_allowed = |asked: &Asked| self.is_allowed(met, direction, ports, asked);
        if services().next().is_none() {
            let nothing = Asked { protocol: None, port: None, source_port: None, icmp: None };
            return if is_allowed(&nothing) { Open::all() } else { Open::none() };
        }
        Open::new(|class| {
            let mut grid = Grid::new(class);
            services().for_each(|service| grid.cut(service, ports));
            grid.ask(is_allowed)
        })
    }

    fn rule(&self, met: Met) -> &CompiledRule {
        self.list[met.rule as usize].rule()
    }

    fn is_allowed(&self, met: &[Met], direction: Direction, ports: &[NamedPort], asked: &Asked) -> bool {
        let is_about = |met: &&Met| {
            // A node looks names up at itself, or at members of the rule's groups; a block of addresses has no names.
            let has_names = direction == Direction::In || met.in_group;
            asked.meets(&self.rule(**met).detail.services, || ports.iter().filter(|_| has_names))
        };
        let (first, last) = self.kubernetes;
        let begin = met.partition_point(|met| (met.rule as usize) < first);
        let end = met.partition_point(|met| (met.rule as usize) < last);
        let decides = |part: &[Met]| {
            let rule = part.iter().find(is_about).map(|met| self.rule(*met));
            rule.map(|rule| rule.action.unwrap_or(Action::Drop)).filter(|action| *action != Action::Pass)
        };
        if let Some(action) = decides(&met[..begin]) {
            return action == Action::Allow;
        }
        if first < last {
            return met[begin..end].iter().any(|met| self.rule(*met).action.is_some() && is_about(&met));
        }
        decides(&met[end..]).is_none_or(|action| action == Action::Allow)
    }
}

impl Ranked {
    fn rule(&self) -> &CompiledRule {
        &self.record.rules[self.index]
    }
}

/// Where the decision about packets of one class may change.
struct Grid {
    class: ProtocolClass,
    majors: BTreeSet<u16>,
    minors: BTreeSet<u16>,
}

impl Grid {
    fn new(class: ProtocolClass) -> Self {
        let (majors, minors) = Openings::every(class);
        Self { class, majors: [majors.0].into(), minors: [minors.0].into() }
    }

    fn cut(&mut self, service: &Service, ports: &[NamedPort]) {
        if class_of(service.protocol) != self.class {
            return;
        }
        let (majors, minors) = Openings::every(self.class);
        let range = |starts: &mut BTreeSet<u16>, every: (u16, u16), first: u16, last: u16| {
            starts.insert(first.max(every.0));
            starts.extend(last.checked_add(1).filter(|next| *next <= every.1));
        };
        match &service.port {
            None => {}
            Some(PortRef::Number(first)) => {
                range(&mut self.majors, majors, *first, service.end_port.unwrap_or(*first));
            }
            Some(PortRef::Name(name)) => {
                let named = ports.iter().filter(|port| port.name == *name);
                named.for_each(|port| range(&mut self.majors, majors, port.port, port.port));
            }
        }
        if let Some(first) = service.source_port {
            range(&mut self.minors, minors, first, service.source_end_port.unwrap_or(first));
        }
        if let Some(kind) = service.icmp_type {
            range(&mut self.majors, majors, kind.into(), kind.into());
        }
        if let Some(code) = service.icmp_code {
            range(&mut self.minors, minors, code.into(), code.into());
        }
        if service.protocol == Protocol::Igmp {
            let number = Protocol::Igmp.number(false).into();
            range(&mut self.majors, majors, number, number);
        }
    }

    fn ask(&self, is_allowed: impl Fn(&Asked) -> bool) -> Openings {
        let (majors, minors) = Openings::every(self.class);
        let ranges = |starts: &BTreeSet<u16>, last: u16| -> Vec<(u16, u16)> {
            let ends = starts.iter().skip(1).map(|next| next - 1).chain([last]);
            starts.iter().copied().zip(ends).collect()
        };
        let mut open = Vec::new();
        for major in ranges(&self.majors, majors.1) {
            for minor in ranges(&self.minors, minors.1) {
                if is_allowed(&asked(self.class, major.0, minor.0)) {
                    open.push((major, minor));
                }
            }
        }
        Openings::new(self.class, open)
    }
}

fn class_of(protocol: Protocol) -> ProtocolClass {
    match protocol {
        Protocol::Tcp => ProtocolClass::Tcp,
        Protocol::Udp => ProtocolClass::Udp,
        Protocol::Sctp => ProtocolClass::Sctp,
        Protocol::Icmp => ProtocolClass::Icmp,
        Protocol::Igmp => ProtocolClass::Other,
    }
}

/// The packet at one place of a class.
fn asked(class: ProtocolClass, major: u16, minor: u16) -> Asked {
    let small = |number: u16| u8::try_from(number).unwrap_or(u8::MAX);
    let ports = |protocol| Asked {
        protocol: Some(protocol),
        port: Some(major),
        source_port: Some(minor),
        icmp: None,
    };
    let without_ports = |protocol, icmp| Asked { protocol, port: None, source_port: None, icmp };
    match class {
        ProtocolClass::Tcp => ports(Protocol::Tcp),
        ProtocolClass::Udp => ports(Protocol::Udp),
        ProtocolClass::Sctp => ports(Protocol::Sctp),
        ProtocolClass::Icmp => without_ports(Some(Protocol::Icmp), Some((small(major), small(minor)))),
        ProtocolClass::Other => {
            let is_igmp = small(major) == Protocol::Igmp.number(false);
            without_ports(is_igmp.then_some(Protocol::Igmp), None)
        }
    }
}
