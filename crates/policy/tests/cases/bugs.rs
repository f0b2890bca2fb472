//! What earlier implementations got wrong, by name.

use model::policy::{
    Kind, Object,
    output::{Change, Update},
    workload::PodIp,
};

use crate::harness::{World, cluster_policy, entity, in_every_order, namespace, network_policy, pod};

fn group(kind: &str, name: &str, spec: &str) -> String {
    let scope = if kind == "Group" { ", namespace: ns" } else { "" };
    format!(
        "apiVersion: crd.antrea.io/v1beta1\nkind: {kind}\nmetadata: {{name: {name}{scope}}}\nspec: {spec}\n---\n"
    )
}

fn namespaced_policy(spec: &str) -> String {
    format!(
        "apiVersion: crd.antrea.io/v1beta1\nkind: NetworkPolicy\nmetadata: {{name: p, namespace: ns, uid: u}}\nspec: {spec}\n---\n"
    )
}

fn blocks(world: &World) -> Vec<String> {
    let policies = world.consumer.state.policies.values();
    let blocks = policies.flat_map(|policy| &policy.policy.rules).flat_map(|rule| &rule.detail.ip_blocks);
    blocks.map(|block| format!("{} {:?}", block.cidr, block.except)).collect()
}

#[test]
fn changing_only_the_ip_blocks_of_a_group_reaches_its_policies() {
    let policy = "{priority: 1, appliedTo: [{podSelector: {}}], egress: [{action: Drop, to: [{group: g}]}]}";
    let pod = pod("ns", "a", "{}", "n1", "10.0.0.1");
    let mut world = World::of(
        &(pod + &group("Group", "g", "{ipBlocks: [{cidr: 10.0.0.0/8}]}") + &namespaced_policy(policy)),
    );
    assert_eq!(blocks(&world), ["10.0.0.0/8 []"]);
    world.apply(&group("Group", "g", "{ipBlocks: [{cidr: 11.0.0.0/8}]}"));
    assert_eq!(blocks(&world), ["11.0.0.0/8 []"]);
}

#[test]
fn changing_only_the_except_of_a_cluster_group_reaches_its_policies() {
    let policy = "{priority: 1, appliedTo: [{podSelector: {}}], egress: [{action: Drop, to: [{group: g}]}]}";
    let pod = pod("ns", "a", "{}", "n1", "10.0.0.1");
    let before = group("ClusterGroup", "g", "{ipBlocks: [{cidr: 10.0.0.0/8}]}");
    let mut world = World::of(&(pod + &before + &cluster_policy("p", policy)));
    world.apply(&group("ClusterGroup", "g", "{ipBlocks: [{cidr: 10.0.0.0/8, except: [10.1.0.0/16]}]}"));
    assert_eq!(blocks(&world), ["10.0.0.0/8 [10.1.0.0/16]"]);
}

#[test]
fn a_late_second_address_is_told() {
    let policy = network_policy("ns", "p", "{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}");
    let mut world = World::of(&(pod("ns", "a", "{}", "n1", "10.0.0.1") + &policy));
    world.change(Kind::Pod, "ns", "a", |object| {
        let Object::Pod(pod) = object else { panic!("it is a Pod") };
        pod.status.pod_ips.push(PodIp { ip: "fd00::1".into() });
    });
    assert_eq!(world.members_on("n1").1, ["Pod ns/a at [10.0.0.1, fd00::1]"]);
}

#[test]
fn a_port_change_of_an_external_entity_is_told_as_added_only() {
    let policy = "{priority: 1, appliedTo: [{podSelector: {}}], egress: [{action: Allow, to: [{externalEntitySelector: {}}]}]}";
    let objects = pod("ns", "a", "{}", "n1", "10.0.0.1") + &entity("ns", "e", "{}", "172.16.0.1", "");
    let mut world = World::of(&(objects + &namespaced_policy(policy)));
    let updates = world.change(Kind::ExternalEntity, "ns", "e", |object| {
        let Object::ExternalEntity(entity) = object else { panic!("it is an entity") };
        entity.spec.ports = vec![model::policy::external::EntityPort {
            protocol: "TCP".into(),
            port: 443,
            name: "https".into(),
        }];
    });
    let [Update::AddressGroup(update)] = updates.as_slice() else { panic!("{updates:#?}") };
    assert_eq!((update.added.len(), update.removed.len()), (1, 0));
}

fn node(name: &str, labels: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {labels}}}\n\
         status: {{addresses: [{{type: InternalIP, address: 192.168.0.1}}]}}\n---\n"
    )
}

