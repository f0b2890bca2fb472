//! How many calls to plugins an operation takes, beside those of the original, and the first link on clouds that answer
//! at once.
//!
//! The original's counts are from its source, for N = 2 clouds, one rule with one target:
//!
//! ```text
//!   every AddPermitListRules asks all plugins for their used address spaces                        N + 1
//!   a target in another cloud connects the clouds anew: BGP addresses and AS numbers of all        2 N
//!     plugins, two gateways, two sets of connections                                               4
//!   a deletion reads the list twice                                                                3
//!   a change of a tag, for each subscriber: read the list, add all rules again                     N + 2
//! ```

use std::{sync::Arc, time::Instant};

use benches::report;
use cloud_api::FakeCloud;
use model::{Direction, PermitRule, Ports, Protocol, ResourceName, Traffic};
use orchestrator::execute::{JobOrPlan, Options, Orchestrator};
use tags::Request;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{Book, Everywhere, name};

const CLOUDS: usize = 2;
/// Lists that a change of one tag changes.
const SUBSCRIBERS: usize = 500;

struct Lab {
    orchestrator: Arc<Orchestrator>,
    clouds: Vec<Arc<FakeCloud>>,
    book: Arc<Book>,
    stop: CancellationToken,
    running: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

fn rule(direction: Direction, peer: &str) -> PermitRule {
    let traffic = Traffic::new(direction, Protocol::ICMP, Ports::Any, Ports::Any).unwrap();
    PermitRule::new(None, traffic, [peer.parse().unwrap()].into()).unwrap()
}

impl Lab {
    async fn new() -> Self {
        let dir = tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")).unwrap();
        let store = store::embedded::open(dir.path()).unwrap();
        let book = Arc::new(Book { graph: Default::default(), revision: watch::Sender::new(0) });
        let options = Options::default();
        let loaded = Orchestrator::load(store, Arc::clone(&book) as _, Arc::new(Everywhere), options).await;
        let orchestrator = loaded.unwrap();
        let clouds: Vec<_> =
            ["azure", "gcp"].map(|name| Arc::new(FakeCloud::new(name.parse().unwrap()))).into();
        for cloud in &clouds {
            orchestrator.add_cloud(cloud.name().clone(), Arc::clone(cloud) as _).await.unwrap();
        }
        let stop = CancellationToken::new();
        let running = tokio::spawn(Arc::clone(&orchestrator).run(stop.clone()));
        Self { orchestrator, clouds, book, stop, running, _dir: dir }
    }

    async fn finish(&self, outcome: JobOrPlan) {
        self.orchestrator.wait(&outcome.job().unwrap().id).await.unwrap();
    }

    async fn create(&self, name: ResourceName) {
        let made = self.orchestrator.create_resource(name, "r".to_owned(), false, false).await.unwrap();
        self.finish(made).await;
    }

    async fn permit(&self, on: ResourceName, rule: PermitRule) {
        let asked = self.orchestrator.put_rules(on, vec![rule], false).await.unwrap();
        self.finish(asked).await;
    }

    async fn settle(&self) {
        while !self.orchestrator.plan().unwrap().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    /// The calls made since the last time, reads among them.
    fn take(&self) -> usize {
        self.clouds.iter().map(|cloud| cloud.take_calls().len()).sum()
    }

    /// Reports the calls since the last time, beside the original's.
    fn report(&self, operation: &str, original: usize) {
        let bench = format!("orchestrator.{operation}");
        report(&bench, "calls", self.take() as f64, "calls");
        report(&format!("{bench}.peer"), "calls", original as f64, "calls");
    }
}

pub async fn per_operation() {
    let lab = Lab::new().await;
    lab.create(name(0)).await;
    // The network and the resource. The original's one call makes both, after a question to all plugins.
    lab.report("first_resource", CLOUDS + 1);
    lab.create(name(2)).await;
    lab.report("resource", 1);
    lab.create(name(1)).await;
    lab.take();

    lab.permit(name(0), rule(Direction::Outbound, &name(2).to_string())).await;
    lab.report("rule", CLOUDS + 1);

    // What the orchestrator itself takes, with the store's writes. The clouds' own time comes on top, both ends at once.
    let start = Instant::now();
    let to_other = rule(Direction::Outbound, &name(1).to_string());
    lab.permit(name(0), to_other.clone()).await;
    report("orchestrator.link_overhead", "seconds", start.elapsed().as_secs_f64(), "s");
    lab.report("link", CLOUDS + 1 + 2 * CLOUDS + 4);
    lab.permit(name(0), rule(Direction::Inbound, &name(1).to_string())).await;
    lab.report("second_rule", CLOUDS + 1 + 2 * CLOUDS + 4);
    let deleted = lab.orchestrator.delete_rules(name(0), vec![to_other.name], false).await.unwrap();
    lab.finish(deleted).await;
    lab.report("rule_delete", 3);
    fan_out(&lab).await;
    lab.stop.cancel();
    lab.running.await.unwrap();
}

/// A member joins a tag that many rules name.
async fn fan_out(lab: &Lab) {
    let member =
        |ip: &str| Request::SetGroup { tag: "team".parse().unwrap(), members: [ip.parse().unwrap()].into() };
    lab.book.ask(&member("1.1.1.1")).unwrap();
    let names: Vec<ResourceName> = (0..SUBSCRIBERS).map(|which| name(10 + 2 * which)).collect();
    futures::future::join_all(names.iter().map(|name| lab.create(name.clone()))).await;
    let rules = names.iter().map(|name| lab.permit(name.clone(), rule(Direction::Outbound, "team")));
    futures::future::join_all(rules).await;
    lab.settle().await;
    lab.take();
    let start = Instant::now();
    lab.book.ask(&member("2.2.2.2")).unwrap();
    lab.settle().await;
    report("orchestrator.tag_change", "seconds", start.elapsed().as_secs_f64(), "s");
    report("orchestrator.tag_change", "calls_needed", SUBSCRIBERS as f64, "calls");
    lab.report("tag_change", SUBSCRIBERS * (CLOUDS + 2));
}
