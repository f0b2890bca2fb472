//! Records: where consumers, tickets and the ledger are kept. The store implements this; it is all this room asks of it.

use std::sync::Arc;

use async_trait::async_trait;
use storage_provider::{Consumer, ConsumerId, Ledger, TicketHash, TicketRecord, VaultId};

/// Of one record; 0 means there is none. Changes with every write of the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    pub const ABSENT: Self = Self(0);
}

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<T> {
    pub value: T,
    pub version: Version,
}

/// One write of a transaction. `expected` is the version that was read; if it is not the current one, nothing of the
/// transaction happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    PutConsumer { expected: Version, value: Consumer },
    DeleteConsumer { expected: Version, id: ConsumerId },
    PutTicket { expected: Version, value: TicketRecord },
    DeleteTicket { expected: Version, hash: TicketHash },
    PutLedger { expected: Version, value: Ledger },
}

/// The records could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reading the {what}: {reason}")]
pub struct RecordsError {
    pub what: String,
    pub reason: String,
}

/// The transaction did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error("a record changed since it was read; read again and retry")]
    Conflict,
    #[error("writing the records: {reason}")]
    Failed { reason: String },
}

#[async_trait]
pub trait Records: Send + Sync + 'static {
    async fn consumer(&self, id: ConsumerId) -> Result<Option<Stored<Consumer>>, RecordsError>;
    async fn consumers(&self) -> Result<Vec<Stored<Consumer>>, RecordsError>;
    async fn ticket(&self, hash: &TicketHash) -> Result<Option<Stored<TicketRecord>>, RecordsError>;
    async fn tickets(&self) -> Result<Vec<Stored<TicketRecord>>, RecordsError>;
    /// The ledger; an empty one at [`Version::ABSENT`] before the first grant.
    async fn ledger(&self) -> Result<Stored<Ledger>, RecordsError>;
    /// Where a vault was served last, in words; `None` when that is not known.
    async fn place_of(&self, _vault: VaultId) -> Result<Option<String>, RecordsError> {
        Ok(None)
    }
    /// All changes or none. When it returns `Ok`, they are on disk.
    async fn commit(&self, changes: Vec<Change>) -> Result<(), CommitError>;
}

#[async_trait]
impl<R: Records + ?Sized> Records for Arc<R> {
    async fn consumer(&self, id: ConsumerId) -> Result<Option<Stored<Consumer>>, RecordsError> {
        (**self).consumer(id).await
    }
    async fn consumers(&self) -> Result<Vec<Stored<Consumer>>, RecordsError> {
        (**self).consumers().await
    }
    async fn ticket(&self, hash: &TicketHash) -> Result<Option<Stored<TicketRecord>>, RecordsError> {
        (**self).ticket(hash).await
    }
    async fn tickets(&self) -> Result<Vec<Stored<TicketRecord>>, RecordsError> {
        (**self).tickets().await
    }
    async fn ledger(&self) -> Result<Stored<Ledger>, RecordsError> {
        (**self).ledger().await
    }
    async fn place_of(&self, vault: VaultId) -> Result<Option<String>, RecordsError> {
        (**self).place_of(vault).await
    }
    async fn commit(&self, changes: Vec<Change>) -> Result<(), CommitError> {
        (**self).commit(changes).await
    }
}
