//! The provider's records in the store.
//!
//! ```text
//!   storage/consumer/ID   storage/ticket/HASH   storage/ledger      JSON; the version of a record is its revision
//!   storage/vault/ID   storage/volume-key/CONSUMER/KEY              (`vaults`, `volume_keys`)
//! ```

use async_trait::async_trait;
use serde::{Serialize, de::DeserializeOwned};
use storage_backend::{Change, CommitError, Records, RecordsError, Stored, Version};
use storage_provider::{Consumer, ConsumerId, Ledger, TicketHash, TicketRecord, VaultId};
use store::{Entry, Expected, Key, Prefix, Revision, Store, TransactError, Transaction};

use super::vaults;

pub struct StoreRecords {
    store: Store,
}

impl StoreRecords {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }

    async fn get<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<Stored<T>>, RecordsError> {
        match self.store.get(key).await {
            Ok(entry) => entry.as_ref().map(parse).transpose(),
            Err(err) => Err(unreadable(key.as_str(), &err)),
        }
    }

    async fn list<T: DeserializeOwned>(&self, prefix: &Prefix) -> Result<Vec<Stored<T>>, RecordsError> {
        match self.store.list(prefix).await {
            Ok(listing) => listing.entries.iter().map(parse).collect(),
            Err(err) => Err(unreadable(prefix.as_str(), &err)),
        }
    }
}

#[async_trait]
impl Records for StoreRecords {
    async fn consumer(&self, id: ConsumerId) -> Result<Option<Stored<Consumer>>, RecordsError> {
        self.get(&consumer_key(id)).await
    }

    async fn consumers(&self) -> Result<Vec<Stored<Consumer>>, RecordsError> {
        self.list(&consumers()).await
    }

    async fn ticket(&self, hash: &TicketHash) -> Result<Option<Stored<TicketRecord>>, RecordsError> {
        self.get(&ticket_key(hash)).await
    }

    async fn tickets(&self) -> Result<Vec<Stored<TicketRecord>>, RecordsError> {
        self.list(&below("ticket")).await
    }

    async fn ledger(&self) -> Result<Stored<Ledger>, RecordsError> {
        let absent = || Stored { value: Ledger::default(), version: Version::ABSENT };
        Ok(self.get(&ledger_key()).await?.unwrap_or_else(absent))
    }

    async fn place_of(&self, vault: VaultId) -> Result<Option<String>, RecordsError> {
        let record = self.get::<vaults::VaultRecord>(&vaults::key(vault)).await?;
        Ok(record.map(|stored| stored.value.place))
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<(), CommitError> {
        let transaction = changes.into_iter().fold(Transaction::new(), |transaction, change| match change {
            Change::PutConsumer { expected, value } => {
                put(transaction, consumer_key(value.id), expected, &value)
            }
            Change::PutTicket { expected, value } => {
                put(transaction, ticket_key(&value.hash), expected, &value)
            }
            Change::PutLedger { expected, value } => put(transaction, ledger_key(), expected, &value),
            Change::DeleteConsumer { expected, id } => delete(transaction, consumer_key(id), expected),
            Change::DeleteTicket { expected, hash } => delete(transaction, ticket_key(&hash), expected),
        });
        match self.store.transact(transaction).await {
            Ok(_) => Ok(()),
            Err(TransactError::Conflict { .. }) => Err(CommitError::Conflict),
            Err(err) => Err(CommitError::Failed { reason: common::chain(&err) }),
        }
    }
}

fn below(kind: &str) -> Prefix {
    Prefix::below(&format!("storage/{kind}")).expect("a fixed path is a legal prefix")
}

/// Where consumers are.
pub(super) fn consumers() -> Prefix {
    below("consumer")
}

/// The consumer a key is of, if it is of one.
pub(super) fn consumer_of(key: &Key) -> Option<ConsumerId> {
    consumers().segment_of(key)?.ok()?.parse().ok()
}

fn consumer_key(id: ConsumerId) -> Key {
    consumers().key(&id.to_string()).expect("a UUID is a legal key")
}

fn ticket_key(hash: &TicketHash) -> Key {
    below("ticket").key(hash.as_str()).expect("a hash is a legal key")
}

fn ledger_key() -> Key {
    Prefix::below("storage").and_then(|prefix| prefix.key("ledger")).expect("a fixed path is a legal key")
}

fn expectation(version: Version) -> Expected {
    match version {
        Version::ABSENT => Expected::Absent,
        Version(revision) => Expected::ModifiedAt(Revision(revision)),
    }
}

fn put(transaction: Transaction, key: Key, expected: Version, value: &impl Serialize) -> Transaction {
    let value = serde_json::to_vec(value).expect("records have no maps with odd keys");
    transaction.expect(key.clone(), expectation(expected)).put(key, value)
}

fn delete(transaction: Transaction, key: Key, expected: Version) -> Transaction {
    transaction.expect(key.clone(), expectation(expected)).delete(key)
}

fn parse<T: DeserializeOwned>(entry: &Entry) -> Result<Stored<T>, RecordsError> {
    let version = Version(entry.modified.0);
    let value = serde_json::from_slice(&entry.value).map_err(|err| unreadable(entry.key.as_str(), &err))?;
    Ok(Stored { value, version })
}

fn unreadable(what: &str, err: &dyn std::error::Error) -> RecordsError {
    RecordsError { what: what.to_owned(), reason: common::chain(err) }
}
