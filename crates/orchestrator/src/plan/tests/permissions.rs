//! Permissions: what they open and what they do not; and links, which are made when both ends agree.

use std::collections::BTreeSet;

use model::{
    Cost, Direction, EntryName, Member, Packet, PermitRule, Ports, Protocol, ResourceName, Site,
    allow::{End, Passage, Permission},
};
use proptest::prelude::*;

use super::world::{World, resource, rule};
use crate::plan::{Action, Phase, ProblemKind, given, halves, undertaking};

const TCP_80: Packet = Packet { protocol: 6, src_port: 40_000, dst_port: 80 };
const TCP_443: Packet = Packet { protocol: 6, src_port: 40_000, dst_port: 443 };
const UDP_80: Packet = Packet { protocol: 17, src_port: 40_000, dst_port: 80 };
const PING: Packet = Packet { protocol: 1, src_port: 0, dst_port: 0 };
const PACKETS: [Packet; 4] = [TCP_80, TCP_443, UDP_80, PING];

fn permission(from: &str, to: &str, traffic: &[&str]) -> Permission {
    let passages = traffic.iter().map(|text| text.parse::<Passage>().unwrap()).collect();
    Permission::new(from.parse().unwrap(), to.parse().unwrap(), passages).unwrap()
}

fn allow(world: &mut World, permission: Permission) {
    world.intent.permissions.insert(permission.name(), permission);
}

fn deny(world: &mut World, permission: &Permission) {
    world.intent.permissions.remove(&permission.name()).unwrap();
}

fn two_clouds() -> World {
    let mut world = World::new(&["azure", "gcp"]);
    for (name, region) in
        [("ns.azure.a", "west"), ("ns.azure.c", "west"), ("ns.gcp.b", "east"), ("ns.gcp.d", "east")]
    {
        world.want(name, region);
    }
    world.group("web", &["inner", "8.8.0.0/16"]);
    world.group("inner", &["ns.azure.a"]);
    world.group("empty", &[]);
    world.settle();
    world
}

fn has_link(world: &World) -> bool {
    !world.inventory.links.is_empty()
}

#[test]
fn one_permission_is_both_ends_and_the_link_and_takes_back_exactly_that() {
    let mut world = two_clouds();
    let before = world.inventory.clone();
    let one = permission("resource:ns.azure.a", "resource:ns.gcp.b", &["tcp 80", "icmp"]);
    allow(&mut world, one.clone());
    let plan = world.plan();
    let built = undertaking(&plan, &world.intent.clouds);
    assert_eq!((built.gateways.len(), built.links.len(), built.cost), (2, 1, Some(Cost::Hourly)));
    // Both gateways at once, the slower one counts; then the slower end of the link.
    assert_eq!(built.seconds, Some(1500 + 60), "{plan}");
    world.settle();
    let (a, b) = (resource("ns.azure.a"), resource("ns.gcp.b"));
    assert!(world.passes(&a, &b, &TCP_80) && world.passes(&a, &b, &PING));
    assert!(!world.passes(&a, &b, &TCP_443) && !world.passes(&b, &a, &TCP_80));
    assert!(!world.passes(&resource("ns.azure.c"), &b, &TCP_80));
    assert!(world.plan().is_empty(), "the same again is nothing");
    allow(&mut world, one.clone());
    assert!(world.plan().is_empty() && world.intent.permissions.len() == 1);
    deny(&mut world, &one);
    world.settle();
    assert_eq!(world.inventory, before);
}

