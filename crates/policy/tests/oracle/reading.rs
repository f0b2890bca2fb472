//! A second reading: from the objects as they are written to groups, rules and spans, sharing nothing with the engine's
//! translation but the conversions of single values. Only for objects that validate; what is at fault fails closed, and
//! `naive` with the engine's own translation looks at that.

mod whom;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::policy::{
    Kind, LabelSelector, Labels, Object, ObjectId,
    antrea::{self, AppliedTo, NamespacedName, PolicySpec},
    convert, kubernetes,
    output::{
        Action, Direction, IpBlock, Member, MemberKind, NetworkPolicy, PolicySource, Rule, RuleDetail,
        Service,
    },
};
use policy::World;
use testkit::policies::{
    naive::{logs, name_among_rivals, own_uid},
    objects::Objects,
    state::{GroupKind, PolicyState, State},
};

use whom::{Place, Whom, account, group, is_broken, name, names, parts, whom};

#[derive(Default)]
struct Peers {
    whom: Vec<Whom>,
    blocks: Vec<IpBlock>,
    fqdns: Vec<String>,
}

struct Written {
    direction: Direction,
    action: Option<Action>,
    priority: i32,
    logging: bool,
    applied_to: Vec<Whom>,
    peers: Vec<Whom>,
    detail: RuleDetail,
}

fn everywhere() -> Vec<IpBlock> {
    ["0.0.0.0/0", "::/0"].map(|cidr| IpBlock { cidr: cidr.parse().expect("a CIDR"), except: vec![] }).into()
}

/// No peers: everyone. A named port of an egress rule is looked up at Pods, so all of them are named.
fn everyone(direction: Direction, ports: &[kubernetes::Port]) -> Peers {
    let named = ports.iter().any(|port| matches!(port.port, Some(kubernetes::IntOrString::Name(_))));
    let all = Whom::Selected(MemberKind::Pod, Place::Matching(LabelSelector::default()), None);
    let whom = if named && direction == Direction::Out { vec![all] } else { vec![] };
    Peers { whom, blocks: everywhere(), fqdns: vec![] }
}

fn services(ports: &[kubernetes::Port]) -> Vec<Service> {
    ports.iter().map(|port| convert::port(port).expect("it is valid")).collect()
}

type PeersAndPorts<'a> = (&'a [kubernetes::Peer], &'a [kubernetes::Port]);

fn kubernetes_rules(policy: &kubernetes::NetworkPolicy) -> (Vec<Whom>, Vec<Written>) {
    let (spec, namespace) = (&policy.spec, policy.metadata.namespace.clone());
    let own = |selector: Option<&LabelSelector>| {
        Whom::Selected(MemberKind::Pod, Place::In(namespace.clone()), selector.cloned())
    };
    let has = |word: &str| spec.policy_types.iter().any(|t| t == word);
    let neither = spec.policy_types.is_empty();
    let mut sides: Vec<(Direction, Vec<PeersAndPorts<'_>>)> = vec![];
    if neither || has("Ingress") {
        sides.push((Direction::In, spec.ingress.iter().map(|r| (&r.from[..], &r.ports[..])).collect()));
    }
    if has("Egress") || (neither && !spec.egress.is_empty()) {
        sides.push((Direction::Out, spec.egress.iter().map(|r| (&r.to[..], &r.ports[..])).collect()));
    }
    let mut rules = vec![];
    for (direction, written) in sides {
        let rule = |action, peers: Peers, services| Written {
            direction,
            action,
            priority: -1,
            logging: false,
            applied_to: vec![],
            peers: peers.whom,
            detail: RuleDetail { ip_blocks: peers.blocks, services, ..RuleDetail::default() },
        };
        if written.is_empty() {
            rules.push(Written { priority: 0, ..rule(None, Peers::default(), vec![]) });
        }
        for (from, ports) in written {
            let mut peers = Peers::default();
            for peer in from {
                match (&peer.ip_block, &peer.namespace_selector) {
                    (Some(block), _) => peers.blocks.push(convert::ip_block(block).expect("it is valid")),
                    (None, None) => peers.whom.push(own(peer.pod_selector.as_ref())),
                    (None, Some(over)) => peers.whom.push(Whom::Selected(
                        MemberKind::Pod,
                        Place::Matching(over.clone()),
                        peer.pod_selector.clone(),
                    )),
                }
            }
            let peers = if from.is_empty() { everyone(direction, ports) } else { peers };
            rules.push(rule(Some(Action::Allow), peers, services(ports)));
        }
    }
    (vec![own(Some(&spec.pod_selector))], rules)
}

/// Reads Antrea policies.
struct Reader<'a> {
    objects: &'a Objects,
    /// Of the policy; empty for a ClusterNetworkPolicy.
    namespace: &'a str,
    namespaces: Vec<(String, Labels)>,
}

