//! Links between two and three Linux clouds, with real packets: two tunnels, BGP, failures of each part.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::{process::Command, time::Duration};

use cloud_api::{At, prelude::*};
use cloud_linux::LinuxCloud;
use model::ResourceState;
use support::{
    Site, Stream, at, carries_tcp, link, make, permit, pings, require_tools, segment, until_pings, until_up,
};

const TOOLS: [&str; 4] = ["charon-systemd", "bird", "nc", "timeout"];
const KEY: &str = "Xk2vQ9mB7rT4yW8zA1cD3eF5gH6jK0lP";
const SECONDS: Duration = Duration::from_secs(20);

/// Two clouds with a resource each, permitted to each other, and linked.
struct Pair {
    clouds: [LinuxCloud; 2],
    at: [At; 2],
    resources: [ResourceState; 2],
}

async fn pair(site: &Site) -> Pair {
    let clouds = [site.open("one").await, site.open("two").await];
    let at = [at("ns", "one"), at("ns", "two")];
    let a = make(&clouds[0], &at[0], "a", "west", "10.210.0.0/24").await;
    let b = make(&clouds[1], &at[1], "b", "east", "10.211.0.0/24").await;
    permit(&clouds[0], &at[0], &a, &b).await;
    permit(&clouds[1], &at[1], &b, &a).await;
    assert!(!pings(&a, &b) && !pings(&b, &a), "there is no path yet");
    link((&clouds[0], &at[0]), (&clouds[1], &at[1]), [64512, 64513], 21, KEY).await;
    let pair = Pair { clouds, at, resources: [a, b] };
    pair.until_up().await;
    pair
}

impl Pair {
    async fn until_up(&self) -> Duration {
        let one = until_up(&self.clouds[0], &self.at[0], &self.at[1], SECONDS).await;
        one.max(until_up(&self.clouds[1], &self.at[1], &self.at[0], SECONDS).await)
    }

    async fn down(self, site: &Site) {
        for (own, peer) in [(0, 1), (1, 0)] {
            let (cloud, at) = (&self.clouds[own], &self.at[own]);
            cloud.delete_connections(at, &self.at[peer].site).await.unwrap();
        }
        let [a, b] = &self.resources;
        assert!(!pings(a, b), "the link is gone");
        for (own, name, region) in [(0, "a", "west"), (1, "b", "east")] {
            let (cloud, at) = (&self.clouds[own], &self.at[own]);
            cloud.delete_gateway(at).await.unwrap();
            cloud.delete_resource(at, &segment(name)).await.unwrap();
            cloud.delete_network(at, &segment(region)).await.unwrap();
        }
        assert_eq!(site.left(), [""; 0]);
    }
}

/// Two clouds talk through two tunnels, both ways, by ping and TCP; a second region uses the same gateway; then
/// nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clouds_talk_through_their_tunnels() {
    require_tools(&TOOLS);
    let site = Site::default();
    let pair = pair(&site).await;
    let [a, b] = &pair.resources;
    // The lab says which ESP it means to try.
    if let Ok(esp) = std::env::var("EXPECT_ESP") {
        assert_eq!(site.esp(), [esp.clone(), esp.clone(), esp.clone(), esp], "who does ESP");
    }
    assert!(pings(a, b) && pings(b, a));
    assert!(carries_tcp(a, b, 7001, 5) && carries_tcp(b, a, 7002, 5), "also packets that must be cut to fit");
    let status = pair.clouds[0].connection_status(&pair.at[0], &pair.at[1].site).await.unwrap();
    assert_eq!((status.tunnels, status.tunnels_up, status.bgp_established), (2, 2, 2));
    assert_eq!(status.routes, ["10.211.0.0/24".parse().unwrap()]);
    assert!(status.bytes_in > 5_000_000 && status.bytes_out > 5_000_000, "{status:?}");
    // A second region, made later, is told to the peer.
    let (cloud, at) = (&pair.clouds[0], &pair.at[0]);
    let c = make(cloud, at, "c", "south", "10.212.0.0/24").await;
    assert!(!pings(&c, b), "nothing is permitted");
    permit(cloud, at, &c, b).await;
    permit(&pair.clouds[1], &pair.at[1], b, &c).await;
    until_pings(&c, b, SECONDS);
    assert!(pings(b, &c));
    // The edge is no way from network to network.
    permit(cloud, at, &c, a).await;
    permit(cloud, at, a, &c).await;
    assert!(!pings(a, &c) && !pings(&c, a), "there is no peering");
    cloud.delete_resource(at, &segment("c")).await.unwrap();
    cloud.delete_network(at, &segment("south")).await.unwrap();
    pair.down(&site).await;
}

