//! A store whose secrets are sealed: what lies below some prefixes is encrypted before it reaches the backend, with a key that is
//! kept elsewhere. Whoever has the file, the cluster or a backup has not the secrets.
//!
//! In: any store, keys, and the prefixes. Out: a store that reads and watches as if nothing were sealed. Backups are taken of what
//! is stored, so they hold sealed values. Not here: where keys are kept, and which prefixes hold secrets.
//!
//! ```text
//!   sealed1:KEYID:NONCE CIPHERTEXT TAG        AES-256-GCM-SIV; the key of the entry is authenticated with it
//! ```
//!
//! A value that is not sealed is read as it is, so that a store of an earlier version stays readable until [`Sealed::reseal`] has
//! run. One that cannot be opened is read as a JSON text that says why: whoever parses it tells that.

mod keys;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;

pub use keys::{Keys, KeysError};

use crate::api::{
    Backend, Committed, CompactError, Entry, Event, Health, Key, Lease, LeaseError, LeaseId, Listing,
    Operation, Prefix, ReadError, Revision, Snapshot, Store, TransactError, Transaction, Watch, WatchFrom,
};

/// A backend below which some prefixes are sealed.
#[derive(Clone)]
pub struct Sealed {
    inner: Store,
    seal: Arc<Seal>,
}

struct Seal {
    keys: Keys,
    prefixes: Vec<Prefix>,
}

/// What [`Sealed::reseal`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resealed {
    /// Entries that were not sealed, or not with the newest key, and are now.
    pub entries: usize,
    /// Keys that sealed something and that are not there.
    pub missing: Vec<String>,
}

impl Sealed {
    pub fn new(inner: Store, keys: Keys, prefixes: Vec<Prefix>) -> Self {
        Self { inner, seal: Arc::new(Seal { keys, prefixes }) }
    }

    /// The keys that sealed something and that are not there.
    pub async fn missing(&self) -> Result<Vec<String>, ResealError> {
        let mut missing = std::collections::BTreeSet::new();
        for prefix in &self.seal.prefixes {
            let entries = self.inner.list(prefix).await?.entries;
            missing.extend(
                entries.iter().filter_map(|entry| self.seal.keys.open(&entry.key, &entry.value).err()),
            );
        }
        Ok(missing.into_iter().collect())
    }

    /// Seals what is not sealed with the newest key. What changes meanwhile is left to whoever changed it.
    pub async fn reseal(&self) -> Result<Resealed, ResealError> {
        let mut resealed = Resealed::default();
        for prefix in &self.seal.prefixes {
            for entry in self.inner.list(prefix).await?.entries {
                if self.seal.keys.is_newest(&entry.value) || entry.lease.is_some() {
                    continue;
                }
                let clear = match self.seal.keys.open(&entry.key, &entry.value) {
                    Ok(clear) => clear,
                    Err(key) => {
                        resealed.missing.push(key);
                        continue;
                    }
                };
                let value = self.seal.keys.seal(&entry.key, &clear);
                let transaction = Transaction::new().expect_modified_at(entry.key.clone(), entry.modified);
                match self.inner.transact(transaction.put(entry.key, value)).await {
                    Ok(_) => resealed.entries += 1,
                    Err(TransactError::Conflict { .. }) => {}
                    Err(err) => return Err(err.into()),
                }
            }
        }
        resealed.missing.sort_unstable();
        resealed.missing.dedup();
        Ok(resealed)
    }
}

/// Why secrets could not be sealed.
#[derive(Debug, thiserror::Error)]
pub enum ResealError {
    #[error("cannot read what is to be sealed")]
    Read(#[from] ReadError),
    #[error("cannot write what was sealed")]
    Write(#[from] TransactError),
}

impl Seal {
    fn covers(&self, key: &Key) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(key))
    }

    fn opened(&self, mut entry: Entry) -> Entry {
        if self.covers(&entry.key) {
            entry.value = self.keys.open(&entry.key, &entry.value).unwrap_or_else(|key| {
                let text = format!(
                    "sealed with the key {key}, which this controller does not have or which does not open it"
                );
                serde_json::Value::from(text).to_string().into()
            });
        }
        entry
    }

    fn sealed(&self, operation: Operation) -> Operation {
        match operation {
            Operation::Put { key, value, lease } if self.covers(&key) => {
                let value = self.keys.seal(&key, &value);
                Operation::Put { key, value, lease }
            }
            other => other,
        }
    }
}

#[async_trait]
impl Backend for Sealed {
    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        Ok(self.inner.get(key).await?.map(|entry| self.seal.opened(entry)))
    }

    async fn list(&self, prefix: &Prefix) -> Result<Listing, ReadError> {
        let Listing { entries, revision } = self.inner.list(prefix).await?;
        Ok(Listing { entries: entries.into_iter().map(|entry| self.seal.opened(entry)).collect(), revision })
    }

    async fn snapshot(&self, prefix: &Prefix) -> Result<Snapshot, ReadError> {
        let Snapshot { revision, pages } = self.inner.snapshot(prefix).await?;
        let seal = Arc::clone(&self.seal);
        let open = move |page: Vec<Entry>| page.into_iter().map(|entry| seal.opened(entry)).collect();
        Ok(Snapshot { revision, pages: pages.map(move |page| page.map(&open)).boxed() })
    }

    async fn snapshot_as_stored(&self, prefix: &Prefix) -> Result<Snapshot, ReadError> {
        self.inner.snapshot_as_stored(prefix).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<Committed, TransactError> {
        let Transaction { compares, operations } = transaction;
        let operations = operations.into_iter().map(|operation| self.seal.sealed(operation)).collect();
        self.inner.transact(Transaction { compares, operations }).await
    }

    fn watch(&self, prefix: &Prefix, from: WatchFrom) -> Watch {
        let inner = self.inner.watch(prefix, from);
        let seal = Arc::clone(&self.seal);
        Watch::on(
            inner.line(),
            inner.map(move |event| match event {
                Ok(Event::Apply(entry)) => Ok(Event::Apply(seal.opened(entry))),
                other => other,
            }),
        )
    }

    async fn revision(&self) -> Result<Revision, ReadError> {
        self.inner.revision().await
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<Lease, LeaseError> {
        self.inner.grant_lease(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Lease, LeaseError> {
        self.inner.keep_alive(lease).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.inner.revoke_lease(lease).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), CompactError> {
        self.inner.compact(revision).await
    }

    async fn failed(&self) {
        self.inner.failed().await;
    }

    async fn health(&self) -> Result<Health, ReadError> {
        self.inner.health().await
    }
}

/// A value as it is stored: sealed, and with which key.
fn parts(value: &Bytes) -> Option<(&str, &[u8])> {
    let rest = value.strip_prefix(MAGIC)?;
    let (id, rest) = rest.split_at_checked(ID)?;
    Some((str::from_utf8(id).ok()?, rest.strip_prefix(b":")?))
}

const MAGIC: &[u8] = b"sealed1:";
/// Letters of a key's id.
const ID: usize = 8;
