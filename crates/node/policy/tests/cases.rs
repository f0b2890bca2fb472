//! Cases that other implementations got wrong, by name.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{net::IpAddr, sync::Arc};

use model::policy::{
    Kind,
    output::{
        Action, Direction, Identifier, IpBlock, Member, MemberKind, NamedPort, NetworkPolicy, PolicySource,
        PortRef, Protocol, Rule, RuleDetail, Service,
    },
};
use node_policy::{
    Change, Decision, L4, LocalChange, ObjectId, ObjectKind, Options, Packet, Plane, SetKind, Workload,
    WorkloadId,
};

const POD: &str = "10.0.0.1";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn member(name: &str, addresses: &[&str], ports: &[(&str, u16, Protocol)]) -> Member {
    let port = |(name, port, protocol): &(&str, u16, Protocol)| NamedPort {
        name: Arc::from(*name),
        port: *port,
        protocol: *protocol,
    };
    Member {
        kind: MemberKind::Pod,
        enforced: true,
        namespace: "n".into(),
        name: name.into(),
        addresses: addresses.iter().map(|text| ip(text)).collect(),
        ports: ports.iter().map(port).collect(),
        node: None,
    }
}

fn put(kind: SetKind, name: &str, put: Vec<Member>, removed: Vec<Member>) -> Change {
    Change::PutSet { kind, name: name.into(), replace: false, put, removed }
}

fn remove(kind: ObjectKind, name: &str) -> Change {
    Change::Remove { kind, name: name.into() }
}

fn blocks(blocks: &[(&str, &[&str])]) -> RuleDetail {
    let block = |(cidr, except): &(&str, &[&str])| IpBlock {
        cidr: cidr.parse().unwrap(),
        except: except.iter().map(|text| text.parse().unwrap()).collect(),
    };
    RuleDetail { ip_blocks: blocks.iter().map(block).collect(), ..RuleDetail::default() }
}

/// A Kubernetes policy for the Pod that permits what comes from these sets and blocks.
fn policy(name: &str, sets: &[&str], detail: RuleDetail) -> Change {
    policy_of(name, Direction::In, Some(Action::Allow), None, sets, detail)
}

fn policy_of(
    name: &str,
    direction: Direction,
    action: Option<Action>,
    tier: Option<i32>,
    sets: &[&str],
    detail: RuleDetail,
) -> Change {
    let rule = Rule {
        direction,
        action,
        priority: 0,
        enable_logging: false,
        address_groups: sets.iter().map(|set| Identifier::parse(set)).collect(),
        applied_to_groups: Vec::new(),
        detail: detail.into(),
    };
    let uid = || Identifier::parse(name);
    let source =
        PolicySource { kind: Kind::NetworkPolicy, namespace: "n".into(), name: name.into(), uid: uid() };
    let policy = NetworkPolicy {
        uid: uid(),
        generation: 1,
        source,
        tier_priority: tier,
        priority: tier.map(|_| 1.0),
        rules: vec![rule],
        applied_to_groups: vec![Identifier::parse("on-pod")],
        applied_to_per_rule: false,
    };
    Change::PutPolicy { name: name.into(), policy: Box::new(policy) }
}

/// A node with one Pod, which the set `on-pod` selects.
fn plane(changes: impl IntoIterator<Item = Change>) -> Plane {
    let mut plane = Plane::new(Options::default());
    let pod = Workload::new(WorkloadId::pod("n", "pod"), [ip(POD), ip("fd00::1")]);
    let selected = put(SetKind::AppliedTo, "on-pod", vec![member("pod", &[], &[])], Vec::new());
    plane.step([selected], [LocalChange::Put(pod)]);
    plane.step(changes, []);
    plane
}

fn tcp(plane: &Plane, source: &str, destination: &str, port: u16) -> Decision {
    let l4 = L4 { protocol: 6, first: 40_000, second: port };
    plane.decide(&Packet { source: ip(source), destination: ip(destination), l4 })
}

fn comes_in(plane: &Plane, source: &str) -> bool {
    let destination = if source.contains(':') { "fd00::1" } else { POD };
    tcp(plane, source, destination, 80) == Decision::Permit
}

