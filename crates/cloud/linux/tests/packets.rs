//! The Linux cloud with real packets. Needs root, iproute2 and nftables; without them there is nothing to test, and
//! the tests say so.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::process::Command;

use cloud_api::{
    CloudErrorKind, PeeringSpec, ResourceSpec,
    conformance::{Subject, run},
    prelude::*,
};
use cloud_linux::{LinuxCloud, Options, Uplink};
use model::{Direction, NetworkName, PeeringName, Ports, Protocol};
use support::{
    Internet, Site, at, entry, entry_to, exec, inside, lines, make, permit, pings, pings_address,
    require_tools, segment,
};

#[tokio::test]
async fn it_keeps_the_contract() {
    require_tools(&[]);
    let site = Site::default();
    let internet = Internet::new("lxconf");
    let uplink = Uplink::Namespace(internet.0.clone());
    let cloud = site.open_with("lxconf", Options { uplink }).await;
    let subject = Subject {
        cloud: &cloud,
        at: at("ns", "lxconf"),
        descriptions: [r#"{"region":"west"}"#.to_owned(), r#"{"region":"east"}"#.to_owned()],
        with_network: r#"{"region":"west","address":"10.0.0.9"}"#.to_owned(),
        spaces: ["10.200.0.0/24".parse().unwrap(), "10.200.1.0/24".parse().unwrap()],
        has_nat: true,
        peer: Some("ns.elsewhere".parse().unwrap()),
        existing: None,
    };
    run(&subject).await.unwrap();
    assert_eq!(site.left(), [""; 0]);
}

/// Blocked at first, open when both ends permit, closed again when one does not.
#[tokio::test]
async fn packets_pass_when_both_ends_permit_them() {
    require_tools(&[]);
    let site = Site::default();
    let cloud = site.open("lxe1").await;
    let at = at("ns", "lxe1");
    let a = make(&cloud, &at, "a", "west", "10.201.0.0/24").await;
    let b = make(&cloud, &at, "b", "west", "10.201.0.0/24").await;
    assert!(!pings(&a, &b) && !pings(&b, &a));
    let out = entry(Direction::Outbound, Protocol::ICMP, Ports::Any, &b);
    let inward = entry(Direction::Inbound, Protocol::ICMP, Ports::Any, &a);
    cloud.put_list(&at, &a.uri, &[], std::slice::from_ref(&out)).await.unwrap();
    assert!(!pings(&a, &b), "the receiver has not permitted it");
    cloud.put_list(&at, &b.uri, &[], std::slice::from_ref(&inward)).await.unwrap();
    assert!(pings(&a, &b), "both have permitted it");
    assert!(!pings(&b, &a), "the other direction was not permitted");
    cloud.put_list(&at, &a.uri, &[out], &[]).await.unwrap();
    assert!(!pings(&a, &b), "the sender has taken it back");
    for name in ["a", "b"] {
        cloud.delete_resource(&at, &segment(name)).await.unwrap();
    }
    cloud.delete_network(&at, &segment("west")).await.unwrap();
    assert_eq!(site.left(), [""; 0]);
}

/// A ping that is running stops when its permission goes, although the connection is known to the kernel.
#[tokio::test]
async fn what_is_taken_back_ends_what_it_had_let_through() {
    require_tools(&[]);
    let site = Site::default();
    let cloud = site.open("lxlive").await;
    let at = at("ns", "lxlive");
    let a = make(&cloud, &at, "a", "west", "10.202.0.0/24").await;
    let b = make(&cloud, &at, "b", "west", "10.202.0.0/24").await;
    let out = entry(Direction::Outbound, Protocol::ICMP, Ports::Any, &b);
    cloud.put_list(&at, &a.uri, &[], std::slice::from_ref(&out)).await.unwrap();
    let inward = entry(Direction::Inbound, Protocol::ICMP, Ports::Any, &a);
    cloud.put_list(&at, &b.uri, &[], std::slice::from_ref(&inward)).await.unwrap();
    let ping = exec(&a, &["ping", "-i0.1", "-c20", "-W1", &b.address.to_string()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(800)).await;
    cloud.put_list(&at, &b.uri, &[inward], &[]).await.unwrap();
    let output = tokio::task::spawn_blocking(move || ping.wait_with_output().unwrap()).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let replies = text.lines().filter(|line| line.contains("bytes from")).count();
    assert!((1..19).contains(&replies), "{text}");
    for name in ["a", "b"] {
        cloud.delete_resource(&at, &segment(name)).await.unwrap();
    }
    cloud.delete_network(&at, &segment("west")).await.unwrap();
}

/// Two regions, and two namespaces, are joined by a peering and by nothing else.
#[tokio::test]
async fn networks_of_one_cloud_meet_through_a_peering() {
    require_tools(&[]);
    let site = Site::default();
    let cloud = site.open("lxe2").await;
    let (one, two) = (at("one", "lxe2"), at("two", "lxe2"));
    let a = make(&cloud, &one, "a", "west", "10.203.0.0/24").await;
    let b = make(&cloud, &one, "b", "east", "10.203.1.0/24").await;
    let c = make(&cloud, &two, "c", "west", "10.203.2.0/24").await;
    for (at, from, others) in [(&one, &a, [&b, &c]), (&one, &b, [&a, &c]), (&two, &c, [&a, &b])] {
        for direction in [Direction::Inbound, Direction::Outbound] {
            let entries = others.map(|other| entry(direction, Protocol::Any, Ports::Any, other));
            cloud.put_list(at, &from.uri, &[], &entries).await.unwrap();
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
    assert_eq!(site.left(), [""; 0]);
}

/// After a crash, or after somebody deleted things, opening the cloud makes everything as it was.
#[tokio::test]
async fn it_repairs_what_is_gone_and_removes_what_nobody_knows() {
    require_tools(&[]);
    let site = Site::default();
    let at = at("ns", "lxfix");
    let cloud = site.open("lxfix").await;
    let a = make(&cloud, &at, "a", "west", "10.204.0.0/24").await;
    let b = make(&cloud, &at, "b", "west", "10.204.0.0/24").await;
    for (from, to) in [(&a, &b), (&b, &a)] {
        permit(&cloud, &at, from, to).await;
    }
    assert!(pings(&a, &b));
    let second = LinuxCloud::open("lxfix".parse().unwrap(), site.path().to_owned(), Options::default()).await;
    assert_eq!(second.err().unwrap().kind, CloudErrorKind::Conflict, "two controllers by mistake");
    drop(cloud);
    for namespace in [site.namespace("trn", "lxfix.ns.west"), inside(&a).to_owned()] {
        assert!(Command::new("ip").args(["netns", "delete", &namespace]).status().unwrap().success());
    }
    let orphan = site.namespace("trr", "lxfix.ns.orphan");
    assert!(Command::new("ip").args(["netns", "add", &orphan]).status().unwrap().success());
    let cloud = site.open("lxfix").await;
    assert!(pings(&a, &b) && pings(&b, &a));
    assert_eq!(site.namespaces().len(), 3);
    for name in ["a", "b"] {
        cloud.delete_resource(&at, &segment(name)).await.unwrap();
    }
    cloud.delete_network(&at, &segment("west")).await.unwrap();
    assert_eq!(site.left(), [""; 0]);
}

/// A rule to a public address, or to everywhere, leads out through NAT, and to nothing that is not public.
#[tokio::test]
async fn nat_leads_to_public_addresses_and_to_nothing_else() {
    require_tools(&[]);
    let site = Site::default();
    let internet = Internet::new("lxnat");
    let uplink = Uplink::Namespace(internet.0.clone());
    let cloud = site.open_with("lxnat", Options { uplink }).await;
    let at = at("ns", "lxnat");
    let a = make(&cloud, &at, "a", "west", "10.205.0.0/24").await;
    let b = make(&cloud, &at, "b", "east", "10.205.1.0/24").await;
    let everywhere = entry_to(Direction::Outbound, Protocol::Any, Ports::Any, "0.0.0.0/0");
    for resource in [&a, &b] {
        cloud.put_list(&at, &resource.uri, &[], std::slice::from_ref(&everywhere)).await.unwrap();
    }
    assert!(!pings_address(&a, Internet::ADDRESS), "there is no NAT yet");
    for _ in 0..2 {
        cloud.ensure_nat(&at, &segment("west")).await.unwrap();
    }
    assert!(pings_address(&a, Internet::ADDRESS));
    assert!(!pings_address(&b, Internet::ADDRESS), "the other region has no NAT");
    // An address of the machine that plays the internet, private: the host's own networks are not public.
    let private = ["-n", &internet.0, "address", "add", "192.168.77.1/32", "dev", "lo"];
    assert!(Command::new("ip").args(private).status().unwrap().success());
    assert!(!pings_address(&a, "192.168.77.1"));
    assert!(!pings_address(&a, "169.254.2.1") && !pings_address(&a, "100.64.0.1"), "nor is what is between");
    // Nobody outside can begin.
    let route = ["-n", &internet.0, "route", "add", "10.205.0.0/24", "dev", &site.uplink()];
    assert!(Command::new("ip").args(route).status().unwrap().success());
    let inward = entry_to(Direction::Inbound, Protocol::Any, Ports::Any, "0.0.0.0/0");
    cloud.put_list(&at, &a.uri, &[], std::slice::from_ref(&inward)).await.unwrap();
    let from = ["netns", "exec", &internet.0, "ping", "-c1", "-W1", "-I", Internet::ADDRESS];
    let asked = Command::new("ip").args(from).arg(a.address.to_string()).output().unwrap();
    assert!(!asked.status.success());
    // After a crash it is as it was.
    drop(cloud);
    assert!(
        Command::new("ip")
            .args(["netns", "delete", &site.namespace("tre", "lxnat.ns")])
            .status()
            .unwrap()
            .success()
    );
    let cloud = site.open_with("lxnat", Options { uplink: Uplink::Namespace(internet.0.clone()) }).await;
    assert!(pings_address(&a, Internet::ADDRESS));
    cloud.put_list(&at, &a.uri, &[everywhere], &[]).await.unwrap();
    assert!(!pings_address(&a, Internet::ADDRESS));
    assert_eq!(cloud.delete_network(&at, &segment("west")).await.unwrap_err().kind, CloudErrorKind::Conflict);
    cloud.delete_nat(&at, &segment("west")).await.unwrap();
    for (name, region) in [("a", "west"), ("b", "east")] {
        cloud.delete_resource(&at, &segment(name)).await.unwrap();
        cloud.delete_network(&at, &segment(region)).await.unwrap();
    }
    assert_eq!(site.left(), [""; 0]);
    assert!(
        !lines(&["ip", "-n", &internet.0, "-o", "link"]).iter().any(|link| link.contains(&site.uplink()))
    );
}

/// What somebody changes by hand in the kernel is told, and mended when asked for again.
#[tokio::test]
async fn what_is_changed_by_hand_is_told_and_mended() {
    require_tools(&[]);
    let site = Site::default();
    let cloud = site.open("lxhand").await;
    let at = at("ns", "lxhand");
    let a = make(&cloud, &at, "a", "west", "10.206.0.0/24").await;
    let b = make(&cloud, &at, "b", "west", "10.206.0.0/24").await;
    permit(&cloud, &at, &a, &b).await;
    permit(&cloud, &at, &b, &a).await;
    let before = cloud.permit_list(&at, &a.uri).await.unwrap();
    assert_eq!(before.len(), 2);
    let network = site.namespace("trn", "lxhand.ns.west");
    let nft = |words: &str| {
        let command = format!("ip netns exec {network} nft {words}");
        assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
    };
    // A list that was emptied no longer drops what it does not permit: that is told as an opening.
    nft("flush chain inet trestle out_r0ace0001");
    let told = cloud.permit_list(&at, &a.uri).await.unwrap();
    assert!(told.iter().any(|entry| entry.name.as_str() == "rules-changed-by-hand"), "{told:?}");
    assert!(told.iter().all(|entry| entry.traffic.direction == Direction::Inbound), "{told:?}");
    let strange: Vec<_> = told.iter().filter(|entry| !before.contains(entry)).cloned().collect();
    cloud.put_list(&at, &a.uri, &strange, &[]).await.unwrap();
    assert_eq!(cloud.permit_list(&at, &a.uri).await.unwrap(), before);
    // Somebody opens a door; somebody deletes the table.
    nft("insert rule inet trestle in_r0ace0002 accept");
    assert_eq!(cloud.permit_list(&at, &b.uri).await.unwrap().len(), 3);
    nft("delete table inet trestle");
    assert_eq!(cloud.permit_list(&at, &b.uri).await.unwrap().len(), 1);
    cloud.ensure_network(&at, &segment("west"), "10.206.0.0/24".parse().unwrap()).await.unwrap();
    assert_eq!(cloud.permit_list(&at, &a.uri).await.unwrap(), before);
    assert!(pings(&a, &b));
    for name in ["a", "b"] {
        cloud.delete_resource(&at, &segment(name)).await.unwrap();
    }
    cloud.delete_network(&at, &segment("west")).await.unwrap();
    assert_eq!(site.left(), [""; 0]);
}

/// Two controllers, each with a cloud of the same name, do not see each other.
#[tokio::test]
async fn two_clouds_of_one_name_stay_apart() {
    require_tools(&[]);
    let (one, other) = (Site::default(), Site::default());
    let at = at("ns", "same");
    let first = one.open("same").await;
    let a = make(&first, &at, "a", "west", "10.207.0.0/24").await;
    let second = other.open("same").await;
    let b = make(&second, &at, "a", "west", "10.207.0.0/24").await;
    assert_ne!(a.uri, b.uri);
    second.delete_resource(&at, &segment("a")).await.unwrap();
    second.delete_network(&at, &segment("west")).await.unwrap();
    assert_eq!(other.left(), [""; 0]);
    assert_eq!(one.namespaces().len(), 2);
    first.delete_resource(&at, &segment("a")).await.unwrap();
    first.delete_network(&at, &segment("west")).await.unwrap();
    assert_eq!(one.left(), [""; 0]);
}

/// A namespace that is somebody's is taken in without harm, closed, opened by rules, and given back.
#[tokio::test]
async fn a_namespace_is_attached_and_given_back() {
    require_tools(&[]);
    let site = Site::default();
    let cloud = site.open("lxatt").await;
    let at = at("ns", "lxatt");
    let a = make(&cloud, &at, "a", "attached", "10.208.0.0/24").await;
    let theirs = Internet::new("lxatt");
    let id = format!("netns:{}", theirs.0);
    let before = lines(&["ip", "-n", &theirs.0, "address"]);
    // What cannot be closed is refused, with the reason.
    let wire = ["-n", &theirs.0, "link", "add", "out0", "type", "veth", "peer", "name", "out1"];
    assert!(Command::new("ip").args(wire).status().unwrap().success());
    assert!(
        Command::new("ip").args(["-n", &theirs.0, "link", "set", "out0", "up"]).status().unwrap().success()
    );
    let refused = cloud.inspect_attachment(&at, &id).await.unwrap_err();
    assert_eq!(refused.kind, CloudErrorKind::Conflict);
    assert!(refused.message.contains("out0"), "{refused}");
    assert!(cloud.attach_resource(&at, &segment("old"), &id).await.is_err());
    assert!(Command::new("ip").args(["-n", &theirs.0, "link", "delete", "out0"]).status().unwrap().success());
    for nothing in ["netns:nobody-has-this", "link:nobody0", "nonsense"] {
        assert!(cloud.inspect_attachment(&at, nothing).await.is_err(), "{nothing}");
    }
    assert!(cloud.inspect_attachment(&at, &a.uri).await.is_err(), "one of our own");
    let changes = cloud.inspect_attachment(&at, &id).await.unwrap().changes;
    assert!(changes.iter().any(|change| change.contains("trestle0")), "{changes:?}");
    assert_eq!(lines(&["ip", "-n", &theirs.0, "address"]), before, "to look is not to change");
    let old = cloud.attach_resource(&at, &segment("old"), &id).await.unwrap();
    assert_eq!(cloud.attach_resource(&at, &segment("old"), &id).await.unwrap(), old, "again is the same");
    assert_eq!(old.uri, id);
    assert!(!pings(&a, &old) && !pings(&old, &a), "closed");
    permit(&cloud, &at, &a, &old).await;
    permit(&cloud, &at, &old, &a).await;
    assert!(pings(&a, &old) && pings(&old, &a));
    assert!(cloud.inspect_attachment(&at, &id).await.unwrap_err().message.contains("attached already"));
    drop(cloud);
    let cloud = site.open("lxatt").await;
    assert!(pings(&a, &old), "after a restart too");
    for name in ["old", "a"] {
        cloud.delete_resource(&at, &segment(name)).await.unwrap();
    }
    cloud.delete_network(&at, &segment("attached")).await.unwrap();
    assert_eq!(lines(&["ip", "-n", &theirs.0, "address"]), before, "it is as it was");
    assert_eq!(site.left(), [""; 0]);
}

/// An interface with something behind it, as a virtual machine's, is moved in and moved back.
#[tokio::test]
async fn an_interface_is_attached_and_given_back() {
    require_tools(&[]);
    let site = Site::default();
    let cloud = site.open("lxlink").await;
    let at = at("ns", "lxlink");
    let a = make(&cloud, &at, "a", "attached", "10.209.0.0/24").await;
    let machine = Internet::new("lxlink");
    let name = format!("tap{}", std::process::id() % 1_000_000_000);
    let wire = ["link", "add", &name, "type", "veth", "peer", "name", "eth0", "netns", &machine.0];
    assert!(Command::new("ip").args(wire).status().unwrap().success());
    let id = format!("link:{name}");
    assert!(
        Command::new("ip")
            .args(["address", "add", "192.0.2.77/32", "dev", &name])
            .status()
            .unwrap()
            .success()
    );
    let refused = cloud.inspect_attachment(&at, &id).await.unwrap_err();
    assert!(refused.message.contains("192.0.2.77"), "{refused}");
    assert!(Command::new("ip").args(["address", "flush", "dev", &name]).status().unwrap().success());
    assert_eq!(cloud.inspect_attachment(&at, "link:lo").await.unwrap_err().kind, CloudErrorKind::Conflict);
    let vm = cloud.attach_resource(&at, &segment("vm"), &id).await.unwrap();
    assert!(lines(&["ip", "link", "show", &name]).is_empty(), "it has moved");
    for command in [
        format!("address add {}/32 dev eth0", vm.address),
        "link set eth0 up".to_owned(),
        "route add 169.254.1.1 dev eth0".to_owned(),
        "route add default via 169.254.1.1".to_owned(),
    ] {
        let words = command.split_whitespace();
        assert!(Command::new("ip").args(["-n", &machine.0]).args(words).status().unwrap().success());
    }
    assert!(!pings(&a, &vm), "closed");
    permit(&cloud, &at, &a, &vm).await;
    permit(&cloud, &at, &vm, &a).await;
    assert!(pings(&a, &vm));
    for name in ["vm", "a"] {
        cloud.delete_resource(&at, &segment(name)).await.unwrap();
    }
    cloud.delete_network(&at, &segment("attached")).await.unwrap();
    assert!(!lines(&["ip", "link", "show", &name]).is_empty(), "it is back");
    assert!(Command::new("ip").args(["link", "delete", &name]).status().unwrap().success());
    assert_eq!(site.left(), [""; 0]);
}

/// A command runs inside its resource, again after it was killed, over a restart of the controller, and not after
/// the resource.
#[tokio::test]
async fn a_command_lives_and_dies_with_its_resource() {
    require_tools(&["nc"]);
    let site = Site::default();
    let cloud = site.open("lxcmd").await;
    let at = at("ns", "lxcmd");
    let a = make(&cloud, &at, "a", "west", "10.217.0.0/24").await;
    let description = r#"{"region":"west","command":"while true; do echo served | nc -l -N 80; done"}"#;
    for bad in [r#"{"command":""}"#, r#"{"command":[]}"#, r#"{"command":[""]}"#, r#"{"command":5}"#] {
        assert_eq!(
            cloud.inspect_resource(&at, &"a".parse().unwrap(), bad).await.unwrap_err().kind,
            CloudErrorKind::Invalid,
            "{bad}"
        );
    }
    let spec =
        ResourceSpec { name: segment("b"), region: segment("west"), description: description.to_owned() };
    let b = cloud.create_resource(&at, &spec).await.unwrap();
    permit(&cloud, &at, &a, &b).await;
    permit(&cloud, &at, &b, &a).await;
    let is_served = || {
        let ask = exec(&a, &["nc", "-w1", &b.address.to_string(), "80"]).output().unwrap();
        String::from_utf8_lossy(&ask.stdout) == "served\n"
    };
    let until_served = || {
        let start = std::time::Instant::now();
        while !is_served() {
            assert!(start.elapsed() < std::time::Duration::from_secs(20), "nobody serves");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    };
    until_served();
    let shells = || lines(&["ip", "netns", "pids", inside(&b)]);
    let first = shells();
    for pid in &first {
        let _ = Command::new("kill").args(["-KILL", pid]).status();
    }
    // On this runtime with one thread the supervisor works while this waits.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    until_served();
    let second: Vec<String> = shells();
    assert!(first.iter().all(|pid| !second.contains(pid)), "started again");
    drop(cloud);
    let cloud = site.open("lxcmd").await;
    assert!(second.iter().any(|pid| shells().contains(pid)), "the same after a restart");
    for name in ["b", "a"] {
        cloud.delete_resource(&at, &segment(name)).await.unwrap();
    }
    cloud.delete_network(&at, &segment("west")).await.unwrap();
    assert_eq!(site.left(), [""; 0]);
}

/// IPv6: every resource has a twin of its address, and its list holds for both; IPv6 targets are enforced as they are.
#[tokio::test]
async fn ipv6_twins_are_judged_as_their_addresses_are() {
    require_tools(&[]);
    let site = Site::default();
    let cloud = site.open("lxv6").await;
    let at = at("ns", "lxv6");
    let a = make(&cloud, &at, "a", "west", "10.205.0.0/24").await;
    let b = make(&cloud, &at, "b", "west", "10.205.0.0/24").await;
    let c = make(&cloud, &at, "c", "east", "10.205.1.0/24").await;
    let twin = |resource: &model::ResourceState| match resource.address.net().addr() {
        std::net::IpAddr::V4(address) => cloud_api::twin::twin(address).to_string(),
        std::net::IpAddr::V6(_) => panic!("addresses are of IPv4"),
    };
    assert!(!pings_address(&a, &twin(&b)) && !pings_address(&b, &twin(&a)), "closed at first");
    let out = entry(Direction::Outbound, Protocol::ICMP, Ports::Any, &b);
    let inward = entry(Direction::Inbound, Protocol::ICMP, Ports::Any, &a);
    cloud.put_list(&at, &a.uri, &[], std::slice::from_ref(&out)).await.unwrap();
    assert!(!pings_address(&a, &twin(&b)), "the receiver has not permitted it");
    cloud.put_list(&at, &b.uri, &[], std::slice::from_ref(&inward)).await.unwrap();
    assert!(pings(&a, &b) && pings_address(&a, &twin(&b)), "both families are open");
    assert!(!pings_address(&b, &twin(&a)), "the other direction was not permitted");
    assert_eq!(cloud.permit_list(&at, &a.uri).await.unwrap(), std::slice::from_ref(&out));
    cloud.put_list(&at, &a.uri, &[out], &[]).await.unwrap();
    assert!(!pings_address(&a, &twin(&b)), "the sender has taken it back");
    // A target of IPv6 opens IPv6 and nothing else.
    let six = entry_to(Direction::Outbound, Protocol::ICMP, Ports::Any, &twin(&b));
    cloud.put_list(&at, &a.uri, &[], std::slice::from_ref(&six)).await.unwrap();
    assert!(pings_address(&a, &twin(&b)) && !pings(&a, &b));
    // Nobody can have another's twin.
    let taken = format!("{}/128", twin(&c));
    let run = |words: &[&str]| exec(&a, words).output().unwrap().status.success();
    assert!(run(&["ip", "address", "add", &taken, "dev", "eth0", "nodad"]));
    assert!(!run(&["ping", "-c1", "-W1", "-I", &twin(&c), &twin(&b)]));
    assert!(run(&["ip", "address", "del", &taken, "dev", "eth0"]));
    // Across a peering.
    for (from, to) in [(&a, &c), (&c, &a)] {
        for direction in [Direction::Inbound, Direction::Outbound] {
            let open = entry(direction, Protocol::ICMP, Ports::Any, to);
            cloud.put_list(&at, &from.uri, &[], std::slice::from_ref(&open)).await.unwrap();
        }
    }
    assert!(!pings_address(&c, &twin(&a)), "there is no path yet");
    let network = |text: &str| text.parse::<NetworkName>().unwrap();
    let spec = PeeringSpec {
        name: PeeringName::new(network("ns.lxv6.west"), network("ns.lxv6.east")).unwrap(),
        deployments: Default::default(),
    };
    cloud.ensure_peering(&spec).await.unwrap();
    assert!(pings(&c, &a) && pings_address(&c, &twin(&a)));
    cloud.delete_peering(&spec).await.unwrap();
    assert!(!pings_address(&c, &twin(&a)));
    for name in ["a", "b", "c"] {
        cloud.delete_resource(&at, &segment(name)).await.unwrap();
    }
    for region in ["west", "east"] {
        cloud.delete_network(&at, &segment(region)).await.unwrap();
    }
    assert_eq!(site.left(), [""; 0]);
}