#[test]
fn tags_are_whoever_is_in_them_however_deep_and_nobody_if_they_are_empty() {
    let mut world = two_clouds();
    allow(&mut world, permission("tag:web", "resource:ns.gcp.b", &["tcp 80"]));
    world.settle();
    let (a, b, c) = (resource("ns.azure.a"), resource("ns.gcp.b"), resource("ns.azure.c"));
    assert!(world.passes(&a, &b, &TCP_80) && !world.passes(&c, &b, &TCP_80));
    let literal = "8.8.0.0/16".parse().unwrap();
    let list = &world.inventory.resources[&b].permit;
    assert!(list.values().any(|entry| entry.targets().contains(&literal)), "{list:?}");
    world.group("inner", &["ns.azure.c"]);
    world.settle();
    assert!(!world.passes(&a, &b, &TCP_80) && world.passes(&c, &b, &TCP_80));
    world.group("web", &[]);
    world.settle();
    assert!(world.inventory.resources[&b].permit.is_empty());
    assert!(!has_link(&world), "nobody asks for it");
    for empty in ["tag:empty", "tag:nowhere"] {
        let mut world = two_clouds();
        allow(&mut world, permission(empty, "resource:ns.gcp.b", &["any"]));
        let plan = world.plan();
        assert!(plan.is_empty() && !plan.problems.is_empty(), "{plan}");
    }
}

#[test]
fn namespaces_pods_and_hosts_are_whoever_is_told_to_be_there() {
    let mut world = two_clouds();
    let pod: End = "pod:shop/web-1".parse().unwrap();
    let (one, two) = (
        permission("pod:shop/web-1", "resource:ns.gcp.b", &["tcp 80"]),
        permission("namespace:ns", "ip:9.9.9.9", &["tcp 443"]),
    );
    allow(&mut world, one);
    let plan = world.plan();
    let kinds: Vec<_> = plan.problems.iter().map(|problem| &problem.kind).collect();
    assert!(matches!(kinds[..], [ProblemKind::Nobody { .. }]), "{plan}");
    assert!(kinds[0].goes_by_itself(), "it is not given up: the Pod may come");
    let at = ["2600::7".parse().unwrap(), "8.8.8.8".parse().unwrap()];
    world.intent.elsewhere = std::sync::Arc::new([(pod, at.into())].into());
    allow(&mut world, two);
    world.settle();
    let b = resource("ns.gcp.b");
    let entry = world.inventory.resources[&b]
        .permit
        .values()
        .find(|entry| entry.traffic.direction == Direction::Inbound);
    assert_eq!(entry.unwrap().targets(), &BTreeSet::from(at), "both families");
    for name in ["ns.azure.a", "ns.azure.c", "ns.gcp.b", "ns.gcp.d"] {
        let list = &world.inventory.resources[&resource(name)].permit;
        assert!(
            list.values().any(|entry| entry.traffic.direction == Direction::Outbound),
            "{name}: {list:?}"
        );
    }
}

#[test]
fn overlapping_permissions_and_rules_of_the_same_content_stand_by_themselves() {
    let mut world = two_clouds();
    let (a, b) = (resource("ns.azure.a"), resource("ns.gcp.b"));
    let wide = permission("tag:web", "resource:ns.gcp.b", &["tcp"]);
    let narrow = permission("resource:ns.azure.a", "resource:ns.gcp.b", &["tcp 80"]);
    allow(&mut world, wide.clone());
    allow(&mut world, narrow.clone());
    world.settle();
    deny(&mut world, &wide);
    world.settle();
    assert!(world.passes(&a, &b, &TCP_80) && !world.passes(&a, &b, &TCP_443));
    // What somebody wrote by hand stays, although it says the same.
    let by_hand = |direction, peer: &str| {
        let traffic = model::Traffic::new(direction, Protocol::TCP, Ports::Any, Ports::one(80)).unwrap();
        PermitRule::new(None, traffic, [peer.parse::<Member>().unwrap()].into()).unwrap()
    };
    world.permit("ns.azure.a", by_hand(Direction::Outbound, "ns.gcp.b"));
    world.permit("ns.gcp.b", by_hand(Direction::Inbound, "ns.azure.a"));
    world.settle();
    deny(&mut world, &narrow);
    world.settle();
    assert!(world.passes(&a, &b, &TCP_80));
    let permission_of = |entry: &&EntryName| entry.permission().is_some();
    assert!(!world.inventory.resources[&b].permit.keys().any(|entry| permission_of(&entry)));
}

