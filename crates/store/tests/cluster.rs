//! The etcd backend while members of a cluster die, hang and come back; TLS; backups across backends.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod cluster {
    pub(crate) mod authority;
}

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use store::{
    Entry, Event, Key, Outcome, Prefix, ReadError, Store, TransactError, Transaction, Watch, WatchFrom,
    backup::{self, RestoreError},
    embedded, etcd,
    follow::{Follower, Step},
};
use testkit::etcd::Cluster;

use cluster::authority::Authority;

fn options(cluster: &Cluster, namespace: &str) -> etcd::Options {
    let mut options = etcd::Options::new(cluster.endpoints());
    options.namespace = namespace.to_owned();
    options
}

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

async fn entries(store: &Store) -> Vec<Entry> {
    store.list(&Prefix::all()).await.unwrap().entries
}

/// Counts `k` up by compare and put while told to go on; an unknown outcome is resolved by reading.
async fn count(store: Store, go_on: Arc<AtomicBool>, at_least: u64) -> u64 {
    let mut number = 0;
    let give_up = Instant::now() + Duration::from_secs(60);
    while go_on.load(Ordering::Relaxed) || number < at_least {
        assert!(Instant::now() < give_up, "the cluster takes writes again");
        let found = match store.get(&key("k")).await {
            Ok(found) => found,
            Err(ReadError::Unavailable { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        number = found.as_ref().map_or(0, |entry| str::from_utf8(&entry.value).unwrap().parse().unwrap());
        let next = Transaction::new().put(key("k"), (number + 1).to_string());
        let next = match found {
            Some(entry) => next.expect_modified_at(key("k"), entry.modified),
            None => next.expect_absent(key("k")),
        };
        match store.transact(next).await {
            Ok(_) => number += 1,
            Err(TransactError::Unavailable { .. } | TransactError::Conflict { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    number
}

/// Writes and watches go on while `disturb` does its worst to the leader.
async fn survive(disturb: impl AsyncFnOnce(&Cluster, usize)) {
    let cluster = Cluster::start(3);
    let store = options(&cluster, "/survive/").connect().await.unwrap();
    let watches: Vec<_> = (0..3).map(|_| store.watch(&Prefix::all(), WatchFrom::Start)).collect();
    let followers: Vec<_> = watches
        .into_iter()
        .map(|watch| {
            let (last_tx, last_rx) = tokio::sync::oneshot::channel::<u64>();
            (last_tx, tokio::spawn(follow_until_told(watch, last_rx)))
        })
        .collect();
    let go_on = Arc::new(AtomicBool::new(true));
    let counter = tokio::spawn(count(store.clone(), Arc::clone(&go_on), 200));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let leader = cluster.leader(0).expect("the cluster has a leader");
    disturb(&cluster, leader).await;
    go_on.store(false, Ordering::Relaxed);
    let last = counter.await.unwrap();
    for (last_tx, follower) in followers {
        last_tx.send(last).unwrap();
        follower.await.unwrap();
    }
    let mut replay = store.watch(&Prefix::all(), WatchFrom::Start);
    replay.next().await.unwrap().unwrap();
    assert!(
        matches!(replay.next().await.unwrap().unwrap(), Event::Apply(entry) if entry.value == last.to_string())
    );
}

async fn follow_until_told(mut watch: Watch, mut last_rx: tokio::sync::oneshot::Receiver<u64>) {
    let (mut seen, mut last) = (0, u64::MAX);
    while seen < last {
        tokio::select! {
            event = watch.next() => {
                if let Event::Apply(entry) = event.unwrap().unwrap() {
                    let n: u64 = str::from_utf8(&entry.value).unwrap().parse().unwrap();
                    assert_eq!(n, seen + 1, "a watch lost or repeated an event");
                    seen = n;
                }
            }
            told = &mut last_rx, if last == u64::MAX => last = told.unwrap(),
            () = tokio::time::sleep(Duration::from_secs(40)) => panic!("the watch stalls at {seen} of {last}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_costs_no_event_and_no_acknowledged_write() {
    survive(async |cluster, leader| {
        cluster.signal(leader, "-KILL");
        tokio::time::sleep(Duration::from_secs(3)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_hangs_and_comes_back_costs_no_event() {
    survive(async |cluster, leader| {
        cluster.signal(leader, "-STOP");
        tokio::time::sleep(Duration::from_secs(10)).await;
        cluster.signal(leader, "-CONT");
        tokio::time::sleep(Duration::from_secs(1)).await;
    })
    .await;
}

/// A watch resumes by itself; that it has nobody to hear from is told nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_says_since_when_it_hears_nothing() {
    let cluster = Cluster::start(1);
    let store = options(&cluster, "/follow/").connect().await.unwrap();
    let mut follower = Follower::new(store.clone(), Prefix::all());
    let progress = follower.progress();
    assert_eq!(follower.next().await, Step::Begin);
    assert!(matches!(follower.next().await, Step::Complete { .. }));
    let hearing = tokio::spawn(async move { (follower.next().await, follower.next().await) });
    let broken = async |wanted: bool| {
        let give_up = Instant::now() + Duration::from_secs(30);
        while progress.broken_since().is_some() != wanted {
            assert!(Instant::now() < give_up, "it does not say so");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    cluster.signal(0, "-STOP");
    broken(true).await;
    cluster.signal(0, "-CONT");
    broken(false).await;
    let revision = store.transact(Transaction::new().put(key("k"), "1")).await.unwrap().revision;
    let heard = tokio::time::timeout(Duration::from_secs(30), hearing).await.unwrap().unwrap();
    assert!(matches!(&heard.0, Step::Apply(entry) if entry.modified == revision), "{heard:?}");
    assert_eq!(heard.1, Step::Complete { revision }, "and it did not start over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_quorum_is_unavailable_and_says_what_is_known() {
    let cluster = Cluster::start(1);
    let patient = options(&cluster, "/quorum/").connect().await.unwrap();
    patient.transact(Transaction::new().put(key("k"), "1")).await.unwrap();
    let mut options = options(&cluster, "/quorum/");
    options.timeout = Duration::from_secs(3);
    let store = options.connect().await.unwrap();
    let watch = store.watch(&Prefix::all(), WatchFrom::Start);
    // Hanging: the request was sent, so nobody can say.
    cluster.signal(0, "-STOP");
    let error = store.transact(Transaction::new().put(key("k"), "2")).await.unwrap_err();
    assert!(matches!(error, TransactError::Unavailable { outcome: Outcome::Unknown, .. }), "{error:?}");
    assert!(error.to_string().contains("outcome unknown"), "{error}");
    let error = store.get(&key("k")).await.unwrap_err();
    assert!(matches!(error, ReadError::Unavailable { .. }), "{error:?}");
    cluster.signal(0, "-CONT");
    let patient = Instant::now() + Duration::from_secs(20);
    while store.get(&key("k")).await.is_err() {
        assert!(Instant::now() < patient, "the store works again by itself");
    }
    drop(watch);
    // Gone: no connection can be made, so nothing was sent.
    cluster.signal(0, "-KILL");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let _ = store.get(&key("k")).await;
    let error = store.transact(Transaction::new().put(key("k"), "3")).await.unwrap_err();
    assert!(matches!(error, TransactError::Unavailable { outcome: Outcome::NotApplied, .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_or_misspelt_etcd_is_named() {
    let mut nobody = etcd::Options::new(["http://127.0.0.1:1"]);
    nobody.timeout = Duration::from_millis(300);
    let error = nobody.connect().await.unwrap_err();
    assert!(matches!(&error, etcd::ConnectError::Read(source) if source.to_string().contains("127.0.0.1:1")));
    assert!(matches!(
        etcd::Options::new(["no url at all"]).connect().await.unwrap_err(),
        etcd::ConnectError::Endpoint { .. }
    ));
    assert!(matches!(
        etcd::Options::new(Vec::<String>::new()).connect().await.unwrap_err(),
        etcd::ConnectError::NoEndpoint
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_moves_between_the_backends_both_ways() {
    let cluster = Cluster::start(1);
    let dir = tempfile::tempdir().unwrap();
    let original = embedded::open(dir.path().join("original")).unwrap();
    for start in (0..500).step_by(100) {
        let many = (start..start + 100)
            .fold(Transaction::new(), |many, n| many.put(key(&format!("k/{n:05}")), vec![n as u8; 2000]));
        original.transact(many).await.unwrap();
    }
    let held =
        |entries: Vec<Entry>| entries.into_iter().map(|entry| (entry.key, entry.value)).collect::<Vec<_>>();
    let expected = held(entries(&original).await);
    let path = dir.path().join("backup");
    write_backup(&original, &path).await;

    let restored = etcd::restore(options(&cluster, "/moved/"), &path, false).await.unwrap();
    assert_eq!(restored.entries, 500);
    let moved = options(&cluster, "/moved/").connect().await.unwrap();
    assert_eq!(held(entries(&moved).await), expected);
    let refused = etcd::restore(options(&cluster, "/moved/"), &path, false).await.unwrap_err();
    assert!(matches!(refused, RestoreError::NotEmpty { .. }), "{refused}");
    moved.transact(Transaction::new().put(key("extra"), "1")).await.unwrap();
    etcd::restore(options(&cluster, "/moved/"), &path, true).await.unwrap();
    assert_eq!(held(entries(&moved).await), expected);

    write_backup(&moved, &path).await;
    embedded::restore(&dir.path().join("back"), &path, false).unwrap();
    let back = embedded::open(dir.path().join("back")).unwrap();
    assert_eq!(held(entries(&back).await), expected);
    assert!(back.revision().await.unwrap() > moved.revision().await.unwrap());
}

async fn write_backup(store: &Store, path: &std::path::Path) {
    let mut bytes = Vec::new();
    backup::write(store, &mut bytes).await.unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_was_cut_off_is_not_taken_for_a_store() {
    let cluster = Cluster::start(1);
    // What a restore leaves when it dies: its marker, beside the namespace.
    let beside = options(&cluster, "/half-restoring/").connect().await.unwrap();
    drop(beside);
    let marker = std::process::Command::new("curl")
        .args(["-sS", "-d", r#"{"key":"L2hhbGYtcmVzdG9yaW5n","value":"MQ=="}"#])
        .arg(format!("{}/v3/kv/put", cluster.endpoints()[0]))
        .output()
        .unwrap();
    assert!(marker.status.success());
    let error = options(&cluster, "/half/").connect().await.unwrap_err();
    assert!(matches!(error, etcd::ConnectError::HalfRestored { .. }), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("backup");
    write_backup(&embedded::open(dir.path().join("empty")).unwrap(), &path).await;
    etcd::restore(options(&cluster, "/half/"), &path, false).await.unwrap_err();
    etcd::restore(options(&cluster, "/half/"), &path, true).await.unwrap();
    options(&cluster, "/half/").connect().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_start_of_a_watch_follows_without_gap() {
    let cluster = Cluster::start(1);
    let store = options(&cluster, "/slow/").connect().await.unwrap();
    let watch = store.watch(&Prefix::all(), WatchFrom::Start);
    let go_on = Arc::new(AtomicBool::new(false));
    let last = count(store, go_on, 300).await;
    // The state is read only now, at its end.
    let mut late = watch;
    late.next().await.unwrap().unwrap();
    assert!(
        matches!(late.next().await.unwrap().unwrap(), Event::Apply(entry) if entry.value == last.to_string())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_client_certificates_is_required_and_works() {
    let authority = Authority::new();
    let cluster = authority.start_member();
    let (certificate, private_key) = authority.issue("trestle");
    let mut options = options(&cluster, "/tls/");
    options.tls = Some(etcd::Tls {
        ca: authority.certificate(),
        identity: Some((certificate, private_key)),
        server_name: None,
    });
    let store = options.clone().connect().await.unwrap();
    let watch = store.watch(&Prefix::all(), WatchFrom::Start);
    let last = count(store, Arc::new(AtomicBool::new(false)), 3).await;
    drop(watch);
    assert_eq!(last, 3);
    // Both must fail, so they need not wait long.
    options.timeout = Duration::from_secs(2);
    let mut anonymous = options.clone();
    anonymous.tls.as_mut().unwrap().identity = None;
    anonymous.connect().await.unwrap_err();
    let mut stranger = options;
    stranger.tls.as_mut().unwrap().ca = Authority::new().certificate();
    stranger.connect().await.unwrap_err();
}