#[test]
fn addresses_outside_of_every_set_are_in_none() {
    let plane = plane([
        put(SetKind::Address, "pods", vec![member("a", &["10.0.0.2"], &[])], Vec::new()),
        policy("p", &["pods"], RuleDetail::default()),
    ]);
    assert!(comes_in(&plane, "10.0.0.2") && !comes_in(&plane, "203.0.113.9"));
}

#[test]
fn a_policy_of_very_many_blocks_is_bounded_work() {
    let list: Vec<IpBlock> = (0..20_000_u32)
        .map(|number| {
            let base = std::net::Ipv4Addr::from(0x0b00_0000 + number * 4);
            IpBlock { cidr: ipnet::IpNet::new(base.into(), 31).unwrap(), except: Vec::new() }
        })
        .collect();
    let plane = plane([policy("p", &[], RuleDetail { ip_blocks: list, ..RuleDetail::default() })]);
    assert!(comes_in(&plane, "11.0.0.1") && !comes_in(&plane, "11.0.0.2"), "and the rest stays closed");
}

#[test]
fn prefixes_of_length_0_and_both_families() {
    let plane4 = plane([policy("p", &[], blocks(&[("1.2.3.4/0", &[])]))]);
    assert!(comes_in(&plane4, "203.0.113.9") && !comes_in(&plane4, "2001:db8::9"));
    let plane6 = plane([policy("p", &[], blocks(&[("2001:db8::/32", &["2001:db8:1::/48"])]))]);
    assert!(comes_in(&plane6, "2001:db8::9") && !comes_in(&plane6, "2001:db8:1::9"));
    assert!(!comes_in(&plane6, "203.0.113.9"));
}

#[test]
fn everybody_but_halves_and_the_same_exception_twice() {
    let cases: [(&[&str], bool, bool); 6] = [
        (&[], true, true),
        (&["0.0.0.0/1"], false, true),
        (&["128.0.0.0/1"], true, false),
        (&["0.0.0.0/1", "128.0.0.0/1"], false, false),
        (&["10.0.0.0/8", "10.0.0.0/8", "10.1.0.0/16"], true, true),
        (&["0.0.0.0/0"], false, false),
    ];
    for (except, low, high) in cases {
        let plane = plane([policy("p", &[], blocks(&[("0.0.0.0/0", except)]))]);
        assert_eq!(comes_in(&plane, "9.9.9.9"), low, "{except:?}");
        assert_eq!(comes_in(&plane, "203.0.113.9"), high, "{except:?}");
        assert_eq!(comes_in(&plane, "10.1.2.3"), low && !except.contains(&"10.0.0.0/8"), "{except:?}");
    }
}

#[test]
fn one_name_for_two_ports_and_two_protocols() {
    let ports = [("web", 80, Protocol::Tcp), ("web", 81, Protocol::Tcp), ("web", 82, Protocol::Udp)];
    let web = Service { port: Some(PortRef::Name("web".into())), ..Service::any(Protocol::Tcp) };
    let everybody = RuleDetail { services: vec![web.clone()], ..blocks(&[("0.0.0.0/0", &[])]) };
    let mut own = plane([policy("p", &[], everybody)]);
    assert!(!comes_in(&own, "9.9.9.9"), "the Pod has no such port yet");
    own.step([put(SetKind::AppliedTo, "on-pod", vec![member("pod", &[], &ports)], Vec::new())], []);
    let allowed = |port| tcp(&own, "9.9.9.9", POD, port) == Decision::Permit;
    assert_eq!([79, 80, 81, 82].map(allowed), [false, true, true, false]);

    let to_members = RuleDetail { services: vec![web], ..RuleDetail::default() };
    let others = vec![member("a", &["10.0.0.2"], &ports[..1]), member("b", &["10.0.0.3"], &ports[1..2])];
    let at_peers = plane([
        put(SetKind::Address, "pods", others, Vec::new()),
        policy_of("p", Direction::Out, Some(Action::Allow), None, &["pods"], to_members),
    ]);
    let allowed = |to: &str, port| tcp(&at_peers, POD, to, port) == Decision::Permit;
    assert_eq!([allowed("10.0.0.2", 80), allowed("10.0.0.2", 81)], [true, false]);
    assert_eq!([allowed("10.0.0.3", 80), allowed("10.0.0.3", 81)], [false, true]);
}

