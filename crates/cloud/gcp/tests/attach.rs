//! Existing instances in Google Cloud: closed whatever their owner's firewalls say, and let go as they were.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::net::IpAddr;

use cloud_api::{At, CloudErrorKind, prelude::*};
use cloud_gcp::{GcpCloud, GcpOptions};
use cloud_sim::{Machine, Sim};
use http::Method;
use model::{Direction, EntryName, Packet, PermitEntry, Ports, Protocol, Segment, Traffic};
use serde_json::{Value, json};

const PING: Packet = Packet { protocol: 1, src_port: 0, dst_port: 0 };

fn plugin(sim: &Sim) -> GcpCloud {
    GcpCloud::with(&GcpOptions::default(), sim.world()).unwrap()
}

fn at() -> At {
    At { site: "ns.gcp".parse().unwrap(), deployment: "p1".to_owned() }
}

fn name() -> Segment {
    "old".parse().unwrap()
}

async fn attach(cloud: &GcpCloud, machine: &Machine) -> String {
    let found = cloud.inspect_attachment(&at(), &machine.id).await.unwrap();
    cloud.adopt_network(&at(), &found.region, machine.space).await.unwrap();
    cloud.attach_resource(&at(), &name(), &machine.id).await.unwrap().uri
}

async fn detach(cloud: &GcpCloud, region: &Segment) {
    cloud.delete_resource(&at(), &name()).await.unwrap();
    cloud.release_network(&at(), region).await.unwrap();
}

fn tags(sim: &Sim, machine: &Machine) -> Value {
    sim.ask_google(Method::GET, &machine.id, Value::Null)["tags"].clone()
}

fn set_tags(sim: &Sim, machine: &Machine, items: &[&str]) {
    let fingerprint = tags(sim, machine)["fingerprint"].clone();
    let body = json!({"items": items, "fingerprint": fingerprint});
    sim.ask_google(Method::POST, &format!("{}/setTags", machine.id), body);
}

/// The owner's firewalls permit everything, the strongest with priority 1; the attached instance is closed all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_its_owner_permits_is_closed_until_a_rule_permits_it() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let machine = sim.put_machine("gcp");
    let other = sim.put_neighbour("gcp", &machine);
    let region = cloud.inspect_attachment(&at(), &machine.id).await.unwrap().region;
    let before = sim.objects();
    let (a, b) = (IpAddr::V4(machine.address), IpAddr::V4(other.address));
    let ways = || [sim.reaches(a, b, &PING), sim.reaches(b, a, &PING)];
    assert_eq!(ways(), [true, true], "as its owner has it");
    let uri = attach(&cloud, &machine).await;
    assert_eq!(ways(), [false, false], "closed");
    let entry = |direction: Direction| {
        let traffic = Traffic::new(direction, Protocol::ICMP, Ports::Any, Ports::Any).unwrap();
        let targets = [other.address.to_string().parse().unwrap()].into();
        let name = EntryName::reported(direction.to_string());
        PermitEntry::new(name, traffic, targets, Default::default()).unwrap()
    };
    cloud.put_list(&at(), &uri, &[], &[entry(Direction::Inbound)]).await.unwrap();
    assert_eq!(ways(), [false, true], "in");
    cloud.put_list(&at(), &uri, &[], &[entry(Direction::Outbound)]).await.unwrap();
    assert_eq!(ways(), [true, true], "and out");
    cloud.put_list(&at(), &uri, &[entry(Direction::Inbound)], &[]).await.unwrap();
    assert_eq!(ways(), [true, false]);
    let neighbour = sim.ask_google(Method::GET, &other.id, Value::Null);
    assert_eq!(before[&other.id], neighbour, "the neighbour is left alone");
    detach(&cloud, &region).await;
    assert_eq!(ways(), [true, true]);
    assert_eq!(sim.objects(), before);
    assert_eq!(sim.defects(), Vec::<String>::new());
}

/// Somebody takes the tag away, or adds one: the first is seen and mended, the second stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tags_of_others_stay_and_ours_comes_back() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let machine = sim.put_machine("gcp");
    attach(&cloud, &machine).await;
    let ours = tags(&sim, &machine)["items"][2].as_str().unwrap().to_owned();
    set_tags(&sim, &machine, &["web", "new"]);
    assert_eq!(cloud.list(&at()).await.unwrap().resources, [], "open, so not as it should be");
    attach_again(&cloud, &machine).await;
    assert_eq!(tags(&sim, &machine)["items"], json!(["web", "new", ours]));
    sim.ask_google(Method::DELETE, &format!("projects/p1/global/firewalls/{ours}-out"), Value::Null);
    assert_eq!(cloud.list(&at()).await.unwrap().resources, [], "open to one side");
    attach_again(&cloud, &machine).await;
    let region = cloud.list(&at()).await.unwrap().resources[0].1.region.clone();
    detach(&cloud, &region).await;
    assert_eq!(tags(&sim, &machine)["items"], json!(["web", "new"]));
}

async fn attach_again(cloud: &GcpCloud, machine: &Machine) {
    cloud.attach_resource(&at(), &name(), &machine.id).await.unwrap();
    assert_eq!(cloud.list(&at()).await.unwrap().resources.len(), 1);
}

