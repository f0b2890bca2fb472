//! A controller that dies while a cloud works, at every request that starts something: just before the answer comes, and
//! just after it, before the first look at how the work is. Another controller, which knows nothing but what to ask for,
//! finds the same work under the object's own name and waits for it; it starts nothing a second time.
//!
//! Each request is died at in one of the two ways, in turn; in both if `TRESTLE_STORIES` is set.

use std::{collections::BTreeMap, net::IpAddr};

use cloud_api::{At, Cloud, CloudError, CloudErrorKind, ResourceSpec};
use cloud_sim::{Call, Sim};
use model::{ConnectionSpec, Direction, EntryName, PermitEntry, Ports, Protocol, Secret, Segment, Traffic};

use super::house::{clusters, deployment, description, plugin, services};

fn at(kind: &str) -> At {
    At { site: format!("ns.{kind}").parse().unwrap(), deployment: deployment(kind).to_owned() }
}

fn link(kind: &str) -> ConnectionSpec {
    let first = u8::from(kind != "aws") + 1;
    let inside = |host: u8| (0..2u8).map(|n| [169, 254, 21, 4 * n + host].into()).collect();
    ConnectionSpec {
        bgp: true,
        site: at(kind).site,
        peer: "ns.linux".parse().unwrap(),
        peer_asn: 64_600,
        peer_addresses: vec![IpAddr::from([198, 51, 100, 1]), IpAddr::from([198, 51, 100, 2])],
        local_bgp: inside(first),
        peer_bgp: inside(3 - first),
        peer_spaces: vec![],
        shared_key: Secret::new("aKeyOfThirtyTwoLettersOrSoItIs12"),
    }
}

/// Everything a cloud is asked to make.
async fn build(cloud: &dyn Cloud, kind: &str) {
    let at = at(kind);
    let region = cloud.inspect_resource(&at, &"a".parse().unwrap(), description(kind, 0)).await.unwrap();
    cloud.ensure_network(&at, &region, "10.0.0.0/16".parse().unwrap()).await.unwrap();
    let home = region.clone();
    let (name, description) = ("a".parse().unwrap(), description(kind, 0).to_owned());
    let vm = cloud
        .create_resource(&at, &ResourceSpec { name, region: region.clone(), description })
        .await
        .unwrap();
    let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(443)).unwrap();
    let entry = PermitEntry::new(
        EntryName::reported("https"),
        traffic,
        ["10.200.0.4".parse().unwrap()].into(),
        Default::default(),
    );
    let entries = [entry.unwrap()];
    cloud.put_list(&at, &vm.uri, &[], &entries).await.unwrap();
    for (number, service) in services(kind).iter().enumerate() {
        let region = cloud.inspect_resource(&at, &"a".parse().unwrap(), service).await.unwrap();
        let space =
            if region == home { "10.0.0.0/16".to_owned() } else { format!("10.{}.0.0/16", number + 1) };
        cloud.ensure_network(&at, &region, space.parse().unwrap()).await.unwrap();
        let name = format!("e{number}").parse().unwrap();
        let spec = ResourceSpec { name, region, description: (*service).to_owned() };
        let endpoint = cloud.create_resource(&at, &spec).await.unwrap();
        cloud.put_list(&at, &endpoint.uri, &[], &entries).await.unwrap();
    }
    if let Some([cluster, _]) = clusters(kind) {
        let name: Segment = "k".parse().unwrap();
        let region = cloud.inspect_resource(&at, &name, cluster).await.unwrap();
        cloud.ensure_network(&at, &region, "10.64.0.0/16".parse().unwrap()).await.unwrap();
        let spec = ResourceSpec { name, region, description: cluster.to_owned() };
        let cluster = cloud.create_resource(&at, &spec).await.unwrap();
        cloud.put_list(&at, &cluster.uri, &[], &entries).await.unwrap();
    }
    cloud.ensure_nat(&at, &region).await.unwrap();
    cloud.create_gateway(&at, 64_514).await.unwrap();
    cloud.create_bgp_sessions(&at, &link(kind)).await.unwrap();
    cloud.create_connections(&at, &link(kind)).await.unwrap();
}

