//! Cases by name. B numbers are the bugs of the original that ours must not have.

use std::collections::BTreeSet;

use model::{Direction, PermitEntry, PermitRule};

use super::world::{World, resource, rule, segment};
use crate::plan::{Action, Phase, ProblemKind};

const TWO: [&str; 2] = ["azure", "gcp"];

fn two_clouds() -> World {
    let mut world = World::new(&TWO);
    world.want("ns.azure.a", "west");
    world.want("ns.gcp.b", "east");
    world.settle();
    world
}

fn actions(world: &mut World) -> Vec<String> {
    world.plan().steps.iter().map(|step| step.action.to_string()).collect()
}

#[test]
fn a_resource_gets_a_network_and_nothing_reaches_it() {
    let mut world = World::new(&TWO);
    world.want("ns.azure.a", "west");
    world.want("ns.azure.b", "west");
    let plan = world.plan();
    assert_eq!(
        plan.to_string(),
        "   1  create network ns.azure.west with 10.0.0.0/16\n   \
            2  create resource ns.azure.a in network ns.azure.west  (after 1)\n   \
            3  create resource ns.azure.b in network ns.azure.west  (after 1)\n"
    );
    world.settle();
    assert!(!world.reaches(&resource("ns.azure.a"), &resource("ns.azure.b")));
}

#[test]
fn two_clouds_are_linked_once_and_unlinked_when_the_last_rule_goes() {
    let mut world = two_clouds();
    world.join("ns.azure.a", "ns.gcp.b");
    let plan = world.plan();
    let links = plan.steps.iter().filter(|step| matches!(step.action, Action::CreateLink { .. }));
    assert_eq!(links.count(), 1);
    let link = plan.steps.iter().find(|step| matches!(step.action, Action::CreateLink { .. })).unwrap();
    assert_eq!(link.after.len(), 2, "both gateways first: {plan}");
    world.settle();
    world.check();
    assert!(world.reaches(&resource("ns.azure.a"), &resource("ns.gcp.b")));
    // A second region joins through the same gateways.
    world.want("ns.azure.c", "north");
    world.settle();
    world.join("ns.azure.c", "ns.gcp.b");
    let plan = world.plan();
    assert!(plan.steps.iter().all(|step| matches!(step.action, Action::Open { .. })), "{plan}");
    world.settle();
    world.check();
    world.intent.rules.clear();
    world.settle();
    world.check();
    assert!(world.inventory.links.is_empty() && world.inventory.gateways.is_empty());
}

/// Ranges in use are a function of what is there; a plan that is made twice reserves nothing twice.
#[test]
fn spaces_are_leased_with_their_network_and_come_back_with_it() {
    let mut world = two_clouds();
    let spaces: BTreeSet<_> = world.inventory.used_spaces().collect();
    assert_eq!(spaces.len(), 2);
    world.unwant("ns.azure.a");
    world.settle();
    world.want("other.azure.z", "south");
    world.settle();
    assert_eq!(world.inventory.used_spaces().collect::<BTreeSet<_>>(), spaces);
}

/// Rules on tags are resolved and inherited, also by those who join later, and never with empty targets.
#[test]
fn rules_on_a_tag_hold_for_whoever_is_in_it_now_and_later() {
    let mut world = two_clouds();
    world.group("web", &["ns.azure.a"]);
    world.permit("ns.gcp.b", rule("in", Direction::Inbound, &["web"]));
    let out = rule("out", Direction::Outbound, &["ns.gcp.b"]);
    world.intent.tag_rules.entry("web".parse().unwrap()).or_default().insert(out.name.clone(), out);
    world.want("ns.azure.late", "west");
    world.settle();
    assert!(world.reaches(&resource("ns.azure.a"), &resource("ns.gcp.b")));
    assert!(!world.reaches(&resource("ns.azure.late"), &resource("ns.gcp.b")));
    world.group("web", &["ns.azure.a", "ns.azure.late"]);
    world.settle();
    assert!(world.reaches(&resource("ns.azure.late"), &resource("ns.gcp.b")));
    world.group("web", &["ns.azure.late"]);
    world.settle();
    assert!(!world.reaches(&resource("ns.azure.a"), &resource("ns.gcp.b")));
    world.check();
}

