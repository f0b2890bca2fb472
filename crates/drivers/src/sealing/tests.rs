use store::{Key, Transaction, backup, embedded};
use tempfile::TempDir;

use super::*;
use crate::{open_store, restore_store};

const SECRET: &str = "hunter2hunter2";

fn key() -> Key {
    "orchestrator/made/link/x".parse().unwrap()
}

async fn open(dir: &TempDir) -> Store {
    open_store(&StoreKind::Embedded, dir.path()).await.unwrap()
}

async fn read_back(store: &Store) -> String {
    let entry = store.get(&key()).await.unwrap().unwrap();
    String::from_utf8(entry.value.to_vec()).unwrap()
}

/// What the file itself holds.
async fn stored(dir: &TempDir) -> Vec<u8> {
    let raw = embedded::Options::new(dir.path().join("store")).open().unwrap();
    raw.get(&key()).await.unwrap().unwrap().value.to_vec()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn a_record_in_clear_is_read_and_sealed_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let raw = embedded::Options::new(dir.path().join("store")).open().unwrap();
    raw.transact(Transaction::new().put(key(), SECRET)).await.unwrap();
    drop(raw);
    let store = open(&dir).await;
    assert_eq!(read_back(&store).await, SECRET);
    drop(store);
    assert!(!holds(&stored(&dir).await, SECRET));
    let store = open(&dir).await;
    assert_eq!(read_back(&store).await, SECRET);
    store.transact(Transaction::new().put(key(), "another")).await.unwrap();
    drop(store);
    assert!(!holds(&stored(&dir).await, "another"));
}

#[tokio::test]
async fn a_key_is_changed_by_a_line_and_the_old_one_can_go_after_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    store.transact(Transaction::new().put(key(), SECRET)).await.unwrap();
    drop(store);
    let path = dir.path().join(FILE);
    let (old, new) = (fs::read_to_string(&path).unwrap(), "ab".repeat(32));
    files::write(&path, format!("{new}\n{old}").as_bytes()).unwrap();
    drop(open(&dir).await);
    files::write(&path, new.as_bytes()).unwrap();
    assert_eq!(read_back(&open(&dir).await).await, SECRET);
}

#[tokio::test]
async fn a_backup_holds_no_secret_and_elsewhere_the_key_is_asked_for() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(&dir).await;
    store.transact(Transaction::new().put(key(), SECRET)).await.unwrap();
    let mut bytes = Vec::new();
    backup::write(&store, &mut bytes).await.unwrap();
    let file = dir.path().join("backup");
    fs::write(&file, &bytes).unwrap();
    for entry in backup::BackupFile::verify(&file).unwrap().entries().unwrap() {
        assert!(!holds(&entry.unwrap().value, SECRET));
    }
    restore_store(&StoreKind::Embedded, elsewhere.path(), &file, false).await.unwrap();
    let refused = open_store(&StoreKind::Embedded, elsewhere.path()).await.unwrap_err();
    let told = common::chain(&refused);
    assert!(told.contains("sealing.key is not there"), "{told}");
    assert!(!elsewhere.path().join(FILE).exists(), "no other key is made");
    fs::copy(dir.path().join(FILE), elsewhere.path().join(FILE)).unwrap();
    assert_eq!(read_back(&open(&elsewhere).await).await, SECRET);
}

#[tokio::test]
async fn a_key_that_others_can_read_is_refused_with_what_mends_it() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(&dir).await);
    let path = dir.path().join(FILE);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let told = common::chain(&open_store(&StoreKind::Embedded, dir.path()).await.unwrap_err());
    assert!(told.contains(&format!("chmod 600 {}", path.display())), "{told}");
}