#[test]
fn groups_of_nodes_follow_new_nodes_and_their_labels() {
    let edge = "{matchLabels: {role: edge}}";
    let policy = format!(
        "{{priority: 1, appliedTo: [{{nodeSelector: {edge}}}], ingress: [{{action: Drop, from: [{{group: edges}}]}}]}}"
    );
    let edges = group("ClusterGroup", "edges", &format!("{{nodeSelector: {edge}}}"));
    let mut world = World::of(&(node("n1", "{role: edge}") + &edges + &cluster_policy("p", &policy)));
    assert_eq!(world.members_on("n1").0, ["Node /n1 on n1"]);
    world.apply(&node("n2", "{role: edge}"));
    assert_eq!(world.members_on("n2").0, ["Node /n2 on n2"]);
    assert_eq!(world.members_on("n2").1.len(), 2);
    world.apply(&node("n1", "{role: core}"));
    assert_eq!(world.on("n1"), testkit::policies::state::State::default());
    assert_eq!(world.members_on("n2").1, ["Node /n2 at [192.168.0.1]"]);
}

#[test]
fn nodes_of_one_group_are_not_merged_into_one() {
    let policy =
        cluster_policy("p", "{priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop}]}");
    let world = World::of(&(node("n1", "{}") + &node("n2", "{}") + &policy));
    let groups: Vec<_> = world.consumer.state.applied_to.values().collect();
    assert_eq!(groups[0].members.len(), 2);
}

#[test]
fn several_applied_to_with_self_keep_all_their_rules() {
    let spec = "{priority: 1, appliedTo: [
        {podSelector: {matchLabels: {app: a}}, namespaceSelector: {matchLabels: {env: x}}},
        {podSelector: {matchLabels: {app: b}}}],
      ingress: [{action: Allow, from: [{namespaces: {match: Self}}]}]}";
    let yaml = [
        namespace("ns1", "{env: x}"),
        namespace("ns2", "{env: y}"),
        pod("ns1", "a", "{app: a}", "n1", "10.0.0.1"),
        pod("ns1", "b", "{app: b}", "n2", "10.0.0.2"),
        pod("ns2", "b", "{app: b}", "n3", "10.0.0.3"),
        cluster_policy("p", spec),
    ]
    .concat();
    let world = World::of(&yaml);
    let policy = &world.consumer.state.policies["uid-p"];
    // ns1 is affected by both entries, ns2 by the second.
    let groups_per_rule: Vec<usize> =
        policy.policy.rules.iter().map(|rule| rule.applied_to_groups.len()).collect();
    assert_eq!(groups_per_rule, [2, 1]);
    assert_eq!(policy.span.iter().collect::<Vec<_>>(), ["n1", "n2", "n3"]);
    in_every_order(&yaml);
}

#[test]
fn a_policy_recreated_under_its_name_is_another_policy() {
    let mut world = World::of(
        &(pod("ns", "a", "{}", "n1", "10.0.0.1") + &network_policy("ns", "p", "{podSelector: {}}")),
    );
    let updates =
        world.change(Kind::NetworkPolicy, "ns", "p", |object| object.metadata_mut().uid = "other".into());
    let changes: Vec<_> = updates
        .iter()
        .map(|update| match update {
            Update::NetworkPolicy(update) => (update.uid.to_string(), update.change),
            other => panic!("groups are the same: {other:?}"),
        })
        .collect();
    assert_eq!(changes, [("other".into(), Change::Added), ("uid-ns-p".into(), Change::Removed)]);
}

#[test]
fn the_address_of_a_pod_that_restarted_replaces_the_old_one() {
    let policy = network_policy("ns", "p", "{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}");
    let mut world = World::of(&(pod("ns", "a", "{}", "n1", "10.0.0.1") + &policy));
    let updates = world.apply(&pod("ns", "a", "{}", "n1", "10.0.0.9"));
    let groups = updates.iter().map(|update| match update {
        Update::AddressGroup(update) => (update.added.len(), update.removed.len(), 0),
        // The policy is applied to the same Pod at another address.
        Update::AppliedToGroup(update) => {
            let none = update.added.len() + update.removed.len();
            (none, none, update.readdressed.len())
        }
        other => panic!("{other:?}"),
    });
    let mut groups: Vec<_> = groups.collect();
    groups.sort_unstable();
    assert_eq!(groups, [(0, 0, 1), (1, 1, 0)]);
    assert_eq!(world.members_on("n1").1, ["Pod ns/a at [10.0.0.9]"]);
}
