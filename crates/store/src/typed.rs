//! Typed access: objects of one kind below one prefix, as JSON.
//!
//! In: a store, a prefix, a type. Out: values with their revisions. An entry that does not parse is an error for who
//! asks for it by name, and a warning for who lists or watches: one bad object must not hide the others.

use std::{fmt, marker::PhantomData, sync::Arc};

use futures::{Stream, StreamExt as _};
use serde::{Serialize, de::DeserializeOwned};

use crate::api::{
    Committed, Entry, Event, Expected, Key, KeyError, LeaseId, Prefix, ReadError, Revision, Store,
    TransactError, Transaction, WatchError, WatchFrom,
};

/// The objects of one kind: JSON values below a prefix.
pub struct Objects<T> {
    store: Store,
    prefix: Prefix,
    kind: PhantomData<fn() -> T>,
}

/// An object and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<T> {
    pub key: Key,
    pub value: T,
    pub created: Revision,
    pub modified: Revision,
    pub lease: Option<LeaseId>,
}

/// [`Event`], typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectEvent<T> {
    Init { revision: Revision },
    Apply(Object<T>),
    InitDone { revision: Revision },
    Delete { key: Key, revision: Revision },
}

impl<T> Clone for Objects<T> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), prefix: self.prefix.clone(), kind: PhantomData }
    }
}

impl<T> fmt::Debug for Objects<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Objects").field(&self.prefix).finish()
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Objects<T> {
    pub fn new(store: Store, prefix: Prefix) -> Self {
        Self { store, prefix, kind: PhantomData }
    }

    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The key of the object with this (free-text) name.
    pub fn key(&self, name: &str) -> Result<Key, KeyError> {
        self.prefix.key(name)
    }

    pub async fn get(&self, key: &Key) -> Result<Option<Object<T>>, ReadError> {
        self.store.get(key).await?.map(parse).transpose()
    }

    /// All objects that parse, at one revision.
    pub async fn list(&self) -> Result<(Vec<Object<T>>, Revision), ReadError> {
        let listing = self.store.list(&self.prefix).await?;
        let objects = listing.entries.into_iter().filter_map(parse_or_warn).collect();
        Ok((objects, listing.revision))
    }

    /// Writes the object if its key is as expected; `None` writes in any case.
    pub async fn put(&self, key: &Key, value: &T, expected: Option<Expected>) -> Result<Committed, PutError> {
        let transaction = Self::put_into(Transaction::new(), key, value)?;
        Ok(self.store.transact(expect(transaction, key, expected)).await?)
    }

    pub async fn delete(&self, key: &Key, expected: Option<Expected>) -> Result<Committed, TransactError> {
        self.store.transact(expect(Transaction::new().delete(key.clone()), key, expected)).await
    }

    /// Adds the write of an object to a transaction over several kinds.
    pub fn put_into(transaction: Transaction, key: &Key, value: &T) -> Result<Transaction, PutError> {
        let value =
            serde_json::to_vec(value).map_err(|source| PutError::Encode { key: key.clone(), source })?;
        Ok(transaction.put(key.clone(), value))
    }

    /// Like [`crate::Backend::watch`]; an entry that does not parse is skipped with a warning, so a watcher keeps
    /// the last value that did.
    pub fn watch(
        &self,
        from: WatchFrom,
    ) -> impl Stream<Item = Result<ObjectEvent<T>, WatchError>> + Send + use<T> {
        self.store.watch(&self.prefix, from).filter_map(|event| {
            let typed = match event {
                Ok(Event::Init { revision }) => Some(Ok(ObjectEvent::Init { revision })),
                Ok(Event::InitDone { revision }) => Some(Ok(ObjectEvent::InitDone { revision })),
                Ok(Event::Delete { key, revision }) => Some(Ok(ObjectEvent::Delete { key, revision })),
                Ok(Event::Apply(entry)) => parse_or_warn(entry).map(|object| Ok(ObjectEvent::Apply(object))),
                Err(error) => Some(Err(error)),
            };
            std::future::ready(typed)
        })
    }
}

fn expect(transaction: Transaction, key: &Key, expected: Option<Expected>) -> Transaction {
    match expected {
        Some(expected) => transaction.expect(key.clone(), expected),
        None => transaction,
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PutError {
    #[error("{key} could not be encoded as JSON")]
    Encode {
        key: Key,
        #[source]
        source: serde_json::Error,
    },
    #[error(transparent)]
    Transact(#[from] TransactError),
}

fn parse<T: DeserializeOwned>(entry: Entry) -> Result<Object<T>, ReadError> {
    match serde_json::from_slice(&entry.value) {
        Ok(value) => Ok(Object {
            key: entry.key,
            value,
            created: entry.created,
            modified: entry.modified,
            lease: entry.lease,
        }),
        Err(source) => Err(ReadError::Parse { key: entry.key, source: Arc::new(source) }),
    }
}

fn parse_or_warn<T: DeserializeOwned>(entry: Entry) -> Option<Object<T>> {
    let (key, revision) = (entry.key.clone(), entry.modified);
    match parse(entry) {
        Ok(object) => Some(object),
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%key, %revision, error = %error, %cause, "object skipped");
            None
        }
    }
}
