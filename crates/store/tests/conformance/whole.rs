//! Large states, backups, typed access, health.

use std::time::Duration;

use futures::StreamExt as _;
use store::{Event, Expected, Store, Transaction, WatchFrom, backup, typed};

use super::{key, next, prefix, put, soon};

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
