//! The worker with a part that remembers what it was told.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use wire::trestle::v1::{
    NodeApply, NodeFlush, NodePolicy, NodeStart, ObjectKind, node_apply::Body, node_start::Mode,
};

use super::*;
use crate::held::Key;

#[derive(Clone, Default)]
struct Fake(Arc<Shared>);

#[derive(Default)]
struct Shared {
    calls: Mutex<Vec<String>>,
    fails: AtomicBool,
    drifted: AtomicBool,
}

impl Fake {
    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.0.calls.lock().unwrap())
    }
}

impl Part for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn kinds(&self) -> &'static [ObjectKind] {
        &[ObjectKind::Policy]
    }

    fn apply(&mut self, view: &View<'_>, changed: Changed<'_>) -> Outcome {
        let what = match changed {
            Changed::All => "all".to_owned(),
            Changed::Some { objects, endpoints } => {
                let names: Vec<_> = objects.keys().map(|key| key.name.as_str()).collect();
                format!("{}{}", names.join(","), if endpoints { " endpoints" } else { "" })
            }
        };
        let closed = view.endpoints.iter().filter(|endpoint| endpoint.closed).count();
        let call = format!("{what}: {} objects, {closed}/{} closed", view.held.len(), view.endpoints.len());
        self.0.calls.lock().unwrap().push(call);
        let failure = self.0.fails.load(Relaxed).then(|| "the kernel says no".to_owned());
        Outcome { failure, transactions: 1, ..Outcome::default() }
    }

    fn mend(&mut self, _: &View<'_>) -> Option<Outcome> {
        self.0.drifted.swap(false, Relaxed).then(|| Outcome { transactions: 1, ..Outcome::default() })
    }
}

fn load(dir: &Path, part: &Fake) -> Worker {
    Worker::load("n1", dir, vec![Box::new(part.clone())], Metrics::new()).unwrap()
}

fn say(message: to_node::Message) -> ToNode {
    ToNode { message: Some(message) }
}

fn policy(name: &str) -> ToNode {
    let body = Some(Body::Policy(NodePolicy::default()));
    say(to_node::Message::Apply(NodeApply { kind: 3, name: name.into(), hash: 1, body }))
}

fn start() -> ToNode {
    say(to_node::Message::Start(NodeStart { epoch: 1, mode: Mode::Snapshot.into(), buckets: vec![] }))
}

fn flush(revision: u64) -> ToNode {
    say(to_node::Message::Flush(NodeFlush { revision, synced: false }))
}

fn attachment(interface: &str) -> Attachment {
    Attachment { interface: interface.into(), addresses: vec![] }
}

fn pod(text: &str) -> Pod {
    text.parse().unwrap()
}

#[test]
fn pods_are_closed_until_a_controller_has_spoken_and_stay_open_after() {
    let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
    let mut worker = load(dir.path(), &part);
    worker.begin();
    part.0.drifted.store(true, Relaxed);
    worker.tend(Instant::now());
    assert_eq!(part.calls(), [""; 0], "knowing nothing, it touches nothing");
    assert!(part.0.drifted.swap(false, Relaxed), "not even to mend it");
    assert!(worker.attach(pod("ns/a"), attachment("v1")).unwrap().closed);
    assert_eq!(part.calls(), ["all: 0 objects, 1/1 closed"]);
    let opening = worker.open();
    assert_eq!((opening.token, opening.digest.len()), (None, 0));
    [start(), policy("p"), flush(5)].into_iter().for_each(|message| worker.take(message));
    assert!(worker.state().token.is_none(), "held is not in force");
    worker.settle();
    assert_eq!(part.calls(), ["p endpoints: 1 objects, 0/1 closed"]);
    assert_eq!(worker.state().token, Some(Token { epoch: 1, revision: 5 }));
    assert!(!worker.attach(pod("ns/b"), attachment("v2")).unwrap().closed, "the controller is here");
    worker.lost();
    assert!(worker.attach(pod("ns/c"), attachment("v3")).unwrap().closed, "the controller is gone");
    part.calls();
    // A crash, and a new run before any controller is reached.
    drop(worker);
    let mut worker = load(dir.path(), &part);
    worker.begin();
    assert_eq!(part.calls(), ["all: 1 objects, 1/3 closed"]);
    assert_eq!(worker.open().token, Some(Token { epoch: 1, revision: 5 }));
}

