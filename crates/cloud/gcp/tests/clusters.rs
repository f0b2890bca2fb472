//! Managed Kubernetes clusters in Google Cloud: fenced whatever is allowed inside, and made anew or mended where they fail.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{net::IpAddr, time::Duration};

use cloud_api::{At, CloudErrorKind, PeeringSpec, ResourceSpec, cluster_network, prelude::*};
use cloud_gcp::{GcpCloud, GcpOptions};
use cloud_http::{HttpTransport, Request, Transport as _};
use cloud_sim::{Fault, Sim};
use http::Method;
use model::{
    Direction, EntryName, NetworkName, Packet, PeeringName, PermitEntry, Ports, Protocol, ResourceState,
    Segment, Traffic,
};
use serde_json::{Value, json};

const PING: Packet = Packet { protocol: 1, src_port: 0, dst_port: 0 };
const HTTPS: Packet = Packet { protocol: 6, src_port: 40_000, dst_port: 443 };
const CLUSTER: &str = r#"{"location":"us-west1","cluster":{"initialNodeCount":1}}"#;
const INSTANCE: &str = r#"{"zone":"us-west1-a","machineType":"e2-micro","disks":[{"boot":true}]}"#;

fn plugin(sim: &Sim) -> GcpCloud {
    let options = GcpOptions { private_endpoints: true, kubernetes_clusters: true, ..GcpOptions::default() };
    GcpCloud::with(&options, sim.world()).unwrap()
}

fn at() -> At {
    At { site: "ns.gcp".parse().unwrap(), deployment: "p1".to_owned() }
}

fn name(text: &str) -> Segment {
    text.parse().unwrap()
}

async fn network_for(cloud: &GcpCloud, resource: &str, description: &str, space: &str) -> Segment {
    let region = cloud.inspect_resource(&at(), &name(resource), description).await.unwrap();
    cloud.ensure_network(&at(), &region, space.parse().unwrap()).await.unwrap();
    region
}

fn spec(resource: &str, region: &Segment, description: &str) -> ResourceSpec {
    ResourceSpec { name: name(resource), region: region.clone(), description: description.to_owned() }
}

async fn make(cloud: &GcpCloud, resource: &str, description: &str, space: &str) -> ResourceState {
    let region = network_for(cloud, resource, description, space).await;
    cloud.create_resource(&at(), &spec(resource, &region, description)).await.unwrap()
}

async fn remove(cloud: &GcpCloud, resource: &str, region: &Segment) {
    cloud.delete_resource(&at(), &name(resource)).await.unwrap();
    cloud.delete_network(&at(), region).await.unwrap();
}

fn entry(direction: Direction, target: &str) -> PermitEntry {
    let traffic = Traffic::new(direction, Protocol::Any, Ports::Any, Ports::Any).unwrap();
    let (name, targets) =
        (EntryName::reported(format!("{direction} {target}")), [target.parse().unwrap()].into());
    PermitEntry::new(name, traffic, targets, Default::default()).unwrap()
}

fn outbound(target: &str) -> PermitEntry {
    entry(Direction::Outbound, target)
}

fn inbound(target: &str) -> PermitEntry {
    entry(Direction::Inbound, target)
}

/// The firewalls of a project that a name begins with.
fn firewalls(sim: &Sim, start: &str) -> Vec<Value> {
    let listed = sim.ask_google(Method::GET, "projects/p1/global/firewalls", Value::Null);
    let all = listed["items"].as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|one| one["name"].as_str().unwrap().starts_with(start)).collect()
}

async fn ask_dns(sim: &Sim, method: Method, path: &str, body: Value) -> Value {
    ask(sim, method, &format!("dns/v1/projects/p1/managedZones{path}"), body).await
}

/// What somebody asks for by hand.
async fn ask(sim: &Sim, method: Method, path: &str, body: Value) -> Value {
    let url = format!("{}/{path}", sim.url());
    let mut request = Request::new("by hand", method, url);
    request.header(http::header::AUTHORIZATION, "Bearer x");
    request.body = if body.is_null() { String::new() } else { body.to_string() }.into();
    let reply = HttpTransport::new(None).unwrap().send(&request).await.unwrap();
    assert!(reply.status < 300, "{path}: {}", reply.text());
    serde_json::from_slice(&reply.body).unwrap_or_default()
}

