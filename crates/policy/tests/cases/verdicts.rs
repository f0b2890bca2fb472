//! Explain: the order of tiers, isolation, Pass, both directions, and what it tells.

use model::policy::output::{MemberKind, Protocol};
use policy::explain::{Endpoint, ExplainError, Family, Miss, Outcome, Query, Stage};

use crate::harness::{World, cluster_policy, network_policy, pod};

fn pods() -> String {
    pod("ns", "web", "{app: web}", "n1", "10.0.0.1")
        + &pod("ns", "db", "{app: db}", "n2", "10.0.0.2")
        + &pod("ns", "batch", "{app: batch}", "n2", "10.0.0.3")
}

fn of(name: &str) -> Endpoint {
    Endpoint::Workload { kind: MemberKind::Pod, namespace: "ns".into(), name: name.into() }
}

fn query(from: Endpoint, to: Endpoint, port: u16) -> Query {
    Query {
        source: from,
        destination: to,
        protocol: Some(Protocol::Tcp),
        port: Some(port),
        source_port: None,
        icmp: None,
        family: None,
    }
}

fn allowed(world: &World, from: &str, to: &str, port: u16) -> bool {
    world.engine.explain(&query(of(from), of(to), port)).expect("both ends exist").allowed
}

fn to_db(name: &str, tier: &str, priority: &str, action: &str) -> String {
    cluster_policy(
        name,
        &format!(
            "{{tier: {tier}, priority: {priority}, appliedTo: [{{podSelector: {{matchLabels: {{app: db}}}}}}],
               ingress: [{{action: {action}, from: [{{podSelector: {{matchLabels: {{app: web}}}}}}]}}]}}"
        ),
    )
}

#[test]
fn without_policies_everything_is_permitted() {
    let world = World::of(&pods());
    let explained = world.engine.explain(&query(of("web"), of("db"), 5432)).unwrap();
    assert!(explained.allowed && explained.remedies.is_empty());
    assert_eq!(explained.ingress.steps.last().unwrap().stage, Stage::Default);
}

#[test]
fn the_lower_tier_number_wins_then_the_lower_priority() {
    let drop_late = to_db("late", "application", "1", "Drop");
    let world = World::of(&(pods() + &drop_late + &to_db("early", "emergency", "9", "Allow")));
    assert!(allowed(&world, "web", "db", 1));
    let world = World::of(&(pods() + &drop_late + &to_db("after", "application", "2", "Allow")));
    assert!(!allowed(&world, "web", "db", 1));
}

#[test]
fn pass_leaves_the_tiers_for_kubernetes_and_then_baseline() {
    let pass = to_db("pass", "emergency", "1", "Pass") + &to_db("drop", "application", "1", "Drop");
    let world = World::of(&(pods() + &pass));
    assert!(allowed(&world, "web", "db", 1));
    let isolated = network_policy("ns", "deny", "{podSelector: {}}");
    let world = World::of(&(pods() + &pass + &isolated));
    let explained = world.engine.explain(&query(of("web"), of("db"), 1)).unwrap();
    assert!(!explained.allowed);
    let stages: Vec<Stage> = explained.ingress.steps.iter().map(|step| step.stage).collect();
    assert_eq!(stages, [Stage::Tiers, Stage::Kubernetes]);
    let world = World::of(&(pods() + &pass + &to_db("base", "baseline", "1", "Drop")));
    assert!(!allowed(&world, "web", "db", 1));
}

#[test]
fn kubernetes_permission_is_before_baseline_and_after_the_tiers() {
    let permit = network_policy("ns", "p", "{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}");
    let world = World::of(&(pods() + &permit + &to_db("base", "baseline", "1", "Drop")));
    assert!(allowed(&world, "web", "db", 1));
    let world = World::of(&(pods() + &permit + &to_db("drop", "application", "1", "Drop")));
    assert!(!allowed(&world, "web", "db", 1));
}

#[test]
fn both_directions_must_agree() {
    let egress = network_policy("ns", "e", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}");
    let world = World::of(&(pods() + &egress));
    let explained = world.engine.explain(&query(of("web"), of("db"), 1)).unwrap();
    assert_eq!(
        (explained.egress.allowed, explained.ingress.allowed, explained.allowed),
        (false, true, false)
    );
    assert!(allowed(&world, "db", "web", 1));
}

