//! From network policies to verdicts: what the policy engine says about the resources of clouds, in the words of
//! permit lists.
//!
//! In: the engine's policies and groups as one span key has them. Out: [`Verdicts`] by resource, which policy selects
//! which resources, and what could not be said. Holds: nothing.
//!
//! A list knows addresses, protocols and ports. A rule that needs more is narrowed if it allows, and widened if it denies
//! or passes: what cannot be told apart stays closed. Each such rule is a fault of its policy.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use model::{
    Address, Ports, Protocol, ResourceName,
    policy::{
        ObjectId,
        antrea::BASELINE_TIER_PRIORITY,
        output::{
            self, Action, Identifier, IpBlock, Member, MemberKind, NetworkPolicy, PortRef, Rule, Service,
        },
    },
};

use super::{Match, Region, Sided, Verdict, Verdicts};

/// Members by name of group.
pub type Groups = BTreeMap<Identifier, Vec<Arc<Member>>>;

/// The engine's state, as far as it concerns clouds.
#[derive(Clone, Debug, Default)]
pub struct PolicyView {
    pub policies: BTreeMap<Identifier, Arc<NetworkPolicy>>,
    pub applied_to: Groups,
    pub addresses: Groups,
}

/// What a permit list cannot say of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFault {
    pub policy: Identifier,
    pub message: String,
}

/// What policies mean for resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyMeaning {
    pub verdicts: BTreeMap<ResourceName, Verdicts>,
    pub selected: BTreeMap<Identifier, BTreeSet<ResourceName>>,
    pub faults: Vec<PolicyFault>,
}

/// O(rules × resources they are applied to + members of the groups they name).
pub fn verdicts(view: &PolicyView) -> PolicyMeaning {
    let mut meaning = PolicyMeaning::default();
    let mut ordered: Vec<Ranked<'_>> = Vec::new();
    for policy in view.policies.values() {
        for (place, rule) in policy.rules.iter().enumerate() {
            ordered.push(Ranked { policy, place, rule });
        }
    }
    ordered.sort_by(|a, b| a.rank(b));
    for ranked in ordered {
        let resources = ranked.resources(view);
        if resources.is_empty() {
            continue;
        }
        let selected = meaning.selected.entry(ranked.policy.uid.clone()).or_default();
        selected.extend(resources.iter().cloned());
        let verdict = ranked.verdict(view, &mut meaning.faults);
        for resource in resources {
            let verdicts = meaning.verdicts.entry(resource).or_default();
            let side = match ranked.rule.direction {
                output::Direction::In => &mut verdicts.inbound,
                output::Direction::Out => &mut verdicts.outbound,
            };
            ranked.put(side, verdict.clone());
        }
    }
    meaning
}

struct Ranked<'v> {
    policy: &'v NetworkPolicy,
    place: usize,
    rule: &'v Rule,
}

impl Ranked<'_> {
    /// Tier, then priority, then place in the policy; names break ties.
    fn rank(&self, other: &Self) -> std::cmp::Ordering {
        let key = |ranked: &Self| (ranked.policy.tier_priority, ranked.policy.priority.unwrap_or_default());
        let name = |ranked: &Self| {
            let source = &ranked.policy.source;
            (ranked.rule.priority, source.kind, source.namespace.clone(), source.name.clone(), ranked.place)
        };
        let ((tier, priority), (their_tier, their_priority)) = (key(self), key(other));
        let order = tier.cmp(&their_tier).then(priority.total_cmp(&their_priority));
        order.then_with(|| name(self).cmp(&name(other)))
    }

    fn resources(&self, view: &PolicyView) -> BTreeSet<ResourceName> {
        let groups = match self.policy.applied_to_per_rule {
            true => &self.rule.applied_to_groups,
            false => &self.policy.applied_to_groups,
        };
        let members = groups.iter().filter_map(|group| view.applied_to.get(group)).flatten();
        members.filter_map(|member| resource_of(member)).collect()
    }

    fn put(&self, side: &mut Sided, verdict: Option<Verdict>) {
        match self.policy.tier_priority {
            None => side.kubernetes.get_or_insert_default().extend(verdict),
            Some(tier) if tier >= BASELINE_TIER_PRIORITY => side.baseline.extend(verdict),
            Some(_) => side.tiers.extend(verdict),
        }
    }

    /// None for a rule that only isolates.
    fn verdict(&self, view: &PolicyView, faults: &mut Vec<PolicyFault>) -> Option<Verdict> {
        let action = self.rule.action?;
        let source = &self.policy.source;
        let name = match self.rule.detail.name.as_str() {
            "" => format!("#{}", self.place),
            name => name.to_owned(),
        };
        let object = ObjectId {
            kind: source.kind,
            namespace: source.namespace.to_string(),
            name: source.name.to_string(),
        };
        let text = format!("{object} rule {name}");
        let mut said = Said { allows: action == Action::Allow, lacks: Vec::new() };
        let regions = said.regions(self.rule, view);
        let action = match (action, said.lacks.is_empty()) {
            // Where a pass cannot be told apart from what follows it, nothing follows.
            (Action::Pass, false) => Action::Drop,
            (action, _) => action,
        };
        faults.extend(said.lacks.into_iter().map(|what| PolicyFault {
            policy: self.policy.uid.clone(),
            message: format!("rule {name} {what}"),
        }));
        Some(Verdict { id: format!("{}.{}", self.policy.uid, self.place), source: text, action, regions })
    }
}