#[test]
fn waiting_for_sources_drops_nothing() {
    let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
    let mut worker = load(dir.path(), &part);
    worker.open();
    [start(), policy("p"), flush(5)].into_iter().for_each(|message| worker.take(message));
    worker.settle();
    worker.open();
    let wait = wire::trestle::v1::NodeWait { sources: vec!["policy".into()] };
    worker.take(say(to_node::Message::Wait(wait)));
    worker.settle();
    let state = worker.state();
    assert_eq!((state.objects, state.synced, state.waiting), (1, false, vec!["policy".to_owned()]));
    worker.take(start());
    worker.take(flush(6));
    worker.settle();
    let state = worker.state();
    assert_eq!((state.objects, state.synced, state.waiting.len()), (0, true, 0));
}

#[test]
fn a_part_that_fails_is_tried_again_whole_and_reported() {
    let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
    let mut worker = load(dir.path(), &part);
    worker.open();
    part.0.fails.store(true, Relaxed);
    worker.metrics.note_received();
    [start(), policy("p"), flush(5)].into_iter().for_each(|message| worker.take(message));
    worker.settle();
    assert_eq!(worker.state().report().errors[0].message, "the kernel says no");
    assert!(worker.metrics.unapplied().is_some(), "it came, and is not in force");
    worker.take(policy("q"));
    worker.take(flush(6));
    worker.settle();
    part.0.fails.store(false, Relaxed);
    worker.tend(Instant::now() + Duration::from_secs(60));
    assert_eq!(
        part.calls(),
        ["all: 1 objects, 0/0 closed", "all: 2 objects, 0/0 closed", "all: 2 objects, 0/0 closed"]
    );
    assert!(worker.state().is_in_force() && worker.metrics.unapplied().is_none());
}

#[test]
fn kinds_that_no_part_names_are_reported() {
    let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
    let mut worker = load(dir.path(), &part);
    worker.open();
    let future = NodeApply { kind: 99, name: "x".into(), hash: 3, body: None };
    [start(), say(to_node::Message::Apply(future)), ToNode { message: None }, flush(1)]
        .into_iter()
        .for_each(|message| worker.take(message));
    worker.settle();
    let report = worker.state().report();
    assert_eq!((report.errors.len(), report.errors[0].kind, report.skipped), (1, 99, 1));
}

#[test]
fn after_nonsense_the_next_stream_compares_all() {
    let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
    let mut worker = load(dir.path(), &part);
    worker.open();
    [start(), policy("p"), flush(5)].into_iter().for_each(|message| worker.take(message));
    worker.take(flush(4));
    worker.take(policy("ignored"));
    worker.take(flush(9));
    assert!(worker.state().nonsense.is_some());
    let opening = worker.open();
    assert_eq!((opening.token, opening.digest.len()), (None, 128));
    assert_eq!(worker.held().objects().map(|(key, _)| key.name.clone()).collect::<Vec<_>>(), ["p"]);
    assert!(worker.state().nonsense.is_none());
}

#[test]
fn steps_that_come_fast_become_one_and_drift_is_mended() {
    let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
    let mut worker = load(dir.path(), &part);
    worker.open();
    [start(), flush(0)].into_iter().for_each(|message| worker.take(message));
    worker.settle();
    [policy("p"), flush(1), policy("q"), flush(2)].into_iter().for_each(|message| worker.take(message));
    worker.settle();
    worker.settle();
    assert_eq!(part.calls(), ["all: 0 objects, 0/0 closed", "p,q: 2 objects, 0/0 closed"]);
    part.0.drifted.store(true, Relaxed);
    worker.tend(Instant::now());
    assert_eq!(worker.metrics.mended.get(), 1);
    let keys: BTreeSet<_> = worker.held().objects().map(|(key, _)| key.clone()).collect();
    assert!(keys.contains(&Key::new(ObjectKind::Policy, "p")));
}

#[test]
fn two_agents_do_not_share_a_directory() {
    let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
    let first = load(dir.path(), &part);
    let second = Worker::load("n1", dir.path(), vec![], Metrics::new());
    assert!(matches!(second, Err(LoadError::Taken { .. })));
    drop(first);
    load(dir.path(), &part);
}

/// A registry that cannot be written: the Pod is protected, and whoever attached it is told.
#[test]
fn an_attachment_that_cannot_be_kept_is_an_error_and_enforced() {
    let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
    let mut worker = load(dir.path(), &part);
    std::fs::create_dir(dir.path().join("endpoints.json.new")).unwrap();
    let refused = worker.attach(pod("ns/a"), attachment("v1"));
    assert!(matches!(refused, Err(AttachError::Keep { .. })));
    assert_eq!(part.calls(), ["all: 0 objects, 1/1 closed"]);
}
