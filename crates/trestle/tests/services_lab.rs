//! Services end to end: YAML on the controller, agents as processes on two hosts, Pods, and real packets. Needs root.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    dead_code,
    reason = "a test may fail where it stands, and uses a part of the lab"
)]

mod lab;

use std::time::Duration;

use lab::probe::{Target, ask};
use lab::world::{World, eventually};

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
  externalIPs: [203.0.113.10]
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
    assert!(figures.contains("trestle_services_refused 0"), "{figures}");

    // A Service without an address gets one. Its slice says when the change happened that it tells of.
    world.apply(&stamped(&world.pods["shop/web-2"].addresses[0].to_string()));
    let service: serde_json::Value =
        serde_json::from_str(&world.ok(&["get", "service", "stamped", "-n", "shop", "-o", "json"])).unwrap();
    let address = service["spec"]["clusterIP"].as_str().unwrap_or_else(|| panic!("{service}")).to_owned();
    assert!(address.starts_with("10."), "{service}");
    becomes(&world, "shop/client", &address, "tcp/8080", true);
    let programming = "curl -sS 127.0.0.1:8082/metrics | grep network_programming_duration_seconds_count";
    assert_eq!(world.hosts[0].namespace.run(programming).trim().rsplit(' ').next(), Some("1"));

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
    let twin = SERVICE.replace("name: web", "name: zweb").replace("31999", "31998").replace("30080", "30081");
    world.apply(&twin.replace("10.96.0.1", "10.96.0.2").replace("fd96::1", "fd96::2"));
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

/// A Service without an address, and a slice of it that was changed just now.
fn stamped(endpoint: &str) -> String {
    let now = std::process::Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S.%NZ"]).output().unwrap();
    let now = String::from_utf8(now.stdout).unwrap();
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: stamped, namespace: shop}}
spec: {{ports: [{{name: http, port: 8080}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: stamped-1
  namespace: shop
  labels: {{kubernetes.io/service-name: stamped}}
  annotations: {{endpoints.kubernetes.io/last-change-trigger-time: '{}'}}
addressType: IPv4
endpoints: [{{addresses: [{endpoint}], nodeName: host-2}}]
ports: [{{name: http, port: 80}}]
",
        now.trim()
    )
}

#[test]
fn the_configuration_is_read_again_on_hangup_and_no_request_fails_meanwhile() {
    let mut world = World::new(1);
    let file = world.dir.path().join("agent.yaml");
    let say = |mode: &str| {
        let text = format!(
            "services:\n  mode: {mode}\n  pod_prefixes: [10.0.0.0/16]\n  service_prefixes: [10.96.0.0/16]\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    say("nftables");
    world.kill_agent(0);
    world.start_agent_with(0, &["--config", file.to_str().unwrap()]);
    world.add_pod("shop/web-1", 0, "app: web", &["tcp/80".parse().unwrap()]);
    world.add_pod("shop/client", 0, "", &[]);
    world.apply(SERVICE);
    becomes(&world, "shop/client", "10.96.0.1", "tcp/8080", true);
    let mode = |wanted: &str| {
        eventually(&format!("mode {wanted}"), || {
            let said = world.agent_ok(0, &["services"]);
            if said.contains(wanted) { Ok(()) } else { Err(said) }
        });
    };
    let logged = |text: &str, times: usize| {
        eventually(&format!("{times} times {text:?} in the log"), || {
            let log = world.log(0);
            if log.matches(text).count() >= times { Ok(()) } else { Err(log) }
        });
    };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    let (asked, failed) = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let (mut asked, mut failed) = (0, 0);
            while !stop.load(order) {
                asked += 1;
                failed += usize::from(!answers(&world, "shop/client", "10.96.0.1", "tcp/8080"));
            }
            (asked, failed)
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // Nothing new, again and again.
            (0..5).for_each(|_| world.signal_agent(0, "HUP"));
            // What cannot be read, and a plane that this kernel may not have: all stays as it was.
            std::fs::write(&file, "services: [").unwrap();
            world.signal_agent(0, "HUP");
            logged("all stays as it was", 1);
            std::fs::write(&file, "servicse: {}").unwrap();
            world.signal_agent(0, "HUP");
            logged("all stays as it was", 2);
            if std::path::Path::new("/proc/net/ip_vs").exists() {
                // Over and back, twice: the second time IPVS is still on its way out, or there again.
                for there in ["ipvs", "nftables", "ipvs", "nftables"] {
                    say(there);
                    world.signal_agent(0, "HUP");
                    mode(there);
                    std::thread::sleep(Duration::from_millis(500));
                }
            } else {
                say("ipvs");
                world.signal_agent(0, "HUP");
                logged("use `--services nftables`", 1);
                mode("nftables");
            }
            std::thread::sleep(Duration::from_millis(500));
        }));
        stop.store(true, order);
        let counted = traffic.join().unwrap();
        done.map(|()| counted).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    assert!(asked > 5, "{asked} requests are no traffic");
    assert_eq!(failed, 0, "of {asked} requests");
    // Off, and on again.
    say("none");
    world.signal_agent(0, "HUP");
    mode("none");
    assert!(!world.hosts[0].namespace.run("nft list tables").contains("trestle-services"));
    say("nftables");
    world.signal_agent(0, "HUP");
    mode("nftables");
    becomes(&world, "shop/client", "10.96.0.1", "tcp/8080", true);
}
