//! The worker with a part that remembers what it was told.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use wire::trestle::v1::{
    NodeApply, NodeFacts, NodeFlush, NodePod, NodePolicy, NodeStart, ObjectKind, node_apply::Body,
    node_start::Mode,
};

use super::*;
use crate::{
    held::Key,
    part::{Holding, Link},
};

#[derive(Clone, Default)]
struct Fake(Arc<Shared>);

#[derive(Default)]
struct Shared {
    calls: Mutex<Vec<String>>,
    fails: AtomicBool,
    drifted: AtomicBool,
    left: Mutex<Option<Unnamed>>,
    links: Mutex<Vec<Link>>,
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
        &[ObjectKind::Policy, ObjectKind::NodeFacts]
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

    fn hold(&mut self, view: &View<'_>) -> Holding {
        let closed = view.endpoints.iter().filter(|endpoint| endpoint.closed).count();
        let unnamed: Vec<_> = view.unnamed.keys().map(String::as_str).collect();
        let call = format!("hold: {closed}/{} closed {}", view.endpoints.len(), unnamed.join(","));
        let mut calls = self.0.calls.lock().unwrap();
        if calls.last() != Some(&call) {
            calls.push(call);
        }
        Holding { outcome: Outcome::default(), left: self.0.left.lock().unwrap().clone() }
    }

