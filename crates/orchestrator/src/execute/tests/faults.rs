//! Stories over faulty clouds: whatever goes wrong, in the end what is permitted is reachable and nothing else is.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use async_trait::async_trait;
use cloud_api::{At, Faults, Listing, PeeringSpec, ResourceSpec, Result, prelude::*};
use ipnet::Ipv4Net;
use model::{
    CloudTraits, ConnectionSpec, ConnectionStatus, GatewayState, PermitEntry, ResourceState, Segment, Site,
};

use super::house::{House, both};

const NAMES: [(&str, &str); 5] = [
    ("ns.azure.a", "r1"),
    ("ns.azure.b", "r2"),
    ("ns.gcp.c", "r1"),
    ("other.gcp.d", "r1"),
    ("ns.azure.e", "r1"),
];

async fn story(seed: u64) {
    let house = House::new(&["azure", "gcp"]).await;
    let faults = Faults {
        seed,
        latency: Duration::from_millis(2),
        throttle: 80,
        before: 80,
        after: 80,
        half: 80,
        ..Faults::default()
    };
    house.clouds.iter().for_each(|cloud| cloud.set_faults(faults.clone()));
    let makes = NAMES.iter().map(|(name, region)| house.create(name, region));
    for made in futures::future::join_all(makes).await {
        made.unwrap();
    }
    // Which pairs are joined is decided by the seed.
    let pairs: Vec<(usize, usize)> = (0..5)
        .flat_map(|a| (a + 1..5).map(move |b| (a, b)))
        .filter(|(a, b)| seed >> (a * 5 + b) & 1 == 1)
        .collect();
    for (a, b) in &pairs {
        house.join(NAMES[*a].0, NAMES[*b].0).await;
    }
    check(&house, &pairs);
    for (a, b) in pairs.iter().step_by(2) {
        let names = both(NAMES[*b].0).into_iter().map(|rule| rule.name).collect();
        let outcome =
            house.orchestrator.delete_rules(NAMES[*a].0.parse().unwrap(), names, false).await.unwrap();
        house.finish(outcome).await.unwrap();
    }
    house.settle().await;
    let kept: Vec<_> = pairs.iter().skip(1).step_by(2).copied().collect();
    check(&house, &kept);
    for (name, _) in NAMES {
        house.delete(name).await;
    }
    house.settle().await;
    assert!(house.is_empty(), "seed {seed}");
}

fn check(house: &House, pairs: &[(usize, usize)]) {
    for (a, (from, _)) in NAMES.iter().enumerate() {
        for (b, (to, _)) in NAMES.iter().enumerate().filter(|(b, _)| *b != a) {
            let joined = pairs.contains(&(a.min(b), a.max(b)));
            assert_eq!(house.reaches(from, to), joined, "{from} to {to}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faulty_clouds_end_up_as_wanted() {
    for seed in [0x0155_aaaa, 0x3f3f_3f3f, 0x0012_3456, 0x7fff_ffff] {
        story(seed).await;
    }
}

/// A plugin that panics fails its own step; the orchestrator and the other clouds go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_panics_harms_nobody_else() {
    let house = House::new(&["azure"]).await;
    house.orchestrator.add_cloud("mad".parse().unwrap(), Arc::new(Mad)).await.unwrap();
    let mad =
        house.orchestrator.create_resource("ns.mad.x".parse().unwrap(), "r".to_owned(), false, false).await;
    house.create("ns.azure.a", "r").await.unwrap();
    let id = mad.unwrap().job().unwrap().id;
    for _ in 0..1000 {
        if house.orchestrator.job(&id).unwrap().message.contains("panicked") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the job does not say what happened");
}

/// A cloud whose every change panics.
struct Mad;

#[async_trait]
impl Cloud for Mad {
    async fn describe(&self) -> Result<CloudTraits> {
        Ok(CloudTraits::default())
    }
    async fn list(&self, _: &At) -> Result<Listing> {
        panic!("list")
    }
}

#[async_trait]
impl Networks for Mad {
    async fn ensure_network(&self, _: &At, _: &Segment, _: Ipv4Net) -> Result {
        panic!("ensure_network")
    }
    async fn delete_network(&self, _: &At, _: &Segment) -> Result {
        panic!("delete_network")
    }
    async fn ensure_peering(&self, _: &PeeringSpec) -> Result {
        panic!("ensure_peering")
    }
    async fn delete_peering(&self, _: &PeeringSpec) -> Result {
        panic!("delete_peering")
    }
    async fn ensure_nat(&self, _: &At, _: &Segment) -> Result {
        panic!("ensure_nat")
    }
    async fn delete_nat(&self, _: &At, _: &Segment) -> Result {
        panic!("delete_nat")
    }
}

#[async_trait]
impl Resources for Mad {
    async fn inspect_resource(&self, _: &At, _: &Segment, _: &str) -> Result<Segment> {
        Ok("r".parse().unwrap())
    }
    async fn create_resource(&self, _: &At, _: &ResourceSpec) -> Result<ResourceState> {
        panic!("create_resource")
    }
    async fn delete_resource(&self, _: &At, _: &Segment) -> Result {
        panic!("delete_resource")
    }
}

impl Attachments for Mad {}

#[async_trait]
impl PermitLists for Mad {
    async fn permit_list(&self, _: &At, _: &str) -> Result<Vec<PermitEntry>> {
        panic!("permit_list")
    }
    async fn put_list(&self, _: &At, _: &str, _: &[PermitEntry], _: &[PermitEntry]) -> Result {
        panic!("put_list")
    }
}

#[async_trait]
impl Links for Mad {
    async fn create_gateway(&self, _: &At, _: u32) -> Result<GatewayState> {
        panic!("create_gateway")
    }
    async fn delete_gateway(&self, _: &At) -> Result {
        panic!("delete_gateway")
    }
    async fn create_bgp_sessions(&self, _: &At, _: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        panic!("create_bgp_sessions")
    }
    async fn create_connections(&self, _: &At, _: &ConnectionSpec) -> Result {
        panic!("create_connections")
    }
    async fn delete_connections(&self, _: &At, _: &Site) -> Result {
        panic!("delete_connections")
    }
    async fn connection_status(&self, _: &At, _: &Site) -> Result<ConnectionStatus> {
        panic!("connection_status")
    }
}