/// An unknown tag opened everything; here it opens nothing and is reported.
#[test]
fn unknown_and_empty_tags_open_nothing_and_are_told() {
    let mut world = two_clouds();
    world.group("empty", &[]);
    world.permit("ns.azure.a", rule("one", Direction::Inbound, &["nowhere"]));
    world.permit("ns.azure.a", rule("two", Direction::Inbound, &["empty"]));
    let plan = world.plan();
    assert!(plan.is_empty(), "{plan}");
    let kinds: Vec<_> = plan.problems.iter().map(|problem| &problem.kind).collect();
    assert!(matches!(kinds[..], [ProblemKind::UnknownTag { .. }, ProblemKind::EmptyTag { .. }]), "{kinds:?}");
}

/// A change anywhere below reaches the lists above, and what left a tag leaves the list.
#[test]
fn a_nested_change_changes_exactly_the_difference() {
    let mut world = two_clouds();
    world.want("ns.azure.c", "west");
    world.want("ns.azure.d", "west");
    world.settle();
    world.group("inner", &["ns.azure.a"]);
    world.group("outer", &["inner", "1.1.1.1"]);
    world.permit("ns.gcp.b", rule("in", Direction::Inbound, &["outer"]));
    world.permit("ns.azure.d", rule("other", Direction::Inbound, &["ns.azure.a"]));
    world.settle();
    world.group("inner", &["ns.azure.c"]);
    let plan = world.plan();
    assert!(plan.steps.iter().all(|step| step.action.object() == "resource/ns.gcp.b"), "{plan}");
    let [close, open] = &plan.steps[..] else { panic!("{plan}") };
    let Action::Close { change, .. } = &close.action else { panic!("{plan}") };
    let kept: Vec<_> = change.set[0].targets().iter().map(ToString::to_string).collect();
    assert_eq!(kept, ["1.1.1.1"]);
    let Action::Open { change, .. } = &open.action else { panic!("{plan}") };
    assert_eq!(change.set[0].targets().len(), 2);
    world.settle();
    let list = &world.inventory.resources[&resource("ns.gcp.b")].permit;
    assert_eq!(list.values().next().unwrap().targets().len(), 2);
}

/// Every link of a gateway has BGP addresses of its own, and the gateway keeps its AS number.
#[test]
fn further_links_of_a_gateway_have_their_own_addresses_and_the_same_as() {
    let mut world = World::new(&["azure", "gcp", "ibm"]);
    for name in ["ns.azure.a", "ns.gcp.b", "ns.ibm.c"] {
        world.want(name, "r");
    }
    world.settle();
    world.join("ns.azure.a", "ns.gcp.b");
    world.settle();
    let before = world.inventory.gateways.clone();
    world.join("ns.azure.a", "ns.ibm.c");
    world.join("ns.gcp.b", "ns.ibm.c");
    world.settle();
    world.check();
    assert!(before.iter().all(|(site, record)| world.inventory.gateways[site] == *record));
    let all: Vec<_> = world.inventory.links.values().flat_map(|link| &link.bgp).map(|pair| pair.a).collect();
    assert_eq!(all.len(), all.iter().collect::<BTreeSet<_>>().len());
    assert_eq!(world.inventory.links.len(), 3, "all pairs");
}

/// A rule with several targets has all of them, and rule names are a matter of their resource.
#[test]
fn several_targets_are_one_entry_and_names_are_per_resource() {
    let mut world = two_clouds();
    for name in ["ns.azure.a", "ns.gcp.b"] {
        world.permit(name, rule("same", Direction::Outbound, &["1.1.1.1", "8.8.8.8", "9.9.9.9"]));
    }
    world.settle();
    for record in world.inventory.resources.values() {
        assert_eq!(record.permit.values().next().unwrap().targets().len(), 3);
    }
    // Several public targets, one NAT per network.
    assert_eq!(world.inventory.nats.len(), 2);
}

