//! The public clouds' plugins on their simulators: requests and simulated time per story, the plan of a long permit list,
//! a tag that changes under a hundred permit lists, and what a plugin process sustains.

#![expect(clippy::unwrap_used, reason = "a failed bench stops")]

#[path = "clouds/sustain.rs"]
mod sustain;
#[path = "clouds/tag_change.rs"]
mod tag_change;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use benches::report;
use cloud_api::{At, ResourceSpec, prelude::*};
use cloud_aws::{AwsCloud, AwsOptions};
use cloud_azure::{AzureCloud, AzureOptions};
use cloud_gcp::{GcpCloud, GcpOptions};
use cloud_ibm::{IbmCloud, IbmOptions};
use cloud_sim::Sim;
use ipnet::Ipv4Net;
use model::{
    ConnectionSpec, Direction, EntryName, GatewayState, PermitEntry, Ports, Protocol, ResourceState, Secret,
    Segment, Traffic,
};

fn main() {
    lists();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(stories());
    runtime.block_on(link_with_ibm());
    runtime.block_on(tag_change::run());
    runtime.block_on(sustain::run());
}

fn entry(name: &str, targets: &[String]) -> PermitEntry {
    let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(443)).unwrap();
    let targets = targets.iter().map(|text| text.parse().unwrap()).collect();
    PermitEntry::new(EntryName::reported(name), traffic, targets, BTreeSet::new()).unwrap()
}

/// A list of a thousand entries against one that differs in one of them.
fn lists() {
    let list = |changed: usize| -> Vec<PermitEntry> {
        (0..1000)
            .map(|n| {
                entry(
                    &format!("rule-{n}"),
                    &[format!("10.{}.{}.{}", n / 250, n % 250, if n == changed { 2 } else { 1 })],
                )
            })
            .collect()
    };
    let home = cloud_gcp::rules::Home {
        owner: "trestle".into(),
        site: "ns.gcp".into(),
        prefix: "t-abcdefgh-fw-abcdefghij".into(),
        network: "n".into(),
        tag: "t".into(),
        priority: cloud_gcp::rules::PRIORITY,
    };
    let current = cloud_gcp::rules::firewalls_of(&home, &list(usize::MAX)).unwrap();
    let wanted = list(7);
    let started = Instant::now();
    let change =
        cloud_gcp::rules::difference(&current, &cloud_gcp::rules::firewalls_of(&home, &wanted).unwrap());
    assert_eq!((change.insert.len(), change.update.len(), change.delete.len()), (0, 1, 0));
    report("clouds.plan_1000", "ms", started.elapsed().as_secs_f64() * 1e3, "ms");
    // As many as a group of Azure has room for.
    let most = |changed: usize| list(changed).into_iter().take(998).collect::<Vec<_>>();
    let closed = cloud_azure::rules::closed();
    let current = cloud_azure::rules::rules_of(&[], &most(usize::MAX), &closed).unwrap();
    let wanted = most(7);
    let started = Instant::now();
    let rules = cloud_azure::rules::rules_of(&current, &wanted, &closed).unwrap();
    assert!(!cloud_azure::rules::is_same(&current, &rules) && rules.len() == 1000);
    report("clouds.plan_998_azure", "ms", started.elapsed().as_secs_f64() * 1e3, "ms");
}

struct Clouds {
    sim: Sim,
    aws: AwsCloud,
    azure: AzureCloud,
    gcp: GcpCloud,
    ibm: IbmCloud,
}

