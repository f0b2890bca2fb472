//! From policies as written to rules over groups.

use model::policy::output::{Action, Direction, PortRef, Protocol, Rule};

use crate::harness::{World, cluster_policy, namespace, network_policy, pod};

fn rules(yaml: &str) -> Vec<Rule> {
    let world = World::of(yaml);
    let policy = world.consumer.state.policies.values().next().expect("there is one").policy.clone();
    policy.rules
}

fn blocks(rule: &Rule) -> Vec<String> {
    rule.detail.ip_blocks.iter().map(|block| block.cidr.to_string()).collect()
}

#[test]
fn a_direction_without_rules_is_isolated() {
    let rules = rules(&network_policy("ns", "p", "{podSelector: {}, policyTypes: [Ingress, Egress]}"));
    let seen: Vec<_> = rules.iter().map(|r| (r.direction, r.action, r.priority, blocks(r).len())).collect();
    assert_eq!(seen, [(Direction::In, None, 0, 0), (Direction::Out, None, 0, 0)]);
}

#[test]
fn policy_types_default_as_the_api_server_has_them() {
    let ingress_only = rules(&network_policy("ns", "p", "{podSelector: {}}"));
    assert_eq!(ingress_only.len(), 1);
    let both = rules(&network_policy("ns", "p", "{podSelector: {}, egress: [{}]}"));
    assert_eq!(both.iter().map(|r| r.direction).collect::<Vec<_>>(), [Direction::In, Direction::Out]);
}

#[test]
fn an_empty_rule_permits_everyone() {
    let rules = rules(&network_policy("ns", "p", "{podSelector: {}, ingress: [{}]}"));
    assert_eq!(rules[0].action, Some(Action::Allow));
    assert_eq!(blocks(&rules[0]), ["0.0.0.0/0", "::/0"]);
}

#[test]
fn egress_to_everyone_by_a_named_port_names_all_pods() {
    let named = rules(&network_policy(
        "ns",
        "p",
        "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}",
    ));
    let names: Vec<_> = named[0].address_groups.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["946d5846-ff34-5a8c-ab0b-2c6c271b0778"]);
    let numbered = rules(&network_policy(
        "ns",
        "p",
        "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 80}]}]}",
    ));
    assert!(numbered[0].address_groups.is_empty());
}

#[test]
fn ports_are_carried_with_their_protocols_and_ranges() {
    let spec = "{podSelector: {}, ingress: [{ports: [{port: 80}, {port: 1000, endPort: 2000, protocol: SCTP}, \
                {protocol: UDP}, {port: dns, protocol: UDP}]}]}";
    let rules = rules(&network_policy("ns", "p", spec));
    let services: Vec<_> =
        rules[0].detail.services.iter().map(|s| (s.protocol, s.port.clone(), s.end_port)).collect();
    assert_eq!(
        services,
        [
            (Protocol::Tcp, Some(PortRef::Number(80)), None),
            (Protocol::Sctp, Some(PortRef::Number(1000)), Some(2000)),
            (Protocol::Udp, None, None),
            (Protocol::Udp, Some(PortRef::Name("dns".into())), None),
        ]
    );
}

#[test]
fn host_bits_are_cut_and_exceptions_kept() {
    let spec = "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.1.2.3/8, except: [10.9.9.9/16]}}]}]}";
    let rules = rules(&network_policy("ns", "p", spec));
    let block = &rules[0].detail.ip_blocks[0];
    assert_eq!(
        (block.cidr.to_string(), block.except[0].to_string()),
        ("10.0.0.0/8".into(), "10.9.0.0/16".into())
    );
}

#[test]
fn selectors_in_one_peer_are_both_needed_and_in_two_peers_either() {
    let pods = [
        namespace("ns", "{}"),
        namespace("other", "{env: x}"),
        pod("ns", "a", "{app: web}", "n1", "10.0.0.1"),
        pod("other", "b", "{app: web}", "n2", "10.0.0.2"),
        pod("other", "c", "{app: db}", "n2", "10.0.0.3"),
    ]
    .concat();
    let members = |from: &str| {
        let spec = format!("{{podSelector: {{matchLabels: {{app: web}}}}, ingress: [{{from: {from}}}]}}");
        let world = World::of(&(pods.clone() + &network_policy("ns", "p", &spec)));
        let groups = world.on("n1").address;
        let mut members: Vec<String> =
            groups.values().flat_map(|group| group.members.keys().cloned()).collect();
        members.sort();
        members
    };
    let both =
        members("[{namespaceSelector: {matchLabels: {env: x}}, podSelector: {matchLabels: {app: web}}}]");
    assert_eq!(both, ["Pod other/b at [10.0.0.2]"]);
    let either =
        members("[{namespaceSelector: {matchLabels: {env: x}}}, {podSelector: {matchLabels: {app: web}}}]");
    assert_eq!(either, ["Pod ns/a at [10.0.0.1]", "Pod other/b at [10.0.0.2]", "Pod other/c at [10.0.0.3]"]);
}

