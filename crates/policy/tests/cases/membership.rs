//! Who is a member, of what, and where that is needed.

use model::policy::{
    Kind, Object,
    output::{Change, Update},
};

use testkit::policies::state::State;

use crate::harness::{World, in_every_order, namespace, network_policy, pod};

/// Everyone in `ns` may talk to everyone in `ns`.
fn among_all() -> String {
    network_policy("ns", "p", "{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}")
}

fn edit_pod(world: &mut World, edit: impl FnOnce(&mut model::policy::workload::Pod)) -> Vec<Update> {
    world.change(Kind::Pod, "ns", "a", |object| {
        let Object::Pod(pod) = object else { panic!("it is a Pod") };
        edit(pod);
    })
}

#[test]
fn pods_on_the_host_network_and_terminated_pods_are_in_no_group() {
    let mut world = World::of(&(pod("ns", "a", "{}", "n1", "10.0.0.1") + &among_all()));
    edit_pod(&mut world, |pod| pod.spec.host_network = true);
    assert_eq!(world.on("n1"), State::default());
    edit_pod(&mut world, |pod| pod.spec.host_network = false);
    assert_eq!(world.members_on("n1").0.len(), 1);
    for phase in ["Succeeded", "Failed"] {
        edit_pod(&mut world, |pod| pod.status.phase = phase.into());
        assert_eq!(world.on("n1"), State::default());
        edit_pod(&mut world, |pod| pod.status.phase = "Running".into());
    }
}

#[test]
fn an_unscheduled_pod_is_an_address_and_one_without_address_is_applied_to() {
    let pods = pod("ns", "a", "{}", "n1", "") + &pod("ns", "b", "{}", "", "10.0.0.2");
    let world = World::of(&(pods + &among_all()));
    assert_eq!(
        world.members_on("n1"),
        (vec!["Pod ns/a on n1".into()], vec!["Pod ns/b at [10.0.0.2]".into()])
    );
}

#[test]
fn what_decides_nothing_is_not_told() {
    let mut world = World::of(&(pod("ns", "a", "{}", "n1", "10.0.0.1") + &among_all()));
    let annotated = edit_pod(&mut world, |pod| drop(pod.metadata.annotations.insert("a".into(), "b".into())));
    let pending = edit_pod(&mut world, |pod| pod.status.phase = "Pending".into());
    let unnamed = edit_pod(&mut world, |pod| pod.spec.containers[0].ports.push(Default::default()));
    assert_eq!((annotated.len(), pending.len(), unnamed.len()), (0, 0, 0));
}

#[test]
fn a_pod_on_a_new_node_brings_everything_there_and_the_last_takes_it_away() {
    let mut world = World::of(&(pod("ns", "a", "{}", "n1", "10.0.0.1") + &among_all()));
    world.apply(&pod("ns", "b", "{}", "n2", "10.0.0.2"));
    let (applied_to, addresses) = world.members_on("n2");
    assert_eq!((applied_to, addresses.len()), (vec!["Pod ns/b on n2".into()], 2));
    let updates = world.delete(Kind::Pod, "ns", "b");
    assert_eq!(world.on("n2"), State::default());
    // Members first, then the policy leaves the node, then the groups do.
    let kinds: Vec<_> = updates
        .iter()
        .map(|update| match update {
            Update::AddressGroup(update) => ("address", update.removed.len(), update.span_removed.len()),
            Update::AppliedToGroup(update) => ("applied", update.removed.len(), update.span_removed.len()),
            Update::NetworkPolicy(update) => ("policy", 0, update.span_removed.len()),
            Update::Status(_) => ("status", 0, 0),
        })
        .collect();
    assert_eq!(kinds[..2], [("address", 1, 0), ("policy", 0, 1)]);
    let mut last = kinds[2..].to_vec();
    last.sort_unstable();
    assert_eq!(last, [("address", 0, 1), ("applied", 1, 1)]);
}

#[test]
fn groups_are_shared_until_the_last_policy_goes() {
    let spec = "{podSelector: {matchLabels: {a: b, c: d}}, ingress: [{from: [{podSelector: {}}]}]}";
    let reordered = "{podSelector: {matchLabels: {c: d, a: b}}, ingress: [{from: [{podSelector: {}}]}]}";
    let mut world = World::of(&(network_policy("ns", "p", spec) + &network_policy("ns", "q", reordered)));
    assert_eq!((world.consumer.state.applied_to.len(), world.consumer.state.address.len()), (1, 1));
    world.delete(Kind::NetworkPolicy, "ns", "p");
    assert_eq!(world.consumer.state.applied_to.len(), 1);
    let updates = world.delete(Kind::NetworkPolicy, "ns", "q");
    assert_eq!(world.consumer.state, State::default());
    assert!(matches!(&updates[0], Update::NetworkPolicy(update) if update.change == Change::Removed));
}