/// And everything it is asked to take away.
async fn tear(cloud: &dyn Cloud, kind: &str) {
    let at = at(kind);
    let region = cloud.inspect_resource(&at, &"a".parse().unwrap(), description(kind, 0)).await.unwrap();
    insist(async || cloud.delete_connections(&at, &link(kind).peer).await).await;
    insist(async || cloud.delete_gateway(&at).await).await;
    insist(async || cloud.delete_nat(&at, &region).await).await;
    insist(async || cloud.delete_resource(&at, &"a".parse().unwrap()).await).await;
    for (number, service) in services(kind).iter().enumerate() {
        insist(async || cloud.delete_resource(&at, &format!("e{number}").parse().unwrap()).await).await;
        let of_it = cloud.inspect_resource(&at, &"a".parse().unwrap(), service).await.unwrap();
        if of_it != region {
            insist(async || cloud.delete_network(&at, &of_it).await).await;
        }
    }
    if let Some([cluster, _]) = clusters(kind) {
        let name: Segment = "k".parse().unwrap();
        let region = cloud.inspect_resource(&at, &name, cluster).await.unwrap();
        insist(async || cloud.delete_resource(&at, &name).await).await;
        insist(async || cloud.delete_network(&at, &region).await).await;
    }
    insist(async || cloud.delete_network(&at, &region).await).await;
}

/// Asks again while a cloud is still busy with what was begun, as a controller does.
async fn insist(ask: impl AsyncFn() -> Result<(), CloudError>) {
    for _ in 0..10 {
        match ask().await {
            Ok(()) => return,
            Err(err) => assert_eq!(err.kind, CloudErrorKind::Unavailable, "{err}"),
        }
    }
    panic!("what was begun does not end");
}

fn starts(call: &Call) -> bool {
    // `/action` of Azure is a question that takes a while; nothing is changed by it.
    let reads = ["Describe", "/read", "/action", ".get", "_get_", ".list", "List", "Operations"];
    call.status < 300 && !reads.iter().any(|read| call.operation.contains(read))
}

/// What may be asked for again: to go is to go once, and a customer gateway with the same address and AS number is, by
/// AWS's own word, the same one.
fn is_same_again(operation: &str) -> bool {
    ["elete", "CreateCustomerGateway"].iter().any(|part| operation.contains(part))
}

/// What was started, and how often.
fn started(calls: &[Call]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for call in calls.iter().filter(|call| starts(call) && !is_same_again(&call.operation)) {
        *counts.entry(call.operation.clone()).or_default() += 1;
    }
    counts
}

/// Which half of the story the controller dies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Build,
    Tear,
}

async fn half(half: Half, cloud: &dyn Cloud, kind: &str) {
    match half {
        Half::Build => build(cloud, kind).await,
        Half::Tear => tear(cloud, kind).await,
    }
}

/// Runs a half whose request number `number` gets no answer, kills the plugin there, and runs it again with another.
async fn killed(which: Half, kind: &str, number: usize, carried_out: bool) -> Vec<Call> {
    let sim = Sim::start().await.unwrap();
    if which == Half::Tear {
        build(&*plugin(kind, &sim), kind).await;
        sim.take_calls();
    }
    let first = plugin(kind, &sim);
    let silence = sim.fall_silent(number, carried_out);
    tokio::select! {
        () = silence => {}
        // Requests are not counted out to the last: some are sent at the same time as others.
        () = half(which, &*first, kind) => {}
    }
    sim.speak_again();
    drop(first);
    let second = plugin(kind, &sim);
    half(which, &*second, kind).await;
    let calls = sim.take_calls();
    if which == Half::Build {
        tear(&*second, kind).await;
    }
    assert_eq!(sim.left(), Vec::<String>::new(), "{kind} {which:?} {number} {carried_out}");
    assert_eq!(sim.defects(), Vec::<String>::new(), "{kind}");
    calls
}

async fn resumes(kind: &str) {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(kind, &sim);
    for which in [Half::Build, Half::Tear] {
        half(which, &*cloud, kind).await;
        let calls = sim.take_calls();
        let expected = started(&calls);
        let both = std::env::var_os("TRESTLE_STORIES").is_some();
        let places = calls.iter().enumerate().filter(|(_, call)| starts(call));
        for (turn, (number, call)) in places.enumerate() {
            // The answer to the request itself, then the request after it: the first look.
            let ways = [(number, true), (number + 1, false)];
            let in_turn = |carried_out: bool| both || carried_out == turn.is_multiple_of(2);
            for (number, carried_out) in ways.into_iter().filter(|(_, way)| in_turn(*way)) {
                let seen = started(&killed(which, kind, number, carried_out).await);
                let place = format!("{kind}, {which:?}, killed at request {number} ({})", call.operation);
                let twice: Vec<_> = seen
                    .iter()
                    .filter(|(name, count)| **count > expected.get(*name).copied().unwrap_or_default())
                    .collect();
                assert!(twice.is_empty(), "{place}, carried out: {carried_out}: {twice:?} of {expected:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_under_way_is_found_again_in_aws() {
    resumes("aws").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_under_way_is_found_again_in_azure() {
    resumes("azure").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_under_way_is_found_again_in_google_cloud() {
    resumes("gcp").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_under_way_is_found_again_in_ibm_cloud() {
    resumes("ibm").await;
}
