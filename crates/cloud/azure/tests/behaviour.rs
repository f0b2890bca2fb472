//! What is Azure's own: what other tools may do to objects, gateways that serve several links, regions without zones.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{collections::BTreeSet, net::IpAddr};

use cloud_api::{At, CloudErrorKind, ResourceSpec, prelude::*};
use cloud_azure::{AzureCloud, AzureOptions};
use cloud_http::{HttpTransport, Request, Transport as _};
use cloud_sim::Sim;
use model::{
    ConnectionSpec, Direction, EntryName, PermitEntry, Ports, Protocol, ResourceState, Secret, Segment, Site,
    Traffic,
};
use serde_json::{Value, json};

fn plugin(sim: &Sim, options: AzureOptions) -> AzureCloud {
    AzureCloud::with(&AzureOptions { token: Some("t".to_owned()), ..options }, sim.world()).unwrap()
}

fn at() -> At {
    At { site: "ns.azure".parse().unwrap(), deployment: "/subscriptions/s1/resourceGroups/g1".to_owned() }
}

async fn make(cloud: &AzureCloud, location: &str) -> ResourceState {
    let region: Segment = location.parse().unwrap();
    cloud.ensure_network(&at(), &region, "10.0.0.0/16".parse().unwrap()).await.unwrap();
    let description =
        json!({"location": location, "properties": {"hardwareProfile": {"vmSize": "Standard_B1s"}}});
    let spec = ResourceSpec { name: "a".parse().unwrap(), region, description: description.to_string() };
    cloud.create_resource(&at(), &spec).await.unwrap()
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
    sim.pass(std::time::Duration::from_secs(60));
    serde_json::from_slice(&reply.body).unwrap()
}

/// A machine in an empty resource group, and twenty rules for it, take the requests that docs/benches.md says they do.
#[tokio::test]
async fn few_requests_are_made() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim, AzureOptions::default());
    let made = make(&cloud, "westus2").await;
    assert_eq!(sim.take_calls().len(), 25);
    let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(443)).unwrap();
    let entry = |number: u8| {
        let targets = [IpAddr::from([10, 9, number, 1]).into()].into();
        PermitEntry::new(EntryName::reported(format!("e{number}")), traffic, targets, BTreeSet::new())
            .unwrap()
    };
    let wanted: Vec<PermitEntry> = (0..20).map(entry).collect();
    cloud.put_list(&at(), &made.uri, &[], &wanted).await.unwrap();
    assert_eq!(sim.take_calls().len(), 5);
    cloud.put_list(&at(), &made.uri, &wanted, &wanted).await.unwrap();
    assert_eq!(sim.take_calls().len(), 1, "what is there is only read");
}

/// Default deny is a state: who takes it away is seen, and what was taken away comes back.
#[tokio::test]
async fn an_opened_group_is_seen_and_closed() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim, AzureOptions::default());
    let made = make(&cloud, "westus2").await;
    let base = made.uri.replace("Microsoft.Compute/virtualMachines", "Microsoft.Network/KIND");
    let group = base.replace("KIND", "networkSecurityGroups").replace("-vm-", "-nsg-");
    let interface = base.replace("KIND", "networkInterfaces").replace("-vm-", "-nic-");

    let mut open = tool(&sim, &group, None).await;
    open["properties"]["securityRules"] = json!([]);
    tool(&sim, &group, Some(open)).await;
    let seen = cloud.permit_list(&at(), &made.uri).await.unwrap();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.iter().all(|entry| entry.name.as_str().starts_with("not-ours ")));
    cloud.put_list(&at(), &made.uri, &seen, &[]).await.unwrap();
    assert_eq!(cloud.permit_list(&at(), &made.uri).await.unwrap(), []);

    let mut open = tool(&sim, &interface, None).await;
    open["properties"].as_object_mut().unwrap().remove("networkSecurityGroup");
    open["properties"]["enableIPForwarding"] = true.into();
    tool(&sim, &interface, Some(open)).await;
    let seen = cloud.permit_list(&at(), &made.uri).await.unwrap();
    assert_eq!(seen.len(), 2, "{seen:?}");
    cloud.put_list(&at(), &made.uri, &seen, &[]).await.unwrap();
    assert_eq!(cloud.permit_list(&at(), &made.uri).await.unwrap(), []);
    // It has the address it had, and what somebody set meanwhile.
    assert_eq!(tool(&sim, &interface, None).await["properties"]["enableIPForwarding"], true);
    assert_eq!(make(&cloud, "westus2").await, made);
}

fn link(peer: &str, block: u8, key: &str) -> ConnectionSpec {
    let inside = |host: u8| (0..2u8).map(|n| [169, 254, 21, block + 4 * n + host].into()).collect::<Vec<_>>();
    ConnectionSpec {
        bgp: true,
        site: at().site,
        peer: peer.parse().unwrap(),
        peer_asn: 64_600,
        peer_addresses: vec![IpAddr::from([203, 0, 113, block]), IpAddr::from([203, 0, 113, block + 1])],
        local_bgp: inside(1),
        peer_bgp: inside(2),
        peer_spaces: vec![],
        shared_key: Secret::new(key),
    }
}

