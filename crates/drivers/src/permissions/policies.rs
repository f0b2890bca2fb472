//! A permission as a policy, for Pods and hosts (pure).
//!
//! ```text
//!   FROM (Pods, hosts) ── egress rule, to TO ──┐
//!                                              ├─► one ClusterNetworkPolicy of the permission's name
//!   TO (Pods, hosts) ── ingress rule, from FROM┘    tier application, last in it; rules that allow, and nothing else
//! ```
//!
//! Rules that allow isolate nobody, so whoever was open stays open. They come before Kubernetes policies, which isolate, and
//! after every other Antrea policy of a tier: what somebody denies stays denied. It is the same at resources, where permit
//! entries come after all policies. A rule without peers would mean everybody: where nobody is, there is no rule.

use std::collections::BTreeSet;

use ::tags::Graph;
use model::{
    Address, Ports, Protocol, TagName,
    allow::{End, Passage, Permission},
    policy::{
        Kind, LabelSelector, Object, ObjectId,
        antrea::{self, AppliedTo, Icmp, Peer, Policy, PolicySpec, Rule},
        external::HOST_LABEL,
        kubernetes::{IntOrString, IpBlock, Port},
        meta::ObjectMeta,
    },
};

use super::ends::hosts_in;
use crate::policy::{POD_LABEL, pod_label};

/// Behind whatever anybody wrote into the tier.
const LAST: f64 = 10_000.0;
/// Set on every namespace.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// The policy of a permission of this name, as it is listed.
pub fn policy_of(permission: &str) -> ObjectId {
    let kind = Kind::AntreaClusterNetworkPolicy;
    ObjectId { kind, namespace: String::new(), name: permission.to_owned() }
}

/// What a permission comes to. `addresses`: who is at its ends as far as no selector says so.
pub fn policy(permission: &Permission, addresses: &[BTreeSet<Address>; 2], graph: &Graph) -> Option<Object> {
    let Permission { from, to, passages } = permission;
    let (from_peers, to_peers) = (peers(from, &addresses[0]), peers(to, &addresses[1]));
    let rules = |at: &End, is_ingress: bool, peers: &[Peer]| {
        let applied_to = applied_to(at, graph);
        let is_empty = applied_to.is_empty() || peers.is_empty();
        let rule = |passage: &Passage| {
            let way = if is_ingress { "in" } else { "out" };
            let mut rule = Rule {
                name: format!("{way}-{}", passage.to_string().replace(' ', "-")),
                action: "Allow".to_owned(),
                applied_to: applied_to.clone(),
                ..Rule::default()
            };
            *if is_ingress { &mut rule.from } else { &mut rule.to } = peers.to_vec();
            put(passage, &mut rule);
            rule
        };
        if is_empty { Vec::new() } else { passages.iter().map(rule).collect::<Vec<_>>() }
    };
    let (egress, ingress) = (rules(from, false, &to_peers), rules(to, true, &from_peers));
    if egress.is_empty() && ingress.is_empty() {
        return None;
    }
    let name = permission.name();
    let spec = PolicySpec { tier: String::new(), priority: LAST, applied_to: Vec::new(), ingress, egress };
    let metadata = ObjectMeta {
        uid: uid(name.as_str()),
        name: name.to_string(),
        generation: generation(&spec),
        ..ObjectMeta::default()
    };
    Some(Object::AntreaClusterNetworkPolicy(Policy { metadata, spec }))
}

/// The same on every controller and after every start.
fn uid(name: &str) -> String {
    ::policy::name_uuid(&format!("permission/{name}")).to_string()
}

/// Of the content, so that all controllers say the same of the same: nobody counts.
fn generation(spec: &PolicySpec) -> i64 {
    let text = serde_json::to_vec(spec).expect("a policy has no maps with odd keys");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &text);
    // What JSON has exactly.
    digest.as_ref().iter().take(6).fold(0, |sum, byte| (sum << 8) | i64::from(*byte)) + 1
}

fn put(passage: &Passage, rule: &mut Rule) {
    match passage.protocol {
        Protocol::Any => {}
        Protocol::ICMP => {
            let icmp = Some(Icmp::default());
            rule.protocols = vec![antrea::Protocol { icmp, igmp: None }];
        }
        protocol => {
            let (port, end_port) = match passage.ports {
                Ports::Any => (None, None),
                Ports::Range { first, last } => {
                    (Some(IntOrString::Int(first.into())), (first != last).then(|| last.into()))
                }
            };
            let protocol = Some(protocol.to_string().to_ascii_uppercase());
            rule.ports = vec![Port { protocol, port, end_port, ..Port::default() }];
        }
    }
}

fn labels(key: &str, value: impl ToString) -> Option<LabelSelector> {
    Some(LabelSelector::of_labels([(key.to_owned(), value.to_string())]))
}

/// Who is at an end, as a rule's peers; none if nobody is.
fn peers(end: &End, addresses: &BTreeSet<Address>) -> Vec<Peer> {
    let by_selector = match end {
        End::Pod { namespace, name } => Some(Peer {
            pod_selector: labels(POD_LABEL, pod_label(namespace.as_str(), name.as_str())),
            // Wherever it is: the label says in which namespace.
            namespace_selector: Some(LabelSelector::default()),
            ..Peer::default()
        }),
        End::Namespace(namespace) => {
            Some(Peer { namespace_selector: labels(NAMESPACE_LABEL, namespace), ..Peer::default() })
        }
        End::Resource(_) | End::Host(_) | End::Tag(_) | End::Address(_) => None,
    };
    let block = |address: &Address| {
        let ip_block = Some(IpBlock { cidr: address.net().to_string(), except: Vec::new() });
        Peer { ip_block, ..Peer::default() }
    };
    by_selector.into_iter().chain(addresses.iter().map(block)).collect()
}

/// The Pods and hosts at an end.
fn applied_to(end: &End, graph: &Graph) -> Vec<AppliedTo> {
    let host = |host: &TagName| {
        let (node, entity) = (labels(HOST_LABEL, host), labels(HOST_LABEL, host));
        [
            AppliedTo { node_selector: node, ..AppliedTo::default() },
            AppliedTo { external_entity_selector: entity, ..AppliedTo::default() },
        ]
    };
    match end {
        End::Pod { namespace, name } => vec![AppliedTo {
            pod_selector: labels(POD_LABEL, pod_label(namespace.as_str(), name.as_str())),
            // Wherever it is: the label says in which namespace.
            namespace_selector: Some(LabelSelector::default()),
            ..AppliedTo::default()
        }],
        End::Namespace(namespace) => {
            vec![AppliedTo { namespace_selector: labels(NAMESPACE_LABEL, namespace), ..AppliedTo::default() }]
        }
        End::Host(name) => host(name).into(),
        End::Tag(tag) => hosts_in(tag, graph).iter().flat_map(host).collect(),
        End::Resource(_) | End::Address(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
