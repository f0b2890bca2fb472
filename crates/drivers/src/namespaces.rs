//! Namespaces: stored objects, one key each.

use std::sync::Arc;

use model::{Namespace, ResourceName, Segment};
use store::{Entry, Prefix, ReadError, Store, TransactError, Transaction};

/// The namespace that is always there.
pub const DEFAULT: &str = "default";

/// Why a namespace could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    #[error("there is no namespace {name}")]
    NotFound { name: Segment },
    #[error("the namespace `{DEFAULT}` is always there and cannot be deleted")]
    DeleteDefault,
    #[error("namespace {name} is not empty: it has the resource {resource}; delete its resources first")]
    NotEmpty { name: Segment, resource: ResourceName },
    #[error("cannot read namespaces from the store")]
    Read(#[source] ReadError),
    #[error("cannot write namespace {name} to the store")]
    Write {
        name: Segment,
        #[source]
        err: TransactError,
    },
}

/// The namespaces of a store.
#[derive(Clone)]
pub struct Namespaces {
    store: Store,
}

impl Namespaces {
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Makes the default namespace if there is none.
    pub async fn ensure_default(&self) -> Result<(), NamespaceError> {
        let name: Segment = DEFAULT.parse().expect("it is a legal name");
        let key = key(&name);
        let namespace = Namespace { name: name.clone(), deployments: Default::default() };
        let transaction = Transaction::new().expect_absent(key.clone()).put(key, json(&namespace));
        match self.store.transact(transaction).await {
            Ok(_) | Err(TransactError::Conflict { .. }) => Ok(()),
            Err(err) => Err(NamespaceError::Write { name, err }),
        }
    }

    /// All namespaces, sorted by name.
    pub async fn list(&self) -> Result<Vec<Namespace>, NamespaceError> {
        let listing = self.store.list(&prefix()).await.map_err(NamespaceError::Read)?;
        listing.entries.iter().map(parse).collect()
    }

    pub async fn get(&self, name: &Segment) -> Result<Namespace, NamespaceError> {
        match self.store.get(&key(name)).await.map_err(NamespaceError::Read)? {
            Some(entry) => parse(&entry),
            None => Err(NamespaceError::NotFound { name: name.clone() }),
        }
    }

    /// Creates a namespace or replaces its deployments.
    pub async fn set(&self, namespace: &Namespace) -> Result<(), NamespaceError> {
        let transaction = Transaction::new().put(key(&namespace.name), json(namespace));
        let written = self.store.transact(transaction).await;
        written.map_err(|err| NamespaceError::Write { name: namespace.name.clone(), err })?;
        Ok(())
    }

    pub async fn delete(&self, name: &Segment) -> Result<(), NamespaceError> {
        if name.as_str() == DEFAULT {
            return Err(NamespaceError::DeleteDefault);
        }
        let key = key(name);
        match self.store.transact(Transaction::new().expect_present(key.clone()).delete(key)).await {
            Ok(_) => Ok(()),
            Err(TransactError::Conflict { .. }) => Err(NamespaceError::NotFound { name: name.clone() }),
            Err(err) => Err(NamespaceError::Write { name: name.clone(), err }),
        }
    }
}

fn prefix() -> Prefix {
    Prefix::below("namespaces").expect("a fixed path is a legal prefix")
}

fn key(name: &Segment) -> store::Key {
    prefix().key(name.as_str()).expect("a segment is a legal key")
}

fn json(namespace: &Namespace) -> Vec<u8> {
    serde_json::to_vec(namespace).expect("a namespace has no maps with odd keys")
}

fn parse(entry: &Entry) -> Result<Namespace, NamespaceError> {
    serde_json::from_slice(&entry.value).map_err(|err| {
        NamespaceError::Read(ReadError::Parse { key: entry.key.clone(), source: Arc::new(err) })
    })
}
