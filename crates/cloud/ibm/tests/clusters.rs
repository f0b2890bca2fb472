//! Managed clusters: against the simulator, which keeps IBM's bounds and opens what IBM opens.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{net::IpAddr, ops::Range};

use cloud_api::{At, CloudError, CloudErrorKind, PeeringSpec, ResourceSpec, prelude::*};
use cloud_http::{HttpTransport, Request, Transport as _};
use cloud_ibm::{IbmCloud, IbmOptions};
use cloud_sim::{Call, Fault, Sim};
use model::{
    Direction, EntryName, NetworkName, Packet, PeeringName, PermitEntry, Ports, Protocol, ResourceState,
    Segment, Traffic,
};

const PING: Packet = Packet { protocol: 1, src_port: 0, dst_port: 0 };
const CLUSTER: &str = r#"{"zone":"us-south-1","workerPool":{"flavor":"bx2.4x16","workerCount":2}}"#;
const MACHINE: &str = r#"{"zone":"us-south-1","profile":{"name":"bx2-2x8"},"image":{"id":"i"}}"#;

fn plugin(sim: &Sim, on: bool) -> IbmCloud {
    let regions = Some(vec!["us-south".parse().unwrap()]);
    let options = IbmOptions { regions, kubernetes_clusters: on, ..IbmOptions::default() };
    IbmCloud::with(&options, sim.world()).unwrap()
}

fn at() -> At {
    At { site: "ns.ibm".parse().unwrap(), deployment: "group-7".to_owned() }
}

/// A resource in the network that it asks for.
async fn make(
    cloud: &IbmCloud,
    name: &str,
    space: &str,
    description: &str,
) -> Result<ResourceState, CloudError> {
    let name: Segment = name.parse().unwrap();
    let region = cloud.inspect_resource(&at(), &name, description).await?;
    cloud.ensure_network(&at(), &region, space.parse().unwrap()).await?;
    let spec = ResourceSpec { name, region, description: description.to_owned() };
    cloud.create_resource(&at(), &spec).await
}

async fn remove(cloud: &IbmCloud, name: &str, network: &str) {
    cloud.delete_resource(&at(), &name.parse().unwrap()).await.unwrap();
    cloud.delete_network(&at(), &network.parse().unwrap()).await.unwrap();
}

fn entry(name: &str, direction: Direction, protocol: Protocol, targets: &[String]) -> PermitEntry {
    let traffic = Traffic::new(direction, protocol, Ports::Any, Ports::Any).unwrap();
    let targets = targets.iter().map(|target| target.parse().unwrap()).collect();
    PermitEntry::new(EntryName::reported(name), traffic, targets, Default::default()).unwrap()
}

fn many(hosts: Range<u16>) -> PermitEntry {
    let targets: Vec<String> = hosts.map(|host| format!("10.9.{}.{}", host / 256, host % 256)).collect();
    entry("many", Direction::Inbound, Protocol::TCP, &targets)
}

fn workers(sim: &Sim, made: &ResourceState) -> Vec<IpAddr> {
    sim.hosts_in(made.address.net())
}

/// Somebody else asks IBM to make something.
async fn ask(sim: &Sim, path: &str, body: &str) {
    let mut request = Request::new("by hand", http::Method::POST, format!("{}{path}", sim.url()));
    request.header(http::header::AUTHORIZATION, "Bearer x");
    request.body = body.to_owned().into();
    let reply = HttpTransport::new(None).unwrap().send(&request).await.unwrap();
    assert_eq!(reply.status, 201, "{}", reply.text());
}

