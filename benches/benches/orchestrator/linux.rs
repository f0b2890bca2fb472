//! The first link between two clouds of this machine, with real daemons and packets: how long it takes, and where the
//! time goes. Needs root, strongSwan and BIRD.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use benches::report;
use cloud_api::{At, ResourceSpec, prelude::*};
use cloud_linux::{LinuxCloud, Options as CloudOptions};
use model::{Direction, EntryName, PermitEntry, PermitRule, Ports, Protocol, ResourceName, Segment, Traffic};
use orchestrator::execute::{JobState, Options, Orchestrator};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::field::{Field, Visit};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::{Book, Everywhere};

const ROUNDS: usize = 3;

/// Steps and how long they took, as the orchestrator tells its log.
#[derive(Clone, Default)]
struct Steps(Arc<Mutex<BTreeMap<String, f64>>>);

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl<S: tracing::Subscriber> Layer<S> for Steps {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let number = |name: &str| fields.0.get(name).and_then(|text| text.parse::<f64>().ok());
        let mut steps = self.0.lock();
        let mut longest = |name: String, seconds: f64| {
            let there = steps.entry(name).or_default();
            *there = there.max(seconds);
        };
        if let (Some(action), Some(seconds)) = (fields.0.get("action"), number("seconds")) {
            let words: Vec<&str> = action.split_whitespace().collect();
            longest(if words[0] == "create" { words[1].to_owned() } else { words[0].to_owned() }, seconds);
        }
        for part in ["connected", "up"] {
            if let Some(seconds) = number(part) {
                longest(format!("link.{part}"), seconds);
            }
        }
    }
}

/// The median of some rounds, each from nothing to nothing.
pub async fn first_link() {
    assert!(rustix::process::geteuid().is_root(), "two Linux clouds need root: run this bench as root");
    let steps = Steps::default();
    let filter =
        tracing_subscriber::filter::Targets::new().with_target("orchestrator", tracing::Level::DEBUG);
    tracing_subscriber::registry().with(steps.clone().with_filter(filter)).init();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        steps.0.lock().clear();
        let (job, ping) = round().await;
        let told = std::mem::take(&mut *steps.0.lock());
        rounds.push((job, ping, told));
    }
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (job, ping, told) = &rounds[ROUNDS / 2];
    // From the rule to the end of its job, after which packets pass; and to the first answer.
    report("orchestrator.link", "seconds", *job, "s");
    report("orchestrator.link", "first_ping_seconds", *ping, "s");
    // The longest of each kind of step; both ends run at the same time. gateway → link is the critical path, and
    // link is `connected` (daemons started and told) and then `up` (IKE, BGP).
    for step in ["gateway", "link", "link.connected", "link.up", "open"] {
        report(
            &format!("orchestrator.link.{step}"),
            "seconds",
            told.get(step).copied().unwrap_or_default(),
            "s",
        );
    }
}