#[test]
fn a_near_miss_says_what_is_missing() {
    let spec = "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]}";
    let world = World::of(&(pods() + &network_policy("ns", "db", spec)));
    assert!(allowed(&world, "web", "db", 5432));
    let explained = world.engine.explain(&query(of("web"), of("db"), 5433)).unwrap();
    let Outcome::Isolated { near_misses, .. } = &explained.ingress.steps[1].outcome else {
        panic!("{explained:#?}")
    };
    assert_eq!(near_misses[0].misses, Miss::Port);
    assert!(explained.remedies[0].contains("TCP port 5433"), "{:?}", explained.remedies);
    let explained = world.engine.explain(&query(of("batch"), of("db"), 5432)).unwrap();
    assert!(explained.remedies[0].contains("add Pod ns/batch to its peers"), "{:?}", explained.remedies);
}

#[test]
fn named_ports_are_looked_up_at_the_destination() {
    let server = "apiVersion: v1
kind: Pod
metadata: {name: server, namespace: ns}
spec: {nodeName: n1, containers: [{ports: [{name: http, containerPort: 8080}]}]}
status: {phase: Running, podIP: 10.0.0.8}
---
";
    let policy = network_policy("ns", "p", "{podSelector: {}, ingress: [{ports: [{port: http}]}]}");
    let world = World::of(&(pods() + server + &policy));
    assert!(allowed(&world, "web", "server", 8080));
    assert!(!allowed(&world, "web", "server", 80));
    assert!(!allowed(&world, "web", "db", 8080));

    // A sender looks a name up at Pods that the rule selects; a block of addresses has no names, whoever lives in it.
    for (peers, expected) in [
        ("[]", true),
        ("[{podSelector: {}}]", true),
        ("[{ipBlock: {cidr: 10.0.0.0/8}}]", false),
        ("[{ipBlock: {cidr: 10.0.0.0/8}}, {podSelector: {}}]", true),
    ] {
        let spec = format!(
            "{{podSelector: {{matchLabels: {{app: web}}}}, egress: [{{to: {peers}, ports: [{{port: http}}]}}]}}"
        );
        let world = World::of(&(pods() + server + &network_policy("ns", "p", &spec)));
        assert_eq!(allowed(&world, "web", "server", 8080), expected, "{peers}");
    }
}

#[test]
fn addresses_outside_are_matched_by_blocks_without_their_exceptions() {
    let spec = "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.128/25]}}]}]}";
    let world = World::of(&(pods() + &network_policy("ns", "p", spec)));
    let from = |address: &str| {
        let source = Endpoint::Address(address.parse().unwrap());
        world.engine.explain(&query(source, of("db"), 1)).unwrap().allowed
    };
    assert_eq!((from("192.0.2.1"), from("192.0.2.200"), from("10.0.0.1")), (true, false, false));
}

#[test]
fn a_workload_may_always_talk_to_itself() {
    let world = World::of(
        &(pods() + &network_policy("ns", "deny", "{podSelector: {}, policyTypes: [Ingress, Egress]}")),
    );
    assert!(allowed(&world, "web", "web", 1));
    assert!(!allowed(&world, "web", "db", 1));
}

#[test]
fn the_family_decides_between_the_addresses_of_a_dual_stack_pod() {
    let dual = |name: &str, last: u8| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: ns}}\nspec: {{nodeName: n1, containers: []}}\n\
             status: {{phase: Running, podIPs: [{{ip: 10.0.1.{last}}}, {{ip: 'fd00::{last}'}}]}}\n---\n"
        )
    };
    let policy =
        network_policy("ns", "p", "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}");
    let world = World::of(&(dual("x", 1) + &dual("y", 2) + &policy));
    let mut query = query(of("x"), of("y"), 1);
    assert!(world.engine.explain(&query).unwrap().allowed);
    query.family = Some(Family::V6);
    assert!(!world.engine.explain(&query).unwrap().allowed);
}

#[test]
fn an_unknown_workload_is_an_error_and_not_a_verdict() {
    let world = World::of(&pods());
    let error = world.engine.explain(&query(of("nobody"), of("db"), 1)).unwrap_err();
    assert_eq!(error, ExplainError::Unknown(of("nobody")));
}