async fn addresses(sim: &Sim, cloud: &AzureCloud) -> Vec<String> {
    // The gateway by way of its network: its name is the plugin's own business.
    let group = "/subscriptions/s1/resourceGroups/g1/providers/Microsoft.Network";
    assert!(cloud.list(&at()).await.unwrap().gateway.is_some());
    let all = tool(sim, &format!("{group}/virtualNetworkGateways"), None).await;
    let peers = all["value"][0]["properties"]["bgpSettings"]["bgpPeeringAddresses"].as_array().unwrap();
    let custom = peers.iter().flat_map(|one| one["customBgpIpAddresses"].as_array().unwrap());
    let mut found: Vec<String> = custom.map(|text| text.as_str().unwrap().to_owned()).collect();
    found.sort();
    found
}

/// Who takes over while a gateway is being changed waits for it, and does not take it for absent.
#[tokio::test]
async fn a_gateway_that_is_being_changed_is_waited_for() {
    let sim = Sim::start().await.unwrap();
    let killed = plugin(&sim, AzureOptions::default());
    make(&killed, "westus2").await;
    killed.create_gateway(&at(), 64_514).await.unwrap();
    let (one, two) = (link("ns.one", 0, "firstKey"), link("ns.two", 100, "secondKey"));
    // Three reads, and the change of the gateway, which is carried out after its asker is gone.
    let (silence, place) = (sim.fall_silent(3, true), at());
    tokio::select! {
        done = killed.create_connections(&place, &one) => panic!("it was killed: {done:?}"),
        () = silence => {}
    }
    let last = sim.take_calls().pop().unwrap();
    assert_eq!(last.operation, "Microsoft.Network/virtualNetworkGateways/write");
    plugin(&sim, AzureOptions::default()).create_connections(&at(), &two).await.unwrap();
}

/// The second link of a gateway adds its BGP addresses, and takes away no others when it goes.
#[tokio::test]
async fn links_of_one_gateway_do_not_disturb_each_other() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim, AzureOptions::default());
    make(&cloud, "westus2").await;
    cloud.create_gateway(&at(), 64_514).await.unwrap();
    let (one, two) = (link("ns.one", 0, "firstKey"), link("ns.two", 100, "secondKey"));
    cloud.create_connections(&at(), &one).await.unwrap();
    cloud.create_connections(&at(), &two).await.unwrap();
    let first = ["169.254.21.1", "169.254.21.5"];
    assert_eq!(
        addresses(&sim, &cloud).await,
        ["169.254.21.1", "169.254.21.101", "169.254.21.105", "169.254.21.5"]
    );
    sim.take_calls();
    cloud.create_connections(&at(), &one).await.unwrap();
    let writes =
        |sim: &Sim| sim.take_calls().into_iter().filter(|call| call.operation.ends_with("/write")).count();
    assert_eq!(writes(&sim), 0, "what is there is only read");
    // A new key reaches the connections by the request that is for keys.
    cloud.create_connections(&at(), &link("ns.one", 0, "thirdKey")).await.unwrap();
    let calls = sim.take_calls();
    assert_eq!(
        calls.iter().filter(|call| call.operation.ends_with("connections/sharedkey/write")).count(),
        2
    );
    let peer: Site = "ns.two".parse().unwrap();
    cloud.delete_connections(&at(), &peer).await.unwrap();
    assert_eq!(addresses(&sim, &cloud).await, first);
    assert_eq!(cloud.list(&at()).await.unwrap().connections, ["ns.one".parse().unwrap()]);
}

#[tokio::test]
async fn what_azure_would_refuse_is_refused_before_the_first_request() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim, AzureOptions::default());
    let region: Segment = "westus2".parse().unwrap();
    let kind = |err: cloud_api::CloudError| err.kind;
    for space in ["10.0.0.0/30", "100.64.0.0/10"] {
        assert!(cloud.ensure_network(&at(), &region, space.parse().unwrap()).await.is_err(), "{space}");
    }
    for asn in [65_515, 65_518, 23_456] {
        assert_eq!(kind(cloud.create_gateway(&at(), asn).await.unwrap_err()), CloudErrorKind::Invalid);
    }
    let mut outside = link("ns.one", 0, "key");
    outside.local_bgp[1] = [169, 254, 30, 1].into();
    for bad in [outside, link("ns.one", 0, "no spaces"), link("ns.one", 0, "")] {
        assert_eq!(kind(cloud.create_connections(&at(), &bad).await.unwrap_err()), CloudErrorKind::Invalid);
    }
    for deployment in ["projects/p1", "/subscriptions/s1", "/subscriptions/s1/resourceGroups/a b", ""] {
        let elsewhere = At { deployment: deployment.to_owned(), ..at() };
        assert_eq!(kind(cloud.list(&elsewhere).await.unwrap_err()), CloudErrorKind::Invalid, "{deployment}");
    }
    assert_eq!(sim.take_calls(), []);
}

/// `westus` has no zones: the addresses cannot have any, and the gateway does not need them.
#[tokio::test]
async fn a_region_without_zones_takes_gateways_too() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim, AzureOptions::default());
    make(&cloud, "westus").await;
    let err = cloud.create_gateway(&at(), 64_514).await.unwrap_err();
    assert!(err.to_string().contains("zones"), "{err}");
    let cloud = plugin(&sim, AzureOptions { zones: Some(vec![]), ..AzureOptions::default() });
    let gateway = cloud.create_gateway(&at(), 64_514).await.unwrap();
    assert_eq!((gateway.asn, gateway.addresses.len()), (64_514, 2));
}