/// What a controller inside the cluster opens for a load balancer, to all the world, stays shut; so does the internet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_opened_from_inside_stays_behind_the_fence() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let vm = make(&cloud, "vm", INSTANCE, "10.0.0.0/16").await;
    let cluster = make(&cloud, "k", CLUSTER, "10.4.0.0/16").await;
    let hosts = sim.hosts_in(cluster.address.net());
    let google = |host: &IpAddr| sim.reaches_public(*host, IpAddr::from([199, 36, 153, 4]), &HTTPS);
    assert!(hosts.iter().all(google), "Google's APIs, without a way to the internet");
    cloud.ensure_nat(&at(), &cluster.region).await.unwrap();
    cloud.put_list(&at(), &vm.uri, &[], &[outbound("10.4.0.0/16")]).await.unwrap();
    let own = firewalls(&sim, "gke-");
    assert_eq!(own.len(), 3, "Google's own: {own:?}");
    let everybody = json!({
        "name": "k8s-fw-lb", "network": own[0]["network"], "allowed": [{"IPProtocol": "all"}], "sourceRanges": ["0.0.0.0/0"],
        "targetTags": own[0]["targetTags"],
    });
    sim.ask_google(Method::POST, "projects/p1/global/firewalls", everybody.clone());
    let mut out = everybody;
    (out["name"], out["direction"]) = (json!("k8s-fw-out"), json!("EGRESS"));
    (out["destinationRanges"], out["sourceRanges"]) = (out["sourceRanges"].take(), Value::Null);
    out.as_object_mut().unwrap().remove("sourceRanges");
    sim.ask_google(Method::POST, "projects/p1/global/firewalls", out);
    assert_eq!(hosts.len(), 4, "a node and a Pod in each zone");
    let outside = vm.address.net().addr();
    for host in &hosts {
        assert!(!sim.reaches(outside, *host, &HTTPS) && !sim.reaches(*host, outside, &HTTPS));
        assert!(hosts.iter().filter(|other| *other != host).all(|other| sim.reaches(*host, *other, &PING)));
        let public = |to: [u8; 4], packet: &Packet| sim.reaches_public(*host, IpAddr::from(to), packet);
        assert!(!public([1, 1, 1, 1], &HTTPS) && !public([199, 36, 153, 8], &HTTPS), "the internet");
        assert!(google(host) && !public([199, 36, 153, 4], &PING), "Google's APIs");
    }
    assert_eq!(cloud.permit_list(&at(), &cluster.uri).await.unwrap(), vec![], "none of that is an entry");
    for firewall in ["k8s-fw-lb", "k8s-fw-out"] {
        sim.ask_google(Method::DELETE, &format!("projects/p1/global/firewalls/{firewall}"), Value::Null);
    }
    cloud.delete_nat(&at(), &cluster.region).await.unwrap();
    remove(&cloud, "k", &cluster.region).await;
    remove(&cloud, "vm", &vm.region).await;
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}

/// Whom both lists permit reaches every node and Pod: across a peering of VPCs, and at an endpoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_meets_other_sites_and_endpoints() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let cluster = make(&cloud, "k", CLUSTER, "10.4.0.0/16").await;
    let hosts = sim.hosts_in(cluster.address.net());
    let other = At { site: "other.gcp".parse().unwrap(), deployment: "p1".to_owned() };
    let far = name("us-west1");
    cloud.ensure_network(&other, &far, "10.5.0.0/16".parse().unwrap()).await.unwrap();
    let vm = cloud.create_resource(&other, &spec("vm", &far, INSTANCE)).await.unwrap();
    let ends = [(&at(), &cluster.region), (&other, &far)]
        .map(|(at, region)| NetworkName { site: at.site.clone(), region: region.clone() });
    let [a, b] = ends;
    let peering =
        PeeringSpec { name: PeeringName::new(a, b).unwrap(), deployments: ["p1", "p1"].map(str::to_owned) };
    cloud.ensure_peering(&peering).await.unwrap();
    let peer = vm.address.net().addr();
    let ways = || hosts.iter().all(|host| sim.reaches(*host, peer, &PING) && sim.reaches(peer, *host, &PING));
    let both = |target: &str| [inbound(target), outbound(target)];
    cloud.put_list(&other, &vm.uri, &[], &both("10.4.0.0/16")).await.unwrap();
    assert!(!hosts.iter().any(|host| sim.reaches(*host, peer, &PING) || sim.reaches(peer, *host, &PING)));
    cloud.put_list(&at(), &cluster.uri, &[], &both(&peer.to_string())).await.unwrap();
    assert!(ways());

    let service = r#"{"url":"projects/p2/regions/us-west1/serviceAttachments/db"}"#;
    let endpoint = make(&cloud, "e", service, "10.6.0.0/16").await;
    let target = endpoint.address.net().addr();
    cloud.put_list(&at(), &cluster.uri, &[], &[outbound(&target.to_string())]).await.unwrap();
    assert!(!hosts.iter().any(|host| sim.reaches(*host, target, &HTTPS)), "its own list says nothing");
    cloud.put_list(&at(), &endpoint.uri, &[], &[inbound("10.4.0.0/16")]).await.unwrap();
    assert!(hosts.iter().all(|host| sim.reaches(*host, target, &HTTPS)) && ways());

    remove(&cloud, "e", &endpoint.region).await;
    cloud.delete_peering(&peering).await.unwrap();
    remove(&cloud, "k", &cluster.region).await;
    cloud.delete_resource(&other, &name("vm")).await.unwrap();
    cloud.delete_network(&other, &far).await.unwrap();
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}

