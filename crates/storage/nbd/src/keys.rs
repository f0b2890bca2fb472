//! Keys of encrypted volumes: made here, kept elsewhere.
//!
//! In: which consumer, which key. Out: the key as a cipher, or why it cannot be had. Holds: the keys that volumes are open
//! with. Not here: where keys are kept, which is never beside the data ([`KeyStore`] is given).
//!
//! A key has the name that it makes for itself, so that a wrong one is noticed before anything is read with it. A volume's
//! snapshots and copies share blocks with it, and so its key; it goes with the last of them, and all of a consumer's with its data.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use aws_lc_rs::{
    digest::{SHA256, digest},
    rand,
};
use parking_lot::Mutex;
use storage_provider::{ConsumerId, VolumeKeyId};
use uuid::Builder;
use zeroize::Zeroizing;

use crate::cipher::{Cipher, KEY};

/// The key of a volume.
pub struct VolumeKey(Zeroizing<[u8; KEY]>);

impl VolumeKey {
    pub fn new(bytes: [u8; KEY]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub fn expose(&self) -> &[u8; KEY] {
        &self.0
    }

    /// What it is called, which says nothing about it.
    pub fn id(&self) -> VolumeKeyId {
        let sum = digest(&SHA256, &*self.0);
        let (id, _) = sum.as_ref().split_first_chunk().expect("a digest of 32 bytes");
        VolumeKeyId(Builder::from_custom_bytes(*id).into_uuid())
    }

    fn fresh() -> Result<Self, KeyStoreError> {
        let mut key = Self(Zeroizing::new([0; KEY]));
        rand::fill(&mut *key.0).map_err(|_| KeyStoreError { reason: "there is no randomness".to_owned() })?;
        Ok(key)
    }
}

/// Why keys could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct KeyStoreError {
    pub reason: String,
}

/// Where keys are kept: elsewhere than the volumes. Called on threads that may wait.
pub trait KeyStore: Send + Sync + 'static {
    /// There for good when it returns.
    fn put(&self, consumer: ConsumerId, key: &VolumeKey) -> Result<(), KeyStoreError>;

    /// `None` when there is none of that name.
    fn get(&self, consumer: ConsumerId, key: VolumeKeyId) -> Result<Option<VolumeKey>, KeyStoreError>;

    /// The names of all keys of a consumer.
    fn list(&self, consumer: ConsumerId) -> Result<BTreeSet<VolumeKeyId>, KeyStoreError>;

    /// Gone for good when it returns, and with it what is encrypted with it.
    fn remove(&self, consumer: ConsumerId, key: VolumeKeyId) -> Result<(), KeyStoreError>;
}

/// There is nowhere to keep keys, so nothing is encrypted.
pub(crate) struct NoKeys;

impl KeyStore for NoKeys {
    fn put(&self, _: ConsumerId, _: &VolumeKey) -> Result<(), KeyStoreError> {
        Err(KeyStoreError { reason: "there is nowhere to keep it".to_owned() })
    }

    fn get(&self, _: ConsumerId, _: VolumeKeyId) -> Result<Option<VolumeKey>, KeyStoreError> {
        Ok(None)
    }

    fn list(&self, _: ConsumerId) -> Result<BTreeSet<VolumeKeyId>, KeyStoreError> {
        Ok(BTreeSet::new())
    }

    fn remove(&self, _: ConsumerId, _: VolumeKeyId) -> Result<(), KeyStoreError> {
        Ok(())
    }
}

/// The keys of one consumer.
pub(crate) struct Keyring {
    consumer: ConsumerId,
    store: Arc<dyn KeyStore>,
    /// Those that were needed.
    held: Mutex<BTreeMap<VolumeKeyId, Arc<Cipher>>>,
}

impl Keyring {
    pub(crate) fn new(consumer: ConsumerId, store: Arc<dyn KeyStore>) -> Self {
        Self { consumer, store, held: Mutex::default() }
    }

    /// A new key, which is kept when this returns.
    pub(crate) fn make(&self) -> Result<VolumeKeyId, KeyStoreError> {
        let key = VolumeKey::fresh()?;
        self.store.put(self.consumer, &key)?;
        self.hold(&key)?;
        Ok(key.id())
    }

    fn hold(&self, key: &VolumeKey) -> Result<Arc<Cipher>, KeyStoreError> {
        let cipher = Cipher::new(&key.0).map_err(|err| KeyStoreError { reason: err.to_string() })?;
        let cipher = Arc::new(cipher);
        self.held.lock().insert(key.id(), Arc::clone(&cipher));
        Ok(cipher)
    }

    /// A key by its name.
    pub(crate) fn cipher(&self, id: VolumeKeyId) -> Result<Arc<Cipher>, KeyStoreError> {
        if let Some(held) = self.held.lock().get(&id) {
            return Ok(Arc::clone(held));
        }
        let failed = |reason: String| KeyStoreError { reason };
        let key = self
            .store
            .get(self.consumer, id)
            .map_err(|err| failed(format!("its key {id} cannot be read: {}", err.reason)))?
            .ok_or_else(|| failed(format!("its key {id} is not there")))?;
        match key.id() {
            found if found == id => self.hold(&key),
            found => Err(failed(format!("under the name of its key {id} there is another, {found}"))),
        }
    }

    /// The names of all that are kept.
    pub(crate) fn list(&self) -> Result<BTreeSet<VolumeKeyId>, KeyStoreError> {
        self.store.list(self.consumer)
    }

    /// Destroys a key. Whoever works with it still may end what it does.
    pub(crate) fn destroy(&self, id: VolumeKeyId) -> Result<(), KeyStoreError> {
        self.store.remove(self.consumer, id)?;
        self.held.lock().remove(&id);
        tracing::info!(consumer = %self.consumer, key = %id, "the key of a deleted volume is destroyed");
        Ok(())
    }

    /// Destroys all of them.
    pub(crate) fn destroy_all(&self) -> Result<(), KeyStoreError> {
        self.list()?.into_iter().try_for_each(|id| self.destroy(id))
    }
}
