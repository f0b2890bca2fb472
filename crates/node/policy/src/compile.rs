//! A policy, or a permit list, as rules over features of peers.
//!
//! In: the policy and what is known of the sets it names. Out: [`Compiled`]: rules whose peers are features
//! (member of this set, within this block), and what could not be said.
//!
//! What cannot be expressed closes: a rule that permits permits nothing of it, a rule that denies or passes on denies
//! everybody.

use std::sync::Arc;

use model::policy::{
    Kind,
    antrea::BASELINE_TIER_PRIORITY,
    output::{Action, Direction, IpBlock, NamedPort, NetworkPolicy, PortRef, Protocol, Rule, Service},
};

use rustc_hash::FxHashMap;

use crate::{
    LOCKDOWN_TIERS,
    l4::{ALL, Decision, Match},
    object::Permit,
    program::{Part, Stage, Verb},
};

/// What an address may have that rules ask for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FeatureKey {
    /// It belongs to a member of an address set.
    Set(Arc<str>),
    /// It belongs to a member of the set whose port of this name is this one.
    Named {
        set: Arc<str>,
        name: Arc<str>,
        protocol: Protocol,
        port: u16,
    },
    Block(IpBlock),
}

/// What a compilation asks about address sets.
pub trait Sets {
    fn exists(&self, set: &str) -> bool;
    /// Numbers that members have under the name.
    fn named_ports(&self, set: &str, name: &str, protocol: Protocol) -> Vec<u16>;
}

#[derive(Clone, Debug, Default)]
pub struct Compiled {
    pub rank: Rank,
    /// Sets of workloads that every rule applies to; each rule has its own if `None`.
    pub applied_to: Option<Vec<Arc<str>>>,
    pub rules: Vec<CompiledRule>,
    /// Rules name these by their index.
    pub features: Vec<FeatureKey>,
    pub errors: Vec<String>,
    index: FxHashMap<FeatureKey, u32>,
}

/// Tier and priority, and what breaks ties: kind, namespace and name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rank {
    pub tier: i32,
    pub priority: f64,
    pub name: Option<(Kind, Arc<str>, Arc<str>)>,
}

#[derive(Clone, Debug)]
pub struct CompiledRule {
    pub direction: Direction,
    pub stage: Stage,
    /// `None`: it isolates and permits nothing.
    pub verb: Option<Verb>,
    /// Among the rules of its direction; ties go to the first.
    pub order: i32,
    pub applied_to: Vec<Arc<str>>,
    /// For IPv4 and for IPv6.
    parts: [Vec<Part>; 2],
    /// Ports that are looked up at the workload itself, for peers as in the first part.
    named: Vec<NamedService>,
}

#[derive(Clone, Debug)]
struct NamedService {
    name: Arc<str>,
    protocol: Protocol,
    source: (u16, u16),
}

impl CompiledRule {
    fn isolating(stage: Stage, direction: Direction) -> Self {
        let (applied_to, named) = (Vec::new(), Vec::new());
        Self { direction, stage, verb: None, order: -1, applied_to, parts: Default::default(), named }
    }

    /// The rule for a workload that has these ports, with features by number.
    pub fn parts(&self, ipv6: bool, ports: &[NamedPort], number: impl Fn(u32) -> u32) -> Vec<Part> {
        let mut parts = self.parts[usize::from(ipv6)].clone();
        for part in &mut parts {
            part.features.iter_mut().for_each(|feature| *feature = number(*feature));
        }
        let Some(Part { services: Some(services), .. }) = parts.first_mut() else { return parts };
        for named in &self.named {
            let is_meant = |port: &&NamedPort| port.name == named.name && port.protocol == named.protocol;
            services.extend(ports.iter().filter(is_meant).map(|port| Match {
                protocol: named.protocol.number(ipv6),
                first: named.source,
                second: (port.port, port.port),
            }));
        }
        services.sort_unstable();
        services.dedup();
        parts
    }
}

/// Every address of its family.
pub fn is_whole(block: &IpBlock) -> bool {
    block.cidr.prefix_len() == 0 && block.except.is_empty()
}

impl Compiled {
    pub fn policy(policy: &NetworkPolicy, sets: &dyn Sets) -> Self {
        let source = &policy.source;
        let mut compiled = Self {
            rank: Rank {
                tier: policy.tier_priority.unwrap_or_default(),
                priority: policy.priority.unwrap_or_default(),
                name: Some((source.kind, source.namespace.clone(), source.name.clone())),
            },
            applied_to: (!policy.applied_to_per_rule).then(|| names(&policy.applied_to_groups)),
            ..Self::default()
        };
        let stage = match policy.tier_priority {
            None => Stage::Kubernetes,
            Some(tier) if tier >= BASELINE_TIER_PRIORITY => Stage::Baseline,
            Some(_) => Stage::Tiers,
        };
        for (index, rule) in policy.rules.iter().enumerate() {
            let compiled_rule = compiled.rule(stage, index, rule, sets);
            compiled.rules.push(compiled_rule);
        }
        compiled
    }

