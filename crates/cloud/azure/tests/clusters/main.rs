//! What is Azure's own of managed clusters: what AKS does to the network it is given, and what others may.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod joins;

use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc, time::Duration};

use cloud_api::{At, CloudErrorKind, ResourceSpec, prelude::*};
use cloud_azure::{AzureCloud, AzureOptions};
use cloud_http::{Clock, HttpTransport, Request, Transport as _, World};
use cloud_sim::{Fault, Sim};
use model::{Direction, EntryName, Packet, PermitEntry, Ports, Protocol, ResourceState, Segment, Traffic};
use serde_json::{Value, json};

const PACKET: Packet = Packet { protocol: 6, src_port: 4000, dst_port: 443 };

fn plugin(sim: &Sim) -> AzureCloud {
    plugin_in(sim.world())
}

fn plugin_in(world: World) -> AzureCloud {
    let token = Some("t".to_owned());
    let options = AzureOptions { token, kubernetes_clusters: true, ..AzureOptions::default() };
    AzureCloud::with(&options, world).unwrap()
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
    let method = if body.is_some() { http::Method::PUT } else { http::Method::GET };
    by_tool(&sim.url(), method, id, body).await.inspect(|_| sim.pass(Duration::from_secs(10))).unwrap()
}

async fn by_tool(origin: &str, method: http::Method, id: &str, body: Option<Value>) -> Option<Value> {
    let mut request = Request::new("tool", method, format!("{origin}{id}?api-version=2024-05-01"));
    if let Some(body) = body {
        request = request.body("application/json", body.to_string());
    }
    request.header(http::header::AUTHORIZATION, "Bearer x");
    let reply = HttpTransport::new(None).unwrap().send(&request).await.unwrap();
    assert!(reply.status < 300, "{}", reply.text());
    serde_json::from_slice(&reply.body).ok()
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
        cloud.put_list(&at(), &made.uri, &seen, &[]).await.unwrap();
        assert_eq!(cloud.permit_list(&at(), &made.uri).await.unwrap(), []);
        assert!(!lets_in(&sim), "{field}");
    }
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
    cloud.put_list(&at(), &made.uri, &[], &[entry()]).await.unwrap();
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

/// One that ran and that AKS could not upgrade runs on, and is its owners' to mend: nobody writes to it.
#[tokio::test]
async fn a_cluster_that_ran_and_failed_is_left_alone() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let made = make(&cloud, "westus2").await;
    cloud.put_list(&at(), &made.uri, &[], &[entry()]).await.unwrap();
    for (version, outcome) in [("1.35.0", "Succeeded"), ("1.36.0", "Failed")] {
        let mut cluster = tool(&sim, &made.uri, None).await;
        cluster["properties"]["kubernetesVersion"] = version.into();
        if outcome == "Failed" {
            sim.script("managedClusters/write", Fault::Failed, 1);
        }
        tool(&sim, &made.uri, Some(cluster)).await;
        sim.pass(Duration::from_secs(600));
        let cluster = tool(&sim, &made.uri, None).await;
        assert_eq!(cluster["properties"]["provisioningState"], outcome);
    }
    assert_eq!(cloud.list(&at()).await.unwrap().resources, [(name(), made.clone())]);
    sim.take_calls();
    assert_eq!(cloud.create_resource(&at(), &spec("westus2")).await.unwrap(), made);
    let written: Vec<String> = sim.take_calls().into_iter().map(|call| call.operation).collect();
    assert!(!written.iter().any(|operation| operation.ends_with("/write")), "{written:?}");
    assert_eq!(tool(&sim, &made.uri, None).await["properties"]["kubernetesVersion"], "1.35.0");
    assert_eq!(cloud.permit_list(&at(), &made.uri).await.unwrap(), [entry()]);
    assert!(!lets_in(&sim), "it runs, and is closed");
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
