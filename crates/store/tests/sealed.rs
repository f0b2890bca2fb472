//! A store with sealed values keeps the store's contract, and what is sealed is nowhere in its file.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod conformance;

use store::{
    Prefix, Store, Transaction, embedded,
    sealed::{Keys, Sealed},
};
use tempfile::TempDir;

conformance_suite!(fresh);

/// Where most cases write. Below `b/` nothing is sealed: that case compares a backup with what is read.
const SEALED: [&str; 7] = ["k", "a", "s", "big", "named", "w", "m"];

fn sealed(store: Store) -> Store {
    let keys = Keys::parse(&"5a".repeat(32)).unwrap();
    Store::new(Sealed::new(store, keys, SEALED.map(|name| Prefix::below(name).unwrap()).into()))
}

async fn fresh() -> (Store, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = embedded::Options::new(dir.path()).open().unwrap();
    (sealed(store), dir)
}

#[tokio::test]
async fn what_is_sealed_is_nowhere_in_the_file() {
    let (store, dir) = fresh().await;
    let put = Transaction::new()
        .put("a/x".parse().unwrap(), "hunter2-sealed")
        .put("b/x".parse().unwrap(), "hunter2-open");
    store.transact(put).await.unwrap();
    drop(store);
    let file = std::fs::read(dir.path().join("store.redb")).unwrap();
    let holds = |text: &str| file.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(holds("hunter2-open") && !holds("hunter2-sealed"));
}