impl Reader<'_> {
    fn named(&self, group: &str) -> NamespacedName {
        NamespacedName { namespace: self.namespace.into(), name: group.into() }
    }

    fn place(&self, over: Option<&LabelSelector>) -> Place {
        match over {
            Some(over) => Place::Matching(over.clone()),
            None if self.namespace.is_empty() => Place::Anywhere,
            None => Place::In(self.namespace.into()),
        }
    }

    fn workloads(entry: &AppliedTo, place: Place) -> Whom {
        match &entry.external_entity_selector {
            Some(selector) => Whom::Selected(MemberKind::ExternalEntity, place, Some(selector.clone())),
            None => Whom::Selected(MemberKind::Pod, place, entry.pod_selector.clone()),
        }
    }

    fn applied_to(&self, entries: &[AppliedTo]) -> Vec<Whom> {
        let whom = |entry: &AppliedTo| {
            if let Some(group) = &entry.group {
                return Some(Whom::Group(self.named(group)));
            }
            if let Some(service) = &entry.service {
                return Some(Whom::Service(service.clone()));
            }
            if let Some(name) = &entry.service_account {
                let is_own = self.namespace.is_empty() || name.namespace == self.namespace;
                return is_own.then(|| account(name));
            }
            if let Some(selector) = &entry.node_selector {
                return Some(Whom::Selected(MemberKind::Node, Place::Anywhere, Some(selector.clone())));
            }
            let over = entry.namespace_selector.as_ref().filter(|_| self.namespace.is_empty());
            Some(Self::workloads(entry, self.place(over)))
        };
        entries.iter().filter_map(whom).collect()
    }

    /// The entries cut to one namespace.
    fn part(&self, entries: &[AppliedTo], namespace: &str, labels: &Labels) -> Vec<Whom> {
        let whom = |entry: &AppliedTo| {
            if let Some(name) = &entry.service_account {
                return (name.namespace == namespace).then(|| account(name));
            }
            // Of a group only where it is counts; who is in it does not.
            let over = match &entry.group {
                Some(group) => &self.objects.group(&self.named(group))?.namespace_selector,
                None => &entry.namespace_selector,
            };
            let is_in = over.as_ref().is_none_or(|over| over.matches(labels));
            is_in.then(|| Self::workloads(entry, Place::In(namespace.into())))
        };
        entries.iter().filter_map(whom).collect()
    }

    fn selected(peer: &antrea::Peer, place: Place) -> Whom {
        match &peer.external_entity_selector {
            Some(selector) => Whom::Selected(MemberKind::ExternalEntity, place, Some(selector.clone())),
            None => Whom::Selected(MemberKind::Pod, place, peer.pod_selector.clone()),
        }
    }

    fn peer(&self, peer: &antrea::Peer, peers: &mut Peers) {
        if let Some(block) = &peer.ip_block {
            peers.blocks.push(convert::ip_block(block).expect("it is valid"));
        } else if let Some(group) = &peer.group {
            let group = self.named(group);
            let parts = parts(self.objects, &group);
            let blocks: Vec<_> = parts.iter().flat_map(|(_, spec)| &spec.ip_blocks).collect();
            for block in &blocks {
                let block = convert::ip_block(block).expect("it is valid");
                if !peers.blocks.contains(&block) {
                    peers.blocks.push(block);
                }
            }
            if blocks.is_empty()
                || parts.iter().any(|(name, spec)| !whom(self.objects, name, spec).is_empty())
            {
                peers.whom.push(Whom::Group(group));
            }
        } else if let Some(fqdn) = &peer.fqdn {
            peers.fqdns.push(fqdn.clone());
        } else if let Some(name) = &peer.service_account {
            peers.whom.push(account(name));
        } else if let Some(selector) = &peer.node_selector {
            peers.whom.push(Whom::Selected(MemberKind::Node, Place::Anywhere, Some(selector.clone())));
        } else {
            peers.whom.push(Self::selected(peer, self.place(peer.namespace_selector.as_ref())));
        }
    }

    fn services_meant(&self, rule: &antrea::Rule) -> Vec<NamespacedName> {
        let mut services = rule.to_services.clone();
        for service in services.iter_mut().filter(|service| service.namespace.is_empty()) {
            service.namespace = self.namespace.into();
        }
        services
    }

    fn rules(&self, spec: &PolicySpec, tier: i32, is_per_rule: bool) -> Vec<Written> {
        let mut rules = vec![];
        for (direction, list) in [(Direction::In, &spec.ingress), (Direction::Out, &spec.egress)] {
            for (index, rule) in list.iter().enumerate() {
                self.rule(spec, rule, direction, index, tier, is_per_rule, &mut rules);
            }
        }
        rules
    }

    #[allow(clippy::too_many_arguments, reason = "one rule and all that decides how it is read")]
    fn rule(
        &self,
        spec: &PolicySpec,
        rule: &antrea::Rule,
        direction: Direction,
        index: usize,
        tier: i32,
        is_per_rule: bool,
        out: &mut Vec<Written>,
    ) {
        let written = if direction == Direction::In { &rule.from } else { &rule.to };
        let entries = if rule.applied_to.is_empty() { &spec.applied_to } else { &rule.applied_to };
        let applied_to = if is_per_rule { self.applied_to(entries) } else { vec![] };
        let mut services = services(&rule.ports);
        services.extend(rule.protocols.iter().map(|protocol| match (&protocol.icmp, &protocol.igmp) {
            (Some(icmp), _) => convert::icmp(icmp).expect("it is valid"),
            (_, Some(igmp)) => convert::igmp(igmp).expect("it is valid"),
            _ => unreachable!("a valid protocol is one of them"),
        }));
        let action = convert::action(&rule.action).expect("it is valid");
        let make =
            |action, applied_to: Vec<Whom>, peers: Peers, services: &[Service], is_whole: bool| Written {
                direction,
                action: Some(action),
                priority: index as i32,
                logging: rule.enable_logging,
                applied_to,
                peers: peers.whom,
                detail: RuleDetail {
                    ip_blocks: peers.blocks,
                    fqdns: peers.fqdns,
                    services: services.to_vec(),
                    to_services: if is_whole { self.services_meant(rule) } else { vec![] },
                    l7_protocols: if is_whole { rule.l7_protocols.clone() } else { vec![] },
                    name: rule.name.clone(),
                    log_label: rule.log_label.clone(),
                    ..RuleDetail::default()
                },
            };
        let mut named = written.iter().filter_map(|peer| peer.group.as_ref());
        let is_faulty = named.any(|group| is_broken(self.objects, &self.named(group)));
        let denies = matches!(action, Action::Drop | Action::Reject);
        if (is_faulty && denies) || (action == Action::Pass && tier == 253) {
            let all = Peers { blocks: everywhere(), ..Peers::default() };
            return out.push(make(Action::Drop, applied_to, all, &[], false));
        }
        let mut ordinary = Peers::default();
        written
            .iter()
            .filter(|peer| peer.namespaces.is_none())
            .for_each(|peer| self.peer(peer, &mut ordinary));
        let is_everyone = written.is_empty() && rule.to_services.is_empty();
        let ordinary = if is_everyone { everyone(direction, &rule.ports) } else { ordinary };
        let is_someone =
            !(ordinary.whom.is_empty() && ordinary.blocks.is_empty() && ordinary.fqdns.is_empty());
        if is_someone || !rule.to_services.is_empty() {
            out.push(make(action, applied_to, ordinary, &services, true));
        }
        let following = |wanted: &[String]| {
            let wanted = wanted.to_vec();
            written.iter().filter(move |peer| {
                peer.namespaces.as_ref().is_some_and(|namespaces| keys(&namespaces.same_labels) == wanted)
            })
        };
        let gather = |wanted: &[String], place: &Place| Peers {
            whom: following(wanted).map(|peer| Self::selected(peer, place.clone())).collect(),
            ..Peers::default()
        };
        let parts = self.namespaces.iter().map(|(ns, labels)| (ns, labels, self.part(entries, ns, labels)));
        let parts: Vec<_> = parts.filter(|(.., part)| !part.is_empty()).collect();
        if following(&[]).next().is_some() {
            for (namespace, _, part) in &parts {
                let peers = gather(&[], &Place::In((*namespace).clone()));
                out.push(make(action, part.clone(), peers, &services, true));
            }
        }
        let all_keys: BTreeSet<Vec<String>> =
            written.iter().filter_map(|p| p.namespaces.as_ref()).map(|n| keys(&n.same_labels)).collect();
        for keys in all_keys.iter().filter(|keys| !keys.is_empty()) {
            let mut alike: BTreeMap<Vec<String>, Vec<Whom>> = BTreeMap::new();
            for (_, labels, part) in &parts {
                if let Some(values) =
                    keys.iter().map(|key| labels.get(key).cloned()).collect::<Option<Vec<_>>>()
                {
                    alike.entry(values).or_default().extend(part.iter().cloned());
                }
            }
            for (values, part) in alike {
                let over = LabelSelector::of_labels(keys.iter().cloned().zip(values));
                out.push(make(action, part, gather(keys, &Place::Matching(over)), &services, true));
            }
        }
    }
}