#[test]
fn rules_of_antrea_policies_keep_their_order_action_and_own_applied_to() {
    let spec = "{tier: securityops, priority: 5.5,
      ingress: [{action: Drop, name: first, appliedTo: [{podSelector: {matchLabels: {a: b}}}], from: [{ipBlock: {cidr: 10.0.0.0/8}}]},
                {action: Pass, appliedTo: [{podSelector: {}}], protocols: [{icmp: {icmpType: 8, icmpCode: 0}}]}],
      egress: [{action: Reject, appliedTo: [{podSelector: {}}], to: [{fqdn: '*.example.com'}]}]}";
    let world = World::of(&cluster_policy("p", spec));
    let policy = &world.consumer.state.policies["uid-p"].policy;
    assert_eq!(
        (policy.tier_priority, policy.priority, policy.applied_to_per_rule),
        (Some(100), Some(5.5), true)
    );
    assert_eq!(policy.applied_to_groups.len(), 2);
    let seen: Vec<_> =
        policy.rules.iter().map(|r| (r.direction, r.priority, r.action, r.applied_to_groups.len())).collect();
    assert_eq!(
        seen,
        [
            (Direction::In, 0, Some(Action::Drop), 1),
            (Direction::In, 1, Some(Action::Pass), 1),
            (Direction::Out, 0, Some(Action::Reject), 1),
        ]
    );
    assert_eq!(policy.rules[1].detail.services[0].icmp_type, Some(8));
    assert_eq!(policy.rules[2].detail.fqdns, ["*.example.com"]);
}

#[test]
fn same_labels_makes_one_rule_per_tuple_of_values() {
    let spec = "{priority: 1, appliedTo: [{podSelector: {}}], ingress: [{action: Allow, from: [{namespaces: {sameLabels: [team]}}]}]}";
    let yaml = [
        namespace("a1", "{team: a}"),
        namespace("a2", "{team: a}"),
        namespace("b1", "{team: b}"),
        namespace("loner", "{}"),
        cluster_policy("p", spec),
    ]
    .concat();
    let applied: Vec<usize> = rules(&yaml).iter().map(|rule| rule.applied_to_groups.len()).collect();
    assert_eq!(applied, [2, 1]);
    let mut world = World::of(&yaml);
    world.apply(&namespace("loner", "{team: c}"));
    assert_eq!(world.consumer.state.policies["uid-p"].policy.rules.len(), 3);
}

#[test]
fn logging_follows_the_annotation_of_the_namespace() {
    let annotated = "apiVersion: v1\nkind: Namespace\nmetadata: {name: ns, annotations: {networkpolicy.antrea.io/enable-logging: 'true'}}\n";
    let mut world = World::of(&network_policy("ns", "p", "{podSelector: {}, ingress: [{}]}"));
    let logs = |world: &World| world.consumer.state.policies["uid-ns-p"].policy.rules[0].enable_logging;
    assert!(!logs(&world));
    world.apply(annotated);
    assert!(logs(&world));
    world.apply(&namespace("ns", "{}"));
    assert!(!logs(&world));
}

#[test]
fn a_tier_can_come_after_its_policies() {
    let mut world =
        World::of(&cluster_policy("p", "{tier: late, priority: 1, appliedTo: [{podSelector: {}}]}"));
    let tier = |world: &World| world.consumer.state.policies["uid-p"].policy.tier_priority;
    assert_eq!((tier(&world), world.problems()), (Some(250), vec!["spec.tier".into()]));
    world.apply(
        "apiVersion: crd.antrea.io/v1beta1\nkind: Tier\nmetadata: {name: late}\nspec: {priority: 20}\n",
    );
    assert_eq!((tier(&world), world.problems().len()), (Some(20), 0));
}
