//! The contract of the store as tests: each backend runs all of them.
//!
//! A case gets a fresh, empty store. `conformance_suite!(fresh)` makes one test of each, where `fresh` is an async
//! function that yields a store and a guard that ends it.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use futures::StreamExt as _;
use store::{
    Committed, CompactError, Entry, Event, Expected, Key, LeaseError, LeaseId, Prefix, Revision, Store,
    TransactError, Transaction, Watch, WatchError, WatchFrom, backup, typed,
};

#[macro_export]
macro_rules! conformance_suite {
    ($fresh:path) => {
        $crate::conformance_suite!($fresh:
            a_key_is_read_back_with_its_revisions
            absent_is_not_an_error
            a_list_is_sorted_and_of_one_prefix
            a_conflict_names_the_key_and_leaves_nothing
            compares_see_the_state_before_the_transaction
            a_transaction_is_applied_whole_under_one_revision
            a_key_touched_twice_is_refused
            a_transaction_that_changes_nothing_has_no_revision_of_its_own
            an_oversized_transaction_is_refused
            of_many_racing_creators_one_wins
            a_counter_bumped_by_many_loses_no_bump
            a_watch_from_start_tells_the_state_then_the_changes
            a_watch_after_a_revision_tells_only_what_follows
            a_watch_sees_only_its_prefix
            delete_and_recreate_are_both_seen_in_order
            events_of_a_transaction_are_adjacent_and_share_its_revision
            a_watch_started_amid_writes_has_no_gap_and_no_double
            a_watch_from_compacted_history_is_told_to_start_over
            a_watch_from_the_future_is_told_to_start_over
            compaction_keeps_the_state_and_later_history
            a_live_watch_survives_compaction
            a_lease_takes_its_keys_with_it
            a_lease_kept_alive_stays
            a_revoked_lease_ends_in_one_transaction
            a_key_put_again_without_lease_stays
            unknown_leases_are_named
            a_large_prefix_is_listed_and_watched_whole
            values_of_any_bytes_and_size_come_back
            a_snapshot_is_of_one_revision
            a_backup_holds_everything_but_leased_entries
            typed_objects_come_back_and_bad_ones_are_reported
            health_tells_where_the_store_stands
        );
    };
    ($fresh:path: $($case:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let (store, _guard) = $fresh().await;
            suite::$case(store).await;
        }
    )*};
}

pub(crate) fn key(text: &str) -> Key {
    text.parse().unwrap()
}

pub(crate) fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

pub(crate) async fn put(store: &Store, name: &str, value: &str) -> Revision {
    store.transact(Transaction::new().put(key(name), value.to_owned())).await.unwrap().revision
}

pub(crate) async fn delete(store: &Store, name: &str) -> Revision {
    store.transact(Transaction::new().delete(key(name))).await.unwrap().revision
}

/// Long enough for a loaded machine; a wait that ends here has failed.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("happens before the test's patience ends")
}

pub(crate) async fn next(watch: &mut Watch) -> Event {
    soon(watch.next()).await.expect("the watch goes on").expect("the watch works")
}

/// Short forms for comparisons: `+key=value@modified`, `-key@revision`.
pub(crate) fn show(event: &Event) -> String {
    match event {
        Event::Init { revision } => format!("init@{revision}"),
        Event::InitDone { revision } => format!("done@{revision}"),
        Event::Delete { key, revision } => format!("-{key}@{revision}"),
        Event::Apply(entry) => {
            format!("+{}={}@{}", entry.key, String::from_utf8_lossy(&entry.value), entry.modified)
        }
    }
}

pub(crate) async fn take(watch: &mut Watch, count: usize) -> Vec<String> {
    let mut events = Vec::new();
    for _ in 0..count {
        events.push(show(&next(watch).await));
    }
    events
}

async fn nothing_follows(watch: &mut Watch) {
    let waited = tokio::time::timeout(Duration::from_millis(150), watch.next()).await;
    assert!(waited.is_err(), "unexpected {waited:?}");
}