/// The six names that tiers had before they were objects differ in their capitals.
fn tier_meant(written: &str) -> String {
    let lower = written.to_lowercase();
    let is_system = ["emergency", "securityops", "networkops", "platform", "application", "baseline"];
    match written.chars().next() {
        None => "application".into(),
        Some(first) if first.is_uppercase() && is_system.contains(&lower.as_str()) => lower,
        Some(_) => written.into(),
    }
}

fn keys(same_labels: &[String]) -> Vec<String> {
    same_labels.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect()
}

/// Everything but the problems.
pub(crate) fn compute(objects: &Objects) -> State {
    let workloads = objects.workloads();
    let mut state = State::default();
    for (id, object) in &objects.0 {
        let (applied_to, rules, tier, priority, is_per_rule) = match object {
            Object::NetworkPolicy(policy) => {
                let (applied_to, rules) = kubernetes_rules(policy);
                (applied_to, rules, None, None, false)
            }
            Object::AntreaNetworkPolicy(policy) | Object::AntreaClusterNetworkPolicy(policy) => {
                let spec = &policy.spec;
                let namespaces = objects.0.keys().filter(|id| id.kind == Kind::Namespace);
                let namespaces = namespaces
                    .map(|id| (id.name.clone(), objects.namespace_labels(&id.name).expect("it exists")));
                let reader = Reader { objects, namespace: &id.namespace, namespaces: namespaces.collect() };
                let tier = objects.tier_priority(&tier_meant(&spec.tier)).unwrap_or(250);
                let written = || spec.ingress.iter().chain(&spec.egress);
                let is_per_rule = written().any(|rule| {
                    !rule.applied_to.is_empty()
                        || rule.from.iter().chain(&rule.to).any(|peer| peer.namespaces.is_some())
                });
                let applied_to = if is_per_rule { vec![] } else { reader.applied_to(&spec.applied_to) };
                let rules = reader.rules(spec, tier, is_per_rule);
                (applied_to, rules, Some(tier), Some(spec.priority), is_per_rule)
            }
            _ => continue,
        };
        insert(&mut state, objects, &workloads, id, object, applied_to, rules, (tier, priority, is_per_rule));
    }
    state
}

