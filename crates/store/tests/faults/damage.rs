//! Damaged, foreign and locked files.

use std::{fs, path::Path};

use futures::StreamExt as _;
use redb::{Database, TableDefinition};
use store::{Event, Prefix, Transaction, WatchFrom, embedded};

use super::super::{chain, entries, key, put};

const FILE: &str = "store.redb";

#[tokio::test]
async fn a_directory_in_use_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let first = embedded::open(dir.path()).unwrap();
    let error = embedded::open(dir.path()).unwrap_err();
    assert!(matches!(error, embedded::OpenError::InUse { .. }), "{}", chain(&error));
    assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
    drop(first);
    embedded::open(dir.path()).unwrap();
}

/// A store with objects and history, closed. Its file, and what it holds.
async fn sample(dir: &Path) -> (Vec<u8>, Held) {
    let store = embedded::open(dir).unwrap();
    for batch in 0..10 {
        let many = (0..20).fold(Transaction::new(), |many, n| {
            many.put(key(&format!("k/{n:03}")), format!("{batch}-{}", "v".repeat(n * 7)))
        });
        store.transact(many).await.unwrap();
    }
    let lease = store.grant_lease(std::time::Duration::from_secs(600)).await.unwrap();
    store.transact(Transaction::new().put_with_lease(key("leased"), "1", lease.id)).await.unwrap();
    let held = Held::read(&store).await;
    drop(store);
    (fs::read(dir.join(FILE)).unwrap(), held)
}

#[derive(Debug, PartialEq)]
struct Held {
    entries: Vec<store::Entry>,
    revision: store::Revision,
    history: Vec<Event>,
}

impl Held {
    async fn read(store: &store::Store) -> Self {
        let revision = store.revision().await.unwrap();
        let watch = store.watch(&Prefix::all(), WatchFrom::After(store::Revision(0)));
        let history: Vec<_> = watch.take(201).map(Result::unwrap).collect().await;
        Self { entries: entries(store).await, revision, history }
    }
}

/// Either a clear error that names the file and the way out, or everything as it was.
async fn error_or_intact(dir: &Path, bytes: &[u8], held: &Held, what: &str) -> bool {
    fs::write(dir.join(FILE), bytes).unwrap();
    match embedded::open(dir) {
        Ok(store) => {
            assert_eq!(&Held::read(&store).await, held, "{what}: opened with other data");
            true
        }
        Err(error) => {
            let text = chain(&error);
            assert!(text.contains(FILE) && text.contains("trestle store restore"), "{what}: {text}");
            false
        }
    }
}

#[tokio::test]
async fn a_flipped_byte_is_an_error_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, held) = sample(dir.path()).await;
    // The header byte by byte, then a walk over the used pages.
    let used = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
    let positions = (0..320).step_by(3).chain((320..used).step_by(used / 250));
    let (mut intact, mut refused) = (0, 0);
    for position in positions {
        let mut damaged = bytes.clone();
        damaged[position] ^= 0x41;
        match error_or_intact(dir.path(), &damaged, &held, &format!("byte {position}")).await {
            true => intact += 1,
            false => refused += 1,
        }
    }
    assert!(refused > 20 && intact > 20, "{refused} refused, {intact} intact: both kinds were met");
}

#[tokio::test]
async fn a_cut_or_empty_file_is_an_error_not_a_fresh_start() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, held) = sample(dir.path()).await;
    let length = bytes.len();
    for cut in [0, 1, 100, 4096, 8192, length / 4, length / 2, length - 4096, length - 1] {
        let intact = error_or_intact(dir.path(), &bytes[..cut], &held, &format!("cut at {cut}")).await;
        assert!(!intact || cut > length / 2, "cut at {cut}");
    }
    error_or_intact(dir.path(), b"this is not a database", &held, "text").await;
    let mut longer = bytes.clone();
    longer.extend([7; 10_000]);
    error_or_intact(dir.path(), &longer, &held, "longer").await;
}

#[tokio::test]
async fn damage_after_a_crash_does_not_silently_undo_the_last_write() {
    let dir = tempfile::tempdir().unwrap();
    let store = embedded::open(dir.path()).unwrap();
    for n in 0..20 {
        put(&store, "k", &format!("value {n}")).await;
    }
    // As a crash leaves it: not closed, last commit verified by nobody but the engine's own checksums.
    let crashed = tempfile::tempdir().unwrap();
    for file in [FILE, "store.lock"] {
        fs::copy(dir.path().join(file), crashed.path().join(file)).unwrap();
    }
    let bytes = fs::read(crashed.path().join(FILE)).unwrap();
    let at = |needle: &[u8]| bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    let mut damaged = bytes.clone();
    damaged[at(b"value 19")] ^= 1;
    fs::write(crashed.path().join(FILE), &damaged).unwrap();
    let error = embedded::open(crashed.path()).unwrap_err();
    assert!(chain(&error).contains("trestle store restore"), "{}", chain(&error));
    fs::write(crashed.path().join(FILE), &bytes).unwrap();
    let survivor = embedded::open(crashed.path()).unwrap();
    assert_eq!(survivor.get(&key("k")).await.unwrap().unwrap().value, "value 19");
}

#[tokio::test]
async fn an_older_copy_in_place_of_the_file_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    put(&embedded::open(dir.path()).unwrap(), "k", "1").await;
    let older = fs::read(dir.path().join(FILE)).unwrap();
    put(&embedded::open(dir.path()).unwrap(), "k", "2").await;
    fs::write(dir.path().join(FILE), older).unwrap();
    let error = embedded::open(dir.path()).unwrap_err();
    assert!(
        matches!(error, embedded::OpenError::Lost { found: 1, acknowledged: 2, .. }),
        "{}",
        chain(&error)
    );
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    put(&embedded::open(dir.path()).unwrap(), "k", "1").await;
    let database = Database::open(dir.path().join(FILE)).unwrap();
    let write = database.begin_write().unwrap();
    let meta: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
    write.open_table(meta).unwrap().insert("format", 999_u64.to_le_bytes().as_slice()).unwrap();
    write.commit().unwrap();
    drop(database);
    let error = embedded::open(dir.path()).unwrap_err();
    assert!(matches!(error, embedded::OpenError::NewerFormat { found: 999, .. }), "{}", chain(&error));
}
