//! Keys of encrypted volumes, in the store, which seals them.
//!
//! ```text
//!   storage/volume-key/CONSUMER/KEY     the key, sealed on its way into the store (`sealing`)
//! ```
//! So neither the volumes with all that lies beside them, nor the store, nor a backup of either gives data away, but only all of
//! volumes, store and sealing key together; and a key that is deleted here is gone with what was encrypted with it.

use std::collections::BTreeSet;

use storage_nbd::{KeyStore, KeyStoreError, VolumeKey};
use storage_provider::{ConsumerId, VolumeKeyId};
use store::{Key, Prefix, Store, Transaction};
use tokio::runtime::Handle;
use zeroize::Zeroizing;

/// What is sealed of what storage keeps in the store.
pub(crate) fn secrets() -> Vec<Prefix> {
    vec![all()]
}

fn all() -> Prefix {
    Prefix::below("storage/volume-key").expect("a fixed path is a legal prefix")
}

fn of(consumer: ConsumerId) -> Prefix {
    all().child(&consumer.to_string()).expect("a UUID is a legal segment")
}

fn path(consumer: ConsumerId, key: VolumeKeyId) -> Key {
    of(consumer).key(&key.to_string()).expect("a UUID is a legal key")
}

pub(super) struct StoreKeys {
    store: Store,
    /// Whether the store seals secrets.
    seals: bool,
    /// Of the process. Volumes are worked on by threads that may wait.
    runtime: Handle,
}

impl StoreKeys {
    /// To be called within the runtime.
    pub(super) fn new(store: Store, seals: bool) -> Self {
        Self { store, seals, runtime: Handle::current() }
    }

    fn transact(&self, transaction: Transaction) -> Result<(), KeyStoreError> {
        self.runtime.block_on(self.store.transact(transaction)).map(drop).map_err(|err| failed(&err))
    }
}

fn failed(err: &dyn std::error::Error) -> KeyStoreError {
    KeyStoreError { reason: common::chain(err) }
}

impl KeyStore for StoreKeys {
    fn put(&self, consumer: ConsumerId, key: &VolumeKey) -> Result<(), KeyStoreError> {
        if !self.seals {
            let reason = "nothing seals secrets in this store, so no key is put there; set store.etcd.sealing_key_file";
            return Err(KeyStoreError { reason: reason.to_owned() });
        }
        let text = serde_json::to_vec(&key.expose()[..]).expect("bytes always serialise");
        self.transact(Transaction::new().put(path(consumer, key.id()), text))
    }

    fn get(&self, consumer: ConsumerId, key: VolumeKeyId) -> Result<Option<VolumeKey>, KeyStoreError> {
        let path = path(consumer, key);
        let Some(entry) = self.runtime.block_on(self.store.get(&path)).map_err(|err| failed(&err))? else {
            return Ok(None);
        };
        read(&entry.value).map(Some)
    }

    fn list(&self, consumer: ConsumerId) -> Result<BTreeSet<VolumeKeyId>, KeyStoreError> {
        let listed = self.runtime.block_on(self.store.list(&of(consumer))).map_err(|err| failed(&err))?;
        let names = listed.entries.iter().filter_map(|entry| entry.key.name().ok()?.parse().ok());
        Ok(names.map(VolumeKeyId).collect())
    }

    fn remove(&self, consumer: ConsumerId, key: VolumeKeyId) -> Result<(), KeyStoreError> {
        self.transact(Transaction::new().delete(path(consumer, key)))
    }
}

/// What was put; or why it could not be opened, which is what a sealed store answers with then.
fn read(value: &[u8]) -> Result<VolumeKey, KeyStoreError> {
    let bytes = serde_json::from_slice::<Vec<u8>>(value).map(Zeroizing::new);
    let key = bytes.ok().and_then(|bytes| <[u8; 64]>::try_from(&bytes[..]).ok());
    let told = || serde_json::from_slice::<String>(value).unwrap_or_else(|_| "it is no key".to_owned());
    key.map(VolumeKey::new).ok_or_else(|| KeyStoreError { reason: told() })
}

#[cfg(test)]
mod tests {
    use store::sealed::{Keys, Sealed};
    use uuid::Uuid;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn keys_are_sealed_in_the_store_and_one_that_does_not_open_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let inner = store::embedded::open(dir.path().join("store")).unwrap();
        let sealed = |text: &str| {
            let keys = Keys::parse(&text.repeat(32)).unwrap();
            Store::new(Sealed::new(inner.clone(), keys, secrets()))
        };
        let (ours, other) = (StoreKeys::new(sealed("11"), true), StoreKeys::new(sealed("22"), true));
        let plain = StoreKeys::new(sealed("11"), false);
        let consumer = ConsumerId::new(Uuid::from_u128(1));
        let key = VolumeKey::new(std::array::from_fn(|at| at as u8));
        let id = key.id();
        tokio::task::spawn_blocking(move || {
            ours.put(consumer, &key).unwrap();
            assert_eq!(ours.get(consumer, id).unwrap().unwrap().expose(), key.expose());
            assert_eq!(ours.list(consumer).unwrap(), [id].into());
            assert!(ours.get(ConsumerId::new(Uuid::from_u128(2)), id).unwrap().is_none());
            let refused = other.get(consumer, id).err().unwrap().reason;
            assert!(refused.contains("sealed with the key"), "{refused}");
            // Nothing is put where nothing is sealed.
            assert!(plain.put(consumer, &key).err().unwrap().reason.contains("sealing_key_file"));
            ours.remove(consumer, id).unwrap();
            ours.remove(consumer, id).unwrap();
            assert!(ours.get(consumer, id).unwrap().is_none() && ours.list(consumer).unwrap().is_empty());
        })
        .await
        .unwrap();
    }
}