/// A cluster that did not come up is removed and reported in Google's own words, also by who finds it; asked for again, it is
/// made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_did_not_come_up_is_removed_and_reported() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let region = network_for(&cloud, "k", CLUSTER, "10.4.0.0/16").await;
    let ask_for = async || plugin(&sim).create_resource(&at(), &spec("k", &region, CLUSTER)).await;
    let asked = || sim.take_calls().iter().filter(|call| call.operation.ends_with("clusters.create")).count();
    sim.script("clusters.create", Fault::Failed, 2);
    sim.script("clusters.delete", Fault::Denied, 1);
    let denied = ask_for().await.unwrap_err();
    assert!(denied.message.contains("clusters.delete"), "{denied}");
    for _ in 0..2 {
        let failed = ask_for().await.unwrap_err();
        assert_eq!(failed.kind, CloudErrorKind::Conflict);
        assert!(failed.message.contains("have registered"), "{failed}");
        assert_eq!(asked(), 1, "not again in the same call");
        assert_eq!(cloud.list(&at()).await.unwrap().resources, []);
    }
    let made = ask_for().await.unwrap();
    assert_eq!(cloud.list(&at()).await.unwrap().resources, [(name("k"), made)]);
    assert_eq!(firewalls(&sim, "t-").len(), 6, "the fence and the firewall of the VPC, and no note");
    remove(&cloud, "k", &region).await;
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}

/// A cluster that was running and is in error now is somebody's: it stays listed, keeps its list, and is never replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_was_up_is_left_alone() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let cluster = make(&cloud, "k", CLUSTER, "10.4.0.0/16").await;
    let tag = cluster.uri.rsplit('/').next().unwrap();
    cloud.put_list(&at(), &cluster.uri, &[], &[outbound("10.9.0.1")]).await.unwrap();
    sim.script("nodePools.create", Fault::Failed, 1);
    let pool = json!({"nodePool": {"name": "more", "config": {"tags": [tag]}}});
    ask(&sim, Method::POST, &format!("v1/{}/nodePools", cluster.uri), pool).await;
    sim.pass(Duration::from_secs(600));
    let seen = ask(&sim, Method::GET, &format!("v1/{}", cluster.uri), Value::Null).await;
    assert_eq!(seen["status"], "ERROR");
    sim.take_calls();
    assert_eq!(cloud.list(&at()).await.unwrap().resources, [(name("k"), cluster.clone())]);
    assert_eq!(cloud.permit_list(&at(), &cluster.uri).await.unwrap(), [outbound("10.9.0.1")]);
    let refused = cloud.create_resource(&at(), &spec("k", &cluster.region, CLUSTER)).await.unwrap_err();
    assert_eq!(refused.kind, CloudErrorKind::Conflict);
    assert!(refused.message.contains("have registered"), "{refused}");
    let reads = |call: &cloud_sim::Call| {
        [".get", ".list", "aggregatedList"].iter().any(|verb| call.operation.contains(verb))
    };
    assert!(sim.take_calls().iter().all(reads));
    cloud.put_list(&at(), &cluster.uri, &[outbound("10.9.0.1")], &[]).await.unwrap();
    assert_eq!(cloud.permit_list(&at(), &cluster.uri).await.unwrap(), []);
    remove(&cloud, "k", &cluster.region).await;
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}

