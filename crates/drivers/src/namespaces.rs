//! Namespaces: stored objects, one key each.

use std::sync::Arc;

use model::{Namespace, ResourceName, Segment, change::Change};
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

    /// Creates a namespace or replaces its deployments. Says what that changed.
    pub async fn set(&self, namespace: &Namespace) -> Result<Change, NamespaceError> {
        let name = &namespace.name;
        self.replace(name, Some(json(namespace))).await
    }

    pub async fn delete(&self, name: &Segment) -> Result<Change, NamespaceError> {
        if name.as_str() == DEFAULT {
            return Err(NamespaceError::DeleteDefault);
        }
        self.replace(name, None).await
    }

    /// Reads what is there and replaces it, if nobody else did meanwhile.
    async fn replace(&self, name: &Segment, new: Option<Vec<u8>>) -> Result<Change, NamespaceError> {
        loop {
            let key = key(name);
            let old = self.store.get(&key).await.map_err(NamespaceError::Read)?;
            if old.is_none() && new.is_none() {
                return Err(NamespaceError::NotFound { name: name.clone() });
            }
            let transaction = match &old {
                Some(entry) => Transaction::new().expect_modified_at(key.clone(), entry.modified),
                None => Transaction::new().expect_absent(key.clone()),
            };
            let transaction = match &new {
                Some(value) => transaction.put(key, value.clone()),
                None => transaction.delete(key),
            };
            match self.store.transact(transaction).await {
                Ok(_) => {
                    let value = |bytes: &[u8]| serde_json::from_slice(bytes).ok();
                    let (before, after) =
                        (old.and_then(|entry| value(&entry.value)), new.as_deref().and_then(value));
                    return Ok(Change::between(format!("namespace {name}"), before.as_ref(), after.as_ref()));
                }
                Err(TransactError::Conflict { .. }) => {}
                Err(err) => return Err(NamespaceError::Write { name: name.clone(), err }),
            }
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
