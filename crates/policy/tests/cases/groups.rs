//! Group and ClusterGroup: what they stand for, how they nest, who hears of a change.

use model::policy::Kind;

use crate::harness::{World, cluster_policy, in_every_order, pod};

fn group(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterGroup\nmetadata: {{name: {name}, uid: uid-{name}}}\nspec: {spec}\n---\n"
    )
}

fn from_group() -> String {
    cluster_policy(
        "p",
        "{priority: 1, appliedTo: [{podSelector: {matchLabels: {app: local}}}], ingress: [{action: Drop, from: [{group: g}]}]}",
    )
}

fn pods() -> String {
    pod("ns", "local", "{app: local}", "n1", "10.0.0.1")
        + &pod("ns", "web", "{app: web}", "n2", "10.0.0.2")
        + &pod("ns", "db", "{app: db}", "n3", "10.0.0.3")
}

#[test]
fn a_new_selector_moves_members_without_touching_policies() {
    let mut world =
        World::of(&(pods() + &group("g", "{podSelector: {matchLabels: {app: web}}}") + &from_group()));
    assert_eq!(world.consumer.state.address["g"].uid, "uid-g");
    assert_eq!(world.members_on("n1").1, ["Pod ns/web at [10.0.0.2]"]);
    let updates = world.apply(&group("g", "{podSelector: {matchLabels: {app: db}}}"));
    assert_eq!(updates.len(), 1, "{updates:#?}");
    assert_eq!(world.members_on("n1").1, ["Pod ns/db at [10.0.0.3]"]);
}

#[test]
fn a_member_of_two_children_leaves_with_the_last() {
    let children = group("a", "{podSelector: {matchLabels: {app: web}}}") + &group("b", "{podSelector: {}}");
    let yaml = pods() + &children + &group("g", "{childGroups: [a, b]}") + &from_group();
    let mut world = World::of(&yaml);
    assert_eq!(world.members_on("n1").1.len(), 3);
    world.delete(Kind::ClusterGroup, "", "b");
    assert_eq!(world.members_on("n1").1, ["Pod ns/web at [10.0.0.2]"]);
    assert_eq!(world.problems(), ["spec.childGroups[1]"]);
    world.delete(Kind::ClusterGroup, "", "a");
    assert_eq!(world.members_on("n1").1.len(), 0);
    in_every_order(&yaml);
}

#[test]
fn a_service_reference_follows_the_service() {
    let service = |selector: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s, namespace: ns}}\nspec: {{selector: {selector}}}\n---\n"
        )
    };
    let grouped = group("g", "{serviceReference: {namespace: ns, name: s}}");
    let mut world = World::of(&(pods() + &grouped + &from_group()));
    assert_eq!(world.problems(), ["spec.serviceReference"]);
    world.apply(&service("{app: web}"));
    assert_eq!(
        (world.members_on("n1").1, world.problems().len()),
        (vec!["Pod ns/web at [10.0.0.2]".into()], 0)
    );
    world.apply(&service("{app: db}"));
    assert_eq!(world.members_on("n1").1, ["Pod ns/db at [10.0.0.3]"]);
    in_every_order(&(pods() + &grouped + &service("{app: web}") + &from_group()));
}

#[test]
fn nesting_beyond_two_levels_and_cycles_are_not_realised_and_recover() {
    let leaf = group("leaf", "{podSelector: {}}");
    let yaml = pods()
        + &leaf
        + &group("mid", "{childGroups: [leaf]}")
        + &group("g", "{childGroups: [mid]}")
        + &from_group();
    let mut world = World::of(&yaml);
    assert_eq!(world.members_on("n1").1.len(), 0);
    assert_eq!(world.problems(), ["spec.childGroups[0]", "spec.ingress[0].from[0].group"]);
    // What denies and is not understood denies everything.
    let rule = world.consumer.state.policies["uid-p"].policy.rules[0].clone();
    assert_eq!(rule.detail.ip_blocks.len(), 2);
    world.apply(&group("mid", "{podSelector: {matchLabels: {app: web}}}"));
    assert_eq!(
        (world.members_on("n1").1, world.problems().len()),
        (vec!["Pod ns/web at [10.0.0.2]".into()], 0)
    );
    world.apply(&group("mid", "{childGroups: [g]}"));
    assert_eq!(world.problems().len(), 3);
    in_every_order(&yaml);
    in_every_order(&(group("g", "{childGroups: [g]}") + &from_group()));
}

#[test]
fn a_namespaced_group_never_applies_a_policy_to_another_namespace() {
    let yaml = "apiVersion: crd.antrea.io/v1beta1
kind: Group
metadata: {name: g, namespace: ns}
spec: {namespaceSelector: {}}
---
apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: p, namespace: ns, uid: u}
spec: {priority: 1, appliedTo: [{group: g}], ingress: [{action: Drop}]}
---
";
    let world = World::of(&(pods() + &pod("foreign", "f", "{}", "n9", "10.0.0.9") + yaml));
    assert_eq!(world.on("n9"), testkit::policies::state::State::default());
    assert_eq!(world.consumer.state.nodes().len(), 3);
    assert_eq!(world.problems(), ["spec.appliedTo[0].group"]);
}

#[test]
fn a_service_is_applied_to_on_every_node() {
    let policy = cluster_policy(
        "p",
        "{priority: 1, appliedTo: [{service: {namespace: ns, name: s}}], ingress: [{action: Drop, from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}",
    );
    let node = |name: &str| format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n---\n");
    let mut world = World::of(&(node("n1") + &policy));
    assert_eq!(world.members_on("n1").0, ["Service ns/s on n1"]);
    world.apply(&node("n2"));
    assert_eq!(world.members_on("n2").0, ["Service ns/s on n2"]);
    world.delete(Kind::Node, "", "n1");
    assert_eq!(world.consumer.state.nodes().into_iter().collect::<Vec<_>>(), ["n2"]);
}