    fn survey(&mut self, _: &Endpoints) -> Option<Vec<Link>> {
        Some(self.0.links.lock().unwrap().clone())
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
    say(to_node::Message::Start(NodeStart {
        epoch: 1,
        mode: Mode::Snapshot.into(),
        buckets: vec![],
        tells_pods: true,
    }))
}

fn flush(revision: u64) -> ToNode {
    say(to_node::Message::Flush(NodeFlush { revision, synced: false }))
}

fn attachment(interface: &str) -> Attachment {
    Attachment { interface: interface.into(), ..Attachment::default() }
}

/// The controller covers these Pods, `NAMESPACE/NAME`, with the address 10.0.0.N each.
fn covers(pods: &[(&str, u8)]) -> ToNode {
    let pod = |(text, last): &(&str, u8)| {
        let Pod { namespace, name } = pod(text);
        NodePod { namespace, name, uid: String::new(), addresses: vec![vec![10, 0, 0, *last]] }
    };
    let facts = NodeFacts { pods: pods.iter().map(pod).collect(), ..NodeFacts::default() };
    say(to_node::Message::Apply(NodeApply {
        kind: 4,
        name: "n1".into(),
        hash: 1,
        body: Some(Body::Facts(facts)),
    }))
}

fn link(name: &str, last: u8) -> Link {
    Link { name: name.into(), addresses: [[10, 0, 0, last].into()].into(), is_a_pods: true, guarded: false }
}

fn pod(text: &str) -> Pod {
    text.parse().unwrap()
}

#[test]
fn pods_are_closed_until_a_controller_covers_them() {
    let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
    let mut worker = load(dir.path(), &part);
    worker.begin();
    part.0.drifted.store(true, Relaxed);
    worker.tend(Instant::now());
    assert_eq!(part.calls(), ["hold: 0/0 closed "], "knowing nothing, it holds");
    assert!(part.0.drifted.swap(false, Relaxed), "and mends nothing");
    assert!(worker.attach(pod("ns/a"), attachment("v1")).unwrap().closed);
    assert_eq!(part.calls(), ["hold: 1/1 closed "]);
    let opening = worker.open();
    assert_eq!((opening.token, opening.digest.len()), (None, 0));
    [start(), policy("p"), flush(5)].into_iter().for_each(|message| worker.take(message));
    assert!(worker.state().token.is_none(), "held is not in force");
    worker.settle();
    assert_eq!(
        part.calls(),
        ["all: 1 objects, 1/1 closed"],
        "a controller that does not know of it opens nothing"
    );
    assert_eq!(worker.state().token, Some(Token { epoch: 1, revision: 5 }));
    [covers(&[("ns/a", 1), ("ns/b", 2), ("ns/c", 3)]), flush(6)]
        .into_iter()
        .for_each(|message| worker.take(message));
    worker.settle();
    assert_eq!(part.calls(), ["n1 endpoints: 2 objects, 0/1 closed"]);
    assert!(
        !worker.attach(pod("ns/b"), attachment("v2")).unwrap().closed,
        "the controller covers it already"
    );
    assert!(worker.attach(pod("ns/d"), attachment("v4")).unwrap().closed);
    assert!(worker.detach(&pod("ns/d"), None).unwrap());
    worker.lost();
    assert!(worker.attach(pod("ns/c"), attachment("v3")).unwrap().closed, "the controller is gone");
    part.calls();
    // A crash, and a new run before any controller is reached.
    drop(worker);
    let mut worker = load(dir.path(), &part);
    worker.begin();
    assert_eq!(part.calls(), ["all: 2 objects, 1/3 closed"]);
    assert_eq!(worker.open().token, Some(Token { epoch: 1, revision: 5 + 1 }));
    // It forgets a Pod: what applied to that is gone, so it is closed.
    [start(), covers(&[("ns/a", 1)]), flush(7)].into_iter().for_each(|message| worker.take(message));
    worker.settle();
    assert_eq!(part.calls(), ["p,n1 endpoints: 1 objects, 2/3 closed"]);
}

/// Whatever becomes of the files: what is not known for certain is not made true, and no Pod is opened by it.
#[test]
fn a_lost_state_or_registry_holds_until_a_controller_is_heard() {
    let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
    let mut worker = load(dir.path(), &part);
    worker.open();
    [start(), covers(&[("ns/a", 1)]), policy("p"), flush(5)]
        .into_iter()
        .for_each(|message| worker.take(message));
    worker.settle();
    worker
        .attach(pod("ns/a"), Attachment { addresses: vec![[10, 0, 0, 1].into()], ..attachment("v1") })
        .unwrap();
    worker.finish();
    let files = ["state", "endpoints.json"].map(|name| dir.path().join(name));
    let whole = files.clone().map(|path| std::fs::read(path).unwrap());
    *part.0.links.lock().unwrap() = vec![link("v1", 1)];
    for (path, bytes) in files.iter().zip(&whole) {
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 4;
        let faults: [(&str, Option<&[u8]>); 5] = [
            ("flipped", Some(&flipped)),
            ("cut", Some(&bytes[..bytes.len() - 3])),
            ("emptied", Some(&[])),
            ("of another version", Some(b"trestle node state 3 9.9.9\n")),
            ("deleted", None),
        ];
        for (fault, content) in faults {
            let name = format!("{} {fault}", path.file_name().unwrap().display());
            for (path, bytes) in files.iter().zip(&whole) {
                std::fs::write(path, bytes).unwrap();
            }
            match content {
                Some(content) => std::fs::write(path, content).unwrap(),
                None => std::fs::remove_file(path).unwrap(),
            }
            part.calls();
            *part.0.left.lock().unwrap() = Some([("v1".to_owned(), [[10, 0, 0, 1].into()].into())].into());
            let mut worker = load(dir.path(), &part);
            worker.begin();
            let calls = part.calls();
            assert!(calls.iter().all(|call| call.starts_with("hold: ")), "{name}: {calls:?}");
            let state = worker.state();
            assert!(!state.lost.is_empty() && state.token.is_none(), "{name}: {state:?}");
            // Heard: the registry is whole, or the link is found again by its address.
            worker.open();
            [start(), covers(&[("ns/a", 1)]), policy("p"), flush(6)]
                .into_iter()
                .for_each(|message| worker.take(message));
            worker.settle();
            assert_eq!(part.calls(), ["all: 2 objects, 0/1 closed"], "{name}");
            assert!(worker.state().lost.is_empty(), "{name}");
        }
    }
}

/// The directory of a host that has joined is gone with all that was known: nobody knows that it was not guarded.
#[test]
fn a_host_that_has_joined_and_knows_nothing_is_closed_until_a_controller_is_heard() {
    let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
    let begin = |dir: &Path| {
        let mut worker = load(dir, &part);
        worker.expect_registry();
        worker.begin();
        worker
    };
    let fresh = dir.path().join("fresh");
    disk::prepare(&fresh).unwrap();
    let worker = begin(&fresh);
    assert!(worker.pods.host.is_empty() && worker.state().lost.is_empty(), "it has just joined");
    drop(worker);
    std::fs::remove_dir_all(&fresh).unwrap();
    // Also the next time, before anybody was heard.
    for _ in 0..2 {
        let worker = begin(&fresh);
        assert!(worker.pods.host.input && worker.pods.host.output && worker.state().token.is_none());
    }
    let mut worker = begin(&fresh);
    worker.open();
    [start(), flush(5)].into_iter().for_each(|message| worker.take(message));
    worker.settle();
    assert!(worker.state().lost.is_empty() && worker.state().token.is_some());
}

/// A registry that is gone and links whose addresses nobody knows: closed, also after a restart, until they are attached.
#[test]
fn what_a_runtime_has_is_attached_if_a_controller_covers_it_and_nobody_has_attached_it() {
    let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
    let mut worker = load(dir.path(), &part);
    worker.begin();
    let found = |name: &str, interface: &str, uid: &str| {
        (pod(name), Attachment { uid: Some(uid.into()), ..attachment(interface) })
    };
    worker.found(vec![found("ns/a", "v1", "u")]);
    assert_eq!(worker.endpoints().len(), 0, "nobody has said what applies to it: it runs as it did");
    worker.open();
    [start(), covers(&[("ns/a", 1), ("ns/b", 2)]), flush(1)]
        .into_iter()
        .for_each(|message| worker.take(message));
    worker.settle();
    worker.attach(pod("ns/b"), attachment("v2")).unwrap();
    worker.found(vec![found("ns/a", "v1", "u"), found("ns/b", "v9", "u"), found("ns/c", "v3", "u")]);
    let attached: Vec<_> = worker
        .endpoints()
        .iter()
        .map(|one| (one.pod.to_string(), one.attachment.interface.clone(), one.closed))
        .collect();
    assert_eq!(
        attached,
        [("ns/a".to_owned(), "v1".to_owned(), false), ("ns/b".to_owned(), "v2".to_owned(), false)]
    );
}

#[test]
fn links_that_nobody_can_name_stay_closed() {
    let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
    *part.0.left.lock().unwrap() = Some([("v1".to_owned(), BTreeSet::new())].into());
    *part.0.links.lock().unwrap() = vec![link("v1", 1)];
    for run in 0..2 {
        let mut worker = load(dir.path(), &part);
        worker.begin();
        worker.open();
        [start(), covers(&[("ns/a", 1)]), flush(5)].into_iter().for_each(|message| worker.take(message));
        worker.settle();
        assert!(worker.pods.unnamed.contains_key("v1"), "run {run}");
        assert!(worker.state().pods.iter().any(|problem| problem.subject == "interface v1"));
        if run == 1 {
            assert!(!worker.attach(pod("ns/a"), attachment("v1")).unwrap().closed);
            assert!(worker.pods.unnamed.is_empty());
        }
    }
}

/// Pods that were there before the agent are found by the addresses that are reached through their links.
#[test]
fn links_are_found_by_the_addresses_of_pods() {
    let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
    *part.0.links.lock().unwrap() = vec![link("v1", 1), link("v2", 2)];
    let mut worker = load(dir.path(), &part);
    worker.begin();
    worker.open();
    [start(), covers(&[("ns/a", 1)]), flush(5)].into_iter().for_each(|message| worker.take(message));
    worker.settle();
    let found: Vec<_> =
        worker.endpoints().iter().map(|one| (one.pod.to_string(), one.found, one.closed)).collect();
    assert_eq!(found, [("ns/a".to_owned(), true, false)]);
    assert!(worker.survey_loose().any(|name| name == "v2"), "nobody knows whose it is");
    // The link goes, and with it the Pod.
    part.0.links.lock().unwrap().clear();
    worker.tend(Instant::now() + Duration::from_secs(10));
    assert!(worker.endpoints().is_empty());
}

#[test]
fn a_pod_that_waits_too_long_is_overdue_and_opened_only_if_that_is_asked_for() {
    for then_open in [false, true] {
        let (dir, part) = (tempfile::tempdir().unwrap(), Fake::default());
        let mut worker = load(dir.path(), &part);
        worker.set_patience(Patience { limit: Duration::ZERO, then_open });
        worker.begin();
        worker.open();
        [start(), flush(5)].into_iter().for_each(|message| worker.take(message));
        worker.settle();
        assert_eq!(worker.attach(pod("ns/a"), attachment("v1")).unwrap().closed, !then_open);
    }
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
    assert_eq!(part.calls(), ["hold: 1/1 closed "]);
}