impl Clouds {
    /// Each with its kind, a VM's description, and a space.
    fn all(&self) -> [(&dyn Cloud, &'static str, &'static str, &'static str); 4] {
        [
            (&self.aws, "aws", AWS_VM, "10.0.0.0/16"),
            (&self.azure, "azure", AZURE_VM, "10.2.0.0/16"),
            (&self.gcp, "gcp", GCP_VM, "10.1.0.0/16"),
            (&self.ibm, "ibm", IBM_VM, "10.3.0.0/16"),
        ]
    }
}

async fn clouds() -> Clouds {
    let sim = Sim::start().await.unwrap();
    let region = |name: &str| Some(vec![name.parse().unwrap()]);
    let aws = AwsOptions { regions: region("us-east-1"), ..AwsOptions::default() };
    let azure = AzureOptions {
        token: Some("t".to_owned()),
        subscription: Some("s1".to_owned()),
        resource_group: Some("g1".to_owned()),
        ..AzureOptions::default()
    };
    let ibm = IbmOptions { regions: region("us-south"), ..IbmOptions::default() };
    let aws = AwsCloud::with(&aws, sim.world()).unwrap();
    let azure = AzureCloud::with(&azure, sim.world()).unwrap();
    let gcp = GcpCloud::with(&GcpOptions::default(), sim.world()).unwrap();
    let ibm = IbmCloud::with(&ibm, sim.world()).unwrap();
    Clouds { sim, aws, azure, gcp, ibm }
}

fn at(cloud: &str) -> At {
    let deployment = if matches!(cloud, "azure" | "ibm") { "" } else { "p1" };
    At { site: format!("ns.{cloud}").parse().unwrap(), deployment: deployment.to_owned() }
}

const AWS_VM: &str = r#"{"region":"us-east-1","ImageId":"ami-1"}"#;
const AZURE_VM: &str = r#"{"location":"westus2","properties":{"hardwareProfile":{"vmSize":"Standard_B1s"},"storageProfile":{}}}"#;
const GCP_VM: &str = r#"{"zone":"us-west1-a","machineType":"e2-micro","disks":[{"boot":true}]}"#;

const IBM_VM: &str = r#"{"zone":"us-south-1","profile":{"name":"bx2-2x8"},"image":{"id":"i"}}"#;

async fn make(cloud: &dyn Cloud, kind: &str, description: &str, space: &str) -> ResourceState {
    make_at(cloud, &at(kind), description, space).await
}

async fn make_at(cloud: &dyn Cloud, place: &At, description: &str, space: &str) -> ResourceState {
    let region: Segment = cloud.inspect_resource(place, &"a".parse().unwrap(), description).await.unwrap();
    let space: Ipv4Net = space.parse().unwrap();
    cloud.ensure_network(place, &region, space).await.unwrap();
    let spec = ResourceSpec { name: "a".parse().unwrap(), region, description: description.to_owned() };
    cloud.create_resource(place, &spec).await.unwrap()
}

fn tell(sim: &Sim, story: &str, since: Duration) {
    report(story, "calls", sim.take_calls().len() as f64, "calls");
    report(story, "simulated_s", (sim.clock.elapsed() - since).as_secs_f64(), "s");
}

/// A link whose gateways were asked for `since`, by so many calls, and were `ready`: the first one, with its gateways, and
/// the second, for which they are there.
fn tell_link(sim: &Sim, pair: &str, (gateways, since): (usize, Duration), ready: Duration) {
    let (connections, now) = (sim.take_calls().len(), sim.clock.elapsed());
    for (story, calls, began) in [("first", gateways + connections, since), ("second", connections, ready)] {
        let story = format!("clouds.{story}_link_{pair}");
        report(&story, "calls", calls as f64, "calls");
        report(&story, "simulated_s", (now - began).as_secs_f64(), "s");
    }
}

/// One end of a link, of `count` tunnels; `local` and `remote` are the hosts inside each /30.
fn spec(
    [own, peer]: [&str; 2],
    asn: u32,
    peer_addresses: Vec<std::net::IpAddr>,
    block: u8,
    [local, remote]: [u8; 2],
) -> ConnectionSpec {
    let inside = |host: u8| {
        let count = u8::try_from(peer_addresses.len()).unwrap();
        (0..count).map(|n| [169, 254, 21, block + 4 * n + host].into()).collect::<Vec<_>>()
    };
    ConnectionSpec {
        site: at(own).site,
        peer: at(peer).site,
        peer_asn: asn,
        local_bgp: inside(local),
        peer_bgp: inside(remote),
        peer_addresses,
        peer_spaces: vec![],
        bgp: true,
        shared_key: Secret::new("aKeyOfThirtyTwoLettersOrSoItIs12"),
    }
}

async fn stories() {
    let clouds = clouds().await;
    let sim = &clouds.sim;
    for (cloud, kind, description, space) in clouds.all() {
        let since = sim.clock.elapsed();
        let made = make(cloud, kind, description, space).await;
        tell(sim, &format!("clouds.first_vm_{kind}"), since);
        let since = sim.clock.elapsed();
        let entries: Vec<PermitEntry> =
            (0..20).map(|n| entry(&format!("e{n}"), &[format!("10.9.{n}.1")])).collect();
        cloud.put_list(&at(kind), &made.uri, &[], &entries).await.unwrap();
        tell(sim, &format!("clouds.add_20_rules_{kind}"), since);
    }
    let Clouds { sim, aws, azure, gcp, .. } = clouds;
    let since = sim.clock.elapsed();
    let (near, far): (GatewayState, GatewayState) = {
        let (aws_at, gcp_at) = (at("aws"), at("gcp"));
        let both = tokio::join!(aws.create_gateway(&aws_at, 64_514), gcp.create_gateway(&gcp_at, 64_515));
        (both.0.unwrap(), both.1.unwrap())
    };
    let (gateways, ready) = (sim.take_calls().len(), sim.clock.elapsed());
    let addresses = far.addresses.iter().cycle().take(4).copied().collect();
    let here = spec(["aws", "gcp"], far.asn, addresses, 0, [1, 2]);
    aws.create_connections(&at("aws"), &here).await.unwrap();
    let addresses = aws.connection_addresses(&at("aws"), &at("gcp").site).await.unwrap();
    let there = spec(["gcp", "aws"], near.asn, addresses, 0, [2, 1]);
    gcp.create_connections(&at("gcp"), &there).await.unwrap();
    tell_link(&sim, "aws_gcp", (gateways, since), ready);
    let since = sim.clock.elapsed();
    aws.create_connections(&at("aws"), &here).await.unwrap();
    gcp.create_connections(&at("gcp"), &there).await.unwrap();
    tell(&sim, "clouds.linked_again_aws_gcp", since);
    let status = gcp.connection_status(&at("gcp"), &at("aws").site).await.unwrap();
    assert_eq!((status.tunnels_up, status.bgp_established), (4, 4));
    // The second link of the one gateway, the first of the other.
    let since = sim.clock.elapsed();
    let azure_gateway = azure.create_gateway(&at("azure"), 64_516).await.unwrap();
    let (gateways, ready) = (sim.take_calls().len(), sim.clock.elapsed());
    let (a, b) = (at("azure"), at("gcp"));
    let near = spec(["azure", "gcp"], far.asn, far.addresses, 100, [1, 2]);
    let far = spec(["gcp", "azure"], azure_gateway.asn, azure_gateway.addresses, 100, [2, 1]);
    let (one, two) = tokio::join!(azure.create_connections(&a, &near), gcp.create_connections(&b, &far));
    one.and(two).unwrap();
    tell_link(&sim, "azure_gcp", (gateways, since), ready);
    let since = sim.clock.elapsed();
    let (one, two) = tokio::join!(azure.create_connections(&a, &near), gcp.create_connections(&b, &far));
    one.and(two).unwrap();
    tell(&sim, "clouds.linked_again_azure_gcp", since);
    let status = azure.connection_status(&a, &b.site).await.unwrap();
    assert_eq!((status.tunnels_up, status.bgp_established), (2, 2));
}

/// The first link of Google Cloud and IBM Cloud.
async fn link_with_ibm() {
    let Clouds { sim, gcp, ibm, .. } = clouds().await;
    make(&gcp, "gcp", GCP_VM, "10.1.0.0/16").await;
    make(&ibm, "ibm", IBM_VM, "10.2.0.0/16").await;
    sim.take_calls();
    let since = sim.clock.elapsed();
    let (gcp_at, ibm_at) = (at("gcp"), at("ibm"));
    let (near, far) = tokio::join!(gcp.create_gateway(&gcp_at, 64_514), ibm.create_gateway(&ibm_at, 64_515));
    let (near, far) = (near.unwrap(), far.unwrap());
    let (gateways, ready) = (sim.take_calls().len(), sim.clock.elapsed());
    let four = |addresses: &[std::net::IpAddr]| addresses.iter().cycle().take(4).copied().collect::<Vec<_>>();
    let towards_ibm = spec(["gcp", "ibm"], far.asn, four(&far.addresses), 0, [1, 2]);
    let towards_gcp = spec(["ibm", "gcp"], near.asn, four(&near.addresses), 0, [2, 1]);
    let (one, other) = tokio::join!(
        gcp.create_connections(&gcp_at, &towards_ibm),
        ibm.create_connections(&ibm_at, &towards_gcp)
    );
    one.unwrap();
    other.unwrap();
    tell_link(&sim, "gcp_ibm", (gateways, since), ready);
    for (cloud, here, there) in [(&gcp as &dyn Cloud, &gcp_at, &ibm_at), (&ibm, &ibm_at, &gcp_at)] {
        let status = cloud.connection_status(here, &there.site).await.unwrap();
        assert_eq!((status.tunnels_up, status.bgp_established), (4, 4));
    }
}