#[test]
fn a_policy_that_selects_nobody_exists_and_spans_nothing() {
    let world = World::of(&network_policy("ns", "p", "{podSelector: {matchLabels: {no: one}}}"));
    assert_eq!(world.consumer.state.policies["uid-ns-p"].span.len(), 0);
}

#[test]
fn namespace_labels_move_members_and_unknown_namespaces_match_only_the_empty_selector() {
    let to = |selector: &str| {
        let spec = format!("{{podSelector: {{}}, ingress: [{{from: [{{namespaceSelector: {selector}}}]}}]}}");
        network_policy("ns", "p", &spec)
    };
    let pods = pod("ns", "a", "{}", "n1", "10.0.0.1") + &pod("other", "b", "{}", "n2", "10.0.0.2");
    let mut world = World::of(&(pods.clone() + &to("{matchLabels: {env: x}}")));
    assert_eq!(world.members_on("n1").1.len(), 0);
    world.apply(&namespace("other", "{env: x}"));
    assert_eq!(world.members_on("n1").1, ["Pod other/b at [10.0.0.2]"]);
    world.apply(&namespace("other", "{env: y}"));
    assert_eq!(world.members_on("n1").1.len(), 0);
    world.apply(&to("{matchExpressions: [{key: env, operator: DoesNotExist}]}"));
    assert_eq!(world.members_on("n1").1.len(), 0);
    world.apply(&to("{}"));
    assert_eq!(world.members_on("n1").1.len(), 2);
    world.apply(&to("{matchLabels: {kubernetes.io/metadata.name: other}}"));
    assert_eq!(world.members_on("n1").1, ["Pod other/b at [10.0.0.2]"]);
    in_every_order(&(pods + &namespace("other", "{env: x}") + &to("{matchLabels: {env: x}}")));
}

#[test]
fn a_service_account_is_matched_by_namespace_and_name_and_cannot_be_faked() {
    let policy = "apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: p, uid: u}
spec: {priority: 1, appliedTo: [{serviceAccount: {namespace: ns, name: robot}}], ingress: [{action: Drop}]}
---
";
    let liar = pod("ns", "liar", "{internal.antrea.io/service-account: robot}", "n2", "10.0.0.2");
    let mut world = World::of(&(pod("ns", "a", "{}", "n1", "10.0.0.1") + &liar + policy));
    assert_eq!(world.consumer.state.nodes().len(), 0);
    edit_pod(&mut world, |pod| pod.spec.service_account_name = "robot".into());
    assert_eq!(world.members_on("n1").0, ["Pod ns/a on n1"]);
}

#[test]
fn among_many_selectors_those_that_match_are_found() {
    let select =
        |name: &str, selector: &str| network_policy("ns", name, &format!("{{podSelector: {selector}}}"));
    let expression = |name: &str, text: &str| select(name, &format!("{{matchExpressions: [{{{text}}}]}}"));
    let mut policies: String =
        (0..20).map(|i| select(&format!("p{i}"), &format!("{{matchLabels: {{app: other-{i}}}}}"))).collect();
    policies += &expression("in", "key: app, operator: In, values: [web, db]");
    policies += &expression("not-in", "key: app, operator: NotIn, values: [web]");
    policies += &expression("exists", "key: tier, operator: Exists");
    let mut world = World::of(&policies);
    world.apply(
        &(pod("ns", "web", "{app: web}", "k0", "10.0.0.1")
            + &pod("ns", "db", "{app: db}", "k0", "10.0.0.2")
            + &pod("ns", "api", "{tier: '1'}", "k0", "10.0.0.3")),
    );
    let groups_of = |pod: &str| {
        let groups = world.consumer.state.applied_to.values();
        groups.filter(|group| group.members.keys().any(|member| member.contains(pod))).count()
    };
    assert_eq!(["ns/web", "ns/db", "ns/api"].map(groups_of), [1, 2, 2]);
}

#[test]
fn addresses_are_followed_from_the_first_question_on() {
    let group = "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterGroup\nmetadata: {name: g}\n\
                 spec: {podSelector: {matchLabels: {app: web}}}\n---\n";
    let web = |name: &str, ip: &str| pod("ns", name, "{app: web}", "k0", ip);
    let mut world = World::of(&(group.to_string() + &web("a", "10.0.0.1")));
    let groups_of = |world: &World, ip: &str| world.engine.groups_of_address(ip.parse().unwrap()).len();
    assert_eq!(groups_of(&world, "10.0.0.1"), 1);
    world.apply(&(web("a", "10.0.0.2") + &web("b", "10.0.0.3")));
    assert_eq!(["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|ip| groups_of(&world, ip)), [0, 1, 1]);
    world.delete(Kind::Pod, "ns", "b");
    world.apply(&web("c", "10.0.0.3"));
    world.delete(Kind::Pod, "ns", "c");
    assert_eq!(groups_of(&world, "10.0.0.3"), 0);
}
