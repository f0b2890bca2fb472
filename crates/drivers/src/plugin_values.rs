//! What plugins of Paraglider's keep with the controller: values by cloud, namespace and key. One key of the store each.
//!
//! In and out: text, which means something to the plugin only. Not here: who may ask (`server::access`).

use model::Segment;
use store::{Key, Prefix, ReadError, Store, TransactError, Transaction};

/// Longest value. What plugins keep are ids of the cloud's.
const MAX_VALUE: usize = 4096;

/// Why a value could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum PluginValueError {
    #[error("{key:?} cannot be a key of a plugin's value: it is empty or too long")]
    Key { key: String },
    #[error("a plugin's value has {bytes} bytes; {MAX_VALUE} are kept at most")]
    TooLong { bytes: usize },
    #[error("cannot read a plugin's value from the store")]
    Read(#[source] ReadError),
    #[error("cannot write a plugin's value to the store")]
    Write(#[source] TransactError),
}

/// Handle on the values of a store.
#[derive(Clone)]
pub struct PluginValues {
    store: Store,
}

impl PluginValues {
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    pub async fn get(
        &self,
        cloud: &Segment,
        namespace: &Segment,
        key: &str,
    ) -> Result<Option<String>, PluginValueError> {
        let entry = self.store.get(&place(cloud, namespace, key)?).await.map_err(PluginValueError::Read)?;
        Ok(entry.map(|entry| String::from_utf8_lossy(&entry.value).into_owned()))
    }

    pub async fn set(
        &self,
        cloud: &Segment,
        namespace: &Segment,
        key: &str,
        value: String,
    ) -> Result<(), PluginValueError> {
        if value.len() > MAX_VALUE {
            return Err(PluginValueError::TooLong { bytes: value.len() });
        }
        self.transact(Transaction::new().put(place(cloud, namespace, key)?, value.into_bytes())).await
    }

    /// One that is not there is fine.
    pub async fn delete(
        &self,
        cloud: &Segment,
        namespace: &Segment,
        key: &str,
    ) -> Result<(), PluginValueError> {
        self.transact(Transaction::new().delete(place(cloud, namespace, key)?)).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<(), PluginValueError> {
        self.store.transact(transaction).await.map(drop).map_err(PluginValueError::Write)
    }
}

fn place(cloud: &Segment, namespace: &Segment, key: &str) -> Result<Key, PluginValueError> {
    let prefix = Prefix::below("plugin-values").expect("a fixed path is a legal prefix");
    let site = prefix.child(cloud.as_str()).and_then(|prefix| prefix.child(namespace.as_str()));
    site.and_then(|prefix| prefix.key(key))
        .map_err(|_| PluginValueError::Key { key: key.chars().take(64).collect() })
}