#[test]
fn a_link_is_made_when_both_ends_permit_something_and_stays_while_one_asks() {
    let mut world = two_clouds();
    let tcp = |direction, port: u16, peer: &str| {
        let traffic = model::Traffic::new(direction, Protocol::TCP, Ports::Any, Ports::one(port)).unwrap();
        PermitRule::new(None, traffic, [peer.parse::<Member>().unwrap()].into()).unwrap()
    };
    world.permit("ns.azure.a", tcp(Direction::Outbound, 80, "ns.gcp.b"));
    world.settle();
    assert!(!has_link(&world), "one end is no reason");
    // The other end permits something else, somebody else, or the other way.
    world.permit("ns.gcp.b", tcp(Direction::Inbound, 443, "ns.azure.a"));
    world.permit("ns.gcp.b", tcp(Direction::Inbound, 80, "ns.azure.c"));
    world.permit("ns.gcp.b", tcp(Direction::Outbound, 80, "ns.azure.a"));
    world.permit("ns.gcp.d", tcp(Direction::Inbound, 80, "ns.azure.a"));
    world.settle();
    assert!(!has_link(&world) && world.inventory.gateways.is_empty());
    let told = halves(&world.inventory, None, 100);
    assert_eq!(told.len(), 5, "each is told: {told:?}");
    let half = told.iter().find(|half| half.resource == resource("ns.azure.a")).unwrap();
    assert_eq!(half.remedy(), "trestle rule add ns.gcp.b --in --protocol tcp --port 80 --peer ns.azure.a");
    assert_eq!(half.allow(), "trestle allow ns.azure.a ns.gcp.b --port 80");
    assert_eq!(halves(&world.inventory, Some(&resource("ns.gcp.d")), 100).len(), 1);
    assert_eq!(halves(&world.inventory, None, 2).len(), 2);
    let agreeing = tcp(Direction::Inbound, 80, "ns.azure.a");
    world.permit("ns.gcp.b", agreeing.clone());
    world.settle();
    assert!(has_link(&world));
    // It stays while something is asked for, also while it is made anew, and goes with the last.
    world.intent.rules.get_mut(&resource("ns.gcp.b")).unwrap().remove(&agreeing.name);
    world.settle();
    assert!(has_link(&world));
    let link = world.inventory.links.values_mut().next().unwrap();
    (link.phase, link.stood) = (Phase::Making, true);
    world.settle();
    assert!(has_link(&world), "a new key is no reason to take it down");
    let link = world.inventory.links.values_mut().next().unwrap();
    (link.phase, link.stood) = (Phase::Making, false);
    world.settle();
    assert!(!has_link(&world), "what never stood is not finished for one end");
    world.intent.rules.clear();
    world.settle();
    assert!(world.inventory.gateways.is_empty());
}

#[test]
fn a_rule_that_says_so_is_reason_enough_by_itself() {
    let mut world = two_clouds();
    world.permit("ns.azure.a", rule("out", Direction::Outbound, &["ns.gcp.b"]).building(true));
    world.settle();
    assert!(has_link(&world));
    world.intent.rules.clear();
    world.settle();
    assert!(!has_link(&world));
    // Everybody at one end is no reason to keep what nobody else asks for.
    world.permit("ns.azure.a", rule("out", Direction::Outbound, &["10.0.0.0/8"]));
    world.settle();
    assert!(!has_link(&world));
    world.permit("ns.gcp.b", rule("in", Direction::Inbound, &["10.0.0.0/8"]));
    world.settle();
    assert!(has_link(&world), "two wide ones agree");
    world.intent.rules.remove(&resource("ns.gcp.b"));
    world.settle();
    assert!(!has_link(&world));
}

#[test]
fn what_clouds_do_not_say_is_not_told() {
    let mut world = two_clouds();
    world.intent.clouds.get_mut("gcp").unwrap().gateway = None;
    allow(&mut world, permission("resource:ns.azure.a", "resource:ns.gcp.b", &["tcp 80"]));
    let plan = world.plan();
    let built = undertaking(&plan, &world.intent.clouds);
    assert_eq!((built.seconds, built.cost), (None, None));
    assert!(undertaking(&plan, &world.intent.clouds).beyond(&built).is_empty(), "it is built anyway");
    assert_eq!(
        plan.steps.iter().filter(|step| matches!(step.action, Action::CreateGateway { .. })).count(),
        2
    );
}

