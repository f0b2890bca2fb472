//! The trait each backend implements, and the handle everyone else holds.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;

use super::{
    Committed, CompactError, Entry, Key, Lease, LeaseError, LeaseId, Listing, Prefix, ReadError, Revision,
    TransactError, Transaction, Watch, WatchFrom,
};

/// What both backends can do. Reads see every transaction acknowledged before they began.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError>;

    /// Everything below the prefix, at one revision, in memory. For what may be large, [`Backend::snapshot`].
    async fn list(&self, prefix: &Prefix) -> Result<Listing, ReadError>;

    /// Everything below the prefix, at one revision, a page at a time.
    async fn snapshot(&self, prefix: &Prefix) -> Result<Snapshot, ReadError>;

    /// The same, with secrets as they lie in the backend ([`crate::sealed`]): for backups.
    async fn snapshot_as_stored(&self, prefix: &Prefix) -> Result<Snapshot, ReadError> {
        self.snapshot(prefix).await
    }

    /// Applies the transaction whole, durably, or not at all. A caller that stops waiting does not take the
    /// transaction back: its outcome is then unknown to that caller.
    async fn transact(&self, transaction: Transaction) -> Result<Committed, TransactError>;

    /// Never fails at once: what is wrong is the stream's first item.
    fn watch(&self, prefix: &Prefix, from: WatchFrom) -> Watch;

    /// The revision of the last committed transaction.
    async fn revision(&self) -> Result<Revision, ReadError>;

    /// Grants a lease of at least `ttl`. When it ends, the keys attached to it are deleted in one transaction.
    async fn grant_lease(&self, ttl: Duration) -> Result<Lease, LeaseError>;

    /// Gives the lease its full time to live again.
    async fn keep_alive(&self, lease: LeaseId) -> Result<Lease, LeaseError>;

    /// Ends the lease now.
    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), LeaseError>;

    /// Forgets the history up to and including `revision`: a watch after an earlier revision gets
    /// [`super::WatchError::Compacted`]. The current state stays.
    async fn compact(&self, revision: Revision) -> Result<(), CompactError>;

    /// Returns when the store in this process cannot go on, which it never should: its writer is gone.
    async fn failed(&self) {
        std::future::pending().await
    }

    /// Proves that the store answers, and says where it stands.
    async fn health(&self) -> Result<Health, ReadError>;
}

/// A state at one revision, as a stream of pages sorted by key. Held resources end with it.
pub struct Snapshot {
    pub revision: Revision,
    pub pages: BoxStream<'static, Result<Vec<Entry>, ReadError>>,
}

/// What a health check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Directory or endpoints, for people.
    pub place: String,
    pub revision: Revision,
    /// History up to here is compacted, where the backend knows it.
    pub compacted: Option<Revision>,
    /// Transactions waiting to be committed in this process.
    pub queued: usize,
    /// Bytes on disk, as far as the backend knows.
    pub size_bytes: u64,
    /// Set while writes are refused (disk full, no quorum), with the reason.
    pub refusing_writes: Option<String>,
}

/// A handle on a backend. Cheap to clone; the backend closes when the last one is dropped.
#[derive(Clone)]
pub struct Store(Arc<dyn Backend>);

impl Store {
    pub fn new(backend: impl Backend) -> Self {
        Self(Arc::new(backend))
    }
}

impl Deref for Store {
    type Target = dyn Backend;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}
