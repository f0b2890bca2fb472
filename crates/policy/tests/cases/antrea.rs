//! What Antrea's controller makes of policies that can be read in more than one way.

use model::policy::output::Action;

use crate::harness::{World, cluster_policy, in_every_order, namespace, pod};

#[test]
fn a_service_without_a_namespace_is_one_of_the_policys_own() {
    let policy = "apiVersion: crd.antrea.io/v1beta1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: shop, uid: u}\n\
        spec: {priority: 1, appliedTo: [{podSelector: {}}], \
        egress: [{action: Drop, toServices: [{name: db}, {name: db, namespace: far}]}]}\n";
    let world = World::of(&(pod("shop", "a", "{}", "n1", "10.0.0.1") + "---\n" + policy));
    let rule = &world.on("n1").policies["u"].policy.rules[0];
    let named: Vec<_> =
        rule.detail.to_services.iter().map(|s| format!("{}/{}", s.namespace, s.name)).collect();
    assert_eq!(named, ["shop/db", "far/db"]);
}

#[test]
fn tiers_go_by_the_names_they_had_before_they_were_objects() {
    for (written, priority) in
        [("Baseline", 253), ("Emergency", 50), ("SecurityOps", 100), ("Application", 250)]
    {
        let spec = format!("{{tier: {written}, priority: 1, appliedTo: [{{podSelector: {{}}}}]}}");
        let world = World::of(&cluster_policy("p", &spec));
        let policy = &world.consumer.state.policies["uid-p"].policy;
        assert_eq!((policy.tier_priority, world.problems().len()), (Some(priority), 0), "{written}");
    }
    let world =
        World::of(&cluster_policy("p", "{tier: BASELINE, priority: 1, appliedTo: [{podSelector: {}}]}"));
    assert_eq!(world.problems(), ["spec.tier"]);
}

/// Traffic of a node comes to its Pods from the gateway of their prefix.
#[test]
fn a_node_has_an_address_of_each_family_its_gateways_and_its_tunnels() {
    let node = |spec: &str, addresses: &str| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: k, annotations: {{node.antrea.io/transport-addresses: \
             '172.16.0.1, fd01::1'}}}}\nspec: {spec}\nstatus: {{addresses: [{addresses}]}}\n---\n"
        )
    };
    let policy = cluster_policy(
        "p",
        "{priority: 1, appliedTo: [{podSelector: {}}], ingress: [{action: Drop, from: [{nodeSelector: {}}]}]}",
    );
    let seen = |node: String| {
        let world = World::of(&(pod("ns", "a", "{}", "n1", "10.0.0.1") + &node + &policy));
        world.members_on("n1").1
    };
    let both = node(
        "{podCIDR: 10.9.0.0/24, podCIDRs: [10.9.0.0/24, 'fd09::/64']}",
        "{type: ExternalIP, address: 8.8.8.8}, {type: InternalIP, address: 192.168.0.1}, \
         {type: InternalIP, address: 192.168.0.2}, {type: InternalIP, address: 'fd00::1'}, {type: Hostname, address: k}",
    );
    assert_eq!(seen(both), ["Node /k at [10.9.0.1, 172.16.0.1, 192.168.0.1, fd00::1, fd01::1, fd09::1]"]);
    let external = node(
        "{podCIDR: 10.9.1.0/24}",
        "{type: ExternalIP, address: 8.8.8.8}, {type: ExternalIP, address: 9.9.9.9}",
    );
    assert_eq!(seen(external), ["Node /k at [8.8.8.8, 10.9.1.1, 172.16.0.1, fd01::1]"]);
}

#[test]
fn peers_that_follow_namespaces_are_applied_to_all_of_those_a_group_reaches() {
    let yaml = |applied_to: &str| {
        [
            namespace("ns1", "{env: x}"),
            namespace("ns2", "{env: y}"),
            pod("ns1", "a", "{app: a}", "n1", "10.0.0.1"),
            pod("ns1", "b", "{app: b}", "n2", "10.0.0.2"),
            pod("ns2", "c", "{app: a}", "n3", "10.0.0.3"),
            "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterGroup\nmetadata: {name: g}\n\
             spec: {podSelector: {matchLabels: {app: a}}, namespaceSelector: {matchLabels: {env: x}}}\n---\n"
                .into(),
            cluster_policy(
                "p",
                &format!(
                    "{{priority: 1, appliedTo: [{applied_to}], ingress: [{{action: Drop, from: [{{namespaces: {{match: Self}}}}]}}]}}"
                ),
            ),
        ]
        .concat()
    };
    for (applied_to, nodes) in [
        ("{group: g}", vec!["n1", "n2"]),
        ("{group: nobody}", vec![]),
        ("{service: {namespace: ns1, name: s}}", vec!["n1", "n2", "n3"]),
        ("{nodeSelector: {}}", vec!["n1", "n2", "n3"]),
    ] {
        let yaml = yaml(applied_to);
        let world = World::of(&yaml);
        let policy = &world.consumer.state.policies["uid-p"];
        assert_eq!(policy.span.iter().map(String::as_str).collect::<Vec<_>>(), nodes, "{applied_to}");
        let rules = &policy.policy.rules;
        assert!(
            rules.iter().all(|rule| rule.action == Some(Action::Drop) && rule.detail.ip_blocks.is_empty())
        );
        assert_eq!(world.problems(), ["spec.appliedTo[0]"], "{applied_to}");
        in_every_order(&yaml);
    }
}