/// The resource an entity stands for; see the server's enforcer, which makes the entities.
fn resource_of(member: &Member) -> Option<ResourceName> {
    let is_entity = member.kind == MemberKind::ExternalEntity;
    is_entity.then(|| format!("{}.{}", member.namespace, member.name).parse().ok()).flatten()
}

/// A rule as regions, with what these cannot say.
struct Said {
    allows: bool,
    lacks: Vec<&'static str>,
}

impl Said {
    fn regions(&mut self, rule: &Rule, view: &PolicyView) -> Vec<Region> {
        let detail = &rule.detail;
        if !detail.l7_protocols.is_empty() {
            self.lacks.push("looks at layer 7, which clouds do not");
            if self.allows {
                return Vec::new();
            }
        }
        let members: Vec<&Arc<Member>> =
            rule.address_groups.iter().filter_map(|group| view.addresses.get(group)).flatten().collect();
        let mut peers: BTreeSet<Address> = members.iter().flat_map(|member| addresses(member)).collect();
        peers.extend(detail.ip_blocks.iter().flat_map(block));
        if !detail.fqdns.is_empty() || !detail.to_services.is_empty() {
            self.lacks.push("names peers by DNS name or Service, which clouds cannot follow");
            if !self.allows {
                peers = everybody();
            }
        }
        if detail.services.is_empty() {
            return region(&peers, Match::ANY);
        }
        let mut regions = Vec::new();
        for service in &detail.services {
            regions.extend(self.service(service, rule.direction, &peers, &members));
        }
        regions
    }

    fn service(
        &mut self,
        service: &Service,
        direction: output::Direction,
        peers: &BTreeSet<Address>,
        members: &[&Arc<Member>],
    ) -> Vec<Region> {
        let protocol = match service.protocol {
            output::Protocol::Tcp => Protocol::TCP,
            output::Protocol::Udp => Protocol::UDP,
            output::Protocol::Sctp => Protocol::SCTP,
            output::Protocol::Icmp => return self.icmp(service, peers),
            output::Protocol::Igmp => return self.unsaid("is about IGMP, which clouds do not carry", peers),
        };
        let src_ports = span(service.source_port, service.source_end_port);
        let of = |dst_ports| Match { protocol, src_ports, dst_ports };
        match (&service.port, direction) {
            (None, _) => region(peers, of(Ports::Any)),
            (Some(PortRef::Number(first)), _) => region(peers, of(span(Some(*first), service.end_port))),
            // A resource has no named ports of its own.
            (Some(PortRef::Name(_)), output::Direction::In) => {
                self.unsaid("names a port of the resource, which has numbers only", peers)
            }
            (Some(PortRef::Name(name)), output::Direction::Out) => {
                let mut regions = Vec::new();
                for member in members {
                    let ports = member.ports.iter().filter(|port| port.name == *name);
                    for port in ports.filter(|port| port.protocol == service.protocol) {
                        regions.extend(region(&addresses(member).collect(), of(Ports::one(port.port))));
                    }
                }
                regions
            }
        }
    }

    /// ICMP of IPv4 and of IPv6 are two protocols.
    fn icmp(&mut self, service: &Service, peers: &BTreeSet<Address>) -> Vec<Region> {
        if service.icmp_type.is_some() {
            self.lacks.push("is about one type of ICMP, which clouds do not tell apart");
            if self.allows {
                return Vec::new();
            }
        }
        let (v4, v6) = peers.iter().partition(|peer| matches!(peer.net(), IpNet::V4(_)));
        [(v4, Protocol::ICMP), (v6, Protocol::ICMPV6)]
            .into_iter()
            .flat_map(|(peers, protocol)| region(&peers, Match::protocol(protocol)))
            .collect()
    }

    /// Nothing, or, for a rule that denies, everything with these peers.
    fn unsaid(&mut self, what: &'static str, peers: &BTreeSet<Address>) -> Vec<Region> {
        self.lacks.push(what);
        if self.allows { Vec::new() } else { region(peers, Match::ANY) }
    }
}

fn region(peers: &BTreeSet<Address>, packets: Match) -> Vec<Region> {
    if peers.is_empty() { Vec::new() } else { vec![Region { peers: peers.clone(), packets }] }
}

fn span(first: Option<u16>, last: Option<u16>) -> Ports {
    match first {
        None => Ports::Any,
        Some(first) => Ports::Range { first, last: last.unwrap_or(first).max(first) },
    }
}

fn addresses(member: &Member) -> impl Iterator<Item = Address> + '_ {
    member.addresses.as_slice().iter().map(|address: &IpAddr| Address::from(*address))
}

fn block(block: &IpBlock) -> BTreeSet<Address> {
    let all = |peers| Region { peers, packets: Match::ANY };
    let except = all(block.except.iter().map(|net| Address::from(*net)).collect());
    let left = all([Address::from(block.cidr)].into()).without(&except);
    left.into_iter().flat_map(|region| region.peers).collect()
}

fn everybody() -> BTreeSet<Address> {
    ["0.0.0.0/0", "::/0"].map(|text| text.parse().expect("it is a prefix")).into()
}
