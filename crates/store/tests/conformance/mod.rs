//! The contract of the store as tests: each backend runs all of them.
//!
//! A case gets a fresh, empty store. `conformance_suite!(fresh)` makes one test of each, where `fresh` is an async
//! function that yields a store and a guard that ends it.

pub(crate) mod leases;
pub(crate) mod model;
pub(crate) mod objects;
pub(crate) mod watches;
pub(crate) mod whole;

use std::{future::Future, time::Duration};

use futures::StreamExt as _;
use store::{Event, Key, Prefix, Revision, Store, Transaction, Watch};

#[macro_export]
macro_rules! conformance_suite {
    ($fresh:path) => {
        $crate::conformance_suite!($fresh:
            objects::a_key_is_read_back_with_its_revisions
            objects::absent_is_not_an_error
            objects::a_list_is_sorted_and_of_one_prefix
            objects::a_conflict_names_the_key_and_leaves_nothing
            objects::compares_see_the_state_before_the_transaction
            objects::a_transaction_is_applied_whole_under_one_revision
            objects::a_key_touched_twice_is_refused
            objects::a_transaction_that_changes_nothing_has_no_revision_of_its_own
            objects::an_oversized_transaction_is_refused
            objects::a_large_transaction_is_applied_whole_or_not_at_all
            objects::of_many_racing_creators_one_wins
            objects::a_counter_bumped_by_many_loses_no_bump
            watches::a_watch_from_start_tells_the_state_then_the_changes
            watches::a_watch_after_a_revision_tells_only_what_follows
            watches::a_watch_sees_only_its_prefix
            watches::delete_and_recreate_are_both_seen_in_order
            watches::events_of_a_transaction_are_adjacent_and_share_its_revision
            watches::events_of_a_transaction_are_ready_together
            watches::a_follower_tells_whole_transactions
            watches::a_watch_started_amid_writes_has_no_gap_and_no_double
            watches::a_watch_from_compacted_history_is_told_to_start_over
            watches::a_watch_from_the_future_is_told_to_start_over
            watches::compaction_keeps_the_state_and_later_history
            watches::a_live_watch_survives_compaction
            leases::a_lease_takes_its_keys_with_it
            leases::a_lease_kept_alive_stays
            leases::a_revoked_lease_ends_in_one_transaction
            leases::a_key_put_again_without_lease_stays
            leases::unknown_leases_are_named
            whole::a_large_prefix_is_listed_and_watched_whole
            objects::values_of_any_bytes_and_size_come_back
            whole::a_snapshot_is_of_one_revision
            whole::a_backup_holds_everything_but_leased_entries
            whole::typed_objects_come_back_and_bad_ones_are_reported
            model::random_operations_match_a_model
            whole::health_tells_where_the_store_stands
        );
    };
    ($fresh:path: $($group:ident::$case:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let (store, _guard) = $fresh().await;
            conformance::$group::$case(store).await;
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
