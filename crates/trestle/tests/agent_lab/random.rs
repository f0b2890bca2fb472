//! Random policies: what packets do, against what `explain` says, in every cell.
//!
//! `explain` works from the objects as users wrote them, the packets from what came out of the engine, the stream, the
//! plane and the kernel. `TRESTLE_LAB_ROUNDS` and `TRESTLE_LAB_SEED` make it long, or the same again.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    matrix::{Cell, check, pairs},
    probe::{Port, Protocol},
    world::World,
};

const SLOTS: usize = 4;
const NAMESPACES: [&str; 3] = ["x", "v", "z"];

/// Plays rounds of random changes; how many cells were probed.
pub fn play(world: &World, rounds: u64, seed: u64) -> Result<usize, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut there = [false; SLOTS];
    let mut probed = 0;
    for round in 1..=rounds {
        let mut documents = Vec::new();
        for (slot, there) in there.iter_mut().enumerate() {
            match random.u8(..4) {
                0 if *there => {
                    world.delete(&deletion(slot));
                    *there = false;
                }
                0 | 1 => {}
                _ => {
                    documents.push(document(&mut random, slot).to_string());
                    *there = true;
                }
            }
        }
        if !documents.is_empty() {
            world.apply(&documents.join("\n---\n"));
        }
        world.settle();
        let expected = explained(world);
        probed += expected.len();
        let told = |text| {
            let policies = world.ok(&["get", "networkpolicies", "-o", "yaml"]);
            let cluster = world.ok(&["get", "clusternetworkpolicies", "-o", "yaml"]);
            format!("round {round} of TRESTLE_LAB_SEED={seed}:\n{text}\n{policies}\n{cluster}")
        };
        check(world, &expected).map_err(told)?;
    }
    for slot in (0..SLOTS).filter(|slot| there[*slot]) {
        world.delete(&deletion(slot));
    }
    Ok(probed)
}

/// The first slots are Kubernetes policies, each in a namespace, the last one a cluster policy of Antrea.
fn deletion(slot: usize) -> String {
    match slot {
        3 => "acnp r3".to_owned(),
        _ => format!("networkpolicy {}/r{slot}", NAMESPACES[slot]),
    }
}

fn document(random: &mut fastrand::Rng, slot: usize) -> Value {
    if slot == 3 {
        let direction = if random.bool() { "ingress" } else { "egress" };
        let tier = random.choice(["securityops", "application", "baseline"]).unwrap();
        let rules: Vec<_> = (0..random.u8(1..4)).map(|_| tier_rule(random, tier)).collect();
        let applied = json!([{ "podSelector": pods(random), "namespaceSelector": namespaces(random) }]);
        let mut spec = json!({ "tier": tier, "priority": random.u8(1..9), "appliedTo": applied });
        spec[direction] = turned(&rules, direction);
        return json!({ "apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy",
            "metadata": { "name": "r3" }, "spec": spec });
    }
    let mut types = vec!["Ingress"];
    match random.u8(..3) {
        0 => types = vec!["Egress"],
        1 => types.push("Egress"),
        _ => {}
    }
    let mut spec = json!({ "podSelector": pods(random), "policyTypes": types.clone() });
    for direction in types.iter().map(|name| name.to_lowercase()) {
        let rules: Vec<_> = (0..random.u8(..3)).map(|_| rule(random)).collect();
        spec[&direction] = turned(&rules, &direction);
    }
    let metadata = json!({ "namespace": NAMESPACES[slot], "name": format!("r{slot}") });
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec })
}

/// Rules say `peers`; which word that is depends on the direction.
fn turned(rules: &[Value], direction: &str) -> Value {
    let word = if direction == "ingress" { "from" } else { "to" };
    let turn = |rule: &Value| {
        let mut rule = rule.clone();
        if let Some(peers) = rule.as_object_mut().and_then(|rule| rule.remove("peers")) {
            rule[word] = peers;
        }
        rule
    };
    rules.iter().map(turn).collect()
}

fn rule(random: &mut fastrand::Rng) -> Value {
    let mut rule = json!({});
    if random.u8(..5) > 0 {
        rule["peers"] = (0..random.u8(1..3)).map(|_| peer(random, true)).collect();
    }
    if random.bool() {
        rule["ports"] = (0..random.u8(1..3)).map(|_| port(random)).collect();
    }
    rule
}