/// IBM's own group answers everybody's pings. A neighbour that is let out to the cluster does not get in by that: not
/// when the cluster is new, and not for good when somebody has IBM set its group back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ibm_opens_to_everybody_is_closed() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim, true);
    let machine = make(&cloud, "a", "10.0.0.0/16", MACHINE).await.unwrap();
    sim.take_calls();
    let cluster = make(&cloud, "k", "10.1.0.0/16", CLUSTER).await.unwrap();
    assert_eq!(
        (cluster.region.as_str(), cluster.address),
        ("us-south-k8s-k", "10.1.0.0/16".parse().unwrap())
    );
    let calls: Vec<String> = sim.take_calls().into_iter().map(|call| call.operation).collect();
    let first = |name: &str| calls.iter().position(|call| call == name).unwrap();
    let looks = calls.iter().filter(|call| *call == "containers.vpc_get_cluster").count();
    assert!(looks > 10, "it takes its time: {looks}");
    let until_closed = &calls[first("containers.vpc_create_cluster")..first("is.delete_security_group_rule")];
    assert!(!until_closed.contains(&"containers.vpc_get_cluster".to_owned()), "closed before any look");
    assert_eq!(cloud.permit_list(&at(), &cluster.uri).await.unwrap(), vec![]);

    let network = |region: &Segment| NetworkName { site: at().site, region: region.clone() };
    let name = PeeringName::new(network(&machine.region), network(&cluster.region)).unwrap();
    let peering = PeeringSpec { name, deployments: [at().deployment, at().deployment] };
    cloud.ensure_peering(&peering).await.unwrap();
    let to = |direction| [entry("to", direction, Protocol::Any, &["10.1.0.0/16".to_owned()])];
    cloud.put_list(&at(), &machine.uri, &[], &to(Direction::Outbound)).await.unwrap();
    let from = machine.address.single().unwrap();
    let hosts = workers(&sim, &cluster);
    let reaches = || hosts.iter().map(|host| sim.reaches(from, *host, &PING)).collect::<Vec<_>>();
    assert_eq!(reaches(), [false, false]);

    sim.vandalise();
    cloud.put_list(&at(), &machine.uri, &[], &to(Direction::Outbound)).await.unwrap();
    assert_eq!(reaches(), [true, true], "IBM's rule is back");
    let seen = cloud.permit_list(&at(), &cluster.uri).await.unwrap();
    assert_eq!((seen.len(), seen[0].traffic.protocol), (1, Protocol::ICMP), "and seen: {seen:?}");
    cloud.put_list(&at(), &cluster.uri, &seen, &[]).await.unwrap();
    assert_eq!(reaches(), [false, false]);
    assert!(sim.reaches(hosts[0], hosts[1], &PING), "the inside is as it was");

    cloud.delete_peering(&peering).await.unwrap();
    remove(&cloud, "k", "us-south-k8s-k").await;
    remove(&cloud, "a", "us-south").await;
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}

/// Load balancers are in a group of IBM's that lets in everybody. IBM's own for Ingress is shut while the cluster is made;
/// what those open that somebody inside makes is seen and goes. A rule for the port is left, without which IBM would
/// write the open one again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_load_balancers_open_is_seen_and_goes() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim, true);
    let cluster = make(&cloud, "k", "10.1.0.0/16", CLUSTER).await.unwrap();
    let group = || {
        let objects = sim.objects();
        objects
            .values()
            .find(|one| one["name"].as_str().is_some_and(|name| name.starts_with("kube-lbaas-")))
            .unwrap()
            .clone()
    };
    let let_in = || {
        let rules = group()["rules"].as_array().unwrap().clone();
        let mut let_in: Vec<(u64, String)> = rules
            .iter()
            .map(|rule| {
                let from = rule["remote"]["cidr_block"].as_str().unwrap().to_owned();
                (rule["port_min"].as_u64().unwrap(), from)
            })
            .collect();
        let_in.sort();
        let_in
    };
    let shut = |port: u64| (port, "198.18.0.0/16".to_owned());
    assert_eq!(let_in(), [shut(80), shut(443)]);
    let path = format!(
        "/v1/security_groups/{}/rules?version=2026-09-15&generation=2",
        group()["id"].as_str().unwrap()
    );
    ask(&sim, &path, r#"{"direction":"inbound","protocol":"tcp","port_min":8443,"port_max":8443}"#).await;
    let seen = cloud.permit_list(&at(), &cluster.uri).await.unwrap();
    assert_eq!((seen.len(), seen[0].traffic.dst_ports), (1, Ports::one(8443)), "{seen:?}");
    // Others' entries come and go without it.
    cloud.put_list(&at(), &cluster.uri, &[], &[many(0..2)]).await.unwrap();
    cloud.put_list(&at(), &cluster.uri, &seen, &[]).await.unwrap();
    assert_eq!(cloud.permit_list(&at(), &cluster.uri).await.unwrap(), [many(0..2)]);
    assert_eq!(let_in(), [shut(80), shut(443), shut(8443)]);
    remove(&cloud, "k", "us-south-k8s-k").await;
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}

