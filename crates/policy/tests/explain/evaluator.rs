//! The naive evaluator: reads policies as they are written; knows no groups, no spans, no indexes.

use std::{net::IpAddr, sync::Arc};

use model::policy::{
    LabelSelector, Labels, Object, ObjectId,
    antrea::{AppliedTo, GroupSpec, NamespacedName, Peer, PolicySpec, Rule},
    convert, kubernetes,
    output::{Member, MemberKind, PortRef, Protocol, Service},
};
use policy::World;
use testkit::policies::objects::Objects;

type Workload = (Labels, Arc<Member>);

pub(crate) struct Connection<'a> {
    objects: &'a Objects,
    workloads: &'a [Workload],
    source: usize,
    destination: usize,
    from: Option<IpAddr>,
    to: Option<IpAddr>,
    protocol: Protocol,
    port: Option<u16>,
    icmp: Option<(u8, u8)>,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(
        objects: &'a Objects,
        workloads: &'a [Workload],
        source: usize,
        destination: usize,
        protocol: Protocol,
        port: Option<u16>,
        icmp: Option<(u8, u8)>,
    ) -> Self {
        let (a, b) =
            (workloads[source].1.addresses.as_slice(), workloads[destination].1.addresses.as_slice());
        let pairs = a.iter().flat_map(|a| b.iter().map(move |b| (*a, *b)));
        let pair = pairs.into_iter().find(|(a, b)| a.is_ipv4() == b.is_ipv4());
        let (from, to) = pair.map_or((a.first().copied(), b.first().copied()), |(a, b)| (Some(a), Some(b)));
        Connection { objects, workloads, source, destination, from, to, protocol, port, icmp }
    }
}

/// (egress, ingress)
pub(crate) fn permits(connection: &Connection<'_>) -> (bool, bool) {
    if connection.source == connection.destination {
        return (true, true);
    }
    let out = Side { c: connection, out: true, local: connection.source, remote: connection.to };
    let into = Side { c: connection, out: false, local: connection.destination, remote: connection.from };
    (out.permitted(), into.permitted())
}

struct Side<'a> {
    c: &'a Connection<'a>,
    out: bool,
    local: usize,
    remote: Option<IpAddr>,
}

/// How peers have the other end: names of ports are looked up at members, never in blocks of addresses.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Met {
    Not,
    Address,
    Member,
}

impl Met {
    fn member(is: bool) -> Self {
        if is { Met::Member } else { Met::Not }
    }
}

