//! Leases.

use std::time::Duration;

use store::{LeaseError, LeaseId, Prefix, Store, TransactError, Transaction, WatchFrom};

use super::{key, next, put, show, take};

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
    store.revoke_lease(lease.id).await.unwrap();
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