/// A network may be where IBM puts the Pods of clusters unless it is told otherwise. It is outside all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_network_is_taken_for_pods() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim, true);
    let machine = make(&cloud, "a", "172.17.0.0/18", MACHINE).await.unwrap();
    let cluster = make(&cloud, "k", "10.1.0.0/16", CLUSTER).await.unwrap();
    let network = |region: &Segment| NetworkName { site: at().site, region: region.clone() };
    let name = PeeringName::new(network(&machine.region), network(&cluster.region)).unwrap();
    let peering = PeeringSpec { name, deployments: [at().deployment, at().deployment] };
    cloud.ensure_peering(&peering).await.unwrap();
    let out = entry("out", Direction::Outbound, Protocol::Any, &["10.1.0.0/16".to_owned()]);
    cloud.put_list(&at(), &machine.uri, &[], &[out]).await.unwrap();
    let (from, to) = (machine.address.single().unwrap(), workers(&sim, &cluster)[0]);
    assert!(!sim.reaches(from, to, &PING));
    let let_in = entry("in", Direction::Inbound, Protocol::ICMP, &["172.17.0.0/18".to_owned()]);
    cloud.put_list(&at(), &cluster.uri, &[], &[let_in]).await.unwrap();
    assert!(sim.reaches(from, to, &PING));
    cloud.delete_peering(&peering).await.unwrap();
    remove(&cloud, "k", "us-south-k8s-k").await;
    remove(&cloud, "a", "us-south").await;
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}

/// Workers are in four groups of ours and in IBM's, and never in the one that the VPC began with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_are_in_the_groups_they_were_made_with() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim, true);
    let cluster = make(&cloud, "k", "10.1.0.0/16", CLUSTER).await.unwrap();
    let objects = sim.objects();
    let info = objects.values().find(|one| one["provider"] == "vpc-gen2").unwrap();
    assert_eq!((&info["resourceGroup"], &info["podSubnet"]), (&"group-7".into(), &"198.18.0.0/16".into()));
    assert_eq!(info["serviceEndpoints"]["publicServiceEndpointEnabled"], false);
    // The default group lets everything out. Nothing gets out.
    let hosts = workers(&sim, &cluster);
    assert!(!sim.reaches_public(hosts[0], [1, 1, 1, 1].into(), &PING));
    cloud.ensure_nat(&at(), &cluster.region).await.unwrap();
    assert!(!sim.reaches_public(hosts[0], [1, 1, 1, 1].into(), &PING));
    // A cluster that somebody asks for without groups is in it, and gets out.
    let subnet = objects.values().find(|one| one["ipv4_cidr_block"].is_string()).unwrap();
    let zone = serde_json::json!({"id": "us-south-1", "subnetID": subnet["id"]});
    let pool = serde_json::json!({"name": "p", "flavor": "f", "workerCount": 1, "vpcID": subnet["vpc"]["id"], "zones": [zone]});
    let naked = serde_json::json!({"name": "naked", "provider": "vpc-gen2", "workerPool": pool});
    ask(&sim, "/global/v2/vpc/createCluster", &naked.to_string()).await;
    sim.pass(std::time::Duration::from_secs(3600));
    let all = workers(&sim, &cluster);
    let out: Vec<bool> =
        all.iter().map(|host| sim.reaches_public(*host, [1, 1, 1, 1].into(), &PING)).collect();
    assert_eq!((out.len(), out.iter().filter(|out| **out).count()), (3, 1));
    let mut end =
        Request::new("by hand", http::Method::DELETE, format!("{}/global/v1/clusters/naked", sim.url()));
    end.header(http::header::AUTHORIZATION, "Bearer x");
    assert_eq!(HttpTransport::new(None).unwrap().send(&end).await.unwrap().status, 204);
    sim.pass(std::time::Duration::from_secs(3600));

    for hosts in [0..1000, 995..1000] {
        let wanted = many(hosts);
        cloud.put_list(&at(), &cluster.uri, &[], std::slice::from_ref(&wanted)).await.unwrap();
        assert_eq!(cloud.permit_list(&at(), &cluster.uri).await.unwrap(), [wanted]);
        let name = |one: &serde_json::Value| one["name"].as_str().unwrap_or_default().to_owned();
        let groups: Vec<String> = sim.objects().values().map(name).collect();
        let lists = groups.iter().filter(|name| name.contains("-iks-") && name.contains("-sg"));
        assert_eq!(lists.count(), 4, "none comes and none goes: {groups:?}");
    }
    let refused = cloud.put_list(&at(), &cluster.uri, &[], &[many(0..1001)]).await.unwrap_err();
    assert_eq!(refused.kind, CloudErrorKind::Conflict);
    assert!(refused.message.contains("1001 rules; the 4 security groups"), "{refused}");
    let inside = entry("pods", Direction::Outbound, Protocol::TCP, &["198.18.3.0/24".to_owned()]);
    let refused = cloud.put_list(&at(), &cluster.uri, &[], &[inside]).await.unwrap_err();
    assert_eq!(refused.kind, CloudErrorKind::Unsupported, "{refused}");
    cloud.delete_nat(&at(), &cluster.region).await.unwrap();
    remove(&cloud, "k", "us-south-k8s-k").await;
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}