impl Side<'_> {
    fn permitted(&self) -> bool {
        let (_, local) = &self.c.workloads[self.local];
        if !local.enforced || local.node.is_none() {
            return true;
        }
        match self.antrea(false).as_deref() {
            Some("Allow") => return true,
            Some("Drop" | "Reject") => return false,
            _ => {}
        }
        if let Some(permitted) = self.kubernetes() {
            return permitted;
        }
        !matches!(self.antrea(true).as_deref(), Some("Drop" | "Reject"))
    }

    /// `None`: not isolated.
    fn kubernetes(&self) -> Option<bool> {
        let (labels, local) = &self.c.workloads[self.local];
        let mut isolated = false;
        for object in self.c.objects.0.values() {
            let Object::NetworkPolicy(policy) = object else { continue };
            let spec = &policy.spec;
            let selected = local.kind == MemberKind::Pod
                && *policy.metadata.namespace == *local.namespace
                && spec.pod_selector.matches(labels);
            let types = &spec.policy_types;
            let concerns = match (types.is_empty(), self.out) {
                (true, true) => !spec.egress.is_empty(),
                (true, false) => true,
                (false, out) => types.iter().any(|t| t == if out { "Egress" } else { "Ingress" }),
            };
            if !selected || !concerns {
                continue;
            }
            isolated = true;
            let rules: Vec<(&[kubernetes::Peer], &[kubernetes::Port])> = match self.out {
                true => spec.egress.iter().map(|r| (&r.to[..], &r.ports[..])).collect(),
                false => spec.ingress.iter().map(|r| (&r.from[..], &r.ports[..])).collect(),
            };
            for (peers, ports) in rules {
                let peer = |p: &kubernetes::Peer| match &p.ip_block {
                    Some(block) => self.in_block(block),
                    None => self.remote_is(MemberKind::Pod, p.pod_selector.as_ref(), |ns| {
                        match &p.namespace_selector {
                            None => *ns == *policy.metadata.namespace,
                            Some(selector) => self.namespace_matches(ns, selector),
                        }
                    }),
                };
                let met = if peers.is_empty() { self.everyone() } else { strongest(peers.iter().map(peer)) };
                if met != Met::Not && self.ports(ports, true, &met) {
                    return Some(true);
                }
            }
        }
        isolated.then_some(false)
    }

    /// The action of the first rule that matches, in the tiers before baseline or in those from it on.
    fn antrea(&self, baseline: bool) -> Option<String> {
        let mut matched: Vec<(i32, f64, usize, &ObjectId, &str)> = Vec::new();
        for (id, object) in &self.c.objects.0 {
            let (Object::AntreaNetworkPolicy(policy) | Object::AntreaClusterNetworkPolicy(policy)) = object
            else {
                continue;
            };
            let spec = &policy.spec;
            // The six names that tiers had before they were objects differ in their capitals.
            let old = ["Emergency", "SecurityOps", "NetworkOps", "Platform", "Application", "Baseline"];
            let name = match spec.tier.as_str() {
                "" => "application".to_owned(),
                tier if old.contains(&tier) => tier.to_lowercase(),
                tier => tier.to_owned(),
            };
            let tier = self.c.objects.tier_priority(&name).unwrap_or(250);
            if (tier >= 253) != baseline {
                continue;
            }
            let rules = if self.out { &spec.egress } else { &spec.ingress };
            for (index, rule) in rules.iter().enumerate() {
                if let Some(action) = self.rule(id, spec, rule, tier) {
                    matched.push((tier, spec.priority, index, id, action));
                }
            }
        }
        matched.sort_by(|a, b| {
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)).then_with(|| a.3.cmp(b.3))
        });
        matched.first().map(|first| first.4.to_string())
    }

    fn rule<'r>(&self, id: &ObjectId, spec: &'r PolicySpec, rule: &'r Rule, tier: i32) -> Option<&'r str> {
        let applied_to = if rule.applied_to.is_empty() { &spec.applied_to } else { &rule.applied_to };
        let peers = if self.out { &rule.to } else { &rule.from };
        let whole = applied_to.iter().any(|to| self.is_applied(id, to));
        let cut = applied_to.iter().any(|to| self.is_cut(id, to));
        let denies = rule.action == "Drop" || rule.action == "Reject";
        let pass_from_baseline = rule.action == "Pass" && tier == 253;
        let broken_group =
            peers.iter().filter_map(|peer| peer.group.as_ref()).any(|group| self.is_broken(id, group));
        if pass_from_baseline || (denies && broken_group) {
            if !whole {
                return None;
            }
            return self.remote.map(|_| "Drop");
        }
        let concerned = peers.iter().filter(|peer| if peer.namespaces.is_some() { cut } else { whole });
        let met = match peers.is_empty() && rule.to_services.is_empty() {
            true if whole => self.everyone(),
            true => Met::Not,
            false => strongest(concerned.map(|peer| self.peer(id, peer))),
        };
        let no_ports = rule.ports.is_empty() && rule.protocols.is_empty();
        let icmp = rule.protocols.iter().filter_map(|p| p.icmp.as_ref()).any(|icmp| {
            self.c.protocol == Protocol::Icmp
                && icmp.icmp_type.is_none_or(|t| self.c.icmp.is_some_and(|(kind, _)| i32::from(kind) == t))
                && icmp.icmp_code.is_none_or(|t| self.c.icmp.is_some_and(|(_, code)| i32::from(code) == t))
        });
        let port = no_ports || icmp || self.ports(&rule.ports, false, &met);
        (met != Met::Not && port).then_some(rule.action.as_str())
    }

    /// Peers that follow the namespace are for all Pods of the namespaces that a group names, not for its members; a Service
    /// or nodes name all.
    fn is_cut(&self, id: &ObjectId, to: &AppliedTo) -> bool {
        let (_, local) = &self.c.workloads[self.local];
        let over = match &to.group {
            Some(group) => {
                let name = NamespacedName { namespace: id.namespace.clone(), name: group.clone() };
                let Some(group) = self.group(&name) else { return false };
                group.namespace_selector.as_ref()
            }
            None if to.service.is_some() || to.node_selector.is_some() => None,
            None => return self.is_applied(id, to),
        };
        local.kind == MemberKind::Pod
            && over.is_none_or(|over| self.namespace_matches(&local.namespace, over))
    }

    fn is_applied(&self, id: &ObjectId, to: &AppliedTo) -> bool {
        let (labels, local) = &self.c.workloads[self.local];
        let own_namespace = id.namespace.is_empty() || *local.namespace == *id.namespace;
        if let Some(group) = &to.group {
            let name = NamespacedName { namespace: id.namespace.clone(), name: group.clone() };
            return own_namespace && self.in_group(&name, labels, local);
        }
        if to.service.is_some() {
            return local.kind == MemberKind::Node;
        }
        if let Some(account) = &to.service_account {
            return own_namespace && self.is_account(account, labels, local);
        }
        if let Some(selector) = &to.node_selector {
            return local.kind == MemberKind::Node && selector.matches(labels);
        }
        let (kind, selector) = match &to.external_entity_selector {
            Some(selector) => (MemberKind::ExternalEntity, Some(selector)),
            None => (MemberKind::Pod, to.pod_selector.as_ref()),
        };
        local.kind == kind
            && own_namespace
            && to.namespace_selector.as_ref().is_none_or(|s| self.namespace_matches(&local.namespace, s))
            && selector.is_none_or(|selector| selector.matches(labels))
    }

    fn peer(&self, id: &ObjectId, peer: &Peer) -> Met {
        if let Some(block) = &peer.ip_block {
            return self.in_block(block);
        }
        if peer.fqdn.is_some() {
            return Met::Not;
        }
        if let Some(group) = &peer.group {
            let name = NamespacedName { namespace: id.namespace.clone(), name: group.clone() };
            let is_member = |(labels, member): &Workload| self.in_group(&name, labels, member);
            let blocks = strongest(self.group_blocks(&name).iter().map(|block| self.in_block(block)));
            return Met::member(self.remote_workloads().any(is_member)).max(blocks);
        }
        if let Some(account) = &peer.service_account {
            let is_account = |(labels, member): &Workload| self.is_account(account, labels, member);
            return Met::member(self.remote_workloads().any(is_account));
        }
        if let Some(selector) = &peer.node_selector {
            return self.remote_is(MemberKind::Node, Some(selector), |_| true);
        }
        if let Some(namespaces) = &peer.namespaces {
            let here = &self.c.workloads[self.local].1.namespace;
            let Some(own) = self.c.objects.namespace_labels(here) else { return Met::Not };
            return self.remote_is(MemberKind::Pod, peer.pod_selector.as_ref(), |ns| {
                if namespaces.matching == "Self" {
                    return ns == &**here;
                }
                let Some(other) = self.c.objects.namespace_labels(ns) else { return false };
                namespaces
                    .same_labels
                    .iter()
                    .all(|key| own.contains_key(key) && own.get(key) == other.get(key))
            });
        }
        let (kind, selector) = match &peer.external_entity_selector {
            Some(selector) => (MemberKind::ExternalEntity, Some(selector)),
            None => (MemberKind::Pod, peer.pod_selector.as_ref()),
        };
        self.remote_is(kind, selector, |ns| match &peer.namespace_selector {
            Some(selector) => self.namespace_matches(ns, selector),
            None => id.namespace.is_empty() || *ns == *id.namespace,
        })
    }

    /// Everyone who is reached at the other end's address.
    fn remote_workloads(&self) -> impl Iterator<Item = &Workload> {
        let claims = |member: &Member| self.remote.is_some_and(|a| member.addresses.as_slice().contains(&a));
        self.c.workloads.iter().filter(move |(_, member)| member.enforced && claims(member))
    }

    fn remote_is(
        &self,
        kind: MemberKind,
        selector: Option<&LabelSelector>,
        namespace: impl Fn(&str) -> bool,
    ) -> Met {
        Met::member(self.remote_workloads().any(|(labels, member)| {
            member.kind == kind && namespace(&member.namespace) && selector.is_none_or(|s| s.matches(labels))
        }))
    }

    /// A rule without peers is about every address, and so that names can be looked up about every Pod.
    fn everyone(&self) -> Met {
        let pods = self.remote_is(MemberKind::Pod, None, |_| true);
        if self.remote.is_some() { pods.max(Met::Address) } else { Met::Not }
    }

    fn namespace_matches(&self, name: &str, selector: &LabelSelector) -> bool {
        selector.is_empty()
            || self.c.objects.namespace_labels(name).is_some_and(|labels| selector.matches(&labels))
    }

    fn is_account(&self, account: &NamespacedName, labels: &Labels, member: &Member) -> bool {
        member.kind == MemberKind::Pod
            && *member.namespace == *account.namespace
            && labels.get("internal.antrea.io/service-account") == Some(&account.name)
    }

    fn group(&self, name: &NamespacedName) -> Option<&GroupSpec> {
        self.c.objects.group(name)
    }

    fn children(&self, name: &NamespacedName) -> Vec<NamespacedName> {
        let children = self.group(name).map(|spec| spec.child_groups.clone()).unwrap_or_default();
        children
            .into_iter()
            .map(|child| NamespacedName { namespace: name.namespace.clone(), name: child })
            .collect()
    }

    fn is_broken(&self, id: &ObjectId, group: &str) -> bool {
        let name = NamespacedName { namespace: id.namespace.clone(), name: group.into() };
        self.children(&name).iter().any(|child| !self.children(child).is_empty())
    }

    fn parts(&self, name: &NamespacedName) -> Vec<NamespacedName> {
        if self.children(name).iter().any(|child| !self.children(child).is_empty()) {
            return Vec::new();
        }
        [vec![name.clone()], self.children(name)].concat()
    }

    fn group_blocks(&self, name: &NamespacedName) -> Vec<kubernetes::IpBlock> {
        self.parts(name)
            .iter()
            .filter_map(|part| self.group(part))
            .flat_map(|spec| spec.ip_blocks.clone())
            .collect()
    }

    fn in_group(&self, name: &NamespacedName, labels: &Labels, member: &Member) -> bool {
        self.parts(name).iter().filter_map(|part| self.group(part)).any(|spec| {
            if let Some(service) = &spec.service_reference {
                let Some(selector) = self.c.objects.service_selector(service).filter(|s| !s.is_empty())
                else {
                    return false;
                };
                return member.kind == MemberKind::Pod
                    && *member.namespace == *service.namespace
                    && selector.iter().all(|(k, v)| labels.get(k) == Some(v));
            }
            if let Some(selector) = &spec.node_selector {
                return member.kind == MemberKind::Node && selector.matches(labels);
            }
            let (kind, selector) = match &spec.external_entity_selector {
                Some(selector) => (MemberKind::ExternalEntity, Some(selector)),
                None => (MemberKind::Pod, spec.pod_selector.as_ref()),
            };
            let namespace = match &spec.namespace_selector {
                Some(selector) => self.namespace_matches(&member.namespace, selector),
                None => name.namespace.is_empty() || *member.namespace == *name.namespace,
            };
            (selector.is_some() || spec.namespace_selector.is_some())
                && member.kind == kind
                && namespace
                && selector.is_none_or(|selector| selector.matches(labels))
        })
    }

    fn in_block(&self, block: &kubernetes::IpBlock) -> Met {
        let block = convert::ip_block(block).expect("only valid objects are asked about");
        if self.remote.is_some_and(|address| block.contains(address)) { Met::Address } else { Met::Not }
    }

    fn ports(&self, ports: &[kubernetes::Port], empty_is_all: bool, met: &Met) -> bool {
        let service = |port| convert::port(port).expect("only valid objects are asked about");
        (ports.is_empty() && empty_is_all) || ports.iter().any(|port| self.port(&service(port), met))
    }

    fn port(&self, service: &Service, met: &Met) -> bool {
        let named = &self.c.workloads[self.c.destination].1.ports;
        service.protocol == self.c.protocol
            && match &service.port {
                None => true,
                Some(PortRef::Number(first)) => {
                    let last = service.end_port.unwrap_or(*first);
                    self.c.port.is_some_and(|port| (*first..=last).contains(&port))
                }
                Some(PortRef::Name(_)) if self.out && *met == Met::Address => false,
                Some(PortRef::Name(name)) => named.iter().any(|port| {
                    port.name == *name && port.protocol == service.protocol && Some(port.port) == self.c.port
                }),
            }
    }
}

fn strongest(met: impl Iterator<Item = Met>) -> Met {
    met.max().unwrap_or(Met::Not)
}
