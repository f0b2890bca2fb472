//! What is told to be in force is what the lists permit, and what is not says why.

use std::collections::BTreeSet;

use model::{Direction, EntryName, ResourceName};

use super::world::{World, resource, rule};
use crate::plan::{Lack, Origin, RuleStanding, Scope, rules_in_force};

fn told(world: &mut World, scope: &Scope) -> Vec<RuleStanding> {
    let plan = world.plan();
    rules_in_force(&world.intent, &world.inventory, &plan, scope)
}

fn lines(world: &mut World, scope: &Scope) -> Vec<String> {
    let line = |one: &RuleStanding| {
        format!("{} {} {} [{}]", one.from, one.name, one.state(), one.message()).replace(" []", "")
    };
    told(world, scope).iter().map(line).collect()
}

fn at(name: &str) -> Scope {
    Scope::Resource(resource(name))
}

fn put_on_tag(world: &mut World, tag: &str, rule: model::PermitRule) {
    world.intent.tag_rules.entry(tag.parse().unwrap()).or_default().insert(rule.name.clone(), rule);
}

/// Two resources; `web` is one of them, `none` nothing at all.
fn world() -> World {
    let mut world = World::new(&["azure", "gcp"]);
    world.want("ns.azure.a", "west");
    world.want("other.gcp.b", "east");
    world.group("web", &["ns.azure.a"]);
    world.group("none", &[]);
    world.settle();
    world
}

#[test]
fn rules_say_whether_they_are_in_force_and_from_where() {
    let mut world = world();
    world.permit("ns.azure.a", rule("own", Direction::Inbound, &["8.8.8.8"]));
    world.permit("ns.azure.a", rule("lost", Direction::Inbound, &["gone"]));
    put_on_tag(&mut world, "web", rule("theirs", Direction::Outbound, &["9.9.9.9"]));
    put_on_tag(&mut world, "none", rule("nobody", Direction::Outbound, &["9.9.9.9"]));
    let lost = "ns.azure.a lost not in force [there is no tag gone]";
    let before = lines(&mut world, &at("ns.azure.a"));
    let told = world.plan().problems.iter().map(|problem| problem.kind.to_string()).collect::<Vec<_>>();
    let lost = lost.replace("there is no tag gone", &told[0]);
    assert_eq!(
        before,
        [
            lost.clone(),
            "ns.azure.a own not in force [it is being changed]".to_owned(),
            "tag web theirs not in force [ns.azure.a: it is being changed]".to_owned(),
        ]
    );
    world.settle();
    let in_force = ["ns.azure.a own in force".to_owned(), "tag web theirs in force".to_owned()];
    let after = lines(&mut world, &at("ns.azure.a"));
    assert_eq!(after, [&[lost.clone()][..], &in_force].concat());
    assert_eq!(lines(&mut world, &Scope::Namespace("ns".parse().unwrap())).len(), 4, "and the one of nobody");
    assert_eq!(lines(&mut world, &Scope::Namespace("other".parse().unwrap())).len(), 1, "tags are of all");
    assert_eq!(
        lines(&mut world, &Scope::Tag("none".parse().unwrap())),
        ["tag none nobody not in force [nothing that is in the tag is a resource]"]
    );
    assert_eq!(lines(&mut world, &Scope::All).len(), 4);
    // What they come to is what the list has.
    let own = told_named(&mut world, "own");
    assert_eq!(own.targets, ["8.8.8.8".parse().unwrap()].into());
    assert_eq!(own.in_force, [resource("ns.azure.a")].into());
    // A rule that is not made everywhere is in force in part.
    world.want("ns.azure.late", "west");
    world.permit("ns.azure.late", rule("soon", Direction::Inbound, &["8.8.8.8"]));
    let soon = told_named(&mut world, "soon");
    assert_eq!((soon.state(), soon.message().as_str()), ("not in force", "it is not made yet"));
    world.settle();
    world.group("web", &["ns.azure.a", "ns.azure.late"]);
    let theirs = told_named(&mut world, "theirs");
    assert_eq!(
        (theirs.state(), theirs.message().as_str()),
        ("in part", "ns.azure.late: it is being changed")
    );
}

fn told_named(world: &mut World, name: &str) -> RuleStanding {
    told(world, &Scope::All).into_iter().find(|one| one.name == name).unwrap()
}

/// What is told is the list, whole: every entry that is in force is told once, with its targets.
#[test]
fn nothing_in_a_list_goes_untold() {
    let mut world = world();
    world.permit("ns.azure.a", rule("web", Direction::Inbound, &["8.8.0.0/16"]));
    put_on_tag(&mut world, "web", rule("web", Direction::Inbound, &["9.9.9.9"]));
    world.settle();
    let name: ResourceName = resource("ns.azure.a");
    let list = world.inventory.resources[&name].permit.clone();
    let told = told(&mut world, &at("ns.azure.a"));
    let entries: BTreeSet<EntryName> = told
        .iter()
        .map(|one| match &one.from {
            Origin::Tag(tag) => EntryName::inherited(tag, &one.name.parse().unwrap()),
            _ => EntryName::own(&one.name.parse().unwrap()),
        })
        .collect();
    assert_eq!(entries, list.keys().cloned().collect());
    for one in &told {
        assert!(one.lacking.is_empty() && one.in_force.contains(&name), "{one:?}");
    }
}

/// A rule of tag `a` is no part of a rule `a`.
#[test]
fn what_policies_leave_of_a_rule_is_told_as_a_part() {
    let (own, of_tag) = (EntryName::own(&"a".parse().unwrap()), "_part.a.b.6_any_80-80");
    assert!(!EntryName::reported(of_tag).is_part_of(&own));
    assert!(EntryName::part_of(&own, "6_any_80-80").is_part_of(&own));
    let mut world = world();
    world.permit("ns.azure.a", rule("own", Direction::Inbound, &["8.8.8.8"]));
    world.settle();
    let record = world.inventory.resources.get_mut(&resource("ns.azure.a")).unwrap();
    let whole = record.permit.remove(&EntryName::own(&"own".parse().unwrap())).unwrap();
    let name = EntryName::part_of(&whole.name, "6_any_80-80");
    let tags = whole.tags.clone();
    let part = model::PermitEntry::new(name, whole.traffic, whole.targets().clone(), tags).unwrap();
    record.permit.insert(part.name.clone(), part);
    // As a plan finds it that has nothing to do.
    let plan = crate::plan::Plan::default();
    let told = rules_in_force(&world.intent, &world.inventory, &plan, &at("ns.azure.a"));
    assert_eq!((told.len(), told[0].state()), (1, "in part"));
    assert_eq!(told[0].lacking[&resource("ns.azure.a")], Lack::Narrowed);
    world.inventory.resources.get_mut(&resource("ns.azure.a")).unwrap().permit.clear();
    let told = rules_in_force(&world.intent, &world.inventory, &plan, &at("ns.azure.a"));
    assert_eq!((told[0].state(), &told[0].lacking[&resource("ns.azure.a")]), ("not in force", &Lack::Denied));
}