/// A cluster that fails is told of with IBM's reason, once per call. It is made anew when it is asked for again, and goes
/// like any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_failed_is_told_of_and_made_anew() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim, true);
    sim.script("containers.vpc_create_cluster", Fault::Failed, 2);
    for _ in 0..2 {
        sim.take_calls();
        let refused = make(&cloud, "k", "10.1.0.0/16", CLUSTER).await.unwrap_err();
        assert_eq!(refused.kind, CloudErrorKind::Conflict, "{refused}");
        assert!(refused.message.contains("-iks-") && refused.message.contains("no capacity"), "{refused}");
        let calls = sim.take_calls().into_iter().map(|call| call.operation);
        assert_eq!(calls.filter(|call| call == "containers.vpc_create_cluster").count(), 1);
    }
    make(&cloud, "k", "10.1.0.0/16", CLUSTER).await.unwrap();
    let ended = sim.take_calls().into_iter().filter(|call| call.operation == "containers.remove_cluster");
    assert_eq!(ended.count(), 1);
    remove(&cloud, "k", "us-south-k8s-k").await;
    assert_eq!(sim.left(), Vec::<String>::new());

    sim.script("containers.vpc_create_cluster", Fault::Failed, 1);
    make(&cloud, "k", "10.1.0.0/16", CLUSTER).await.unwrap_err();
    remove(&cloud, "k", "us-south-k8s-k").await;
    assert_eq!(sim.left(), Vec::<String>::new());
    sim.script("containers.vpc_create_cluster", Fault::Quota, 1);
    sim.script("containers.vpc_create_cluster", Fault::Denied, 1);
    for _ in 0..2 {
        make(&cloud, "l", "10.2.0.0/16", CLUSTER).await.unwrap_err();
    }
    remove(&cloud, "l", "us-south-k8s-l").await;
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}

/// The flag governs what is made, not what is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_there_stays_without_the_flag() {
    let sim = Sim::start().await.unwrap();
    let cluster = make(&plugin(&sim, true), "k", "10.1.0.0/16", CLUSTER).await.unwrap();
    let cloud = plugin(&sim, false);
    let refused = make(&cloud, "l", "10.2.0.0/16", CLUSTER).await.unwrap_err();
    assert_eq!(refused.kind, CloudErrorKind::Unsupported);
    let listed = cloud.list(&at()).await.unwrap();
    assert_eq!(listed.resources, [("k".parse().unwrap(), cluster.clone())]);
    assert_eq!(listed.networks, [(cluster.region.clone(), "10.1.0.0/16".parse().unwrap())]);
    cloud.put_list(&at(), &cluster.uri, &[], &[many(0..3)]).await.unwrap();
    assert_eq!(cloud.permit_list(&at(), &cluster.uri).await.unwrap(), [many(0..3)]);
    let refused = cloud.delete_network(&at(), &cluster.region).await.unwrap_err();
    assert!(refused.kind == CloudErrorKind::Conflict && refused.message.contains("-iks-"), "{refused}");
    remove(&cloud, "k", "us-south-k8s-k").await;
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}