    /// A workload's own list: what is not on it does not pass, in either direction.
    pub fn permits(permits: &[Permit]) -> Self {
        let mut compiled = Self::default();
        let isolate = |direction| CompiledRule::isolating(Stage::Kubernetes, direction);
        compiled.rules.extend([Direction::In, Direction::Out].map(isolate));
        compiled.list(Stage::Kubernetes, permits);
        compiled
    }

    /// What passes at a host before any policy is asked but those of the first tiers.
    pub fn fail_safes(permits: &[Permit]) -> Self {
        let rank = Rank { tier: LOCKDOWN_TIERS, priority: f64::NEG_INFINITY, name: None };
        let mut compiled = Self { rank, ..Self::default() };
        compiled.list(Stage::Tiers, permits);
        compiled
    }

    fn list(&mut self, stage: Stage, permits: &[Permit]) {
        for permit in permits {
            let blocks =
                permit.prefixes.iter().map(|prefix| IpBlock { cidr: prefix.trunc(), except: Vec::new() });
            let parts = self.peers(&[], blocks);
            let services = permit.protocol.map(|protocol| {
                let (first, second) = (permit.source_ports.unwrap_or(ALL), permit.ports.unwrap_or(ALL));
                vec![Match { protocol, first, second }]
            });
            let parts = parts.map(|part| vec![Part { services: services.clone(), ..part }]);
            let verb = Some(Verb::Decide(Decision::Permit));
            self.rules.push(CompiledRule { verb, parts, ..CompiledRule::isolating(stage, permit.direction) });
        }
    }

    fn rule(&mut self, stage: Stage, index: usize, rule: &Rule, sets: &dyn Sets) -> CompiledRule {
        let detail = &rule.detail;
        let mut compiled = CompiledRule {
            direction: rule.direction,
            stage,
            verb: verb(stage, rule.action),
            order: rule.priority,
            applied_to: names(&rule.applied_to_groups),
            parts: Default::default(),
            named: Vec::new(),
        };
        let permits = matches!(compiled.verb, None | Some(Verb::Decide(Decision::Permit)));
        let unsaid = unsaid(rule);
        if !unsaid.is_empty() {
            self.error(index, rule, permits, &format!("{} cannot be enforced here", unsaid.join(", ")));
            if permits {
                compiled.verb = None;
            } else {
                compiled.verb = Some(Verb::Decide(Decision::Drop));
                compiled.parts = [false, true].map(|_| vec![everybody(None)]);
            }
            return compiled;
        }
        let names = names(&rule.address_groups);
        let mut peers = self.peers(&names, detail.ip_blocks.iter().cloned());
        let missing: Vec<&str> = names.iter().map(|name| &**name).filter(|name| !sets.exists(name)).collect();
        let mut unknown = Vec::new();
        if !missing.is_empty() {
            unknown.push(format!("address set {} is not here", missing.join(", ")));
        }
        if !detail.fqdns.is_empty() {
            unknown.push(format!("the addresses of {} are not known here", detail.fqdns.join(", ")));
        }
        if !unknown.is_empty() {
            self.error(index, rule, permits, &unknown.join("; "));
            if !permits {
                peers.iter_mut().for_each(|part| part.anyone = true);
            }
        }
        compiled.parts = peers.map(|part| vec![part]);
        self.services(&mut compiled, rule, &names, sets);
        compiled
    }

    /// For IPv4 and IPv6.
    fn peers(&mut self, sets: &[Arc<str>], blocks: impl Iterator<Item = IpBlock>) -> [Part; 2] {
        let mut parts = [false, true].map(|_| Part { anyone: false, features: Vec::new(), services: None });
        for set in sets {
            let feature = self.feature(FeatureKey::Set(set.clone()));
            parts.iter_mut().for_each(|part| part.features.push(feature));
        }
        for block in blocks {
            let part = &mut parts[usize::from(block.cidr.addr().is_ipv6())];
            if is_whole(&block) {
                part.anyone = true;
            } else {
                part.features.push(self.feature(FeatureKey::Block(block)));
            }
        }
        for part in &mut parts {
            part.features.sort_unstable();
            part.features.dedup();
        }
        parts
    }

