//! What is Azure's own of managed clusters: what AKS does to the network it is given, and what others may.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc, time::Duration};

use cloud_api::{At, Cloud as _, CloudErrorKind, ResourceSpec};
use cloud_azure::{AzureCloud, AzureOptions};
use cloud_http::{HttpTransport, Request, Transport as _, auth::Environment};
use cloud_sim::{Fault, Sim};
use model::{Direction, EntryName, Packet, PermitEntry, Ports, Protocol, ResourceState, Segment, Traffic};
use serde_json::{Value, json};

const PACKET: Packet = Packet { protocol: 6, src_port: 4000, dst_port: 443 };

fn plugin(sim: &Sim) -> AzureCloud {
    let (endpoint, token) = (Some(sim.url()), Some("t".to_owned()));
    let options = AzureOptions { endpoint, token, kubernetes_clusters: true, ..AzureOptions::default() };
    let none: [(&str, &str); 0] = [];
    AzureCloud::with(&options, Environment::of(none), Some(Arc::clone(&sim.clock) as _), None).unwrap()
}

fn at() -> At {
    At { site: "ns.azure".parse().unwrap(), deployment: "/subscriptions/s1/resourceGroups/g1".to_owned() }
}

fn name() -> Segment {
    "k".parse().unwrap()
}

fn description(location: &str) -> Value {
    json!({
        "location": location,
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {"/subscriptions/s1/i": {}}},
        "properties": {"agentPoolProfiles": [{"name": "nodes", "mode": "System", "count": 1}]},
    })
}

fn spec(location: &str) -> ResourceSpec {
    let region = format!("{location}-k8s-k").parse().unwrap();
    ResourceSpec { name: name(), region, description: description(location).to_string() }
}

async fn make(cloud: &AzureCloud, location: &str) -> ResourceState {
    let spec = spec(location);
    cloud.ensure_network(&at(), &spec.region, "10.0.0.0/16".parse().unwrap()).await.unwrap();
    cloud.create_resource(&at(), &spec).await.unwrap()
}

async fn remove(cloud: &AzureCloud, location: &str) {
    cloud.delete_resource(&at(), &name()).await.unwrap();
    cloud.delete_network(&at(), &spec(location).region).await.unwrap();
}

fn entry() -> PermitEntry {
    let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(80)).unwrap();
    let targets = ["10.9.0.1".parse().unwrap()].into();
    PermitEntry::new(EntryName::reported("e"), traffic, targets, BTreeSet::new()).unwrap()
}

/// Another tool at work: reads an object, or writes it.
async fn tool(sim: &Sim, id: &str, body: Option<Value>) -> Value {
    let url = format!("{}{id}?api-version=2024-05-01", sim.url());
    let mut request = match &body {
        Some(body) => Request::new("tool", http::Method::PUT, url).body("application/json", body.to_string()),
        None => Request::new("tool", http::Method::GET, url),
    };
    request.header(http::header::AUTHORIZATION, "Bearer x");
    let reply = HttpTransport::new(None).unwrap().send(&request).await.unwrap();
    assert!(reply.status < 300, "{}", reply.text());
    sim.pass(Duration::from_secs(10));
    serde_json::from_slice(&reply.body).unwrap()
}

/// The id of the cluster's subnet.
fn subnet(made: &ResourceState) -> String {
    let vnet =
        made.uri.replace("Microsoft.ContainerService/managedClusters", "Microsoft.Network/virtualNetworks");
    format!("{}/subnets/default", vnet.replace("-aks-", "-net-"))
}

/// Whether a stranger would be let in by any of the cluster's hosts.
fn lets_in(sim: &Sim) -> bool {
    let hosts = sim.wire().hosts;
    assert_eq!(hosts.len(), 3, "an API server, a node and a Pod");
    hosts.iter().any(|host| host.inbound.passes([10, 9, 0, 9].into(), &PACKET))
}

/// AKS switches the subnet's group off for the API server when it makes it, and anybody may later; it comes back.
#[tokio::test]
async fn the_api_server_is_behind_the_permit_list_too() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let made = make(&cloud, "westus2").await;
    assert_eq!(made.address.to_string(), "10.0.0.0/17");
    assert!(!lets_in(&sim));
    for (field, value) in
        [("privateEndpointNetworkPolicies", json!("Disabled")), ("networkSecurityGroup", Value::Null)]
    {
        let mut open = tool(&sim, &subnet(&made), None).await;
        open["properties"][field] = value;
        tool(&sim, &subnet(&made), Some(open)).await;
        assert!(lets_in(&sim), "{field}");
        let seen = cloud.permit_list(&at(), &made.uri).await.unwrap();
        assert_eq!(seen.len(), 2, "{field}: {seen:?}");
        cloud.delete_entries(&at(), &made.uri, &seen).await.unwrap();
        assert_eq!(cloud.permit_list(&at(), &made.uri).await.unwrap(), []);
        assert!(!lets_in(&sim), "{field}");
    }
}