fn tier_rule(random: &mut fastrand::Rng, tier: &str) -> Value {
    // From the last tier there is nowhere to pass to.
    let actions = ["Allow", "Drop", "Reject", "Pass"];
    let action = random.choice(&actions[..if tier == "baseline" { 3 } else { 4 }]).unwrap();
    let mut rule = json!({ "action": action, "peers": [peer(random, false)] });
    match random.u8(..4) {
        0 => rule["protocols"] = json!([{ "icmp": {} }]),
        1 | 2 => rule["ports"] = json!([port(random)]),
        _ => {}
    }
    rule
}

fn peer(random: &mut fastrand::Rng, except: bool) -> Value {
    let host = random.u8(1..3);
    match random.u8(..5) {
        0 => json!({ "podSelector": pods(random), "namespaceSelector": namespaces(random) }),
        1 => json!({ "namespaceSelector": namespaces(random) }),
        2 if except => json!({ "podSelector": pods(random) }),
        3 => block(random, format!("10.0.{host}.0/24"), "10.0.1.1/32", except),
        4 => block(random, format!("fd00:0:{host}::/64"), "fd00:0:1::1/128", except),
        _ => json!({ "podSelector": pods(random), "namespaceSelector": {} }),
    }
}

fn block(random: &mut fastrand::Rng, cidr: String, except: &str, may_except: bool) -> Value {
    let within = cidr.starts_with("10.0.1.") || cidr.starts_with("fd00:0:1:");
    if may_except && within && random.bool() {
        return json!({ "ipBlock": { "cidr": cidr, "except": [except] } });
    }
    json!({ "ipBlock": { "cidr": cidr } })
}

fn pods(random: &mut fastrand::Rng) -> Value {
    match random.u8(..4) {
        0 => json!({}),
        1 => json!({ "matchExpressions": [{ "key": "pod", "operator": "NotIn", "values": ["a", "b"] }] }),
        2 => json!({ "matchExpressions": [{ "key": "pod", "operator": "In", "values": ["a", "c"] }] }),
        _ => json!({ "matchLabels": { "pod": random.choice(["a", "b", "c"]).unwrap() } }),
    }
}

fn namespaces(random: &mut fastrand::Rng) -> Value {
    match random.u8(..4) {
        0 => json!({}),
        1 => json!({ "matchExpressions": [{ "key": "ns", "operator": "NotIn", "values": ["x", "v"] }] }),
        _ => json!({ "matchLabels": { "ns": random.choice(NAMESPACES).unwrap() } }),
    }
}

fn port(random: &mut fastrand::Rng) -> Value {
    match random.u8(..8) {
        0 => json!({ "protocol": "UDP", "port": 80 }),
        6 => json!({ "protocol": "SCTP", "port": 80 }),
        7 => json!({ "protocol": "SCTP" }),
        1 => json!({ "protocol": "TCP", "port": "web" }),
        2 => json!({ "protocol": "TCP", "port": "alt" }),
        3 => json!({ "protocol": "TCP", "port": 70, "endPort": 80 }),
        4 => json!({ "protocol": "TCP" }),
        _ => json!({ "protocol": "TCP", "port": 81 }),
    }
}

/// What the controller says of every cell.
fn explained(world: &World) -> BTreeMap<Cell, bool> {
    let ports: Vec<Port> = super::PORTS.iter().map(|text| text.parse().unwrap()).collect();
    let mut cells = Vec::new();
    for (from, to) in pairs(world) {
        for ipv6 in [false, true] {
            cells.extend(ports.iter().map(|port| (from.clone(), to.clone(), ipv6, *port)));
        }
    }
    let query = |(from, to, ipv6, port): &Cell| {
        let address = |name: &str| world.pods[name].addresses[usize::from(*ipv6)];
        let (source, destination, protocol) = (address(from), address(to), port.protocol);
        let query = format!("/explain?source={source}&destination={destination}&protocol={protocol}");
        if protocol == Protocol::Icmp { query } else { format!("{query}&port={}", port.number) }
    };
    let answers = world.rest(&cells.iter().map(query).collect::<Vec<_>>());
    let open = |cell: &Cell, answer: &Value| {
        let allowed = answer["allowed"].as_bool().unwrap_or_else(|| panic!("{cell:?}: {answer}"));
        // A Pod always reaches itself: its packets never leave it.
        cell.0 == cell.1 || allowed
    };
    cells.iter().zip(&answers).map(|(cell, answer)| (cell.clone(), open(cell, answer))).collect()
}