pub(crate) async fn a_key_is_read_back_with_its_revisions(store: Store) {
    let first = put(&store, "a/b", "1").await;
    let entry = store.get(&key("a/b")).await.unwrap().unwrap();
    let expected = Entry {
        key: key("a/b"),
        value: Bytes::from_static(b"1"),
        created: first,
        modified: first,
        lease: None,
    };
    assert_eq!(entry, expected);
    let second = put(&store, "a/b", "1").await;
    assert!(second > first, "an equal value is a change too");
    let entry = store.get(&key("a/b")).await.unwrap().unwrap();
    assert_eq!((entry.created, entry.modified), (first, second));
    let third = delete(&store, "a/b").await;
    let fourth = put(&store, "a/b", "2").await;
    assert!(second < third && third < fourth);
    let entry = store.get(&key("a/b")).await.unwrap().unwrap();
    assert_eq!((entry.created, entry.modified), (fourth, fourth));
    assert_eq!(store.revision().await.unwrap(), fourth);
}

pub(crate) async fn absent_is_not_an_error(store: Store) {
    assert_eq!(store.get(&key("nothing")).await.unwrap(), None);
    assert_eq!(store.list(&prefix("nothing/")).await.unwrap().entries, []);
}

pub(crate) async fn a_list_is_sorted_and_of_one_prefix(store: Store) {
    for name in ["b/2", "a/2", "a/10", "a", "a/1", "a-b/1", "a0", "ab/1"] {
        put(&store, name, name).await;
    }
    let names =
        |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.key.to_string()).collect::<Vec<_>>();
    let listing = store.list(&prefix("a/")).await.unwrap();
    assert_eq!(listing.revision, store.revision().await.unwrap());
    assert_eq!(names(listing.entries), ["a/1", "a/10", "a/2"]);
    let all = names(store.list(&Prefix::all()).await.unwrap().entries);
    assert_eq!(all, ["a", "a-b/1", "a/1", "a/10", "a/2", "a0", "ab/1", "b/2"]);
}

pub(crate) async fn a_conflict_names_the_key_and_leaves_nothing(store: Store) {
    let at = put(&store, "there", "1").await;
    let before = store.revision().await.unwrap();
    let cases = [
        (Expected::Absent, "there", Some(at)),
        (Expected::Present, "absent", None),
        (Expected::ModifiedAt(Revision(at.0 + 1)), "there", Some(at)),
        (Expected::ModifiedAt(at), "absent", None),
    ];
    for (expected, name, found) in cases {
        let attempt = Transaction::new()
            .expect_present(key("there"))
            .expect(key(name), expected)
            .put(key("other"), "x")
            .delete(key("there"));
        let refused = store.transact(attempt).await.unwrap_err();
        assert_eq!(refused, TransactError::Conflict { key: key(name), found });
    }
    assert_eq!(store.get(&key("other")).await.unwrap(), None);
    assert!(store.get(&key("there")).await.unwrap().is_some());
    assert_eq!(store.revision().await.unwrap(), before);
    let accepted = Transaction::new()
        .expect_modified_at(key("there"), at)
        .expect_absent(key("absent"))
        .expect_present(key("there"))
        .put(key("there"), "2");
    store.transact(accepted).await.unwrap();
}

pub(crate) async fn compares_see_the_state_before_the_transaction(store: Store) {
    let swap = Transaction::new().expect_absent(key("a")).put(key("a"), "1").put(key("b"), "1");
    store.transact(swap.clone()).await.unwrap();
    let refused = store.transact(swap).await.unwrap_err();
    assert!(matches!(refused, TransactError::Conflict { key, .. } if key.as_str() == "a"));
}

pub(crate) async fn a_transaction_is_applied_whole_under_one_revision(store: Store) {
    for name in ["old/1", "old/2", "gone", "kept"] {
        put(&store, name, "0").await;
    }
    let Committed { revision } = store
        .transact(
            Transaction::new()
                .put(key("new/1"), "1")
                .put(key("kept"), "1")
                .delete(key("gone"))
                .delete_prefix(prefix("old/")),
        )
        .await
        .unwrap();
    let listing = store.list(&Prefix::all()).await.unwrap();
    assert_eq!(listing.revision, revision);
    let entries: Vec<_> = listing.entries.iter().map(|entry| (entry.key.as_str(), entry.modified)).collect();
    assert_eq!(entries, [("kept", revision), ("new/1", revision)]);
}

pub(crate) async fn a_key_touched_twice_is_refused(store: Store) {
    for twice in [
        Transaction::new().put(key("a"), "1").put(key("a"), "2"),
        Transaction::new().put(key("a"), "1").delete(key("a")),
        Transaction::new().put(key("b/c"), "1").delete_prefix(prefix("b/")),
    ] {
        let refused = store.transact(twice).await.unwrap_err();
        assert!(matches!(refused, TransactError::DuplicateKey { .. }), "{refused}");
    }
    assert_eq!(store.list(&Prefix::all()).await.unwrap().entries, []);
}

