//! Input that makes no sense, or far too much of it. Nothing fails; what is not understood stays closed.

use std::fmt::Write;

use model::policy::{
    Object,
    output::{Action, MemberKind, Protocol},
};
use policy::explain::{Endpoint, Query};

use crate::harness::{World, cluster_policy, in_every_order, namespace, network_policy, pod};

fn query(from: &str, to: &str, port: u16) -> Query {
    let endpoint =
        |name: &str| Endpoint::Workload { kind: MemberKind::Pod, namespace: "ns".into(), name: name.into() };
    Query {
        source: endpoint(from),
        destination: endpoint(to),
        protocol: Some(Protocol::Tcp),
        port: Some(port),
        source_port: None,
        icmp: None,
        family: None,
    }
}

fn two_pods() -> String {
    pod("ns", "a", "{app: a}", "n1", "10.0.0.1") + &pod("ns", "b", "{app: b}", "n1", "10.0.0.2")
}

#[test]
fn a_faulty_peer_permits_nothing_and_the_others_stay() {
    let spec = "{podSelector: {matchLabels: {app: b}}, ingress: [
        {from: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}], ports: [{port: 80}]},
        {from: [{podSelector: {matchLabels: {app: a}}}, {ipBlock: {cidr: nonsense}}], ports: [{port: 81}, {port: 99999}]}]}";
    let world = World::of(&(two_pods() + &network_policy("ns", "p", spec)));
    assert_eq!(
        world.problems(),
        [
            "spec.ingress[0].from[0].ipBlock.except[0]",
            "spec.ingress[1].ports[1].port",
            "spec.ingress[1].from[1].ipBlock.cidr",
        ]
    );
    let allowed = |port| world.engine.explain(&query("a", "b", port)).unwrap().allowed;
    assert_eq!((allowed(80), allowed(81), allowed(82)), (false, true, false));
}

#[test]
fn a_policy_of_which_nothing_is_usable_still_isolates() {
    let spec = "{podSelector: {matchLabels: {app: b}}, ingress: [{from: [{ipBlock: {cidr: x}}]}, {ports: [{protocol: tcp}]}]}";
    let world = World::of(&(two_pods() + &network_policy("ns", "p", spec)));
    assert!(!world.engine.explain(&query("a", "b", 80)).unwrap().allowed);
    assert_eq!(world.problems().len(), 2);
}

#[test]
fn a_denying_rule_that_is_not_understood_denies_everything() {
    for rule in [
        "{action: Drop, from: [{ipBlock: {cidr: x}}]}",
        "{action: Reject, from: [{podSelector: {matchExpressions: [{key: a, operator: like}]}}]}",
        "{action: Drop, ports: [{port: 0}]}",
        "{action: Forbid, from: [{ipBlock: {cidr: 192.168.0.0/16}}]}",
    ] {
        let spec = format!("{{priority: 1, appliedTo: [{{podSelector: {{}}}}], ingress: [{rule}]}}");
        let world = World::of(&(two_pods() + &cluster_policy("p", &spec)));
        assert_eq!(world.problems().len(), 1, "{rule}");
        let explained = world.engine.explain(&query("a", "b", 80)).unwrap();
        assert!(!explained.allowed, "{rule}");
        assert_eq!(world.consumer.state.policies["uid-p"].policy.rules[0].action, Some(Action::Drop));
    }
}

#[test]
fn a_permitting_rule_that_is_not_understood_permits_nothing() {
    let spec = "{priority: 1, appliedTo: [{podSelector: {}}], ingress: [
        {action: Allow, from: [{ipBlock: {cidr: x}}]}, {action: Allow, ports: [{port: http--x}]}, {action: Drop}]}";
    let world = World::of(&(two_pods() + &cluster_policy("p", spec)));
    assert!(!world.engine.explain(&query("a", "b", 80)).unwrap().allowed);
}

#[test]
fn two_policies_may_claim_one_uid() {
    let twin = |name: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: ns, uid: same}}\n\
             spec: {{podSelector: {{matchLabels: {{app: {name}}}}}}}\n---\n"
        )
    };
    let world = World::of(&(two_pods() + &twin("b") + &twin("a")));
    assert_eq!(world.consumer.state.policies.len(), 2);
    assert_eq!(*world.consumer.state.policies["same"].policy.source.name, *"a");
    in_every_order(&(two_pods() + &twin("b") + &twin("a")));
}

#[test]
fn two_pods_may_claim_one_address() {
    let spec =
        "{podSelector: {matchLabels: {app: b}}, ingress: [{from: [{podSelector: {matchLabels: {app: c}}}]}]}";
    let third = pod("ns", "c", "{app: c}", "n2", "10.0.0.1");
    let world = World::of(&(two_pods() + &third + &network_policy("ns", "p", spec)));
    // Packets carry addresses: from a's there is no telling that they are not c's.
    assert!(world.engine.explain(&query("a", "b", 80)).unwrap().allowed);
    let mut by_address = query("a", "b", 80);
    by_address.source = Endpoint::Address("10.0.0.1".parse().unwrap());
    let explained = world.engine.explain(&by_address).unwrap();
    assert_eq!(explained.source.workloads, ["Pod ns/a", "Pod ns/c"]);
    assert!(explained.notes[0].contains("claimed by"), "{:?}", explained.notes);
}

#[test]
fn a_selector_with_many_values_costs_their_sum_and_not_their_product() {
    let mut expressions = String::new();
    for key in 0..19 {
        write!(expressions, "{{key: k{key}, operator: In, values: [a, b]}},").unwrap();
    }
    let mut labels = String::new();
    for key in 0..19 {
        write!(labels, "k{key}: {},", if key % 2 == 0 { "a" } else { "b" }).unwrap();
    }
    let bomb =
        network_policy("ns", "bomb", &format!("{{podSelector: {{matchExpressions: [{expressions}]}}}}"));
    let world = World::of(&(pod("ns", "a", &format!("{{{labels}}}"), "n1", "10.0.0.1") + &bomb));
    assert_eq!(world.members_on("n1").0, ["Pod ns/a on n1"]);
}

#[test]
fn an_object_with_a_hundred_thousand_labels_is_just_slow_to_read() {
    let mut world =
        World::of(&(two_pods() + &network_policy("ns", "p", "{podSelector: {matchLabels: {k77777: v}}}")));
    world.change(model::policy::Kind::Pod, "ns", "a", |object| {
        let Object::Pod(pod) = object else { panic!("it is a Pod") };
        pod.metadata.labels = (0..100_000).map(|k| (format!("k{k}"), "v".to_string())).collect();
    });
    assert_eq!(world.members_on("n1").0, ["Pod ns/a on n1"]);
}

#[test]
fn policies_in_unknown_namespaces_work() {
    let everything = two_pods()
        + &network_policy("ns", "p", "{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}")
        + &network_policy("void", "q", "{podSelector: {}}")
        + &namespace("ns", "{}");
    in_every_order(&everything);
}