/// A region's NAT and a cluster's, in one zone, are told from each other also when an answer is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_and_a_cluster_have_nat_of_their_own() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim, true);
    let machine = make(&cloud, "a", "10.0.0.0/16", MACHINE).await.unwrap();
    let cluster = make(&cloud, "k", "10.1.0.0/16", CLUSTER).await.unwrap();
    for made in [&machine, &cluster] {
        sim.script("is.create_public_gateway", Fault::Lost, 1);
        cloud.ensure_nat(&at(), &made.region).await.unwrap();
        let out = entry("out", Direction::Outbound, Protocol::ICMP, &["1.1.1.1".to_owned()]);
        cloud.put_list(&at(), &made.uri, &[], &[out]).await.unwrap();
        assert!(sim.reaches_public(workers(&sim, made)[0], [1, 1, 1, 1].into(), &PING), "{}", made.region);
    }
    let mut nats = cloud.list(&at()).await.unwrap().nats;
    nats.sort();
    assert_eq!(nats, [machine.region.clone(), cluster.region.clone()]);
    cloud.delete_nat(&at(), &machine.region).await.unwrap();
    assert!(sim.reaches_public(workers(&sim, &cluster)[0], [1, 1, 1, 1].into(), &PING));
    remove(&cloud, "k", "us-south-k8s-k").await;
    remove(&cloud, "a", "us-south").await;
    assert_eq!((sim.left(), sim.defects()), (vec![], vec![]));
}

/// What cannot be is refused before anything is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_and_spaces_that_do_not_fit_are_refused() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim, true);
    for name in ["Web", "a_b", "a-", &"x".repeat(45)] {
        let refused = make(&cloud, name, "10.1.0.0/16", CLUSTER).await.unwrap_err();
        assert_eq!(refused.kind, CloudErrorKind::Invalid, "{name}: {refused}");
    }
    for description in [CLUSTER, MACHINE] {
        let refused = make(&cloud, "k", "198.18.0.0/20", description).await.unwrap_err();
        assert_eq!(refused.kind, CloudErrorKind::Invalid, "{refused}");
    }
    assert_eq!(sim.left(), Vec::<String>::new());
    let crowded = CLUSTER.replace('2', "90").replace("bx90", "bx2");
    let refused = make(&cloud, "k", "10.1.0.0/24", &crowded).await.unwrap_err();
    assert!(refused.kind == CloudErrorKind::Invalid && refused.message.contains("90 workers"), "{refused}");
    assert!(!sim.take_calls().iter().any(|call| call.operation.starts_with("containers.")));
}

fn starts(call: &Call) -> bool {
    call.status < 300 && !["get", "list"].iter().any(|read| call.operation.contains(read))
}

/// A controller that dies at any request that starts something; another finds the cluster and makes no second one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_under_way_is_found_again() {
    let sim = Sim::start().await.unwrap();
    make(&plugin(&sim, true), "k", "10.1.0.0/16", CLUSTER).await.unwrap();
    let built = sim.take_calls();
    remove(&plugin(&sim, true), "k", "us-south-k8s-k").await;
    let torn = sim.take_calls();
    for (calls, tears) in [(built, false), (torn, true)] {
        let places = calls.iter().enumerate().filter(|(_, call)| starts(call));
        for (turn, (number, call)) in places.enumerate() {
            // The answer to the request itself, or the request after it: the first look.
            let carried_out = turn.is_multiple_of(2);
            let (sim, number) = (Sim::start().await.unwrap(), number + usize::from(!carried_out));
            if tears {
                make(&plugin(&sim, true), "k", "10.1.0.0/16", CLUSTER).await.unwrap();
            }
            let first = plugin(&sim, true);
            let silence = sim.fall_silent(number, carried_out);
            let half = async |cloud: &IbmCloud| match tears {
                true => remove(cloud, "k", "us-south-k8s-k").await,
                false => drop(make(cloud, "k", "10.1.0.0/16", CLUSTER).await.unwrap()),
            };
            tokio::select! {
                () = silence => {}
                () = half(&first) => {}
            }
            sim.speak_again();
            sim.take_calls();
            let second = plugin(&sim, true);
            half(&second).await;
            let place =
                format!("killed at request {number} ({}), carried out: {carried_out}", call.operation);
            let clusters = sim.objects().into_values().filter(|one| one["provider"] == "vpc-gen2").count();
            assert_eq!(clusters, usize::from(!tears), "{place}");
            remove(&second, "k", "us-south-k8s-k").await;
            assert_eq!((sim.left(), sim.defects()), (vec![], vec![]), "{place}");
        }
    }
}