#[test]
fn a_private_target_in_no_network_is_left_out_and_told() {
    let mut world = two_clouds();
    world.permit("ns.azure.a", rule("r", Direction::Outbound, &["192.168.7.7", "fd00::1", "8.8.8.8"]));
    world.settle();
    let list = &world.inventory.resources[&resource("ns.azure.a")].permit;
    assert_eq!(list.values().next().unwrap().targets().len(), 1);
    assert_eq!(world.plan().problems.len(), 2);
}

#[test]
fn anybody_does_not_join_every_cloud() {
    let mut world = two_clouds();
    world.permit("ns.azure.a", rule("all", Direction::Outbound, &["0.0.0.0/0"]));
    world.settle();
    assert!(world.inventory.links.is_empty());
    assert_eq!(world.inventory.nats.len(), 1);
    world.permit("ns.gcp.b", rule("all", Direction::Inbound, &["0.0.0.0/0"]));
    world.settle();
    assert_eq!(world.inventory.links.len(), 1);
    world.check();
}

#[test]
fn an_address_is_given_back_only_after_the_lists_that_named_it_are_closed() {
    let mut world = World::new(&TWO);
    for name in ["ns.azure.a", "ns.azure.b"] {
        world.want(name, "r");
    }
    world.settle();
    world.join("ns.azure.a", "ns.azure.b");
    world.settle();
    world.unwant("ns.azure.b");
    let plan = world.plan();
    let delete = plan.steps.iter().find(|step| matches!(step.action, Action::DeleteResource { .. })).unwrap();
    assert!(matches!(plan.steps[*delete.after.first().unwrap()].action, Action::Close { .. }), "{plan}");
}

/// A policy may have cut the block of a cluster: lists that name a piece of it are closed first, too.
#[test]
fn a_block_is_given_back_only_after_the_lists_that_named_a_part_of_it_are_closed() {
    let mut world = World::new(&TWO);
    for name in ["ns.azure.a", "ns.azure.b"] {
        world.want(name, "r");
    }
    world.settle();
    world.join("ns.azure.a", "ns.azure.b");
    world.settle();
    let record = world.inventory.resources.get_mut(&resource("ns.azure.b")).unwrap();
    record.state.as_mut().unwrap().address = "10.9.0.0/16".parse().unwrap();
    let record = world.inventory.resources.get_mut(&resource("ns.azure.a")).unwrap();
    for entry in record.permit.values_mut() {
        let part = ["10.9.128.0/17".parse().unwrap()].into();
        *entry = PermitEntry::new(entry.name.clone(), entry.traffic, part, entry.tags.clone()).unwrap();
    }
    world.unwant("ns.azure.b");
    let plan = world.plan();
    let delete = plan.steps.iter().find(|step| matches!(step.action, Action::DeleteResource { .. })).unwrap();
    assert!(matches!(plan.steps[*delete.after.first().unwrap()].action, Action::Close { .. }), "{plan}");
}

#[test]
fn what_was_half_made_is_made_again_with_the_same_choices_and_half_removed_is_removed() {
    let mut world = two_clouds();
    world.join("ns.azure.a", "ns.gcp.b");
    world.settle();
    let (name, record) = world.inventory.links.iter_mut().next().unwrap();
    record.phase = Phase::Making;
    let (name, bgp) = (name.clone(), record.bgp.clone());
    let plan = world.plan();
    assert!(
        matches!(&plan.steps[..], [step] if matches!(&step.action, Action::CreateLink { link, bgp: again, .. } if *link == name && *again == bgp))
    );
    world.inventory.links.get_mut(&name).unwrap().phase = Phase::Removing;
    assert!(actions(&mut world)[0].starts_with("unlink"));
    world.settle();
    world.check();
}

