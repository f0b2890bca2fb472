//! What an agent can be told beside policies, and what a node may always do.

use std::time::Duration;

use testkit::namespaces::Namespace;

use super::{
    probe::{Port, Target, ask, serve},
    traffic::Flow,
    world::{World, eventually},
};

fn web() -> Port {
    "tcp/80".parse().unwrap()
}

fn reaches(world: &World, from: &Namespace, to: &str) -> bool {
    let target = Target { address: world.pods[to].addresses[0], port: web() };
    ask(from, vec![target], Duration::from_secs(1)).join().unwrap()[&target]
}

const DENY: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: x, name: deny}\n\
                    spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress, Egress]}";

/// A kubelet's probes come from the node itself; those of another node are judged like anybody's.
#[test]
fn a_node_reaches_its_own_pods_whatever_policies_say() {
    let mut world = World::new(2);
    world.add_pod("x/a", 0, "", &[web()]);
    world.apply(DENY);
    world.settle();
    assert!(reaches(&world, &world.hosts[0].namespace, "x/a"));
    assert!(!reaches(&world, &world.hosts[1].namespace, "x/a"));
}

/// A link that nobody has attached is closed if its name says that it is a Pod's.
#[test]
fn guarded_interfaces_are_closed_until_they_are_attached() {
    let mut world = World::new(1);
    world.kill_agent(0);
    world.start_agent_with(0, &["--guard", "p"]);
    world.add_pod("x/a", 0, "", &[web()]);
    world.settle();
    let addresses = ["10.0.1.50", "fd00:0:1::50"].map(|text| text.parse().unwrap());
    world.link_pod("x/b", 0, "", addresses);
    serve(&world.pods["x/b"].namespace, &[web()]);
    assert!(!reaches(&world, &world.pods["x/a"].namespace, "x/b"));
    assert!(!reaches(&world, &world.pods["x/b"].namespace, "x/a"));
    world.declare_pods(&["x/b"]);
    world.attach("x/b");
    world.settle();
    assert!(reaches(&world, &world.pods["x/a"].namespace, "x/b"));
    assert!(reaches(&world, &world.pods["x/b"].namespace, "x/a"));
}

/// By default a connection outlives the policy that forbids it; with the switch it is cut.
#[test]
fn established_connections_are_cut_when_that_is_asked_for() {
    for (flags, is_cut) in [(&[][..], false), (&["--cut-established"][..], true)] {
        let mut world = World::new(1);
        world.kill_agent(0);
        world.start_agent_with(0, flags);
        for name in ["x/a", "x/b"] {
            world.add_pod(name, 0, "", &[web()]);
        }
        world.settle();
        let flow = Flow::start(&world.pods["x/b"], &world.pods["x/a"], 80);
        eventually(
            "the connection is used",
            || if flow.exchanges() > 5 { Ok(()) } else { Err(String::new()) },
        );
        world.apply(DENY);
        world.settle();
        let before = flow.exchanges();
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(flow.exchanges() <= before + 1, is_cut, "{flags:?}");
        assert!(!reaches(&world, &world.pods["x/b"].namespace, "x/a"));
    }
}