/// A pool that somebody adds by hand without the cluster's tag is outside the fence: the list says so, and stays in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_outside_the_fence_are_told() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let cluster = make(&cloud, "k", CLUSTER, "10.4.0.0/16").await;
    let (pools, tag) = (format!("v1/{}/nodePools", cluster.uri), cluster.uri.rsplit('/').next().unwrap());
    let pool = |name: &str, tags: &[&str]| json!({"nodePool": {"name": name, "config": {"tags": tags}}});
    let list = async || cloud.permit_list(&at(), &cluster.uri).await.unwrap();
    let there = [outbound("10.9.0.1")];
    cloud.put_list(&at(), &cluster.uri, &[], &there).await.unwrap();
    ask(&sim, Method::POST, &pools, pool("tagged", &[tag])).await;
    sim.pass(Duration::from_secs(600));
    assert_eq!(list().await, there);
    ask(&sim, Method::POST, &pools, pool("bare", &["mine"])).await;
    assert_eq!(cloud.list(&at()).await.unwrap().resources, [(name("k"), cluster.clone())]);
    let told = list().await;
    assert_eq!((told.len(), &told[0]), (3, &there[0]));
    let of_pool = |entry: &PermitEntry| {
        entry.name.as_str().starts_with("not-ours ") && entry.name.as_str().contains("bare")
    };
    assert!(told[1..].iter().all(of_pool), "{told:?}");
    let seen = cloud.create_resource(&at(), &spec("k", &cluster.region, CLUSTER)).await.unwrap_err();
    assert_eq!(seen.kind, CloudErrorKind::Conflict);
    assert!(seen.message.contains("bare") && seen.message.contains(tag), "{seen}");
    cloud.put_list(&at(), &cluster.uri, &told, &[]).await.unwrap();
    assert_eq!(list().await, told[1..], "what was asked for is closed");
    sim.pass(Duration::from_secs(600));
    ask(&sim, Method::DELETE, &format!("{pools}/bare"), Value::Null).await;
    assert_eq!(list().await, []);
    remove(&cloud, "k", &cluster.region).await;
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}

/// Gaps in the fence are told as entries, and closed by whatever changes the list next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gaps_in_the_fence_are_told_and_closed() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let cluster = make(&cloud, "k", CLUSTER, "10.4.0.0/16").await;
    let tag = cluster.uri.rsplit('/').next().unwrap();
    let fence = || {
        let shown = |mut one: Value| (one["name"].take(), one["denied"].take(), one["disabled"].take());
        firewalls(&sim, tag).into_iter().map(shown).collect::<Vec<_>>()
    };
    let whole = fence();
    for (suffix, change) in [("out", None), ("from", None), ("in", Some(json!({"disabled": true})))] {
        let path = format!("projects/p1/global/firewalls/{tag}-{suffix}");
        match change {
            None => sim.ask_google(Method::DELETE, &path, Value::Null),
            Some(change) => sim.ask_google(Method::PATCH, &path, change),
        };
    }
    assert_eq!(cloud.list(&at()).await.unwrap().resources, [(name("k"), cluster.clone())]);
    let told = cloud.permit_list(&at(), &cluster.uri).await.unwrap();
    let names: Vec<&str> = told.iter().map(|entry| entry.name.as_str()).collect();
    let wanted = ["missing TAG-from", "missing TAG-out", "TAG-in"]
        .map(|text| format!("not-ours {}", text.replace("TAG", tag)));
    assert_eq!(names, wanted);
    cloud.put_list(&at(), &cluster.uri, &told, &[]).await.unwrap();
    assert_eq!(cloud.permit_list(&at(), &cluster.uri).await.unwrap(), []);
    assert_eq!(fence(), whole);
    remove(&cloud, "k", &cluster.region).await;
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}

