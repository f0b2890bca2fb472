//! Watches and compaction.

use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use store::{
    CompactError, Event, Prefix, Revision, Store, Transaction, WatchError, WatchFrom,
    follow::{Follower, Step},
};

use super::{delete, key, next, nothing_follows, prefix, put, soon, take};

pub(crate) async fn a_watch_from_start_tells_the_state_then_the_changes(store: Store) {
    let a = put(&store, "w/a", "1").await;
    let b = put(&store, "w/b", "1").await;
    let mut watch = store.watch(&prefix("w/"), WatchFrom::Start);
    let state = [format!("init@{b}"), format!("+w/a=1@{a}"), format!("+w/b=1@{b}"), format!("done@{b}")];
    assert_eq!(take(&mut watch, 4).await, state);
    let c = put(&store, "w/a", "2").await;
    let d = delete(&store, "w/b").await;
    assert_eq!(take(&mut watch, 2).await, [format!("+w/a=2@{c}"), format!("-w/b@{d}")]);
    nothing_follows(&mut watch).await;
    let mut empty = store.watch(&prefix("none/"), WatchFrom::Start);
    assert_eq!(take(&mut empty, 2).await, [format!("init@{d}"), format!("done@{d}")]);
}

pub(crate) async fn a_watch_after_a_revision_tells_only_what_follows(store: Store) {
    let a = put(&store, "w/a", "1").await;
    let b = put(&store, "w/a", "2").await;
    let c = put(&store, "w/a", "3").await;
    let mut watch = store.watch(&prefix("w/"), WatchFrom::After(a));
    assert_eq!(take(&mut watch, 2).await, [format!("+w/a=2@{b}"), format!("+w/a=3@{c}")]);
    let mut watch = store.watch(&prefix("w/"), WatchFrom::After(c));
    nothing_follows(&mut watch).await;
    let d = put(&store, "w/a", "4").await;
    assert_eq!(take(&mut watch, 1).await, [format!("+w/a=4@{d}")]);
}

pub(crate) async fn a_watch_sees_only_its_prefix(store: Store) {
    let mut watch = store.watch(&prefix("a/"), WatchFrom::Start);
    take(&mut watch, 2).await;
    for name in ["a", "a-b/c", "a0", "b/a/x"] {
        put(&store, name, "no").await;
    }
    let at = put(&store, "a/x", "yes").await;
    assert_eq!(take(&mut watch, 1).await, [format!("+a/x=yes@{at}")]);
    let mut all = store.watch(&Prefix::all(), WatchFrom::Start);
    assert_eq!(take(&mut all, 7).await.len(), 7);
}

pub(crate) async fn delete_and_recreate_are_both_seen_in_order(store: Store) {
    let start = put(&store, "k", "1").await;
    let mut watch = store.watch(&Prefix::all(), WatchFrom::After(start));
    let gone = delete(&store, "k").await;
    let again = put(&store, "k", "2").await;
    let gone_again = delete(&store, "k").await;
    let expected = [format!("-k@{gone}"), format!("+k=2@{again}"), format!("-k@{gone_again}")];
    assert_eq!(take(&mut watch, 3).await, expected);
    let mut later = store.watch(&Prefix::all(), WatchFrom::After(start));
    assert_eq!(take(&mut later, 3).await, expected);
}

pub(crate) async fn events_of_a_transaction_are_adjacent_and_share_its_revision(store: Store) {
    let start = store.revision().await.unwrap();
    let mut watch = store.watch(&Prefix::all(), WatchFrom::After(start));
    let mut writers = Vec::new();
    for writer in 0..4 {
        let store = store.clone();
        writers.push(tokio::spawn(async move {
            for round in 0..5 {
                let many = (0..6).fold(Transaction::new(), |many, n| {
                    many.put(key(&format!("t/{writer}/{n}")), round.to_string())
                });
                store.transact(many).await.unwrap();
            }
        }));
    }
    let mut last = start;
    for _ in 0..20 {
        let first = next(&mut watch).await;
        let revision = first.revision();
        assert!(revision > last);
        let Event::Apply(first) = first else { panic!("{first:?}") };
        let owner = first.key.as_str().rsplit_once('/').unwrap().0.to_owned();
        for n in 1..6 {
            let Event::Apply(entry) = next(&mut watch).await else { panic!("not an Apply") };
            assert_eq!((entry.key.as_str(), entry.modified), (&*format!("{owner}/{n}"), revision));
        }
        last = revision;
    }
    for writer in writers {
        writer.await.unwrap();
    }
}

/// Large enough that no backend has it in one piece on its wire.
fn many(round: usize) -> Transaction {
    let text = format!("{round}").repeat(20_000);
    (0..60).fold(Transaction::new(), |many, n| many.put(key(&format!("t/{n:02}")), text.clone()))
}