    fn services(&mut self, compiled: &mut CompiledRule, rule: &Rule, names: &[Arc<str>], sets: &dyn Sets) {
        let services = &rule.detail.services;
        if services.is_empty() {
            return;
        }
        for ipv6 in [false, true] {
            let numeric = services.iter().filter_map(|service| numeric(service, ipv6)).collect();
            compiled.parts[usize::from(ipv6)][0].services = Some(numeric);
        }
        for service in services {
            let Some(PortRef::Name(name)) = &service.port else { continue };
            let named = NamedService {
                name: name.clone(),
                protocol: service.protocol,
                source: source_ports(service).unwrap_or(ALL),
            };
            match rule.direction {
                Direction::In => compiled.named.push(named),
                Direction::Out => self.named_at_peers(compiled, &named, names, sets),
            }
        }
    }

    /// The name is looked up at each member.
    fn named_at_peers(
        &mut self,
        compiled: &mut CompiledRule,
        service: &NamedService,
        names: &[Arc<str>],
        sets: &dyn Sets,
    ) {
        let NamedService { name, protocol, source } = service;
        for set in names {
            for port in sets.named_ports(set, name, *protocol) {
                let (set, name, protocol) = (set.clone(), name.clone(), *protocol);
                let feature = self.feature(FeatureKey::Named { set, name, protocol, port });
                for ipv6 in [false, true] {
                    let protocol = protocol.number(ipv6);
                    let services = vec![Match { protocol, first: *source, second: (port, port) }];
                    let part = Part { anyone: false, features: vec![feature], services: Some(services) };
                    compiled.parts[usize::from(ipv6)].push(part);
                }
            }
        }
    }

    fn feature(&mut self, key: FeatureKey) -> u32 {
        if let Some(index) = self.index.get(&key) {
            return *index;
        }
        let index = u32::try_from(self.features.len()).expect("a policy has less than 2^32 peers");
        self.features.push(key.clone());
        self.index.insert(key, index);
        index
    }

    fn error(&mut self, index: usize, rule: &Rule, permits: bool, why: &str) {
        let name =
            if rule.detail.name.is_empty() { String::new() } else { format!(" `{}`", rule.detail.name) };
        let effect = if permits { "that part permits nothing" } else { "it denies everybody instead" };
        self.errors.push(format!("rule {index}{name}: {why}; {effect}"));
    }
}

fn names(groups: &[model::policy::output::Identifier]) -> Vec<Arc<str>> {
    groups.iter().map(|group| group.to_string().into()).collect()
}

fn everybody(services: Option<Vec<Match>>) -> Part {
    Part { anyone: true, features: Vec::new(), services }
}

fn verb(stage: Stage, action: Option<Action>) -> Option<Verb> {
    match (stage, action?) {
        (_, Action::Allow) => Some(Verb::Decide(Decision::Permit)),
        // Kubernetes policies can only permit.
        (Stage::Kubernetes, _) => None,
        (_, Action::Drop) => Some(Verb::Decide(Decision::Drop)),
        (_, Action::Reject) => Some(Verb::Decide(Decision::Reject)),
        (_, Action::Pass) => Some(Verb::Pass),
    }
}

/// What the rule says that this plane has no words for.
fn unsaid(rule: &Rule) -> Vec<String> {
    let detail = &rule.detail;
    let mut unsaid = detail.untranslatable.clone();
    unsaid.extend(detail.to_services.iter().map(|to| format!("toServices {}/{}", to.namespace, to.name)));
    if !detail.l7_protocols.is_empty() {
        unsaid.push("l7Protocols".into());
    }
    for service in &detail.services {
        if service.igmp_type.is_some() || !service.group_address.is_empty() {
            unsaid.push("an IGMP type or group".into());
        }
        if !in_order(service) {
            unsaid.push("a range of ports that ends before it begins".into());
        }
    }
    unsaid
}

fn in_order(service: &Service) -> bool {
    let ordered =
        |first: Option<u16>, last: Option<u16>| first.zip(last).is_none_or(|(first, last)| first <= last);
    let first = match service.port {
        Some(PortRef::Number(first)) => Some(first),
        _ => None,
    };
    ordered(first, service.end_port) && ordered(service.source_port, service.source_end_port)
}

fn source_ports(service: &Service) -> Option<(u16, u16)> {
    service.source_port.map(|first| (first, service.source_end_port.unwrap_or(first)))
}

/// `None` if its port goes by a name.
fn numeric(service: &Service, ipv6: bool) -> Option<Match> {
    let protocol = service.protocol.number(ipv6);
    if service.protocol == Protocol::Icmp {
        let first = service.icmp_type.map_or(ALL, |kind| {
            let kind = u16::from(kind) << 8;
            service
                .icmp_code
                .map_or((kind, kind | 0xff), |code| (kind | u16::from(code), kind | u16::from(code)))
        });
        return Some(Match { protocol, first, second: ALL });
    }
    let second = match service.port {
        None => ALL,
        Some(PortRef::Number(first)) => (first, service.end_port.unwrap_or(first)),
        Some(PortRef::Name(_)) => return None,
    };
    Some(Match { protocol, first: source_ports(service).unwrap_or(ALL), second })
}
