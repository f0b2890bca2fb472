//! The first link between two clouds of this machine, with real daemons and packets: how long it takes, and where the
//! time goes. Needs root, strongSwan and BIRD.

use std::{
    collections::BTreeMap,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use benches::report;
use cloud_linux::{LinuxCloud, Options as CloudOptions};
use model::{Direction, PermitRule, Ports, Protocol, ResourceName, Traffic};
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