/// While AKS makes a cluster, its API server is not guarded; so nobody is led to it, until it is.
#[tokio::test]
async fn a_cluster_that_is_being_made_is_on_no_gateway() {
    let sim = Sim::start().await.unwrap();
    let killed = plugin(&sim);
    killed.ensure_network(&at(), &"westus2".parse().unwrap(), "10.1.0.0/16".parse().unwrap()).await.unwrap();
    killed.create_gateway(&at(), 64_514).await.unwrap();
    let (place, spec) = (at(), spec("westus2"));
    killed.ensure_network(&place, &spec.region, "10.0.0.0/16".parse().unwrap()).await.unwrap();
    sim.take_calls();
    let making = async { killed.create_resource(&place, &spec).await };
    let asked = async {
        let is_write = |call: &cloud_sim::Call| call.operation.ends_with("managedClusters/write");
        for _ in 0..10_000 {
            if sim.take_calls().iter().any(is_write) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it is not asked for");
    };
    tokio::select! {
        done = making => panic!("it is asked for before it is made: {done:?}"),
        () = asked => {}
    }
    assert!(lets_in(&sim), "AKS has switched the group off");
    let joined = || sim.wire().networks.values().filter(|network| !network.learns_from.is_empty()).count();
    assert_eq!(joined(), 2, "the hub and the region's network");
    // Neither by who looks after the gateway, nor by who looks after the network.
    let cloud = plugin(&sim);
    cloud.create_gateway(&place, 64_514).await.unwrap();
    cloud.ensure_network(&place, &spec.region, "10.0.0.0/16".parse().unwrap()).await.unwrap();
    assert_eq!((lets_in(&sim), joined()), (true, 2));
    cloud.create_resource(&place, &spec).await.unwrap();
    assert!(!lets_in(&sim));
    assert_eq!(joined(), 3);
}

/// NAT comes and goes, and the subnet stays in its group all the while.
#[tokio::test]
async fn nat_leaves_the_border_alone() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let made = make(&cloud, "westus2").await;
    let before = tool(&sim, &subnet(&made), None).await["properties"].clone();
    let network = spec("westus2").region;
    cloud.ensure_nat(&at(), &network).await.unwrap();
    assert_eq!(cloud.list(&at()).await.unwrap().nats, std::slice::from_ref(&network));
    assert!(!lets_in(&sim) && cloud.permit_list(&at(), &made.uri).await.unwrap().is_empty());
    cloud.delete_nat(&at(), &network).await.unwrap();
    assert_eq!(tool(&sim, &subnet(&made), None).await["properties"], before);
}

/// Nodes reach the few services without which they do not come up, and nothing else that is public.
#[tokio::test]
async fn nodes_reach_what_they_need_and_no_more() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    make(&cloud, "westus2").await;
    let node = [10, 0, 0, 5].into();
    let reaches = |to: [u8; 4], port: u16| {
        sim.reaches_public(node, Ipv4Addr::from(to).into(), &Packet { dst_port: port, ..PACKET })
    };
    for service in [[204, 79, 197, 219], [13, 107, 208, 1], [20, 190, 130, 1], [20, 37, 53, 9]] {
        assert!(reaches(service, 443) && !reaches(service, 80), "{service:?}");
    }
    assert!(!reaches([1, 1, 1, 1], 443));
}

/// Who made the last cluster of a name permitted what it permitted; the next one begins with nothing.
#[tokio::test]
async fn another_cluster_in_the_same_network_is_closed() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let made = make(&cloud, "westus2").await;
    cloud.add_entries(&at(), &made.uri, &[entry()]).await.unwrap();
    cloud.delete_resource(&at(), &name()).await.unwrap();
    let gone = cloud.permit_list(&at(), &made.uri).await.unwrap_err();
    assert_eq!(gone.kind, CloudErrorKind::NotFound);
    let again = make(&cloud, "westus2").await;
    assert_eq!(cloud.permit_list(&at(), &again.uri).await.unwrap(), []);
    remove(&cloud, "westus2").await;
    assert_eq!(sim.left(), Vec::<String>::new());
}

