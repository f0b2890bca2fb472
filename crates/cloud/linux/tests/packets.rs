//! The Linux cloud with real packets. Needs root, iproute2 and nftables; without them there is nothing to test, and
//! the tests say so.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::process::Command;

use cloud_api::{
    At, Cloud, CloudErrorKind, PeeringSpec, ResourceSpec,
    conformance::{Subject, run},
};
use cloud_linux::LinuxCloud;
use model::{
    Direction, EntryName, NetworkName, PeeringName, PermitEntry, Ports, Protocol, ResourceState, Segment,
    Traffic,
};
use tempfile::TempDir;

/// Says what is missing rather than passing without having tried.
fn require_tools() {
    assert!(rustix::process::geteuid().is_root(), "these tests make network namespaces and must run as root");
    for tool in ["nft", "ip", "ping"] {
        let found = Command::new(tool).arg("-V").output();
        assert!(
            found.is_ok(),
            "{tool} is not installed; scripts/test-deps.d/cloud-linux lists what is needed"
        );
    }
}

/// A cloud of its own for each test, so that they can run side by side.
async fn open(name: &str, dir: &TempDir) -> LinuxCloud {
    LinuxCloud::open(name.parse().unwrap(), dir.path().to_owned()).await.unwrap()
}

fn at(namespace: &str, cloud: &str) -> At {
    At { site: format!("{namespace}.{cloud}").parse().unwrap(), deployment: String::new() }
}

fn segment(text: &str) -> Segment {
    text.parse().unwrap()
}

async fn make(cloud: &LinuxCloud, at: &At, name: &str, region: &str, space: &str) -> ResourceState {
    cloud.ensure_network(at, &segment(region), space.parse().unwrap()).await.unwrap();
    let description = format!("{{\"region\":\"{region}\"}}");
    let spec = ResourceSpec { name: segment(name), region: segment(region), description };
    cloud.create_resource(at, &spec).await.unwrap()
}

fn entry(direction: Direction, protocol: Protocol, ports: Ports, peer: &ResourceState) -> PermitEntry {
    let traffic = Traffic::new(direction, protocol, Ports::Any, ports).unwrap();
    let name = EntryName::reported(format!("{direction}-{protocol}-{}", peer.address));
    PermitEntry::new(name, traffic, [peer.address.into()].into(), Default::default()).unwrap()
}

/// Whether a ping from one resource to another is answered.
fn pings(from: &ResourceState, to: &ResourceState) -> bool {
    let namespace = from.uri.strip_prefix("netns:").unwrap();
    let to = to.address.to_string();
    let ping =
        Command::new("ip").args(["netns", "exec", namespace, "ping", "-c1", "-W1", &to]).output().unwrap();
    ping.status.success()
}

fn namespaces_of(cloud: &str) -> Vec<String> {
    let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let ours = |name: &&str| {
        name.starts_with(&format!("trn.{cloud}.")) || name.starts_with(&format!("trr.{cloud}."))
    };
    listed.lines().filter_map(|line| line.split_whitespace().next()).filter(ours).map(str::to_owned).collect()
}

