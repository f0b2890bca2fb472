//! Flows: what is recorded equals what a generator sent, whoever is away meanwhile, and a port scan has few rows.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::atomic::{AtomicU16, Ordering},
};

use serde_json::Value;

use super::world::{World, eventually};

const POLICY: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: shop, name: web}\n\
    spec: {podSelector: {matchLabels: {pod: web}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: \
    {matchLabels: {pod: client}}}], ports: [{protocol: UDP, port: 80}]}]}";

/// The kernel's own choice of ports would now and then make one connection of two.
static SOURCE: AtomicU16 = AtomicU16::new(20_000);

/// A datagram to each of these ports, each from a port of its own: a connection each.
fn send(world: &World, from: &str, to: &str, ports: impl IntoIterator<Item = u16>) {
    let (from, to) = (&world.pods[from], world.pods[to].addresses[0]);
    let (ports, own): (Vec<u16>, _) = (ports.into_iter().collect(), from.addresses[0]);
    let sending = from.namespace.within(move || {
        for port in ports {
            let socket = UdpSocket::bind((own, SOURCE.fetch_add(1, Ordering::Relaxed))).unwrap();
            socket.send_to(b"x", SocketAddr::new(to, port)).unwrap();
        }
    });
    sending.join().unwrap();
}

fn flows(world: &World, args: &str) -> Vec<Value> {
    let mut all = vec!["flows", "--limit", "10000", "-o", "json"];
    all.extend(args.split_whitespace());
    listed(&world.ok(&all))
}

fn listed(text: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(text).unwrap();
    assert_eq!(list["more"], false, "all of them are listed");
    list["flows"].as_array().unwrap().clone()
}

fn count(flows: &[Value]) -> u64 {
    flows.iter().map(|flow| flow["count"].as_u64().unwrap()).sum()
}

/// Waits until what is recorded of a question is as much as was sent.
#[track_caller]
fn expect(world: &World, question: &str, sent: u64) -> Vec<Value> {
    let mut last = Vec::new();
    eventually(&format!("{sent} of `{question}` are recorded"), || {
        last = flows(world, question);
        if count(&last) == sent { Ok(()) } else { Err(format!("{last:#?}")) }
    });
    last
}

/// What rules have decided is as much as was sent.
fn decided_so_often(world: &World) {
    eventually("every packet is counted for the rule that decided", || {
        let told: Value =
            serde_json::from_str(&world.ok(&["policy", "get", "shop/web", "-o", "json"])).unwrap();
        let used: Vec<_> =
            told["rules"].as_array().unwrap().iter().map(|rule| (&rule["rule"], &rule["uses"])).collect();
        let expected = [(&"spec.ingress[0]".into(), &40.into()), (&"isolation".into(), &30.into())];
        if used == expected && told["silent"] == 0 { Ok(()) } else { Err(format!("{told:#}")) }
    });
}

/// What was let through is what is suggested, and not what left and was refused where it came to; held against what was seen it is the same.
fn policies_are_written_from_it(world: &World) {
    let suggested = world.ok(&["suggest", "--since", "1h", "--egress"]);
    assert!(suggested.contains("shop/pod=client to shop/pod=web udp 80, 40 times"), "{suggested}");
    assert!(!suggested.contains("shop/pod=stranger to"), "{suggested}");
    let file = world.dir.path().join("suggested.yaml");
    std::fs::write(&file, &suggested).unwrap();
    let replayed = world.ok(&["replay", "-f", file.to_str().unwrap(), "--since", "1h"]);
    assert!(replayed.contains("0 connections would be decided otherwise"), "{replayed}");
    world.ok(&["apply", "--stage", "-f", file.to_str().unwrap()]);
    let staged: Value = serde_json::from_str(&world.ok(&["staged", "--since", "1h", "-o", "json"])).unwrap();
    let together = &staged["together_seen"];
    assert_eq!(together["changed"].as_array().map(Vec::len), Some(0), "{together:#}");
    assert!(together["same"].as_u64() >= Some(70), "{together:#}");
    world.ok(&["discard", "--all"]);
}

#[test]
fn flows_are_what_was_sent() {
    let mut world = World::new(2);
    world.add_pod("shop/web", 0, "", &["udp/80".parse().unwrap()]);
    world.add_pod("shop/client", 1, "", &[]);
    world.add_pod("shop/stranger", 1, "", &[]);
    world.apply(POLICY);
    world.settle();

    send(&world, "shop/client", "shop/web", [80; 40]);
    send(&world, "shop/stranger", "shop/web", [80; 30]);
    let denied = expect(&world, "--verdict denied --from shop/stranger --to shop/web --port 80", 30);
    for flow in &denied {
        assert_eq!(flow["rule"], "isolated by NetworkPolicy shop/web", "{flow:#}");
        assert_eq!((&flow["node"], &flow["direction"]), (&"host-1".into(), &"in".into()), "{flow:#}");
        assert_eq!(
            (&flow["from"]["labels"]["pod"], &flow["to"]["workload"]),
            (&"stranger".into(), &"Pod shop/web".into())
        );
    }
    let came = expect(&world, "--verdict allowed --from pod=client --to shop/web --node host-1", 40);
    assert!(came.iter().all(|flow| flow["rule"] == "ingress rule 0 of NetworkPolicy shop/web"), "{came:#?}");
    // The other node has seen them leave, also those that were refused where they came to.
    expect(&world, "--verdict allowed --from shop/client --to shop/web --node host-2", 40);
    expect(&world, "--verdict allowed --from shop/stranger --to shop/web --node host-2", 30);

    decided_so_often(&world);
    policies_are_written_from_it(&world);

    // A scan is a few rows, and every packet is counted.
    send(&world, "shop/stranger", "shop/web", 1_000..4_000);
    let scan = "--verdict denied --from shop/stranger --to shop/web";
    let rows = expect(&world, scan, 3_030);
    assert!(rows.len() < 1_000, "{} rows", rows.len());
    let top = listed(&world.ok(&["top", "flows", "--verdict", "denied", "--limit", "10000", "-o", "json"]));
    assert_eq!(
        (&top[0]["port"], &top[0]["to"]["workload"]),
        (&Value::Null, &"Pod shop/web".into()),
        "{top:#?}"
    );

    // Without a controller the node adds up.
    world.kill_controller();
    send(&world, "shop/stranger", "shop/web", [80; 25]);
    world.start_controller();
    expect(&world, scan, 3_055);
    // Over REST the same.
    let list = &world.rest(&["/flows?verdict=denied&from=shop/stranger&limit=10000".to_owned()])[0];
    assert_eq!(count(list["flows"].as_array().unwrap()), 3_055);
    let files = std::fs::read_dir(world.dir.path().join("controller/flows")).unwrap();
    let files =
        files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|it| it == "flows"));
    let files = files.count();
    assert!(files >= 2, "each run of the controller begins a file");

    // An agent that is not to record does not, and enforces all the same.
    world.kill_agent(0);
    world.start_agent_with(0, &["--no-flows"]);
    world.settle();
    send(&world, "shop/stranger", "shop/web", [80; 9]);
    expect(&world, "--from shop/stranger --to shop/web --port 80 --node host-2", 30 + 25 + 9);
    assert_eq!(count(&flows(&world, scan)), 3_055);
    assert!(!world.hosts[0].namespace.run("nft list table inet trestle-policy").contains("log prefix"));
}