#[allow(clippy::too_many_arguments, reason = "all there is to know of one policy")]
fn insert(
    state: &mut State,
    objects: &Objects,
    workloads: &[(Labels, Arc<Member>)],
    id: &ObjectId,
    object: &Object,
    mut applied_to: Vec<Whom>,
    rules: Vec<Written>,
    (tier_priority, priority, applied_to_per_rule): (Option<i32>, Option<f64>, bool),
) {
    let make = |kind, meant: &Whom| group(objects, workloads, kind, meant);
    applied_to.extend(rules.iter().flat_map(|rule| rule.applied_to.iter().cloned()));
    let mut span = BTreeSet::new();
    for meant in &applied_to {
        let entry = state.applied_to.entry(name(meant).to_string());
        span.extend(entry.or_insert_with(|| make(GroupKind::AppliedTo, meant)).span.iter().cloned());
    }
    for meant in rules.iter().flat_map(|rule| &rule.peers) {
        let entry = state.address.entry(name(meant).to_string());
        entry.or_insert_with(|| make(GroupKind::Address, meant)).span.extend(span.iter().cloned());
    }
    let logging = matches!(object, Object::NetworkPolicy(_)) && logs(objects, &id.namespace);
    let rule = |rule: Written| Rule {
        direction: rule.direction,
        action: rule.action,
        priority: rule.priority,
        enable_logging: rule.logging || logging,
        address_groups: names(&rule.peers),
        applied_to_groups: names(&rule.applied_to),
        detail: rule.detail.into(),
    };
    let own = own_uid(id, object);
    let uid = name_among_rivals(objects, id, &own);
    let source = PolicySource {
        kind: id.kind,
        namespace: id.namespace.as_str().into(),
        name: id.name.as_str().into(),
        uid: own,
    };
    let policy = NetworkPolicy {
        uid: uid.clone(),
        generation: object.metadata().generation,
        source,
        tier_priority,
        priority,
        rules: rules.into_iter().map(rule).collect(),
        applied_to_groups: names(&applied_to),
        applied_to_per_rule,
    };
    state.policies.insert(uid.to_string(), PolicyState { policy, span });
}
