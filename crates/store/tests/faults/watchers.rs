//! Many watches, slow watches, and watches that history leaves behind.

use std::time::Duration;

use futures::StreamExt as _;
use store::{Event, Prefix, Transaction, WatchError, WatchFrom, embedded};

use super::super::{all, key, put};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_delays_nobody_and_misses_nothing() {
    const WRITES: u64 = 3000;
    let dir = tempfile::tempdir().unwrap();
    let mut options = embedded::Options::new(dir.path());
    // So small that the slow one must read the log, and catch the ring again while writes go on.
    options.ring_changes = 8;
    let store = options.open().unwrap();
    let mut slow = store.watch(&Prefix::all(), WatchFrom::Start);
    let mut fast = store.watch(&Prefix::all(), WatchFrom::Start);
    for watch in [&mut slow, &mut fast] {
        watch.next().await.unwrap().unwrap();
        watch.next().await.unwrap().unwrap();
    }
    let writers = store.clone();
    let writing = tokio::spawn(async move {
        all(30, move |writer| {
            let store = writers.clone();
            async move {
                for n in 0..WRITES / 30 {
                    put(&store, &format!("k/{writer}"), &n.to_string()).await;
                }
            }
        })
        .await;
    });
    let count = |mut watch: store::Watch, pause: bool| async move {
        let mut last = 0;
        for n in 0..WRITES {
            let event = tokio::time::timeout(Duration::from_secs(30), watch.next()).await.unwrap();
            let revision = event.unwrap().unwrap().revision().0;
            assert_eq!(revision, last + 1);
            last = revision;
            if pause && n < 100 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    };
    tokio::join!(count(fast, false), count(slow, true));
    writing.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watchers_see_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let store = embedded::open(dir.path()).unwrap();
    put(&store, "k", "0").await;
    let (watched, written) = (store.clone(), store.clone());
    let watching = tokio::spawn(async move {
        all(1000, move |_| {
            let mut watch = watched.watch(&Prefix::all(), WatchFrom::Start);
            async move {
                let mut last = None;
                while last != Some(50) {
                    let event = tokio::time::timeout(Duration::from_secs(30), watch.next()).await.unwrap();
                    if let Event::Apply(entry) = event.unwrap().unwrap() {
                        let n: u64 = str::from_utf8(&entry.value).unwrap().parse().unwrap();
                        assert!(last.is_none_or(|last| n == last + 1), "{n} after {last:?}");
                        last = Some(n);
                    }
                }
            }
        })
        .await;
    });
    for n in 1..=50 {
        put(&written, "k", &n.to_string()).await;
    }
    watching.await.unwrap();
}

#[tokio::test]
async fn a_reader_left_behind_by_compaction_is_told_to_start_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = embedded::Options::new(dir.path());
    options.ring_changes = 4;
    options.log_revisions = 50;
    let store = options.open().unwrap();
    let start = put(&store, "k", "0").await;
    let mut behind = store.watch(&Prefix::all(), WatchFrom::After(start));
    put(&store, "k", "1").await;
    behind.next().await.unwrap().unwrap();
    for n in 2..500 {
        put(&store, "k", &n.to_string()).await;
    }
    let error = behind.next().await.unwrap().unwrap_err();
    let health = store.health().await.unwrap();
    assert_eq!(health.compacted.unwrap().0, health.revision.0 - 50, "history is bounded by itself");
    assert!(
        matches!(error, WatchError::Compacted { oldest } if oldest == health.compacted.unwrap()),
        "{error:?}"
    );
    let mut kept = store.watch(&Prefix::all(), WatchFrom::After(health.compacted.unwrap()));
    for _ in 0..50 {
        kept.next().await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn history_is_bounded_by_bytes_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = embedded::Options::new(dir.path());
    options.log_bytes = 100_000;
    let store = options.open().unwrap();
    for _ in 0..50 {
        store.transact(Transaction::new().put(key("k"), vec![0_u8; 10_000])).await.unwrap();
    }
    let health = store.health().await.unwrap();
    let kept = health.revision.0 - health.compacted.unwrap().0;
    assert!((5..=10).contains(&kept), "{kept}");
}

#[tokio::test]
async fn a_reader_stuck_in_the_initial_state_does_not_pin_it_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = embedded::Options::new(dir.path());
    options.snapshot_time = Duration::from_millis(100);
    let store = options.open().unwrap();
    let many = (0..2000).fold(Transaction::new(), |many, n| many.put(key(&format!("k/{n}")), "v"));
    store.transact(many).await.unwrap();
    let mut stuck = store.watch(&Prefix::all(), WatchFrom::Start);
    stuck.next().await.unwrap().unwrap();
    stuck.next().await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let end = stuck.filter(|event| std::future::ready(event.is_err())).next().await.unwrap();
    assert!(matches!(end, Err(WatchError::TooSlow)), "{end:?}");
}