pub(crate) async fn events_of_a_transaction_are_ready_together(store: Store) {
    let start = store.revision().await.unwrap();
    let mut watch = store.watch(&Prefix::all(), WatchFrom::After(start));
    for round in 0..5 {
        let writing = tokio::spawn({
            let store = store.clone();
            async move { store.transact(many(round)).await.unwrap().revision }
        });
        let first = next(&mut watch).await;
        for n in 1..60 {
            let ready = watch.next().now_or_never();
            let event = ready.unwrap_or_else(|| panic!("{n} is not ready")).unwrap().unwrap();
            assert_eq!(event.revision(), first.revision());
        }
        assert_eq!(writing.await.unwrap(), first.revision());
    }
}

pub(crate) async fn a_follower_tells_whole_transactions(store: Store) {
    let at = put(&store, "t/gone", "1").await;
    let mut follower = Follower::new(store.clone(), prefix("t/"));
    let progress = follower.progress();
    assert_eq!((progress.reached(), progress.broken_since()), (None, None));
    assert_eq!(soon(follower.next()).await, Step::Begin);
    assert!(matches!(soon(follower.next()).await, Step::Apply(entry) if entry.modified == at));
    assert_eq!(soon(follower.next()).await, Step::Complete { revision: at });
    follower.took_in(at);
    soon(progress.reach(at)).await;
    // Not below the prefix: nothing is told of it.
    put(&store, "other", "1").await;
    let mut revisions = Vec::new();
    for round in 0..3 {
        let change = if round == 1 { many(round).delete(key("t/gone")) } else { many(round) };
        revisions.push(store.transact(change).await.unwrap().revision);
    }
    for (round, revision) in revisions.into_iter().enumerate() {
        for _ in 0..60 {
            assert!(matches!(soon(follower.next()).await, Step::Apply(entry) if entry.modified == revision));
        }
        if round == 1 {
            assert_eq!(soon(follower.next()).await, Step::Delete { key: key("t/gone"), revision });
        }
        assert_eq!(soon(follower.next()).await, Step::Complete { revision });
    }
    assert_eq!(progress.reached(), Some(at), "only its owner says what is taken in");
    assert!(follower.next().now_or_never().is_none());
}

pub(crate) async fn a_watch_started_amid_writes_has_no_gap_and_no_double(store: Store) {
    const WRITES: u64 = 200;
    put(&store, "n", "0").await;
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for n in 1..=WRITES {
                put(&store, "n", &n.to_string()).await;
            }
        }
    });
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(store.watch(&Prefix::all(), WatchFrom::Start));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for mut watch in watches {
        let mut last: Option<u64> = None;
        while last != Some(WRITES) {
            if let Event::Apply(entry) = next(&mut watch).await {
                let n: u64 = str::from_utf8(&entry.value).unwrap().parse().unwrap();
                assert!(last.is_none_or(|last| n == last + 1), "{n} after {last:?}");
                last = Some(n);
            }
        }
    }
    writer.await.unwrap();
}

pub(crate) async fn a_watch_from_compacted_history_is_told_to_start_over(store: Store) {
    let mut revisions = Vec::new();
    for n in 0..5 {
        revisions.push(put(&store, "k", &n.to_string()).await);
    }
    store.compact(revisions[3]).await.unwrap();
    for early in [revisions[0], revisions[2]] {
        let mut watch = store.watch(&Prefix::all(), WatchFrom::After(early));
        let error = soon(watch.next()).await.unwrap().unwrap_err();
        assert!(matches!(error, WatchError::Compacted { oldest } if oldest >= revisions[3]), "{error:?}");
        assert!(soon(watch.next()).await.is_none(), "the stream ends after its error");
    }
    let mut watch = store.watch(&Prefix::all(), WatchFrom::After(revisions[3]));
    assert_eq!(take(&mut watch, 1).await, [format!("+k=4@{}", revisions[4])]);
}

pub(crate) async fn a_watch_from_the_future_is_told_to_start_over(store: Store) {
    let at = put(&store, "k", "1").await;
    let asked = Revision(at.0 + 1000);
    let mut watch = store.watch(&Prefix::all(), WatchFrom::After(asked));
    let error = soon(watch.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, WatchError::Future { current, .. } if current == at), "{error:?}");
}

pub(crate) async fn compaction_keeps_the_state_and_later_history(store: Store) {
    put(&store, "gone", "1").await;
    let kept = put(&store, "kept", "1").await;
    let at = delete(&store, "gone").await;
    store.compact(at).await.unwrap();
    store.compact(at).await.unwrap();
    let entries = store.list(&Prefix::all()).await.unwrap().entries;
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].modified, kept);
    let future = Revision(at.0 + 100);
    let refused = store.compact(future).await.unwrap_err();
    assert!(matches!(refused, CompactError::Future { .. }), "{refused:?}");
    let mut watch = store.watch(&Prefix::all(), WatchFrom::Start);
    assert_eq!(take(&mut watch, 3).await[1], format!("+kept=1@{kept}"));
}

pub(crate) async fn a_live_watch_survives_compaction(store: Store) {
    let mut watch = store.watch(&Prefix::all(), WatchFrom::Start);
    take(&mut watch, 2).await;
    for n in 0..20 {
        let at = put(&store, "k", &n.to_string()).await;
        assert_eq!(take(&mut watch, 1).await, [format!("+k={n}@{at}")]);
        store.compact(at).await.unwrap();
    }
}