/// One whose making failed is asked for again, with the list it had; or goes without a trace.
#[tokio::test]
async fn a_cluster_that_failed_is_asked_for_again() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    sim.script("managedClusters/write", Fault::Failed, 4);
    let spec = spec("westus2");
    cloud.ensure_network(&at(), &spec.region, "10.0.0.0/16".parse().unwrap()).await.unwrap();
    let failed = cloud.create_resource(&at(), &spec).await.unwrap_err();
    assert_eq!(failed.kind, CloudErrorKind::Unavailable, "{failed}");
    assert_eq!(cloud.list(&at()).await.unwrap().resources, []);
    let in_use = cloud.delete_network(&at(), &spec.region).await.unwrap_err();
    assert_eq!(in_use.kind, CloudErrorKind::Conflict, "{in_use}");
    let made = cloud.create_resource(&at(), &spec).await.unwrap();
    assert_eq!(cloud.list(&at()).await.unwrap().resources, [(name(), made)]);
    assert!(!lets_in(&sim));
    cloud.delete_resource(&at(), &name()).await.unwrap();
    sim.script("managedClusters/write", Fault::Failed, 4);
    cloud.create_resource(&at(), &spec).await.unwrap_err();
    remove(&cloud, "westus2").await;
    assert_eq!(sim.left(), Vec::<String>::new());
}

/// Azure is busy with what was asked for, longer than anybody repeats a question.
#[tokio::test]
async fn a_cluster_whose_answer_got_lost_is_waited_for() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    for operation in ["managedClusters/write", "managedClusters/delete"] {
        sim.script(operation, Fault::Lost, 1);
    }
    make(&cloud, "westus2").await;
    remove(&cloud, "westus2").await;
    assert_eq!(sim.left(), Vec::<String>::new());
}

/// AKS works on clusters by itself; they are there all the while. And a name may move to another region.
#[tokio::test]
async fn a_cluster_that_is_worked_on_is_there() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let made = make(&cloud, "westus2").await;
    let mut cluster = tool(&sim, &made.uri, None).await;
    cluster["properties"]["agentPoolProfiles"][0]["count"] = 3.into();
    let working = tool(&sim, &made.uri, Some(cluster)).await;
    assert_eq!(working["properties"]["provisioningState"], "Updating");
    assert_eq!(cloud.list(&at()).await.unwrap().resources, [(name(), made)]);
    cloud.delete_resource(&at(), &name()).await.unwrap();
    let moved = spec("westeurope");
    cloud.ensure_network(&at(), &moved.region, "10.1.0.0/16".parse().unwrap()).await.unwrap();
    let made = cloud.create_resource(&at(), &moved).await.unwrap();
    assert_eq!(cloud.list(&at()).await.unwrap().resources, [(name(), made)]);
    remove(&cloud, "westeurope").await;
    cloud.delete_network(&at(), &spec("westus2").region).await.unwrap();
    assert_eq!(sim.left(), Vec::<String>::new());
    assert_eq!(sim.defects(), Vec::<String>::new());
}

#[tokio::test]
async fn what_aks_would_refuse_is_refused_before_the_first_request() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let region = spec("westus2").region;
    for space in ["10.0.0.0/8", "10.0.0.0/25", "172.30.0.0/16"] {
        let refused = cloud.ensure_network(&at(), &region, space.parse().unwrap()).await.unwrap_err();
        assert_eq!(refused.kind, CloudErrorKind::Invalid, "{space}: {refused}");
    }
    let long = At { deployment: format!("/subscriptions/s1/resourceGroups/{}", "g".repeat(60)), ..at() };
    let refused = cloud.create_resource(&long, &spec("westus2")).await.unwrap_err();
    assert_eq!(refused.kind, CloudErrorKind::Invalid, "{refused}");
    assert_eq!(sim.take_calls(), []);
    // And with a look at the network, which has no room for so many.
    cloud.ensure_network(&at(), &region, "10.0.0.0/24".parse().unwrap()).await.unwrap();
    let mut many = spec("westus2");
    many.description = many.description.replace(r#""count":1"#, r#""count":9"#);
    let refused = cloud.create_resource(&at(), &many).await.unwrap_err();
    assert_eq!(refused.kind, CloudErrorKind::Invalid, "{refused}");
}