#[test]
fn the_late_removal_of_a_pod_leaves_the_next_owner_of_its_address_alone() {
    let set = |name: &str, gone: &str| {
        put(
            SetKind::Address,
            "pods",
            vec![member(name, &["10.0.0.2"], &[])],
            vec![member(gone, &["10.0.0.2"], &[])],
        )
    };
    let mut plane = plane([set("old", "nobody"), policy("p", &["pods"], RuleDetail::default())]);
    plane.step([set("new", "nobody")], []);
    plane.step([put(SetKind::Address, "pods", Vec::new(), vec![member("old", &["10.0.0.2"], &[])])], []);
    assert!(comes_in(&plane, "10.0.0.2"));
    plane.step([put(SetKind::Address, "pods", Vec::new(), vec![member("new", &["10.0.0.2"], &[])])], []);
    assert!(!comes_in(&plane, "10.0.0.2"));

    // The same on the node itself: whoever has the interface has the address.
    let mut next = Workload::new(WorkloadId::pod("n", "a-next"), [ip(POD)]);
    next.interface = Some("v9".into());
    plane.step([], [LocalChange::Put(next)]);
    assert!(comes_in(&plane, "10.0.0.2"), "no policy is about the new one");
    plane.step([], [LocalChange::Remove(WorkloadId::pod("n", "pod"))]);
    assert!(comes_in(&plane, "10.0.0.2"));
}

#[test]
fn names_that_look_alike_are_different_sets() {
    let names = ["a", "A", "a ", "a\0", "a-in-ns-b", "a-in-ns", "set", "peers4", ""];
    let sets = names.iter().enumerate().map(|(index, name)| {
        put(SetKind::Address, name, vec![member(name, &[&format!("10.0.1.{index}")], &[])], Vec::new())
    });
    let mut plane = plane(sets);
    for (index, name) in names.iter().enumerate() {
        plane.step([policy("p", &[name], RuleDetail::default())], []);
        for other in 0..names.len() {
            assert_eq!(comes_in(&plane, &format!("10.0.1.{other}")), index == other, "{name:?}");
        }
    }
}

#[test]
fn what_goes_and_comes_back_in_any_order() {
    let allow = || policy("p", &["pods"], RuleDetail::default());
    let members = || put(SetKind::Address, "pods", vec![member("a", &["10.0.0.2"], &[])], Vec::new());
    let mut plane = plane([members(), allow()]);
    plane.step([remove(ObjectKind::Policy, "p")], []);
    assert!(comes_in(&plane, "9.9.9.9"), "nothing isolates the Pod");
    plane.step([remove(ObjectKind::Policy, "p"), allow()], []);
    assert!(comes_in(&plane, "10.0.0.2") && !comes_in(&plane, "9.9.9.9"));
    plane.step([put(SetKind::Address, "pods", Vec::new(), vec![member("a", &["10.0.0.2"], &[])])], []);
    assert!(!comes_in(&plane, "10.0.0.2"), "the last member is gone, the policy stays");
    plane.step([remove(ObjectKind::AddressSet, "pods")], []);
    assert_eq!(plane.errors()[0].object, ObjectId::new(ObjectKind::Policy, "p"));
    plane.step([members()], []);
    assert!(comes_in(&plane, "10.0.0.2") && plane.errors().is_empty());
    plane.step([remove(ObjectKind::AppliedToSet, "on-pod")], []);
    assert!(comes_in(&plane, "9.9.9.9"), "no policy selects the Pod");
}

#[test]
fn what_cannot_be_said_closes_and_is_reported() {
    let unsaid =
        || RuleDetail { untranslatable: vec!["something new".into()], ..blocks(&[("0.0.0.0/0", &[])]) };
    let permits = plane([policy("p", &[], unsaid())]);
    assert!(!comes_in(&permits, "9.9.9.9"));
    let denies = plane([policy_of(
        "p",
        Direction::In,
        Some(Action::Reject),
        Some(50),
        &["not-here"],
        RuleDetail::default(),
    )]);
    assert!(!comes_in(&denies, "9.9.9.9"), "whom it denies is not known");
    for plane in [permits, denies] {
        let errors = plane.errors();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].object, ObjectId::new(ObjectKind::Policy, "p"));
    }
}