/// What `trestle check` asks of a resource with 10,000 entries: which of them the kernel enforces.
pub async fn check() {
    assert!(rustix::process::geteuid().is_root(), "a Linux cloud needs root: run this bench as root");
    let dir = tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")).unwrap();
    let cloud = LinuxCloud::open("three".parse().unwrap(), dir.path().to_owned(), CloudOptions::default());
    let cloud = cloud.await.unwrap();
    let at = At { site: "ns.three".parse().unwrap(), deployment: String::new() };
    let (west, vm): (Segment, Segment) = ("west".parse().unwrap(), "vm".parse().unwrap());
    cloud.ensure_network(&at, &west, "10.214.0.0/24".parse().unwrap()).await.unwrap();
    let description = r#"{"region":"west"}"#.to_owned();
    let spec = ResourceSpec { name: vm.clone(), region: west.clone(), description };
    let resource = cloud.create_resource(&at, &spec).await.unwrap();
    let entry = |number: u32| {
        let ports = Ports::one(u16::try_from(1 + number % 60_000).unwrap());
        let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, ports).unwrap();
        let target = Ipv4Addr::from(0x0a00_0000 + number).to_string().parse().unwrap();
        let name = EntryName::reported(format!("rule-{number}"));
        PermitEntry::new(name, traffic, [target].into(), Default::default()).unwrap()
    };
    let entries: Vec<PermitEntry> = (0..10_000).map(entry).collect();
    cloud.put_list(&at, &resource.uri, &[], &entries).await.unwrap();
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for round in 0..5 {
        // Somebody commits something, so that what was read before counts for nothing.
        let namespace = "$(basename /run/netns/trn.*.three.ns.west)";
        let commit = format!("ip netns exec {namespace} nft add table ip bench{round}");
        assert!(Command::new("sh").args(["-c", &commit]).status().unwrap().success(), "{commit}");
        for times in [&mut first, &mut again] {
            let start = Instant::now();
            assert_eq!(cloud.permit_list(&at, &resource.uri).await.unwrap().len(), entries.len());
            times.push(start.elapsed().as_secs_f64());
        }
    }
    for (name, times) in [("seconds", &mut first), ("again_seconds", &mut again)] {
        times.sort_by(f64::total_cmp);
        report("orchestrator.check", name, times[2], "s");
    }
    cloud.delete_resource(&at, &vm).await.unwrap();
    cloud.delete_network(&at, &west).await.unwrap();
}

async fn round() -> (f64, f64) {
    let dir = tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")).unwrap();
    let store = store::embedded::open(dir.path()).unwrap();
    let book = Arc::new(Book { graph: Default::default(), revision: watch::Sender::new(0) });
    let orchestrator =
        Orchestrator::load(store, book, Arc::new(Everywhere), Options::default()).await.unwrap();
    for name in ["one", "two"] {
        let cloud =
            LinuxCloud::open(name.parse().unwrap(), dir.path().join("linux"), CloudOptions::default());
        orchestrator.add_cloud(name.parse().unwrap(), Arc::new(cloud.await.unwrap())).await.unwrap();
    }
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&orchestrator).run(stop.clone()));
    let names: [ResourceName; 2] = ["ns.one.a", "ns.two.b"].map(|name| name.parse().unwrap());
    for name in &names {
        let made = orchestrator.create_resource(name.clone(), "{}".to_owned(), false, false).await.unwrap();
        finish(&orchestrator, &made.job().unwrap().id).await;
    }
    let start = Instant::now();
    let rules = |peer: &ResourceName| {
        [Direction::Inbound, Direction::Outbound].map(|direction| {
            let traffic = Traffic::new(direction, Protocol::ICMP, Ports::Any, Ports::Any).unwrap();
            PermitRule::new(None, traffic, [peer.to_string().parse().unwrap()].into()).unwrap()
        })
    };
    let jobs = [
        orchestrator.put_rules(names[0].clone(), rules(&names[1]).to_vec(), false).await.unwrap(),
        orchestrator.put_rules(names[1].clone(), rules(&names[0]).to_vec(), false).await.unwrap(),
    ];
    for job in jobs {
        finish(&orchestrator, &job.job().unwrap().id).await;
    }
    let job = start.elapsed().as_secs_f64();
    let (from, to) = (orchestrator.resource(&names[0]).unwrap(), orchestrator.resource(&names[1]).unwrap());
    let namespace = from.uri.unwrap().trim_start_matches("netns:").to_owned();
    let ping = ["netns", "exec", &namespace, "ping", "-c1", "-W1", to.ip.as_deref().unwrap()];
    while !Command::new("ip").args(ping).output().unwrap().status.success() {
        assert!(start.elapsed() < Duration::from_secs(60), "packets pass");
    }
    let ping = start.elapsed().as_secs_f64();
    for name in &names {
        let gone = orchestrator.delete_resource(name.clone(), false).await.unwrap();
        finish(&orchestrator, &gone.job().unwrap().id).await;
    }
    while !orchestrator.plan().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.cancel();
    running.await.unwrap();
    (job, ping)
}

async fn finish(orchestrator: &Orchestrator, id: &str) {
    let job = orchestrator.wait(id).await.unwrap();
    assert_eq!(job.state, JobState::Done, "{}", job.message);
}
