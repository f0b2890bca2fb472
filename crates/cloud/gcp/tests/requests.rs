//! How many requests things take, on an untroubled cloud: a site's day, step by step. `docs/benches.md` has some of the same.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use cloud_api::{At, ResourceSpec, prelude::*};
use cloud_gcp::{GcpCloud, GcpOptions};
use cloud_sim::Sim;
use model::{ConnectionSpec, Direction, EntryName, PermitEntry, Ports, Protocol, Secret, Segment, Traffic};

const INSTANCE: &str = r#"{"zone":"us-west1-a","machineType":"e2-micro","disks":[{"boot":true}]}"#;

fn plugin(sim: &Sim) -> GcpCloud {
    GcpCloud::with(&GcpOptions::default(), sim.world()).unwrap()
}

fn at() -> At {
    At { site: "ns.gcp".parse().unwrap(), deployment: "p1".to_owned() }
}

fn entry(number: u8) -> PermitEntry {
    let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(443)).unwrap();
    let targets = [format!("10.9.{number}.1").parse().unwrap()].into();
    PermitEntry::new(EntryName::reported(format!("e{number}")), traffic, targets, Default::default()).unwrap()
}

fn connection() -> ConnectionSpec {
    ConnectionSpec {
        bgp: true,
        site: at().site,
        peer: "ns.other".parse().unwrap(),
        peer_asn: 64_997,
        peer_addresses: vec![[203, 0, 113, 251].into(), [203, 0, 113, 252].into()],
        local_bgp: vec![[169, 254, 21, 241].into(), [169, 254, 21, 245].into()],
        peer_bgp: vec![[169, 254, 21, 242].into(), [169, 254, 21, 246].into()],
        peer_spaces: vec![],
        shared_key: Secret::new("aSecretKey1aSecretKey1"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_takes_as_many_requests_as_the_docs_say() {
    let sim = Sim::start().await.unwrap();
    let (cloud, at) = (plugin(&sim), at());
    let region: Segment = "us-west1".parse().unwrap();
    let spec =
        ResourceSpec { name: "a".parse().unwrap(), region: region.clone(), description: INSTANCE.to_owned() };
    // The first time, and when all is there.
    for [instance, entries, nat, gateway, link, list] in [[15, 42, 5, 18, 14, 11], [8, 2, 2, 11, 6, 11]] {
        let counted = |what: &str, count: usize| assert_eq!(sim.take_calls().len(), count, "{what}");
        cloud.ensure_network(&at, &region, "10.1.0.0/16".parse().unwrap()).await.unwrap();
        let uri = cloud.create_resource(&at, &spec).await.unwrap().uri;
        counted("instance", instance);
        cloud.put_list(&at, &uri, &[], &(0..20).map(entry).collect::<Vec<_>>()).await.unwrap();
        counted("20 entries", entries);
        cloud.ensure_nat(&at, &region).await.unwrap();
        counted("NAT", nat);
        cloud.create_gateway(&at, 64_999).await.unwrap();
        counted("gateway", gateway);
        cloud.create_connections(&at, &connection()).await.unwrap();
        counted("link", link);
        cloud.list(&at).await.unwrap();
        counted("list", list);
    }
    cloud.delete_connections(&at, &connection().peer).await.unwrap();
    cloud.delete_gateway(&at).await.unwrap();
    cloud.delete_nat(&at, &region).await.unwrap();
    assert_eq!(sim.take_calls().len(), 21, "the link, the gateway and the NAT are removed");
    cloud.delete_resource(&at, &spec.name).await.unwrap();
    cloud.delete_network(&at, &region).await.unwrap();
    assert_eq!(sim.take_calls().len(), 64, "and all the rest");
}
