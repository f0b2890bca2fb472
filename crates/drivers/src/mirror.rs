//! A part of the store kept in memory, always a true state of it and never long behind.
//!
//! In: a watch on a prefix. Out: values by key, as of some revision. Holds: the parsed values.
//! An entry that does not parse is left out and logged, so it grants nothing; a lost watch is started over,
//! and meanwhile the last state serves.

use std::{collections::BTreeMap, sync::Arc};

use life::Life;
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use store::{
    Entry, Key, Prefix, Revision, Store,
    follow::{Follower, Progress, Step},
};
use tokio::sync::watch;
use tracing::warn;

/// Values of one type below one prefix, by the last segment of their key.
pub struct Mirror<T> {
    values: RwLock<BTreeMap<String, Arc<T>>>,
    progress: Progress,
}

impl<T: DeserializeOwned + Send + Sync + 'static> Mirror<T> {
    /// Starts to follow `prefix`.
    pub fn start(store: Store, prefix: Prefix, life: &Life) -> Arc<Self> {
        let task = format!("mirror of {prefix}");
        let follower = Follower::new(store, prefix);
        let mirror = Arc::new(Self { values: RwLock::default(), progress: follower.progress() });
        let following = Arc::clone(&mirror);
        life.spawn(task, async move { following.follow(follower).await });
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
        self.progress.reached().is_some()
    }

    /// The revision the values have reached, to wait for the next.
    pub fn changes(&self) -> watch::Receiver<Option<Revision>> {
        self.progress.changes()
    }

    /// How far this follows the store.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Waits until a transaction that touched the prefix is seen here.
    pub async fn reach(&self, revision: Revision) {
        self.progress.reach(revision).await;
    }

    async fn follow(&self, mut follower: Follower) {
        let mut loading = None;
        loop {
            match follower.next().await {
                Step::Begin => loading = Some(BTreeMap::new()),
                Step::Apply(entry) => match &mut loading {
                    Some(values) => put(values, &entry),
                    None => put(&mut self.values.write(), &entry),
                },
                Step::Delete { key, .. } => drop(self.values.write().remove(&name(&key))),
                Step::Complete { revision } => {
                    if let Some(values) = loading.take() {
                        *self.values.write() = values;
                    }
                    follower.took_in(revision);
                }
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
