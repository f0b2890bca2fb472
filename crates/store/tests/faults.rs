//! What the embedded store does when things go wrong around it.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod faults {
    mod damage;
    mod disk_full;
    mod restart;
    mod restore;
    mod watchers;
}

use std::{error::Error, sync::Arc};

use store::{Entry, Key, Prefix, Revision, Store, Transaction};

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

async fn put(store: &Store, name: &str, value: &str) -> Revision {
    store.transact(Transaction::new().put(key(name), value.to_owned())).await.unwrap().revision
}

async fn entries(store: &Store) -> Vec<Entry> {
    store.list(&Prefix::all()).await.unwrap().entries
}

/// An error with its causes, as a log shows it.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Runs one future per number at once.
async fn all<F: Future<Output = ()> + Send + 'static>(count: usize, make: impl Fn(usize) -> F) {
    let tasks: Vec<_> = (0..count).map(|n| tokio::spawn(make(n))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

fn shared<T>(value: T) -> Arc<T> {
    Arc::new(value)
}
