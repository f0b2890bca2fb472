//! Closing, opening again, and the bounded queue.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::StreamExt as _;
use store::{Event, Prefix, Revision, Transaction, WatchError, WatchFrom, embedded};

use super::super::{all, entries, key, put, shared};

#[tokio::test]
async fn a_watch_resumes_across_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = embedded::open(dir.path()).unwrap();
    let first = put(&store, "k", "0").await;
    for n in 1..300 {
        put(&store, "k", &n.to_string()).await;
    }
    drop(store);
    let store = embedded::open(dir.path()).unwrap();
    let mut watch = store.watch(&Prefix::all(), WatchFrom::After(first));
    for n in 1..300 {
        let Event::Apply(entry) = watch.next().await.unwrap().unwrap() else { panic!("not an Apply") };
        assert_eq!(entry.value, n.to_string());
    }
    let next = put(&store, "k", "300").await;
    assert_eq!(watch.next().await.unwrap().unwrap().revision(), next);
}

#[tokio::test]
async fn closing_ends_watches_and_frees_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let store = embedded::open(dir.path()).unwrap();
    let mut waiting = store.watch(&Prefix::all(), WatchFrom::Start);
    waiting.next().await.unwrap().unwrap();
    waiting.next().await.unwrap().unwrap();
    let mut late = store.watch(&Prefix::all(), WatchFrom::Start);
    drop(store);
    for watch in [&mut waiting, &mut late] {
        let end = tokio::time::timeout(Duration::from_secs(5), watch.next()).await.unwrap().unwrap();
        assert!(matches!(end, Err(WatchError::Closed)), "{end:?}");
        assert!(watch.next().await.is_none());
    }
    embedded::open(dir.path()).unwrap();
}

#[tokio::test]
async fn a_lease_has_its_full_time_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = embedded::open(dir.path()).unwrap();
    let lease = store.grant_lease(Duration::from_secs(2)).await.unwrap();
    store.transact(Transaction::new().put_with_lease(key("k"), "1", lease.id)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    drop(store);
    let store = embedded::open(dir.path()).unwrap();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(store.get(&key("k")).await.unwrap().is_some(), "1.2 s of 2 s after the restart");
    let mut watch = store.watch(&Prefix::all(), WatchFrom::After(store.revision().await.unwrap()));
    let gone = tokio::time::timeout(Duration::from_secs(5), watch.next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(gone, Event::Delete { .. }), "{gone:?}");
    let next = store.grant_lease(Duration::from_secs(60)).await.unwrap();
    assert!(next.id > lease.id, "a lease's name is not used again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_beyond_the_queue_wait_and_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = embedded::Options::new(dir.path());
    options.queue_depth = 2;
    let store = options.open().unwrap();
    let done = shared(AtomicUsize::new(0));
    let (writers, counted) = (store.clone(), done.clone());
    all(300, move |n| {
        let (store, done) = (writers.clone(), counted.clone());
        async move {
            put(&store, &format!("k/{n}"), "1").await;
            done.fetch_add(1, Ordering::Relaxed);
        }
    })
    .await;
    assert_eq!(done.load(Ordering::Relaxed), 300);
    assert_eq!(entries(&store).await.len(), 300);
    assert_eq!(store.revision().await.unwrap(), Revision(300));
    assert_eq!(store.health().await.unwrap().queued, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_stop_waiting_disturb_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = embedded::Options::new(dir.path());
    options.queue_depth = 4;
    let store = options.open().unwrap();
    for n in 0..200_u64 {
        let write = store.transact(Transaction::new().put(key(&format!("k/{n}")), "1"));
        let _ = tokio::time::timeout(Duration::from_micros(n * 13 % 400), write).await;
    }
    let at = put(&store, "last", "1").await;
    let held = entries(&store).await;
    assert_eq!(held.len() as u64, at.0, "each revision is one write that happened");
}