/// No key is in any file that others can read, nor in what daemons log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_breaks_is_mended_in_seconds() {
    require_tools(&TOOLS);
    let site = Site::default();
    let pair = pair(&site).await;
    let [a, b] = &pair.resources;
    // A key is changed while packets flow.
    let stream = Stream::start(a, b, 120);
    link(
        (&pair.clouds[0], &pair.at[0]),
        (&pair.clouds[1], &pair.at[1]),
        [1, 2],
        21,
        "another-key-of-32-letters-at-last",
    )
    .await;
    pair.until_up().await;
    let (sent, received) = stream.end();
    println!("rotation: {received} of {sent}");
    assert!(received + 10 >= sent, "rotation: {received} of {sent}");
    // The outside of the first tunnel is cut: packets take the second.
    let edge = site.namespace("tre", "one.ns");
    let stream = Stream::start(a, b, 100);
    std::thread::sleep(Duration::from_millis(500));
    let cut = Command::new("ip").args(["-n", &edge, "link", "set", "o1501", "down"]).status().unwrap();
    assert!(cut.success());
    let (sent, received) = stream.end();
    println!("cut: {received} of {sent}");
    assert!(received + 60 >= sent, "rerouted within three seconds: {received} of {sent}");
    // The daemons of the other tunnel and BIRD are killed, one after the other.
    let mend = Command::new("ip").args(["-n", &edge, "link", "set", "o1501", "up"]).status().unwrap();
    assert!(mend.success());
    for (program, namespace) in [
        ("charon", site.namespace("trt", "two.ns.t1502")),
        ("charon", site.namespace("trt", "one.ns.t1505")),
        ("bird", edge),
    ] {
        let pid = site.daemon(program, &namespace);
        assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
        let took = until_pings(a, b, SECONDS);
        std::thread::sleep(Duration::from_millis(600));
        let up = pair.until_up().await;
        println!("{program} killed: pings after {took:?}, whole after {up:?}");
        assert_ne!(site.daemon(program, &namespace), pid);
    }
    assert!(pings(a, b) && pings(b, a));
    pair.down(&site).await;
}

/// A controller that is killed leaves its daemons running; the next one recognises them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_controller_is_not_noticed_by_packets() {
    require_tools(&TOOLS);
    let site = Site::default();
    let Pair { clouds, at, resources } = pair(&site).await;
    let before: Vec<i32> = site.processes().into_iter().map(|(pid, _)| pid).collect();
    assert_eq!(before.len(), 6, "four daemons of tunnels and two of routes");
    let stream = Stream::start(&resources[0], &resources[1], 60);
    drop(clouds);
    let clouds = [site.open("one").await, site.open("two").await];
    assert_eq!(stream.end(), (60, 60));
    let mut after: Vec<i32> = site.processes().into_iter().map(|(pid, _)| pid).collect();
    after.sort_unstable();
    let mut same = before;
    same.sort_unstable();
    assert_eq!(after, same, "the same daemons");
    let pair = Pair { clouds, at, resources };
    pair.until_up().await;
    pair.down(&site).await;
}

/// Three clouds: each pair has its link, and nobody is a way for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_clouds_each_with_two_peers() {
    require_tools(&TOOLS);
    let site = Site::default();
    let names = ["one", "two", "six"];
    let mut clouds = Vec::new();
    let mut resources = Vec::new();
    let at = names.map(|name| at("ns", name));
    for (which, name) in names.iter().enumerate() {
        clouds.push(site.open(name).await);
        let space = format!("10.22{which}.0.0/24");
        resources.push(make(&clouds[which], &at[which], "r", "west", &space).await);
    }
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        permit(&clouds[one], &at[one], &resources[one], &resources[other]).await;
        permit(&clouds[other], &at[other], &resources[other], &resources[one]).await;
    }
    link((&clouds[0], &at[0]), (&clouds[1], &at[1]), [64512, 64513], 21, KEY).await;
    link((&clouds[0], &at[0]), (&clouds[2], &at[2]), [64512, 64514], 22, KEY).await;
    for (one, other) in [(0, 1), (0, 2)] {
        until_up(&clouds[one], &at[one], &at[other], SECONDS).await;
        until_up(&clouds[other], &at[other], &at[one], SECONDS).await;
        assert!(pings(&resources[one], &resources[other]) && pings(&resources[other], &resources[one]));
    }
    assert!(!pings(&resources[1], &resources[2]), "the first cloud is no way between the others");
    link((&clouds[1], &at[1]), (&clouds[2], &at[2]), [64513, 64514], 23, KEY).await;
    until_up(&clouds[1], &at[1], &at[2], SECONDS).await;
    assert!(pings(&resources[1], &resources[2]) && pings(&resources[2], &resources[1]));
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        clouds[one].delete_connections(&at[one], &at[other].site).await.unwrap();
        clouds[other].delete_connections(&at[other], &at[one].site).await.unwrap();
    }
    for (cloud, at) in clouds.iter().zip(&at) {
        cloud.delete_gateway(at).await.unwrap();
        cloud.delete_resource(at, &segment("r")).await.unwrap();
        cloud.delete_network(at, &segment("west")).await.unwrap();
    }
    assert_eq!(site.left(), [""; 0]);
}

/// A reboot takes namespaces and daemons; the state brings them back. Without the state, what is there is removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_reboot_it_is_as_it_was_and_without_its_state_nothing_is_left() {
    require_tools(&TOOLS);
    let site = Site::default();
    let Pair { clouds, at, resources } = pair(&site).await;
    drop(clouds);
    site.reboot();
    assert!(site.namespaces().is_empty() && site.processes().is_empty());
    let clouds = [site.open("one").await, site.open("two").await];
    let pair = Pair { clouds, at, resources };
    pair.until_up().await;
    assert!(pings(&pair.resources[0], &pair.resources[1]) && pings(&pair.resources[1], &pair.resources[0]));
    drop(pair);
    for file in ["one.json", "two.json", "underlay.json"] {
        std::fs::remove_file(site.path().join(file)).unwrap();
    }
    let stranger = format!("not-ours-{}", std::process::id());
    assert!(Command::new("ip").args(["netns", "add", &stranger]).status().unwrap().success());
    let clouds = [site.open("one").await, site.open("two").await];
    drop(clouds);
    assert_eq!(site.left(), [""; 0]);
    assert!(
        Command::new("ip").args(["netns", "delete", &stranger]).status().unwrap().success(),
        "it is untouched"
    );
}