#[test]
fn an_interrupted_change_of_a_list_is_finished_whichever_way_it_went() {
    for reached in [false, true] {
        let mut world = two_clouds();
        world.permit("ns.azure.a", rule("r", Direction::Outbound, &["8.8.8.8"]));
        world.settle();
        let record = world.inventory.resources.get_mut(&resource("ns.azure.a")).unwrap();
        let before = record.permit.clone();
        let other: PermitRule = rule("r", Direction::Outbound, &["9.9.9.9"]);
        world.permit("ns.azure.a", other);
        let plan = world.plan();
        let record = world.inventory.resources.get_mut(&resource("ns.azure.a")).unwrap();
        let mut after = before.clone();
        for step in &plan.steps {
            if let Action::Close { change, .. } | Action::Open { change, .. } = &step.action {
                after = change.apply(after);
            }
        }
        for step in &plan.steps {
            if let Action::Close { change, .. } | Action::Open { change, .. } = &step.action {
                for entry in change.set.iter().chain(&change.unset) {
                    record.changing.entry(entry.name.clone()).or_default().insert(entry.clone());
                }
            }
        }
        // Back to the first wish, while nobody knows which list the cloud has.
        world.permit("ns.azure.a", rule("r", Direction::Outbound, &["8.8.8.8"]));
        let plan = world.plan();
        let mut list = if reached { after } else { before.clone() };
        for step in &plan.steps {
            if let Action::Close { change, .. } | Action::Open { change, .. } = &step.action {
                list = change.apply(list);
            }
        }
        assert_eq!(list, before, "{plan}");
    }
}

#[test]
fn a_cloud_whose_plugin_is_gone_is_left_as_it_is() {
    let mut world = two_clouds();
    world.join("ns.azure.a", "ns.gcp.b");
    world.settle();
    world.intent.clouds.remove(&segment("gcp"));
    let plan = world.plan();
    assert!(plan.is_empty(), "{plan}");
    assert!(matches!(plan.problems[0].kind, ProblemKind::UnknownCloud { .. }));
    world.unwant("ns.azure.a");
    let plan = world.plan();
    assert!(plan.steps.iter().all(|step| !step.action.object().contains("gcp")), "{plan}");
}

#[test]
fn full_pools_hold_up_only_who_needs_them() {
    let mut world = World::new(&TWO);
    world.intent.pools = crate::plan::Pools::new(vec!["10.0.0.0/16".parse().unwrap()]).unwrap();
    world.want("ns.azure.a", "r1");
    world.settle();
    world.want("ns.azure.b", "r2");
    world.want("ns.azure.c", "r1");
    let plan = world.plan();
    assert!(matches!(&plan.problems[..], [problem] if matches!(problem.kind, ProblemKind::NoSpace { .. })));
    world.settle();
    assert!(world.inventory.resources.contains_key(&resource("ns.azure.c")));
}

/// A rule names an address of a network that is about to go: what joined the network goes before it.
#[test]
fn a_network_that_goes_is_held_by_nothing() {
    let mut world = World::new(&TWO);
    world.want("ns.azure.a", "west");
    world.want("ns.azure.b", "east");
    world.settle();
    let space = world.inventory.networks[&"ns.azure.east".parse().unwrap()].space;
    let address = space.hosts().next().unwrap().to_string();
    world.permit("ns.azure.a", rule("r", Direction::Outbound, &[&address]));
    world.settle();
    assert_eq!(world.inventory.peerings.len(), 1);
    world.unwant("ns.azure.b");
    world.settle();
    assert!(world.inventory.peerings.is_empty() && world.inventory.networks.len() == 1);
}

/// A network whose removal was begun while somebody moved in is made again: it can never be removed.
#[test]
fn a_network_that_somebody_lives_in_is_not_waited_for_to_go() {
    let mut world = World::new(&TWO);
    world.want("ns.azure.a", "west");
    world.settle();
    world.inventory.networks.values_mut().for_each(|record| record.phase = Phase::Removing);
    let plan = world.plan();
    assert!(matches!(plan.steps[0].action, Action::CreateNetwork { .. }), "{plan}");
    world.settle();
    assert_eq!(world.inventory.networks.values().next().unwrap().phase, Phase::Ready);
}
