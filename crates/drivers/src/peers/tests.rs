//! What is told, what is heard of it, and which of two words counts; without a store.

use std::time::Duration;

use ::transport::{Key as ObjectKey, Kind, Opening, Revision as HubRevision};
use bytes::Bytes;
use services::allot::Ranges;
use store::{Entry, Key, Revision, embedded};
use tokio_util::sync::CancellationToken;
use watch::{Report, Taken};

use super::{telling::Telling, words::*, *};
use crate::{
    EtcdConfig, NodesConfig,
    objects::Objects,
    transport::{NODE, SEED, Transport},
};

const WIDE: Limits = Limits { operations: 1_000, bytes: 1 << 20 };

fn at(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(second)
}

/// A node that is connected and has applied everything.
fn view(name: &str) -> SessionView {
    SessionView {
        name: name.into(),
        connected: true,
        dialect: NODE,
        peer: "192.0.2.1:9".into(),
        version: "1".into(),
        connected_at: at(100),
        disconnected_at: None,
        revision: HubRevision(5),
        sent: HubRevision(5),
        applied: Some(HubRevision(5)),
        lag: Duration::ZERO,
        errors: Vec::new(),
        skipped: 0,
        bytes_sent: 0,
        last_end: None,
    }
}

fn left(name: &str, second: u64) -> SessionView {
    SessionView { connected: false, disconnected_at: Some(at(second)), ..view(name) }
}

fn behind(name: &str, lag: u64) -> SessionView {
    SessionView { revision: HubRevision(6), lag: Duration::from_secs(lag), ..view(name) }
}

/// A controller, and what it has written so far.
struct Speaker {
    telling: Telling,
    name: &'static str,
}

impl Speaker {
    fn new(name: &'static str) -> Self {
        Self { telling: Telling::new(name.to_owned()), name }
    }

    fn say(&mut self, views: &[SessionView], reached: u64) -> &mut Self {
        self.telling.nodes(views, 1_000, |_, _| false);
        self.telling.about(&About { name: format!("on {}", self.name), reached: Revision(reached) });
        self
    }

    /// The places written, in order; each with whether there is something now.
    fn written(&mut self) -> Vec<(Place, bool)> {
        let changes = self.write();
        changes.into_iter().map(|(key, value)| (Place::read(&key).unwrap().1, value.is_some())).collect()
    }

    fn write(&mut self) -> Vec<(Key, Option<Bytes>)> {
        let batches = self.telling.board.batches(WIDE);
        batches.iter().for_each(|batch| self.telling.board.written(batch));
        batches.into_iter().flatten().map(|change| (change.key, change.value)).collect()
    }

    /// Lets somebody hear what differs.
    fn tell(&mut self, heard: &mut Heard) {
        for (key, value) in self.write() {
            match value {
                Some(value) => heard.take(&entry(key, value)),
                None => heard.delete(&key),
            }
        }
    }
}

fn entry(key: Key, value: Bytes) -> Entry {
    Entry { key, value, created: Revision(1), modified: Revision(1), lease: None }
}

fn node(name: &str) -> Place {
    Place::Node(name.to_owned())
}

fn policy() -> Identifier {
    Identifier::parse("p")
}

fn taken(generation: i64, failure: Option<&str>, at: Millis) -> Taken {
    let message = failure.unwrap_or_default().to_owned();
    Taken { report: Report { generation, is_failure: failure.is_some(), message }, at }
}

#[test]
fn only_nodes_that_changed_are_told_and_how_far_comes_after_them() {
    let mut speaker = Speaker::new("one");
    let first = speaker.say(&[view("a"), view("b")], 10).written();
    assert_eq!(first, [(node("a"), true), (node("b"), true), (Place::About, true)]);
    assert!(speaker.say(&[view("a"), view("b")], 10).written().is_empty());
    // More was sent and applied meanwhile: nothing to tell of the node.
    let moved =
        SessionView { revision: HubRevision(9), applied: Some(HubRevision(9)), bytes_sent: 77, ..view("a") };
    assert_eq!(speaker.say(&[moved, view("b")], 11).written(), [(Place::About, true)]);
    let second = speaker.say(&[behind("a", 0)], 12).written();
    assert_eq!(second, [(node("a"), true), (node("b"), false), (Place::About, true)]);
}

#[test]
fn a_node_that_stays_behind_is_told_once() {
    let mut speaker = Speaker::new("one");
    speaker.say(&[behind("a", 0)], 10).written();
    let mut say = |now, lag| {
        speaker.telling.nodes(&[behind("a", lag)], now, |_, _| false);
        speaker.written().len()
    };
    assert_eq!([say(1_002, 2), say(1_008, 8), say(1_009, 8), say(1_010, 10)], [0, 1, 0, 0]);
}

