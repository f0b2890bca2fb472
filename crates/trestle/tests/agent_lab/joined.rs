//! Hosts that joined, whose addresses are what their agents report.

use std::{
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    probe::{Port, serve},
    world::{World, eventually},
};

/// The index of each host.
const DATABASE: usize = 0;
const WEB: usize = 1;
const OTHER: usize = 2;

const POLICY: &str = "apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: only-web}
spec:
  priority: 5
  tier: application
  appliedTo: [{nodeSelector: {matchLabels: {role: database}}}]
  ingress:
  - {action: Allow, from: [{nodeSelector: {matchLabels: {role: web}}}], ports: [{protocol: TCP, port: 80}]}
  - {action: Drop, from: [{ipBlock: {cidr: 0.0.0.0/0}}, {ipBlock: {cidr: \"::/0\"}}]}
";

/// From the address that moves.
fn connects(world: &World, host: usize) -> bool {
    let target = "10.99.0.1:80".parse().unwrap();
    let asked = move || TcpStream::connect_timeout(&target, Duration::from_millis(700)).is_ok();
    world.hosts[host].namespace.within(asked).join().unwrap()
}

/// Gives a host the address that moves, and takes it from the one that had it.
fn moves(world: &World, from: usize, to: usize) {
    world.hosts[from].namespace.run("ip addr del 10.99.0.77/32 dev up0");
    world.hosts[to].namespace.run(
        "ip addr add 10.99.0.77/32 dev up0; ip route replace 10.99.0.1/32 dev up0 src 10.99.0.77; ip neigh flush all",
    );
    world.hosts[DATABASE].namespace.run("ip neigh flush all");
}

#[test]
fn an_address_that_moves_takes_no_permission_along_and_costs_nobody_else_one() {
    let mut world = World::without_controller(3, None);
    world.start_controller();
    let port = "tcp/80".parse::<Port>().unwrap();
    serve(&world.hosts[DATABASE].namespace, &[port]);
    for (host, role) in [(DATABASE, "role=database"), (WEB, "role=web"), (OTHER, "role=other")] {
        world.join(host, &[role]);
    }
    world.apply(POLICY);
    world.hosts[OTHER].namespace.run("ip addr add 10.99.0.77/32 dev up0");
    moves(&world, OTHER, WEB);
    world.settle();
    let comes_true = |what: &str, host: usize, expected: bool| {
        eventually(what, || if connects(&world, host) == expected { Ok(()) } else { Err(String::new()) });
    };
    comes_true("the policy is in force", OTHER, false);
    comes_true("the web's second address is permitted", WEB, true);

    // The web's own address is asked from all the while, and never refused.
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let steady = world.hosts[WEB].namespace.within(move || {
        let target: SocketAddr = "[fd99::1]:80".parse().unwrap();
        let (mut asked, mut refused) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            asked += 1;
            refused += u32::from(TcpStream::connect_timeout(&target, Duration::from_secs(5)).is_err());
        }
        (asked, refused)
    });
    for _ in 0..2 {
        moves(&world, WEB, OTHER);
        comes_true("whoever has the address now is refused", OTHER, false);
        for _ in 0..3 {
            assert!(!connects(&world, OTHER), "and stays refused");
        }
        moves(&world, OTHER, WEB);
        comes_true("the web has it back", WEB, true);
    }
    done.store(true, Ordering::Relaxed);
    let (asked, refused) = steady.join().unwrap();
    assert!(asked > 10 && refused == 0, "{refused} of {asked} were refused");
}
