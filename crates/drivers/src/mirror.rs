//! A part of the store kept in memory, always a true state of it and never long behind.
//!
//! In: a watch on a prefix. Out: values by key, as of some revision. Holds: the parsed values.
//! An entry that does not parse is left out and logged, so it grants nothing; a lost watch is started over,
//! and meanwhile the last state serves.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::StreamExt as _;
use life::Life;
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use store::{Entry, Event, Key, Prefix, Revision, Store, Watch, WatchFrom};
use tokio::sync::watch;
use tracing::warn;

use crate::error::chain;

/// Pause before a lost watch is started over.
const RETRY: Duration = Duration::from_millis(500);

/// Values of one type below one prefix, by the last segment of their key.
pub struct Mirror<T> {
    values: RwLock<BTreeMap<String, Arc<T>>>,
    /// The revision the values have reached; none before the first complete state.
    reached: watch::Sender<Option<Revision>>,
}

impl<T: DeserializeOwned + Send + Sync + 'static> Mirror<T> {
    /// Starts to follow `prefix`.
    pub fn start(store: Store, prefix: Prefix, life: &Life) -> Arc<Self> {
        let mirror = Arc::new(Self { values: RwLock::default(), reached: watch::Sender::new(None) });
        let following = Arc::clone(&mirror);
        life.spawn(
            format!("mirror of {}", prefix.as_str()),
            async move { following.follow(store, prefix).await },
        );
        mirror
    }

    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.values.read().get(name).cloned()
    }

    /// All values, sorted by name.
    pub fn list(&self) -> Vec<(String, Arc<T>)> {
        self.values.read().iter().map(|(name, value)| (name.clone(), Arc::clone(value))).collect()
    }

    pub fn is_synced(&self) -> bool {
        self.reached.borrow().is_some()
    }

    /// The revision the values have reached, to wait for the next.
    pub fn changes(&self) -> watch::Receiver<Option<Revision>> {
        self.reached.subscribe()
    }

    /// Waits until a transaction that touched the prefix is seen here.
    pub async fn reach(&self, revision: Revision) {
        let mut reached = self.reached.subscribe();
        // The sender lives in self, so the wait cannot fail.
        let _ = reached.wait_for(|at| at.is_some_and(|at| at >= revision)).await;
    }

    async fn follow(&self, store: Store, prefix: Prefix) {
        loop {
            self.follow_once(store.watch(&prefix, WatchFrom::Start)).await;
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn follow_once(&self, mut watch: Watch) {
        let mut loading = None;
        while let Some(event) = watch.next().await {
            match event {
                Ok(Event::Init { .. }) => loading = Some(BTreeMap::new()),
                Ok(Event::Apply(entry)) => match &mut loading {
                    Some(values) => put(values, &entry),
                    None => {
                        put(&mut self.values.write(), &entry);
                        self.reached.send_replace(Some(entry.modified));
                    }
                },
                Ok(Event::InitDone { revision }) => {
                    *self.values.write() = loading.take().unwrap_or_default();
                    self.reached.send_replace(Some(revision));
                }
                Ok(Event::Delete { key, revision }) => {
                    self.values.write().remove(&name(&key));
                    self.reached.send_replace(Some(revision));
                }
                Err(err) => warn!(error = chain(&err), "a watch on the store was lost and is started over"),
            }
        }
    }
}

fn put<T: DeserializeOwned>(values: &mut BTreeMap<String, Arc<T>>, entry: &Entry) {
    match serde_json::from_slice(&entry.value) {
        Ok(value) => {
            values.insert(name(&entry.key), Arc::new(value));
        }
        Err(err) => {
            values.remove(&name(&entry.key));
            warn!(key = entry.key.as_str(), error = %err, "a stored object cannot be read and is left out");
        }
    }
}

fn name(key: &Key) -> String {
    key.name().unwrap_or_else(|_| key.as_str().to_owned())
}