pub(crate) async fn a_transaction_that_changes_nothing_has_no_revision_of_its_own(store: Store) {
    let at = put(&store, "a", "1").await;
    for nothing in [
        Transaction::new(),
        Transaction::new().expect_present(key("a")),
        Transaction::new().delete(key("absent")),
        Transaction::new().delete_prefix(prefix("absent/")).delete(key("absent")),
    ] {
        assert_eq!(store.transact(nothing).await.unwrap().revision, at);
    }
    assert_eq!(store.revision().await.unwrap(), at);
}

pub(crate) async fn an_oversized_transaction_is_refused(store: Store) {
    let wide = (0..10_000).fold(Transaction::new(), |wide, n| wide.put(key(&format!("k/{n}")), "x"));
    let refused = store.transact(wide).await.unwrap_err();
    assert!(matches!(refused, TransactError::TooLarge { .. }), "{refused}");
    let heavy = Transaction::new().put(key("k"), vec![0_u8; 32 << 20]);
    let refused = store.transact(heavy).await.unwrap_err();
    assert!(matches!(refused, TransactError::TooLarge { .. }), "{refused}");
    assert_eq!(store.list(&Prefix::all()).await.unwrap().entries, []);
}

pub(crate) async fn of_many_racing_creators_one_wins(store: Store) {
    let attempts = (0..32).map(|n| {
        let store = store.clone();
        let attempt = Transaction::new().expect_absent(key("one")).put(key("one"), n.to_string());
        tokio::spawn(async move { store.transact(attempt).await })
    });
    let mut won = 0;
    for attempt in futures::future::join_all(attempts).await {
        match attempt.unwrap() {
            Ok(_) => won += 1,
            Err(TransactError::Conflict { found: Some(_), .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(won, 1);
}

pub(crate) async fn a_counter_bumped_by_many_loses_no_bump(store: Store) {
    put(&store, "counter", "0").await;
    let bumpers = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                loop {
                    let entry = store.get(&key("counter")).await.unwrap().unwrap();
                    let count: u64 = str::from_utf8(&entry.value).unwrap().parse().unwrap();
                    let bump = Transaction::new()
                        .expect_modified_at(entry.key.clone(), entry.modified)
                        .put(entry.key, (count + 1).to_string());
                    match store.transact(bump).await {
                        Ok(_) => break,
                        Err(TransactError::Conflict { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        })
    });
    for bumper in futures::future::join_all(bumpers).await {
        bumper.unwrap();
    }
    assert_eq!(store.get(&key("counter")).await.unwrap().unwrap().value, "80");
}

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

pub(crate) async fn a_lease_takes_its_keys_with_it(store: Store) {
    let lease = store.grant_lease(Duration::from_secs(1)).await.unwrap();
    assert!(lease.ttl >= Duration::from_secs(1));
    let mut watch = store.watch(&Prefix::all(), WatchFrom::Start);
    take(&mut watch, 2).await;
    let leased = Transaction::new().put_with_lease(key("l/a"), "1", lease.id).put_with_lease(
        key("l/b"),
        "1",
        lease.id,
    );
    store.transact(leased.put(key("stays"), "1")).await.unwrap();
    assert_eq!(store.get(&key("l/a")).await.unwrap().unwrap().lease, Some(lease.id));
    take(&mut watch, 3).await;
    let (first, second) = (next(&mut watch).await, next(&mut watch).await);
    let mut gone = [show(&first), show(&second)];
    gone.sort();
    let at = first.revision();
    assert_eq!(gone, [format!("-l/a@{at}"), format!("-l/b@{at}")]);
    assert!(store.get(&key("stays")).await.unwrap().is_some());
    let error = store.keep_alive(lease.id).await.unwrap_err();
    assert!(matches!(error, LeaseError::NotFound { lease: id } if id == lease.id));
}

pub(crate) async fn a_lease_kept_alive_stays(store: Store) {
    let lease = store.grant_lease(Duration::from_secs(2)).await.unwrap();
    store.transact(Transaction::new().put_with_lease(key("k"), "1", lease.id)).await.unwrap();
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let kept = store.keep_alive(lease.id).await.unwrap();
        assert_eq!(kept.id, lease.id);
        assert!(kept.ttl >= Duration::from_secs(2));
    }
    assert!(store.get(&key("k")).await.unwrap().is_some());
}

pub(crate) async fn a_revoked_lease_ends_in_one_transaction(store: Store) {
    let lease = store.grant_lease(Duration::from_secs(600)).await.unwrap();
    let leased = (0..5)
        .fold(Transaction::new(), |leased, n| leased.put_with_lease(key(&format!("l/{n}")), "1", lease.id));
    let at = store.transact(leased).await.unwrap().revision;
    store.revoke_lease(lease.id).await.unwrap();
    assert_eq!(store.list(&Prefix::all()).await.unwrap().entries, []);
    let mut watch = store.watch(&Prefix::all(), WatchFrom::After(at));
    let first = next(&mut watch).await.revision();
    for _ in 1..5 {
        assert_eq!(next(&mut watch).await.revision(), first);
    }
    let error = store.revoke_lease(lease.id).await.unwrap_err();
    assert!(matches!(error, LeaseError::NotFound { .. }));
}

pub(crate) async fn a_key_put_again_without_lease_stays(store: Store) {
    let first = store.grant_lease(Duration::from_secs(600)).await.unwrap();
    let second = store.grant_lease(Duration::from_secs(600)).await.unwrap();
    assert_ne!(first.id, second.id);
    let leased = Transaction::new()
        .put_with_lease(key("freed"), "1", first.id)
        .put_with_lease(key("moved"), "1", first.id)
        .put_with_lease(key("deleted"), "1", first.id);
    store.transact(leased).await.unwrap();
    let again = Transaction::new()
        .put(key("freed"), "2")
        .put_with_lease(key("moved"), "2", second.id)
        .delete(key("deleted"));
    store.transact(again).await.unwrap();
    put(&store, "deleted", "3").await;
    store.revoke_lease(first.id).await.unwrap();
    assert_eq!(store.list(&Prefix::all()).await.unwrap().entries.len(), 3);
    store.revoke_lease(second.id).await.unwrap();
    assert_eq!(store.list(&Prefix::all()).await.unwrap().entries.len(), 2);
}

pub(crate) async fn unknown_leases_are_named(store: Store) {
    let unknown = LeaseId(4711);
    let refused =
        store.transact(Transaction::new().put_with_lease(key("k"), "1", unknown)).await.unwrap_err();
    assert_eq!(refused, TransactError::LeaseNotFound { lease: unknown });
    assert_eq!(store.get(&key("k")).await.unwrap(), None);
    assert!(matches!(store.keep_alive(unknown).await.unwrap_err(), LeaseError::NotFound { .. }));
    assert!(matches!(store.revoke_lease(unknown).await.unwrap_err(), LeaseError::NotFound { .. }));
    assert!(matches!(store.grant_lease(Duration::ZERO).await.unwrap_err(), LeaseError::Ttl { .. }));
}

pub(crate) async fn a_large_prefix_is_listed_and_watched_whole(store: Store) {
    const ENTRIES: usize = 2500;
    for start in (0..ENTRIES).step_by(100) {
        let many = (start..start + 100)
            .fold(Transaction::new(), |many, n| many.put(key(&format!("big/{n:05}")), vec![b'x'; 1000]));
        store.transact(many).await.unwrap();
    }
    let listing = store.list(&prefix("big/")).await.unwrap();
    assert_eq!(listing.entries.len(), ENTRIES);
    let mut watch = store.watch(&prefix("big/"), WatchFrom::Start);
    assert!(matches!(next(&mut watch).await, Event::Init { .. }));
    for entry in listing.entries {
        assert_eq!(next(&mut watch).await, Event::Apply(entry));
    }
    assert_eq!(next(&mut watch).await, Event::InitDone { revision: listing.revision });
    store.transact(Transaction::new().delete_prefix(prefix("big/"))).await.unwrap();
    for _ in 0..ENTRIES {
        assert!(matches!(next(&mut watch).await, Event::Delete { .. }));
    }
}

pub(crate) async fn values_of_any_bytes_and_size_come_back(store: Store) {
    let long = "k".repeat(Key::MAX_LENGTH);
    let values = [Vec::new(), (0..=255).collect(), vec![0xff; 512 * 1024]];
    for value in values {
        store.transact(Transaction::new().put(key(&long), value.clone())).await.unwrap();
        assert_eq!(store.get(&key(&long)).await.unwrap().unwrap().value, value);
    }
    let escaped = prefix("nets/").key("10.0.0.0/8 %\u{7}").unwrap();
    store.transact(Transaction::new().put(escaped.clone(), "net")).await.unwrap();
    let entries = store.list(&prefix("nets/")).await.unwrap().entries;
    assert_eq!(entries[0].key, escaped);
}

pub(crate) async fn a_snapshot_is_of_one_revision(store: Store) {
    for start in (0..2000).step_by(100) {
        let many = (start..start + 100)
            .fold(Transaction::new(), |many, n| many.put(key(&format!("s/{n:05}")), "old"));
        store.transact(many).await.unwrap();
    }
    let mut snapshot = store.snapshot(&prefix("s/")).await.unwrap();
    assert_eq!(snapshot.revision, store.revision().await.unwrap());
    store.transact(Transaction::new().delete_prefix(prefix("s/"))).await.unwrap();
    put(&store, "s/00000", "new").await;
    let mut entries = Vec::new();
    while let Some(page) = soon(snapshot.pages.next()).await {
        entries.extend(page.unwrap());
    }
    assert_eq!(entries.len(), 2000);
    assert!(entries.iter().all(|entry| entry.value == "old"));
}

pub(crate) async fn a_backup_holds_everything_but_leased_entries(store: Store) {
    let lease = store.grant_lease(Duration::from_secs(600)).await.unwrap();
    let many =
        (0..50).fold(Transaction::new(), |many, n| many.put(key(&format!("b/{n:05}")), vec![n as u8; 100]));
    store.transact(many.put_with_lease(key("present"), "1", lease.id)).await.unwrap();
    let revision = store.revision().await.unwrap();
    let mut bytes = Vec::new();
    backup::write(&store, &mut bytes).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("backup");
    std::fs::write(&path, &bytes).unwrap();
    let file = backup::BackupFile::verify(&path).unwrap();
    assert_eq!((file.header.revision, file.trailer.entries, file.trailer.leased_left_out), (revision, 50, 1));
    let entries: Vec<_> = file.entries().unwrap().map(Result::unwrap).collect();
    let stored = store.list(&prefix("b/")).await.unwrap().entries;
    assert_eq!(entries.len(), stored.len());
    for (backed_up, stored) in entries.iter().zip(stored) {
        assert_eq!((&backed_up.key, &backed_up.value), (&stored.key, &stored.value));
        assert_eq!((backed_up.created, backed_up.modified), (stored.created, stored.modified));
    }
}

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Named {
    name: String,
}

pub(crate) async fn typed_objects_come_back_and_bad_ones_are_reported(store: Store) {
    let objects = typed::Objects::<Named>::new(store.clone(), prefix("named/"));
    let (good, bad) = (objects.key("10.0.0.0/8").unwrap(), objects.key("bad").unwrap());
    let value = Named { name: "ten".to_owned() };
    let at = objects.put(&good, &value, Some(Expected::Absent)).await.unwrap().revision;
    objects.put(&good, &value, Some(Expected::Absent)).await.unwrap_err();
    put(&store, "named/bad", "{").await;
    let found = objects.get(&good).await.unwrap().unwrap();
    assert_eq!((found.value, found.modified), (value, at));
    let error = objects.get(&bad).await.unwrap_err();
    assert!(error.to_string().contains("named/bad"), "{error}");
    assert_eq!(objects.list().await.unwrap().0.len(), 1);
    let mut watch = Box::pin(objects.watch(WatchFrom::Start));
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(soon(watch.next()).await.unwrap().unwrap());
    }
    assert!(matches!(&seen[1], typed::ObjectEvent::Apply(object) if object.key == good), "{seen:?}");
    assert!(matches!(&seen[2], typed::ObjectEvent::InitDone { .. }), "{seen:?}");
    objects.delete(&good, Some(Expected::ModifiedAt(at))).await.unwrap();
    let gone = soon(watch.next()).await.unwrap().unwrap();
    assert!(matches!(gone, typed::ObjectEvent::Delete { key, .. } if key == good));
}

pub(crate) async fn health_tells_where_the_store_stands(store: Store) {
    let at = put(&store, "k", "1").await;
    let health = store.health().await.unwrap();
    assert_eq!(health.revision, at);
    assert!(
        !health.place.is_empty() && health.size_bytes > 0 && health.refusing_writes.is_none(),
        "{health:?}"
    );
}