/// An instance that is gone is let go too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_its_owner_deleted_is_let_go() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let machine = sim.put_machine("gcp");
    let region = cloud.inspect_attachment(&at(), &machine.id).await.unwrap().region;
    let mut before = sim.objects();
    attach(&cloud, &machine).await;
    sim.ask_google(Method::DELETE, &machine.id, Value::Null);
    detach(&cloud, &region).await;
    before.remove(&machine.id);
    assert_eq!(sim.objects(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_closed_is_refused_with_the_reason() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let machine = sim.put_machine("gcp");
    let refusal = async |part: &str| {
        let err = cloud.inspect_attachment(&at(), &machine.id).await.unwrap_err();
        assert_eq!(err.kind, CloudErrorKind::Conflict, "{err}");
        assert!(err.message.contains(part), "{err}");
    };
    let first = json!({"name": "first", "network": "projects/p1/global/networks/old", "priority": 0, "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}]});
    sim.ask_google(Method::POST, "projects/p1/global/firewalls", first);
    refusal("the firewall first with priority 0").await;
    // For others than this instance it is none of our business.
    let others = json!({"targetTags": ["elsewhere"]});
    sim.ask_google(Method::PATCH, "projects/p1/global/firewalls/first", others);
    cloud.inspect_attachment(&at(), &machine.id).await.unwrap();
    let rule = json!({"action": "allow", "direction": "INGRESS", "priority": 1});
    sim.set_google_policies(vec![
        json!({"type": "HIERARCHY", "name": "1234", "shortName": "org", "rules": [rule]}),
    ]);
    refusal("the firewall policy org").await;
    sim.set_google_policies(Vec::new());
    let many: Vec<String> = (0..64).map(|number| format!("tag-{number}")).collect();
    set_tags(&sim, &machine, &many.iter().map(String::as_str).collect::<Vec<_>>());
    refusal("64 network tags").await;
    set_tags(&sim, &machine, &["web"]);
    attach(&cloud, &machine).await;
    // Opened afterwards, it is not as it should be any more, and attaching again says why.
    sim.ask_google(Method::PATCH, "projects/p1/global/firewalls/first", json!({"targetTags": ["web"]}));
    assert_eq!(cloud.list(&at()).await.unwrap().resources, []);
    let err = cloud.attach_resource(&at(), &name(), &machine.id).await.unwrap_err();
    assert!(err.message.contains("the firewall first"), "{err}");
}

/// Everything that attaching can lead to, on a site that has nothing else.
async fn build(cloud: &GcpCloud, machine: &Machine, region: &Segment) {
    cloud.adopt_network(&at(), region, machine.space).await.unwrap();
    let uri = cloud.attach_resource(&at(), &name(), &machine.id).await.unwrap().uri;
    let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(443)).unwrap();
    let targets = ["10.200.0.4".parse().unwrap()].into();
    let entry = PermitEntry::new(EntryName::reported("https"), traffic, targets, Default::default()).unwrap();
    cloud.put_list(&at(), &uri, &[], &[entry]).await.unwrap();
    cloud.create_gateway(&at(), 64_514).await.unwrap();
}

async fn tear(cloud: &GcpCloud, region: &Segment) {
    cloud.delete_resource(&at(), &name()).await.unwrap();
    cloud.delete_gateway(&at()).await.unwrap();
    cloud.release_network(&at(), region).await.unwrap();
}

/// A plugin is killed at a request, carried out or not; another one finishes, and in the end all is as it was. Every third
/// request is died at, in one of the two ways in turn; every one in both if `TRESTLE_STORIES` is set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_was_cut_off_is_finished_by_another() {
    let mut places = None;
    let all = std::env::var_os("TRESTLE_STORIES").is_some();
    for (tears, way) in [(false, false), (false, true), (true, false), (true, true)] {
        if way && !all {
            continue;
        }
        for number in (0..).step_by(if all { 1 } else { 3 }) {
            let carried_out = way != (number % 2 == 1);
            let sim = Sim::start().await.unwrap();
            let machine = sim.put_machine("gcp");
            let first = plugin(&sim);
            let region = first.inspect_attachment(&at(), &machine.id).await.unwrap().region;
            let before = sim.objects();
            if tears {
                build(&first, &machine, &region).await;
            }
            sim.take_calls();
            let silence = sim.fall_silent(number, carried_out);
            let ended = tokio::select! {
                () = silence => false,
                () = async { if tears { tear(&first, &region).await } else { build(&first, &machine, &region).await } } => true,
            };
            sim.speak_again();
            drop(first);
            let second = plugin(&sim);
            if !tears {
                build(&second, &machine, &region).await;
                let listed = second.list(&at()).await.unwrap();
                assert_eq!((listed.networks.len(), listed.resources.len()), (1, 1), "{number} {carried_out}");
            }
            tear(&second, &region).await;
            assert_eq!(sim.objects(), before, "{tears} {number} {carried_out}");
            if ended {
                places = places.max(Some(number));
                break;
            }
        }
    }
    assert!(places.is_some_and(|number| number > 20), "there were requests to be killed at: {places:?}");
}