#[test]
fn a_node_that_left_is_told_unless_another_controller_knows_more() {
    let mut speaker = Speaker::new("one");
    speaker.say(&[left("a", 200), view("b")], 10).written();
    let mut say = |views: &[SessionView]| {
        speaker.telling.nodes(views, 1_000, |_, _| true);
        speaker.written()
    };
    assert_eq!(say(&[left("a", 200), view("b")]), [(node("a"), false)]);
    assert!(say(&[left("a", 200), view("b")]).is_empty());
}

#[test]
fn what_is_told_is_heard() {
    let (mut one, mut heard) = (Speaker::new("one"), Heard::new("own".into()));
    let errors = vec![(ObjectKey { kind: Kind(3), name: "p".into() }, "no room".repeat(100))];
    one.say(&[view("a/b"), SessionView { errors, ..behind("b", 8) }], 10).tell(&mut heard);
    let claims = heard.claims();
    let claim = &claims["a/b"];
    assert_eq!((claim.controller.as_str(), claim.reached), ("on one", Revision(10)));
    assert_eq!(*claim.word, NodeWord::of(&view("a/b"), 1_000, None));
    let word = &claims["b"].word;
    assert_eq!((word.is_caught_up, word.behind_since), (false, Some(992)));
    assert_eq!((word.errors[0].kind, word.errors[0].message.len()), (3, 256));
    one.say(&[], 11).tell(&mut heard);
    assert!(heard.claims().is_empty());
}

#[test]
fn nobody_hears_himself_or_one_who_has_not_said_all() {
    let mut heard = Heard::new("own".into());
    Speaker::new("own").say(&[view("a")], 10).tell(&mut heard);
    let written = Speaker::new("one").say(&[view("b")], 10).write();
    let (about, nodes) = written.split_last().unwrap();
    for (key, value) in nodes {
        heard.take(&entry(key.clone(), value.clone().unwrap()));
    }
    assert!(heard.claims().is_empty());
    assert_eq!(heard.claim("b"), None);
    heard.take(&entry(about.0.clone(), about.1.clone().unwrap()));
    assert_eq!(heard.claims().into_keys().collect::<Vec<_>>(), ["b"]);
    heard.take(&entry(about.0.clone(), Bytes::from_static(b"{")));
    assert!(heard.claims().is_empty(), "what cannot be read says nothing");
}

#[test]
fn of_two_claims_the_connected_and_then_the_newest_counts() {
    let mut heard = Heard::new("own".into());
    let newer = SessionView { connected_at: at(101), ..view("a") };
    let (mut one, mut two) = (Speaker::new("one"), Speaker::new("two"));
    one.say(&[newer, left("b", 900), left("c", 300), view("d")], 10).tell(&mut heard);
    two.say(&[view("a"), view("b"), left("c", 301)], 20).tell(&mut heard);
    let who = |heard: &Heard| -> Vec<String> {
        let claims = heard.claims();
        for (name, claim) in &claims {
            assert_eq!(heard.claim(name).as_ref(), Some(claim));
        }
        claims.into_values().map(|claim| claim.controller).collect()
    };
    assert_eq!(who(&heard), ["on one", "on two", "on two", "on one"]);
    // One of them is gone, with its lease.
    for (key, _) in Speaker::new("two").say(&[view("a"), view("b"), view("c")], 1).write() {
        heard.delete(&key);
    }
    assert_eq!(who(&heard), ["on one"; 4]);
}

#[test]
fn who_is_connected_here_is_asked_here() {
    let elsewhere = |view: SessionView| NodeElsewhere {
        name: "a".into(),
        controller: "on one".into(),
        word: Arc::new(NodeWord::of(&view, 1_000, None)),
        newest: HubRevision(1),
        has_all: true,
    };
    assert!(!elsewhere(view("a")).knows_better(&SessionView { connected_at: at(1), ..view("a") }));
    assert!(elsewhere(view("a")).knows_better(&left("a", 900)));
    assert!(elsewhere(left("a", 901)).knows_better(&left("a", 900)));
    assert!(!elsewhere(left("a", 900)).knows_better(&left("a", 900)));
}

#[test]
fn those_on_the_seeds_protocol_are_never_caught_up() {
    assert!(is_caught_up(&view("a")));
    assert!(!is_caught_up(&SessionView { dialect: SEED, ..view("a") }));
    assert!(!is_caught_up(&SessionView { applied: None, ..view("a") }));
    assert!(!is_caught_up(&behind("a", 0)));
}

