//! Every pair of kinds, and what a policy must never say.

use model::{
    Leaf,
    allow::{End, Passage, Permission},
    policy::{Object, validate},
};
use tags::{Fact, Write};

use super::*;

const ENDS: [&str; 6] =
    ["resource:default.a.web", "host:h1", "pod:shop/web-1", "tag:mixed", "namespace:shop", "ip:192.0.2.0/24"];

/// Tag `mixed` holds the host h1, two levels below, and two addresses; `empty` holds nothing.
fn graph() -> Graph {
    let tag = |name: &str| name.parse::<TagName>().unwrap();
    let member = |name: &str| name.parse().unwrap();
    let mut graph = Graph::default();
    graph.apply([
        Write::Put(Fact::Leaf(tag("host.h1"), Leaf { uri: None, ip: Some("10.9.0.1".parse().unwrap()) })),
        Write::Put(Fact::Group(tag("inner"))),
        Write::Put(Fact::Group(tag("mixed"))),
        Write::Put(Fact::Group(tag("empty"))),
        Write::Put(Fact::Membership(tag("inner"), member("host.h1"))),
        Write::Put(Fact::Membership(tag("mixed"), member("inner"))),
        Write::Put(Fact::Membership(tag("mixed"), member("2001:db8::1"))),
        Write::Put(Fact::Membership(tag("mixed"), member("10.1.0.0/16"))),
    ]);
    graph
}

fn permission(from: &str, to: &str) -> Permission {
    let passages = [
        Passage::new(Protocol::TCP, Ports::one(5432)).unwrap(),
        Passage::new(Protocol::UDP, Ports::range(8000, 8010).unwrap()).unwrap(),
        Passage::new(Protocol::ICMP, Ports::Any).unwrap(),
    ];
    Permission::new(from.parse().unwrap(), to.parse().unwrap(), passages.into()).unwrap()
}

fn at(end: &End, graph: &Graph) -> BTreeSet<Address> {
    match end {
        End::Resource(_) => ["10.0.0.7".parse().unwrap()].into(),
        end => crate::permissions::ends::addresses(end, graph),
    }
}

fn made(permission: &Permission) -> Option<Policy> {
    let graph = graph();
    let addresses = permission.ends().map(|end| at(end, &graph));
    policy(permission, &addresses, &graph).map(|object| match object {
        Object::AntreaClusterNetworkPolicy(policy) => policy,
        other => panic!("{other:?}"),
    })
}

#[test]
fn whatever_the_ends_are_a_policy_only_allows_and_never_everybody() {
    let guarded = |end: &str| !end.starts_with("resource:") && !end.starts_with("ip:");
    for from in ENDS {
        for to in ENDS {
            if from.starts_with("ip:") && to.starts_with("ip:") {
                continue;
            }
            let permission = permission(from, to);
            let Some(policy) = made(&permission) else {
                assert!(!guarded(from) && !guarded(to), "{permission}");
                continue;
            };
            assert_eq!(!policy.spec.egress.is_empty(), guarded(from), "{permission}");
            assert_eq!(!policy.spec.ingress.is_empty(), guarded(to), "{permission}");
            for (rule, peers) in policy
                .spec
                .ingress
                .iter()
                .map(|rule| (rule, &rule.from))
                .chain(policy.spec.egress.iter().map(|rule| (rule, &rule.to)))
            {
                assert_eq!(rule.action, "Allow");
                assert!(!peers.is_empty() && !rule.applied_to.is_empty(), "{permission}");
            }
            assert_eq!(policy.spec.priority, LAST);
            assert_eq!(policy.metadata.name, permission.name().to_string());
            let problems = validate(&Object::AntreaClusterNetworkPolicy(policy));
            assert!(problems.is_empty(), "{permission}: {problems:?}");
        }
    }
}

#[test]
fn where_nobody_is_there_is_no_rule() {
    let to_nobody = made(&permission("pod:shop/web-1", "tag:empty"));
    assert!(to_nobody.is_none(), "an empty list of peers would be everybody: {to_nobody:?}");
    assert!(made(&permission("pod:shop/web-1", "tag:unknown")).is_none());
    assert!(made(&permission("host:gone", "ip:10.0.0.1")).is_some(), "it is applied to nobody yet");
    let from_nobody = made(&permission("host:gone", "pod:shop/web-1")).unwrap();
    assert!(from_nobody.spec.ingress.is_empty() && !from_nobody.spec.egress.is_empty());
}

#[test]
fn a_tag_is_its_hosts_at_its_own_end_and_its_addresses_at_the_other() {
    let policy = made(&permission("tag:mixed", "pod:shop/web-1")).unwrap();
    let hosts = &policy.spec.egress[0].applied_to;
    let of_host = LabelSelector::of_labels([(HOST_LABEL, "h1")]);
    assert!(hosts.iter().any(|at| at.node_selector.as_ref() == Some(&of_host)));
    assert!(hosts.iter().any(|at| at.external_entity_selector.as_ref() == Some(&of_host)));
    let peers = policy.spec.ingress[0].from.iter().map(|peer| peer.ip_block.as_ref().unwrap().cidr.as_str());
    assert_eq!(peers.collect::<Vec<_>>(), ["10.1.0.0/16", "10.9.0.1/32", "2001:db8::1/128"]);
}

#[test]
fn every_controller_says_the_same_of_the_same_and_a_change_is_seen() {
    let one = made(&permission("tag:mixed", "pod:shop/web-1")).unwrap();
    assert_eq!(Some(&one), made(&permission("tag:mixed", "pod:shop/web-1")).as_ref());
    let graph = graph();
    let moved = [["10.1.2.3".parse().unwrap()].into(), BTreeSet::new()];
    let object = policy(&permission("tag:mixed", "pod:shop/web-1"), &moved, &graph).unwrap();
    assert_ne!(object.metadata().generation, one.metadata.generation);
    assert_eq!(object.metadata().uid, one.metadata.uid);
    assert!(one.metadata.generation > 0);
}