/// Spaces that are too small, and networks that are not there, are refused before anything is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_refused_first() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let region = cloud.inspect_resource(&at(), &name("k"), CLUSTER).await.unwrap();
    assert_eq!(cluster_network(&region).unwrap(), (name("us-west1"), name("k")));
    let small = cloud.ensure_network(&at(), &region, "10.4.0.0/23".parse().unwrap()).await.unwrap_err();
    assert_eq!(small.kind, CloudErrorKind::Invalid);
    let nowhere = cloud.create_resource(&at(), &spec("k", &region, CLUSTER)).await.unwrap_err();
    assert_eq!(nowhere.kind, CloudErrorKind::Conflict);
    assert_eq!(sim.left(), Vec::<String>::new());
}

/// A region's NAT of an older make is for all of its subnets, and would leave no room for a cluster's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_and_its_clusters_have_nats_of_their_own() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let region = network_for(&cloud, "vm", INSTANCE, "10.0.0.0/16").await;
    let own = network_for(&cloud, "k", CLUSTER, "10.4.0.0/16").await;
    cloud.ensure_nat(&at(), &region).await.unwrap();
    let routers = sim.ask_google(Method::GET, "projects/p1/regions/us-west1/routers", Value::Null);
    let router =
        format!("projects/p1/regions/us-west1/routers/{}", routers["items"][0]["name"].as_str().unwrap());
    let wide = json!({"name": "nat", "natIpAllocateOption": "AUTO_ONLY", "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"});
    sim.ask_google(Method::PATCH, &router, json!({"nats": [wide]}));
    for _ in 0..2 {
        cloud.ensure_nat(&at(), &own).await.unwrap();
        let mut nats = cloud.list(&at()).await.unwrap().nats;
        nats.sort();
        assert_eq!(nats, [region.clone(), own.clone()]);
    }
    cloud.delete_nat(&at(), &own).await.unwrap();
    assert_eq!(cloud.list(&at()).await.unwrap().nats, std::slice::from_ref(&region));
    cloud.delete_nat(&at(), &region).await.unwrap();
    for network in [&region, &own] {
        cloud.delete_network(&at(), network).await.unwrap();
    }
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}

/// A cluster's network without the names of Google's APIs, or that the router does not tell of in one piece, is not whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_is_there_with_its_names_and_its_route_or_not_at_all() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let region = network_for(&cloud, "k", CLUSTER, "10.4.0.0/16").await;
    let wanted = [(region.clone(), "10.4.0.0/16".parse().unwrap())];
    cloud.create_gateway(&at(), 64_999).await.unwrap();
    let networks = async || cloud.list(&at()).await.unwrap().networks;
    assert_eq!(networks().await, wanted);
    let routers = sim.ask_google(Method::GET, "projects/p1/regions/us-west1/routers", Value::Null);
    assert_eq!(routers["items"][0]["bgp"]["advertisedIpRanges"], json!([{"range": "10.4.0.0/16"}]));
    let router =
        format!("projects/p1/regions/us-west1/routers/{}", routers["items"][0]["name"].as_str().unwrap());
    sim.ask_google(Method::PATCH, &router, json!({"bgp": {"asn": 64_999}}));
    assert_eq!(networks().await, []);
    cloud.ensure_network(&at(), &region, wanted[0].1).await.unwrap();
    assert_eq!(networks().await, wanted);

    let zones = ask_dns(&sim, Method::GET, "", Value::Null).await;
    assert_eq!(zones["managedZones"].as_array().unwrap().len(), 3);
    let zone = format!("/{}", zones["managedZones"][0]["name"].as_str().unwrap());
    let records = ask_dns(&sim, Method::GET, &format!("{zone}/rrsets"), Value::Null).await;
    let ours: Vec<&Value> = records["rrsets"].as_array().unwrap().iter().skip(2).collect();
    ask_dns(&sim, Method::POST, &format!("{zone}/changes"), json!({ "deletions": ours })).await;
    ask_dns(&sim, Method::DELETE, &zone, Value::Null).await;
    assert_eq!(networks().await, []);
    cloud.ensure_network(&at(), &region, wanted[0].1).await.unwrap();
    assert_eq!(networks().await, wanted);
    let again = ask_dns(&sim, Method::GET, &format!("{zone}/rrsets"), Value::Null).await;
    assert_eq!(again["rrsets"].as_array().unwrap().len(), 4);
    cloud.delete_gateway(&at()).await.unwrap();
    cloud.delete_network(&at(), &region).await.unwrap();
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}
