//! ClusterNetworkPolicy of policy.networking.k8s.io: its two tiers around Kubernetes' policies, and what it calls a Pod.

use model::policy::{
    Kind, Object,
    output::{MemberKind, Protocol},
};
use policy::explain::{Endpoint, Query, Stage};

use crate::harness::{World, in_every_order, namespace, network_policy, pod};

fn pods() -> String {
    let pods =
        pod("ns", "web", "{app: web}", "n1", "10.0.0.1") + &pod("ns", "db", "{app: db}", "n2", "10.0.0.2");
    pods + &namespace("ns", "{env: prod}")
}

fn policy(name: &str, tier: &str, priority: u32, action: &str) -> String {
    format!(
        "apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {{name: {name}}}
spec:
  tier: {tier}
  priority: {priority}
  subject: {{pods: {{namespaceSelector: {{matchLabels: {{env: prod}}}}, podSelector: {{matchLabels: {{app: db}}}}}}}}
  ingress:
  - action: {action}
    from: [{{namespaces: {{matchLabels: {{env: prod}}}}}}]
    protocols: [{{tcp: {{destinationPort: {{range: {{start: 80, end: 90}}}}}}}}]
---
"
    )
}

fn decided(world: &World, port: u16) -> (bool, Stage) {
    let of =
        |name: &str| Endpoint::Workload { kind: MemberKind::Pod, namespace: "ns".into(), name: name.into() };
    let (protocol, port) = (Some(Protocol::Tcp), Some(port));
    let query = Query {
        source: of("web"),
        destination: of("db"),
        protocol,
        port,
        source_port: None,
        icmp: None,
        family: None,
    };
    let explained = world.engine.explain(&query).expect("both ends exist");
    (explained.allowed, explained.ingress.steps.last().expect("there is always one").stage)
}

#[test]
fn the_admin_tier_decides_before_kubernetes_policies_and_the_baseline_after_them() {
    let isolated = network_policy("ns", "deny", "{podSelector: {}}");
    let open = network_policy("ns", "allow", "{podSelector: {}, ingress: [{}]}");
    for (policies, port, expected) in [
        (policy("a", "Admin", 5, "Accept") + &isolated, 80, (true, Stage::Tiers)),
        (policy("a", "Admin", 5, "Accept") + &isolated, 91, (false, Stage::Kubernetes)),
        (policy("a", "Admin", 5, "Deny") + &open, 85, (false, Stage::Tiers)),
        (policy("a", "Admin", 5, "Pass") + &isolated, 85, (false, Stage::Kubernetes)),
        (
            policy("a", "Admin", 5, "Pass") + &policy("b", "Admin", 6, "Deny") + &open,
            85,
            (true, Stage::Kubernetes),
        ),
        (policy("a", "Admin", 6, "Accept") + &policy("b", "Admin", 5, "Deny"), 85, (false, Stage::Tiers)),
        (policy("a", "Baseline", 5, "Deny") + &open, 85, (true, Stage::Kubernetes)),
        (policy("a", "Baseline", 5, "Deny"), 85, (false, Stage::Baseline)),
        (policy("a", "Baseline", 5, "Deny"), 91, (true, Stage::Default)),
        (policy("a", "Admin", 5, "Pass") + &policy("b", "Baseline", 5, "Deny"), 85, (false, Stage::Baseline)),
    ] {
        assert_eq!(decided(&World::of(&(pods() + &policies)), port), expected, "{policies}");
    }
}

#[test]
fn pods_on_their_nodes_network_are_nobody_and_cannot_be_claimed_to_be() {
    let mut world = World::of(&(pods() + &policy("a", "Baseline", 5, "Deny")));
    let web = |world: &mut World, edit: fn(&mut model::policy::workload::Pod)| {
        world.change(Kind::Pod, "ns", "web", |object| match object {
            Object::Pod(pod) => edit(pod),
            other => panic!("{other:?}"),
        });
    };
    web(&mut world, |pod| pod.spec.host_network = true);
    assert!(decided(&world, 85).0, "it is no Pod to the policy");
    web(&mut world, |pod| {
        pod.spec.host_network = false;
        pod.metadata.labels.insert("trestle.dev/host-network".into(), "true".into());
    });
    assert!(!decided(&world, 85).0);
}

#[test]
fn whatever_comes_first_the_outcome_is_the_same() {
    let broken = policy("broken", "Admin", 7, "Maybe");
    in_every_order(
        &(pods() + &policy("a", "Admin", 5, "Accept") + &policy("b", "Baseline", 5, "Deny") + &broken),
    );
    let world = World::of(&(pods() + &broken));
    assert_eq!(world.problems(), ["spec.ingress[0].action"]);
    assert!(!decided(&world, 1).0, "it denies everything, not what it names");
}
