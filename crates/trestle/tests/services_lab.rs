//! Services end to end: YAML on the controller, agents as processes on two hosts, Pods, and real packets. Needs root.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    dead_code,
    reason = "a test may fail where it stands, and uses a part of the lab"
)]

#[path = "lab/clocks.rs"]
mod clocks;
#[path = "lab/net.rs"]
mod net;
#[path = "../../node/kernel/tests/support/packet.rs"]
mod packet;
#[path = "lab/probe.rs"]
mod probe;
#[path = "lab/raw.rs"]
mod raw;
#[path = "lab/world.rs"]
mod world;

use std::time::Duration;

use probe::{Target, ask};
use world::{World, eventually};

const FLAGS: &[&str] = &[
    "--services",
    "nftables",
    "--pod-prefix",
    "10.0.0.0/16",
    "--pod-prefix",
    "fd00::/32",
    "--service-prefix",
    "10.96.0.0/16",
    "--services-health",
    "127.0.0.1:10256",
];

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: LoadBalancer
  clusterIPs: [10.96.0.1, 'fd96::1']
  selector: {app: web}
  externalTrafficPolicy: Local
  healthCheckNodePort: 31999
  ports: [{name: http, port: 8080, targetPort: web, nodePort: 30080}]
";

fn answers(world: &World, from: &str, address: &str, port: &str) -> bool {
    let target = Target { address: address.parse().unwrap(), port: port.parse().unwrap() };
    let answers = ask(&world.pods[from].namespace, vec![target], Duration::from_secs(2)).join().unwrap();
    answers[&target]
}

#[track_caller]
fn becomes(world: &World, from: &str, address: &str, port: &str, wanted: bool) {
    eventually(&format!("{from} to {address} {port}: {wanted}"), || {
        match answers(world, from, address, port) == wanted {
            true => Ok(()),
            false => Err(format!("not yet; agents say {}", world.log(0))),
        }
    });
}

#[test]
fn a_service_of_pods_works_on_every_node_and_outlives_controller_and_agent() {
    let mut world = World::new(2);
    for index in 0..2 {
        world.kill_agent(index);
        world.start_agent_with(index, FLAGS);
    }
    let http = ["tcp/80".parse().unwrap()];
    world.add_pod("shop/web-1", 0, "app: web", &http);
    world.add_pod("shop/web-2", 1, "app: web", &http);
    world.add_pod("shop/client", 0, "", &[]);
    world.apply(SERVICE);
    for address in ["10.96.0.1", "fd96::1"] {
        becomes(&world, "shop/client", address, "tcp/8080", true);
    }
    assert!(!answers(&world, "shop/client", "10.96.0.1", "tcp/81"), "not a port of the service");
    // A Pod reaches itself through the service, whichever endpoint it gets.
    assert!((0..8).all(|_| answers(&world, "shop/web-1", "10.96.0.1", "tcp/8080")));
    let list = world.ok(&["service", "list"]);
    assert!(list.contains("4/4 Pods"), "two Pods in two families: {list}");

    // Health as a balancer asks for it, and figures under their usual names.
    let health = world.hosts[0].namespace.run("curl -sS 127.0.0.1:31999; curl -sS 127.0.0.1:10256/livez");
    assert!(health.contains("\"localEndpoints\":2") && health.contains("\"healthy\":true"), "{health}");
    let figures = world.hosts[0].namespace.run("curl -sS 127.0.0.1:8082/metrics");
    assert!(figures.contains("kubeproxy_sync_proxy_rules_duration_seconds_count"), "{figures}");

    // Modes change while it runs; one that this kernel lacks changes nothing.
    world.agent_ok(0, &["services", "none"]);
    becomes(&world, "shop/client", "10.96.0.1", "tcp/8080", false);
    world.agent_ok(0, &["services", "nftables"]);
    becomes(&world, "shop/client", "10.96.0.1", "tcp/8080", true);
    assert!(world.agent_ok(0, &["services"]).contains("nftables"));
    assert!(!world.agent_run(0, &["services", "iptables"]).status.success());

    // Nobody is needed for what is in the kernel, and the disk is enough to mend it.
    world.kill_controller();
    world.kill_agent(0);
    assert!(answers(&world, "shop/client", "10.96.0.1", "tcp/8080"));
    world.hosts[0].namespace.run("nft delete table ip trestle-services");
    world.start_agent_with(0, FLAGS);
    becomes(&world, "shop/client", "10.96.0.1", "tcp/8080", true);
    world.hosts[0].namespace.run("nft flush map ip trestle-services endpoints");
    becomes(&world, "shop/client", "10.96.0.1", "tcp/8080", true);

    // Two services at one place: the later one by name is told to its owner as an error.
    world.start_controller();
    world.settle();
    world.apply(
        &SERVICE.replace("name: web", "name: zweb").replace("31999", "31998").replace("30080", "30081"),
    );
    eventually("the conflict is reported", || {
        let node = world.ok(&["node", "get", "host-1"]);
        match node.contains("shop/zweb") && node.contains("comes first by name") {
            true => Ok(()),
            false => Err(node),
        }
    });
    world.delete("service shop/zweb");
    world.delete("service shop/web");
    becomes(&world, "shop/client", "10.96.0.1", "tcp/8080", false);
}