#[tokio::test]
async fn it_keeps_the_contract() {
    require_tools();
    let dir = tempfile::tempdir().unwrap();
    let cloud = open("lxconf", &dir).await;
    let subject = Subject {
        cloud: &cloud,
        at: at("ns", "lxconf"),
        descriptions: [r#"{"region":"west"}"#.to_owned(), r#"{"region":"east"}"#.to_owned()],
        with_network: r#"{"region":"west","address":"10.0.0.9"}"#.to_owned(),
        spaces: ["10.200.0.0/24".parse().unwrap(), "10.200.1.0/24".parse().unwrap()],
        has_nat: false,
        peer: None,
    };
    run(&subject).await.unwrap();
    assert!(namespaces_of("lxconf").is_empty());
}

/// E1: blocked at first, open when both ends permit, closed again when one does not.
#[tokio::test]
async fn e1_packets_pass_when_both_ends_permit_them() {
    require_tools();
    let dir = tempfile::tempdir().unwrap();
    let cloud = open("lxe1", &dir).await;
    let at = at("ns", "lxe1");
    let a = make(&cloud, &at, "a", "west", "10.201.0.0/24").await;
    let b = make(&cloud, &at, "b", "west", "10.201.0.0/24").await;
    assert!(!pings(&a, &b) && !pings(&b, &a));
    let out = entry(Direction::Outbound, Protocol::ICMP, Ports::Any, &b);
    let inward = entry(Direction::Inbound, Protocol::ICMP, Ports::Any, &a);
    cloud.add_entries(&at, &a.uri, std::slice::from_ref(&out)).await.unwrap();
    assert!(!pings(&a, &b), "the receiver has not permitted it");
    cloud.add_entries(&at, &b.uri, std::slice::from_ref(&inward)).await.unwrap();
    assert!(pings(&a, &b), "both have permitted it");
    assert!(!pings(&b, &a), "the other direction was not permitted");
    cloud.delete_entries(&at, &a.uri, &[out]).await.unwrap();
    assert!(!pings(&a, &b), "the sender has taken it back");
    for name in ["a", "b"] {
        cloud.delete_resource(&at, &segment(name)).await.unwrap();
    }
    cloud.delete_network(&at, &segment("west")).await.unwrap();
    assert!(namespaces_of("lxe1").is_empty());
}

/// A ping that is running stops when its permission goes, although the connection is known to the kernel.
#[tokio::test]
async fn what_is_taken_back_ends_what_it_had_let_through() {
    require_tools();
    let dir = tempfile::tempdir().unwrap();
    let cloud = open("lxlive", &dir).await;
    let at = at("ns", "lxlive");
    let a = make(&cloud, &at, "a", "west", "10.202.0.0/24").await;
    let b = make(&cloud, &at, "b", "west", "10.202.0.0/24").await;
    let out = entry(Direction::Outbound, Protocol::ICMP, Ports::Any, &b);
    cloud.add_entries(&at, &a.uri, std::slice::from_ref(&out)).await.unwrap();
    let inward = entry(Direction::Inbound, Protocol::ICMP, Ports::Any, &a);
    cloud.add_entries(&at, &b.uri, std::slice::from_ref(&inward)).await.unwrap();
    let namespace = a.uri.strip_prefix("netns:").unwrap();
    let ping = Command::new("ip")
        .args(["netns", "exec", namespace, "ping", "-i0.1", "-c20", "-W1", &b.address.to_string()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(800)).await;
    cloud.delete_entries(&at, &b.uri, &[inward]).await.unwrap();
    let output = tokio::task::spawn_blocking(move || ping.wait_with_output().unwrap()).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let replies = text.lines().filter(|line| line.contains("bytes from")).count();
    assert!((1..19).contains(&replies), "{text}");
    for name in ["a", "b"] {
        cloud.delete_resource(&at, &segment(name)).await.unwrap();
    }
    cloud.delete_network(&at, &segment("west")).await.unwrap();
}

/// E2, E3: two regions, and two namespaces, are joined by a peering and by nothing else.
#[tokio::test]
async fn e2_e3_networks_of_one_cloud_meet_through_a_peering() {
    require_tools();
    let dir = tempfile::tempdir().unwrap();
    let cloud = open("lxe2", &dir).await;
    let (one, two) = (at("one", "lxe2"), at("two", "lxe2"));
    let a = make(&cloud, &one, "a", "west", "10.203.0.0/24").await;
    let b = make(&cloud, &one, "b", "east", "10.203.1.0/24").await;
    let c = make(&cloud, &two, "c", "west", "10.203.2.0/24").await;
    for (at, from, others) in [(&one, &a, [&b, &c]), (&one, &b, [&a, &c]), (&two, &c, [&a, &b])] {
        for direction in [Direction::Inbound, Direction::Outbound] {
            let entries = others.map(|other| entry(direction, Protocol::Any, Ports::Any, other));
            cloud.add_entries(at, &from.uri, &entries).await.unwrap();
        }
    }
    assert!(!pings(&a, &b) && !pings(&a, &c), "there is no path yet");
    let network = |text: &str| text.parse::<NetworkName>().unwrap();
    let peer = |a: &str, b: &str| PeeringSpec {
        name: PeeringName::new(network(a), network(b)).unwrap(),
        deployments: Default::default(),
    };
    let specs = [peer("one.lxe2.west", "one.lxe2.east"), peer("one.lxe2.west", "two.lxe2.west")];
    for spec in &specs {
        cloud.ensure_peering(spec).await.unwrap();
    }
    assert!(pings(&a, &b) && pings(&b, &a) && pings(&a, &c) && pings(&c, &a));
    assert!(!pings(&b, &c), "a peering is no transit");
    for spec in &specs {
        cloud.delete_peering(spec).await.unwrap();
    }
    assert!(!pings(&a, &b));
    for (at, name, region) in [(&one, "a", "west"), (&one, "b", "east"), (&two, "c", "west")] {
        cloud.delete_resource(at, &segment(name)).await.unwrap();
        cloud.delete_network(at, &segment(region)).await.unwrap();
    }
    assert!(namespaces_of("lxe2").is_empty());
}

/// After a crash, or after somebody deleted things, opening the cloud makes everything as it was.
#[tokio::test]
async fn it_repairs_what_is_gone_and_removes_what_nobody_knows() {
    require_tools();
    let dir = tempfile::tempdir().unwrap();
    let at = at("ns", "lxfix");
    let cloud = open("lxfix", &dir).await;
    let a = make(&cloud, &at, "a", "west", "10.204.0.0/24").await;
    let b = make(&cloud, &at, "b", "west", "10.204.0.0/24").await;
    for (from, to) in [(&a, &b), (&b, &a)] {
        let both = [Direction::Inbound, Direction::Outbound]
            .map(|direction| entry(direction, Protocol::Any, Ports::Any, to));
        cloud.add_entries(&at, &from.uri, &both).await.unwrap();
    }
    assert!(pings(&a, &b));
    let second = LinuxCloud::open("lxfix".parse().unwrap(), dir.path().to_owned()).await;
    assert_eq!(second.err().unwrap().kind, CloudErrorKind::Conflict, "two controllers by mistake");
    drop(cloud);
    for namespace in ["trn.lxfix.ns.west", "trr.lxfix.ns.a"] {
        assert!(Command::new("ip").args(["netns", "delete", namespace]).status().unwrap().success());
    }
    assert!(Command::new("ip").args(["netns", "add", "trr.lxfix.ns.orphan"]).status().unwrap().success());
    let cloud = open("lxfix", &dir).await;
    assert!(pings(&a, &b) && pings(&b, &a));
    assert_eq!(namespaces_of("lxfix").len(), 3);
    for name in ["a", "b"] {
        cloud.delete_resource(&at, &segment(name)).await.unwrap();
    }
    cloud.delete_network(&at, &segment("west")).await.unwrap();
    assert!(namespaces_of("lxfix").is_empty());
}