#[test]
fn each_resource_at_an_end_is_given_each_passage_once() {
    let mut world = two_clouds();
    world.refresh_tags();
    let one = permission("tag:web", "namespace:ns", &["tcp 80", "icmp"]);
    let given = given(&world.intent, &one);
    // One in the tag, going out; four in the namespace, coming in.
    assert_eq!(given.len(), (1 + 4) * 2);
    assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), given.len());
    assert!(given.iter().all(|(_, entry)| entry.permission() == Some(one.name().as_str())));
    let sites: BTreeSet<Site> = given.iter().map(|(name, _)| Site::of(name)).collect();
    assert_eq!(sites.len(), 2);
}

const CLOUDS: [&str; 3] = ["azure", "gcp", "ibm"];

fn name(which: usize) -> ResourceName {
    resource(&format!("{}.{}.vm{which}", ["x", "y"][which % 2], CLOUDS[which % 3]))
}

fn end() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (0..6usize).prop_map(|which| format!("resource:{}", name(which))),
        3 => (0..3usize).prop_map(|tag| format!("tag:t{tag}")),
        1 => prop_oneof![Just("namespace:x".to_owned()), Just("namespace:y".to_owned())],
    ]
}

fn traffic() -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(vec!["tcp 80", "tcp 400-500", "udp", "icmp"], 1..=2)
}

/// Whether somebody is at an end, read as a person would.
fn is_at(world: &World, end: &End, who: &ResourceName) -> bool {
    match end {
        End::Resource(name) => name == who,
        End::Namespace(namespace) => who.namespace.as_str() == namespace.as_str(),
        End::Tag(tag) => world.is_below(&Member::Tag(who.to_string().parse().unwrap()), tag),
        other => panic!("{other}"),
    }
}

fn covers(passage: &Passage, packet: &Packet) -> bool {
    passage.protocol == Protocol::Number(packet.protocol) && passage.ports.contains(packet.dst_port)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn only_what_was_asked_for_opens_and_nothing_else(
        asked in prop::collection::vec((end(), end(), traffic(), any::<bool>()), 1..8),
        members in prop::collection::vec((0..3usize, 0..6usize), 0..6),
    ) {
        let mut world = World::new(&CLOUDS);
        for which in 0..6 {
            world.want(&name(which).to_string(), "r");
        }
        for tag in 0..3 {
            let mut inside: Vec<String> =
                members.iter().filter(|(of, _)| *of == tag).map(|(_, which)| name(*which).to_string()).collect();
            // Each holds the one before it.
            inside.extend((tag > 0).then(|| format!("t{}", tag - 1)));
            world.group(&format!("t{tag}"), &inside.iter().map(String::as_str).collect::<Vec<_>>());
        }
        world.settle();
        let nothing = world.inventory.clone();
        let permissions: Vec<(Permission, bool)> =
            asked.iter().map(|(from, to, traffic, stays)| (permission(from, to, traffic), *stays)).collect();
        for (permission, _) in &permissions {
            allow(&mut world, permission.clone());
        }
        for is_over in [false, true] {
            if is_over {
                for (permission, _) in permissions.iter().filter(|(_, stays)| !stays) {
                    world.intent.permissions.remove(&permission.name());
                }
            }
            world.settle();
            for a in (0..6).map(name) {
                for b in (0..6).map(name).filter(|b| *b != a) {
                    for packet in PACKETS {
                        let meant = world.intent.permissions.values().any(|one| {
                            is_at(&world, &one.from, &a)
                                && is_at(&world, &one.to, &b)
                                && one.passages.iter().any(|passage| covers(passage, &packet))
                        });
                        prop_assert_eq!(world.passes(&a, &b, &packet), meant, "{} to {}: {:?}", a, b, packet);
                    }
                }
            }
        }
        world.intent.permissions.clear();
        world.settle();
        prop_assert_eq!(&world.inventory, &nothing);
    }
}
