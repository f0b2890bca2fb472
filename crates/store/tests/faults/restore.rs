//! Backups: verified whole before anything is written, and restored without losing monotonic revisions.

use std::{fs, path::PathBuf};

use futures::StreamExt as _;
use store::{
    Prefix, Store, Transaction, WatchError, WatchFrom,
    backup::{self, RestoreError},
    embedded,
};
use tempfile::TempDir;

use super::super::{chain, entries, key, put};

async fn backup_of(store: &Store, dir: &TempDir) -> PathBuf {
    let path = dir.path().join("backup");
    let mut bytes = Vec::new();
    backup::write(store, &mut bytes).await.unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

async fn sample(dir: &TempDir) -> (Store, PathBuf) {
    let store = embedded::open(dir.path().join("original")).unwrap();
    for start in (0..1500).step_by(100) {
        let many = (start..start + 100)
            .fold(Transaction::new(), |many, n| many.put(key(&format!("k/{n:05}")), vec![n as u8]));
        store.transact(many).await.unwrap();
    }
    let path = backup_of(&store, dir).await;
    (store, path)
}

#[tokio::test]
async fn a_restored_store_holds_the_same_and_goes_on_above() {
    let dir = tempfile::tempdir().unwrap();
    let (original, path) = sample(&dir).await;
    let target = dir.path().join("restored");
    let restored = embedded::restore(&target, &path, false).unwrap();
    assert_eq!(restored.entries, 1500);
    let store = embedded::open(&target).unwrap();
    assert_eq!(entries(&store).await, entries(&original).await);
    let before = original.revision().await.unwrap();
    assert!(store.revision().await.unwrap() > before);
    assert!(put(&store, "next", "1").await > before);
    let mut watch = store.watch(&Prefix::all(), WatchFrom::After(before));
    let error = watch.next().await.unwrap().unwrap_err();
    assert!(
        matches!(error, WatchError::Compacted { .. }),
        "a reader of the old history starts over: {error:?}"
    );
    let first = entries(&store).await.remove(0);
    let change = Transaction::new().expect_modified_at(first.key.clone(), first.modified).delete(first.key);
    store.transact(change).await.unwrap();
}

#[tokio::test]
async fn a_backup_is_of_one_moment_while_writes_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (original, _) = sample(&dir).await;
    let writer = tokio::spawn({
        let store = original.clone();
        async move {
            for round in 0..200_u32 {
                let both = Transaction::new()
                    .put(key("k/00000"), round.to_string())
                    .put(key("k/01499"), round.to_string());
                store.transact(both).await.unwrap();
            }
        }
    });
    for n in 0..5 {
        let path = backup_of(&original, &dir).await;
        let target = dir.path().join(format!("restored-{n}"));
        embedded::restore(&target, &path, false).unwrap();
        let held = entries(&embedded::open(&target).unwrap()).await;
        assert_eq!(held.len(), 1500);
        if held[0].value.len() > 1 {
            assert_eq!(held[0].value, held[1499].value, "both ends of a transaction");
        }
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn a_damaged_backup_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (_, path) = sample(&dir).await;
    let good = fs::read(&path).unwrap();
    let target = dir.path().join("target");
    let refuse = |bytes: &[u8], what: String| {
        fs::write(&path, bytes).unwrap();
        let error = embedded::restore(&target, &path, false).unwrap_err();
        assert!(matches!(error, RestoreError::Backup(_)), "{what}: {}", chain(&error));
        assert!(!target.exists(), "{what}: something was written");
    };
    for position in (0..good.len()).step_by(good.len() / 100) {
        let mut damaged = good.clone();
        damaged[position] ^= 1;
        refuse(&damaged, format!("byte {position}"));
    }
    for cut in [0, 10, good.len() / 2, good.len() - 50, good.len() - 1] {
        refuse(&good[..cut], format!("cut at {cut}"));
    }
    let lines: Vec<_> = good.split_inclusive(|byte| *byte == b'\n').collect();
    refuse(&[&lines[..5], &lines[6..]].concat().concat(), "a line left out".to_owned());
    refuse(&[&lines[..6], &lines[5..]].concat().concat(), "a line twice".to_owned());
    refuse(&[&good[..], b"more\n"].concat(), "more at the end".to_owned());
    fs::write(&path, &good).unwrap();
    embedded::restore(&target, &path, false).unwrap();
}

#[tokio::test]
async fn a_store_in_place_is_replaced_only_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (_, path) = sample(&dir).await;
    let target = dir.path().join("target");
    let store = embedded::open(&target).unwrap();
    let at = put(&store, "precious", "1").await;
    let busy = embedded::restore(&target, &path, true).unwrap_err();
    assert!(chain(&busy).contains("in use"), "{}", chain(&busy));
    drop(store);
    let refused = embedded::restore(&target, &path, false).unwrap_err();
    assert!(matches!(refused, RestoreError::NotEmpty { .. }), "{}", chain(&refused));
    let restored = embedded::restore(&target, &path, true).unwrap();
    assert!(restored.revision > at);
    let store = embedded::open(&target).unwrap();
    assert_eq!(entries(&store).await.len(), 1500);
    assert!(target.join("store.redb.before-restore").exists(), "the old one is kept");
}

#[tokio::test]
async fn a_damaged_store_can_be_restored_over() {
    let dir = tempfile::tempdir().unwrap();
    let (_, path) = sample(&dir).await;
    let target = dir.path().join("target");
    put(&embedded::open(&target).unwrap(), "k", "1").await;
    fs::write(target.join("store.redb"), b"rubble").unwrap();
    embedded::open(&target).unwrap_err();
    embedded::restore(&target, &path, false).unwrap_err();
    embedded::restore(&target, &path, true).unwrap();
    assert_eq!(entries(&embedded::open(&target).unwrap()).await.len(), 1500);
}