#[test]
fn the_last_report_of_a_generation_counts_whoever_has_it() {
    let mut heard = Heard::new("own".into());
    let (mut one, mut two) = (Speaker::new("one"), Speaker::new("two"));
    let report = |speaker: &mut Speaker, heard: &mut Heard, reports: Vec<(&str, Taken)>| {
        let reports = reports.into_iter().map(|(node, taken)| (node.into(), taken)).collect();
        speaker.telling.reports(vec![(policy(), reports)]);
        speaker.say(&[], 1).tell(heard);
    };
    let all = |failure, at| (0..500).map(move |n| (format!("n{n}"), taken(2, failure, at)));
    let many: Vec<_> = all(None, 10).collect();
    report(&mut one, &mut heard, many.iter().map(|(node, taken)| (node.as_str(), taken.clone())).collect());
    assert_eq!(heard.reported("n7", &policy(), 2), Some((10, Ok(()))));
    assert_eq!(heard.reported("n7", &policy(), 3), None);
    assert_eq!(heard.reported("n500", &policy(), 2), None);
    report(&mut two, &mut heard, vec![("n7", taken(2, Some("no"), 11)), ("n8", taken(1, Some("no"), 11))]);
    assert_eq!(heard.reported("n7", &policy(), 2), Some((11, Err("no".into()))));
    assert_eq!(heard.reported("n8", &policy(), 2), Some((10, Ok(()))));
    report(&mut two, &mut heard, Vec::new());
    assert_eq!(heard.reported("n7", &policy(), 2), Some((10, Ok(()))));
}

#[test]
fn one_report_more_changes_one_key() {
    let mut one = Speaker::new("one");
    let mut reports: Vec<(Arc<str>, Taken)> =
        (0..500).map(|n| (format!("n{n}").into(), taken(2, None, 1))).collect();
    one.telling.reports(vec![(policy(), reports.clone())]);
    let keys = one.written().len();
    assert!((48..=shelves().count()).contains(&keys), "{keys}");
    reports[7].1.at = 2;
    one.telling.reports(vec![(policy(), reports)]);
    assert_eq!(one.written(), [(Place::Shelf(policy(), shelf_of("n7")), true)]);
}

#[test]
fn a_revision_of_the_hub_comes_from_objects_noted_then_or_before() {
    let mut marks = Marks::default();
    assert_eq!(marks.objects_of(HubRevision(1)), None);
    marks.note(HubRevision(4), Revision(40));
    // Objects changed that concern nobody: what the hub has handed out needs them not.
    marks.note(HubRevision(4), Revision(45));
    marks.note(HubRevision(6), Revision(60));
    let needed = |revision| marks.objects_of(HubRevision(revision));
    assert_eq!([1, 4, 5, 6, 7].map(needed), [40, 40, 60, 60, 0].map(|at| (at > 0).then_some(Revision(at))));
    (7..2_000).for_each(|n| marks.note(HubRevision(n), Revision(n * 10)));
    assert_eq!(marks.objects_of(HubRevision(1)), Some(Revision((2_000 - 600) * 10)));
}

/// What is written, with the lease it is on; one lease for all.
async fn stored(store: &Store) -> (Vec<Place>, Option<store::LeaseId>) {
    let entries = store.list(&words::prefix()).await.unwrap().entries;
    let lease = entries.first().and_then(|entry| entry.lease);
    assert!(entries.iter().all(|entry| entry.lease == lease), "{entries:?}");
    (entries.iter().map(|entry| Place::read(&entry.key).unwrap().1).collect(), lease)
}

async fn until<T: PartialEq + std::fmt::Debug>(wanted: T, mut look: impl AsyncFnMut() -> T) {
    for _ in 0..600 {
        if look().await == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(look().await, wanted, "for half a minute");
}

/// The embedded store stands in for a shared one: leases are the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_is_replaced_and_an_orderly_end_takes_everything_along() {
    let dir = tempfile::tempdir().unwrap();
    let store = embedded::Options::new(dir.path().to_owned()).open().unwrap();
    let etcd = r#"{"endpoints": [], "max_txn_ops": 2}"#;
    let kind = StoreKind::Etcd(serde_json::from_str::<EtcdConfig>(etcd).unwrap());
    let life = Life::default();
    let transport = Transport::start(&NodesConfig::default(), dir.path(), &[], &life);
    let rooms = Rooms {
        policy: Policy::start(&Objects::new(store.clone(), Ranges::default()), false, vec![], vec![], &life),
        hub: Arc::clone(&transport.hub),
        watch: Arc::new(Cache::new(1)),
    };
    for name in ["a", "b", "c"] {
        let opening = Opening {
            name: name.into(),
            dialect: NODE,
            token: None,
            digest: None,
            peer: String::new(),
            version: String::new(),
            credential: None,
            cut: CancellationToken::new(),
        };
        transport.hub.open(opening).unwrap();
    }
    let peers = Peers::start(&store, &kind, rooms, &life);
    peers.publish("here".into(), &life);
    let all = vec![Place::About, node("a"), node("b"), node("c")];
    until(all.clone(), async || stored(&store).await.0).await;
    let (_, first) = stored(&store).await;
    assert!(peers.nodes().is_empty(), "nobody hears himself");
    store.revoke_lease(first.unwrap()).await.unwrap();
    until(all, async || stored(&store).await.0).await;
    assert_ne!(stored(&store).await.1, first);
    life.end().await.unwrap();
    assert_eq!(stored(&store).await, (vec![], None));
}
