//! The vault: the directory in which consumers' data lives, and who is in it.
//!
//! In: steps of the backend, lookups of the server. Out: tenants with their volumes. Holds: the directory, alone
//! (a lock keeps other processes out), and every tenant opened from it.
//!
//! ```text
//!   <root>/lock                      held while we run
//!         /vault                     which vault it is
//!         /consumers/<id>.json       limit, volumes, credential: written whole, then renamed into place
//!         /volumes/<id>/<volume>     sparse files, each with its mark beside it (`marks`)
//!         /volumes/<id>/<volume>~<n> the same, of volumes that were copied or have snapshots
//!         /trash/<id>/<n>/           on its way out
//! ```
//! Keys of encrypted volumes are kept elsewhere ([`KeyStore`]); what is here names them. They are destroyed before the data is.
//! A consumer's record is written before its data is made and removed after its data is trashed, so data without a
//! record does not come from a crash.

mod files;
mod marks;
mod tenant;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    fs::TryLockError,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};
use storage_provider::{ConsumerId, DEFAULT_VOLUME, Observed, VaultId};

pub use self::marks::Expected;
pub(crate) use self::tenant::{SessionPass, Share, Tenant};
use self::{
    files::{Damage, Record, ids_in, remove_tree, sync_dir},
    marks::Identity,
};
use crate::{
    disk::Disk,
    identity::{Fingerprint, IssueError},
    keys::{KeyStore, KeyStoreError, Keyring, NoKeys},
    volume::OpenVolumeError,
};

/// Where the vault is and what it leaves free.
#[derive(Clone, Debug)]
pub struct VaultConfig {
    pub root: PathBuf,
    /// Bytes of the file system that are never granted, beside one in a hundred for its own bookkeeping.
    pub reserve: u64,
}

/// Why the vault could not do it.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("{attempt} {}", path.display())]
    Files {
        attempt: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the storage directory {} is in use by another process", root.display())]
    InUse { root: PathBuf },
    #[error("the record {} is damaged", path.display())]
    Record {
        path: PathBuf,
        #[source]
        source: Damage,
    },
    #[error("the vault {vault} was in {} and is not there: mount or restore it; if it is gone for good, move the file that names it away, and each of its consumers is Failed until its data is given up", root.display())]
    Gone { root: PathBuf, vault: VaultId },
    #[error("{} holds the vault {found}, and {vault} was there before: mount or restore the right one", root.display())]
    Foreign { root: PathBuf, vault: VaultId, found: VaultId },
    #[error("the storage of the consumer {consumer} cannot be used: {reason}")]
    Unusable { consumer: ConsumerId, reason: String },
    #[error("there is no randomness to name a volume with")]
    Randomness,
    #[error("{what} is there already and is not known as the consumer's")]
    NotOurs { what: String },
    #[error("the volume cannot be used")]
    Volume(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the consumer {consumer} has no storage here")]
    NoStorage { consumer: ConsumerId },
    #[error("the limit of {bytes} bytes is below the {used} bytes in use")]
    BelowUse { bytes: u64, used: u64 },
    #[error(
        "{name:?} is no volume name: 1 to 64 letters, digits, '-' and '_', starting with a letter or digit"
    )]
    VolumeName { name: String },
    #[error("the consumer {consumer} has no volume {name:?}")]
    NoVolume { consumer: ConsumerId, name: String },
    #[error("the consumer {consumer} has {most} volumes, which is the most there can be")]
    TooManyVolumes { consumer: ConsumerId, most: usize },
    #[error("the key of an encrypted volume cannot be made, kept or destroyed")]
    Key(#[from] KeyStoreError),
    #[error("the grant is used up")]
    Full,
    #[error("the volume {name:?} cannot be written now")]
    Busy { name: String },
    #[error("the file system of {} does not tell exactly which parts of a file hold data, which snapshots need", path.display())]
    Inexact { path: PathBuf },
    #[error("the credential cannot be made")]
    Credential(#[from] IssueError),
    #[error("the authority's certificate cannot be read")]
    Certificate,
}

impl From<OpenVolumeError> for VaultError {
    fn from(error: OpenVolumeError) -> Self {
        Self::Volume(Box::new(error))
    }
}

pub struct Vault {
    root: PathBuf,
    reserve: u64,
    identity: Identity,
    disk: Disk,
    keys: Arc<dyn KeyStore>,
    tenants: RwLock<HashMap<ConsumerId, Arc<Tenant>>>,
    /// One maker or remover of tenants at a time.
    making: Mutex<()>,
    /// Dropped, and so unlocked, with the vault.
    _lock: ::files::Lock,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").field("root", &self.root).finish_non_exhaustive()
    }
}

fn files(attempt: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> VaultError {
    let path = path.to_owned();
    move |source| VaultError::Files { attempt, path, source }
}

impl Vault {
    /// Opens the directory, or makes it, and every tenant in it. O(extents of all volumes). A tenant whose record or
    /// volumes are unusable has none to show, and harms nobody else.
    pub fn open(config: VaultConfig) -> Result<Self, VaultError> {
        Self::open_expected(config, &Expected::default())
    }

    /// The same, for a directory of which something is known: another one is not taken for it.
    pub fn open_expected(config: VaultConfig, expected: &Expected) -> Result<Self, VaultError> {
        Self::open_with(config, expected, Arc::new(NoKeys))
    }

    /// The same, with a place for the keys of encrypted volumes.
    pub fn open_with(
        config: VaultConfig,
        expected: &Expected,
        keys: Arc<dyn KeyStore>,
    ) -> Result<Self, VaultError> {
        let VaultConfig { root, reserve } = config;
        if expected.vault.is_some() && Identity::read(&root)?.is_none() {
            // Not even a directory is made where a disk may be missing.
            Identity::opened(&root, expected)?;
        }
        for folder in ["consumers", "volumes", "trash"] {
            let path = root.join(folder);
            ::files::create_dir(&path).map_err(files("creating", &path))?;
        }
        let path = root.join("lock");
        let lock = ::files::Lock::take(&path).map_err(|err| match err {
            TryLockError::WouldBlock => VaultError::InUse { root: root.clone() },
            TryLockError::Error(err) => files("taking", &path)(err),
        })?;
        let identity = Identity::opened(&root, expected)?;
        let (tenants, making) = (RwLock::default(), Mutex::new(()));
        let disk = Disk::default();
        let vault = Self { root, reserve, identity, disk, keys, tenants, making, _lock: lock };
        for id in vault.ids("consumers")? {
            let tenant = vault.open_tenant(id);
            vault.tenants.write().insert(id, Arc::new(tenant));
        }
        Ok(vault)
    }

    fn open_tenant(&self, id: ConsumerId) -> Tenant {
        Tenant::open(&self.root, id, self.identity, self.keyring(id))
    }

    fn keyring(&self, consumer: ConsumerId) -> Keyring {
        Keyring::new(consumer, Arc::clone(&self.keys))
    }

    /// Which vault it is.
    pub fn id(&self) -> VaultId {
        self.identity.vault
    }

    /// The threads that wait for this disk.
    pub(crate) fn disk(&self) -> Disk {
        self.disk.clone()
    }

    /// How often it was opened; the next opening is told, so that it sees when it was put back from a copy.
    pub fn opening(&self) -> u64 {
        self.identity.opening
    }

    /// The vault in a directory, if it is one.
    pub fn id_in(root: &Path) -> Result<Option<VaultId>, VaultError> {
        Ok(Identity::read(root)?.map(|identity| identity.vault))
    }

    fn ids(&self, folder: &str) -> Result<Vec<ConsumerId>, VaultError> {
        let path = self.root.join(folder);
        ids_in(&path).map_err(files("listing", &path))
    }

    pub(crate) fn find(&self, consumer: ConsumerId) -> Option<Arc<Tenant>> {
        self.tenants.read().get(&consumer).cloned()
    }

    pub(crate) fn tenants(&self) -> Vec<(ConsumerId, Arc<Tenant>)> {
        self.tenants.read().iter().map(|(id, tenant)| (*id, Arc::clone(tenant))).collect()
    }

    pub(crate) fn tenant(&self, consumer: ConsumerId) -> Result<Arc<Tenant>, VaultError> {
        self.find(consumer).ok_or(VaultError::NoStorage { consumer })
    }

    /// Whether this very certificate opens anything now.
    pub(crate) fn admits(&self, consumer: ConsumerId, certificate: Fingerprint) -> bool {
        self.find(consumer).is_some_and(|tenant| tenant.admits(certificate))
    }

    /// Bytes that can be granted in all: what is free and what consumers use, without the reserve.
    pub(crate) fn capacity(&self) -> Result<u64, VaultError> {
        let free = self.free()?;
        let used: u64 = self.tenants.read().values().map(|tenant| tenant.account.balance().used).sum();
        let total = free.saturating_add(used);
        Ok((total - total / 100).saturating_sub(self.reserve))
    }

    fn free(&self) -> Result<u64, VaultError> {
        let space =
            rustix::fs::statvfs(&self.root).map_err(|os| files("measuring", &self.root)(os.into()))?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    /// What an administrator should know: volumes that take no writes, and a disk that others have filled.
    pub(crate) fn attention(&self) -> Vec<String> {
        let mut told = Vec::new();
        let mut promised = 0u64;
        for (consumer, tenant) in self.tenants() {
            let balance = tenant.account.balance();
            promised = promised.saturating_add(balance.limit.saturating_sub(balance.used));
            for volume in tenant.volumes().into_iter().filter(|volume| volume.is_broken()) {
                told.push(format!(
                    "writing the volume {:?} of the consumer {consumer} to the disk failed, so it takes no more writes: \
                     check the disk, then restart the controller",
                    volume.name
                ));
            }
        }
        let root = self.root.display();
        match self.free() {
            Ok(free) if free < promised => told.push(format!(
                "the disk of {root} has {free} bytes free, and consumers were promised {promised} more: their writes \
                 fail with ENOSPC below their grants; free some, or add storage"
            )),
            Ok(_) => {}
            Err(error) => told.push(common::chain(&error)),
        }
        told
    }

    pub(crate) fn observe(&self, consumer: ConsumerId) -> Observed {
        let mut observed = match self.find(consumer) {
            Some(tenant) => tenant.observe(),
            None => Tenant::observe_remains(&self.root, consumer, &self.identity),
        };
        observed.trash = self.trash_of(consumer).exists();
        observed
    }

    pub(crate) fn observe_all(&self) -> Result<BTreeMap<ConsumerId, Observed>, VaultError> {
        let folders = [self.ids("consumers")?, self.ids("volumes")?, self.ids("trash")?];
        Ok(folders.into_iter().flatten().map(|id| (id, self.observe(id))).collect())
    }

    /// Makes the tenant and its default volume, or lets the volume grow.
    pub(crate) fn ensure(&self, consumer: ConsumerId, bytes: u64, encrypted: bool) -> Result<(), VaultError> {
        let _making = self.making.lock();
        let tenant = match self.find(consumer) {
            Some(tenant) => tenant,
            None => {
                let remains = Tenant::observe_remains(&self.root, consumer, &self.identity);
                if let Some((name, _)) = remains.found.first_key_value() {
                    return Err(VaultError::NotOurs { what: format!("the volume {name:?} of {consumer}") });
                }
                self.admit(consumer)?
            }
        };
        tenant.ensure_volume(DEFAULT_VOLUME, bytes, encrypted)
    }

    fn admit(&self, consumer: ConsumerId) -> Result<Arc<Tenant>, VaultError> {
        Record::default().write(&self.root, consumer)?;
        let tenant = Arc::new(self.open_tenant(consumer));
        self.tenants.write().insert(consumer, Arc::clone(&tenant));
        Ok(tenant)
    }

    /// Takes the volumes that are there as the consumer's, whatever was known of them.
    pub(crate) fn adopt(&self, consumer: ConsumerId, generation: u64) -> Result<(), VaultError> {
        let _making = self.making.lock();
        let tenant = match self.find(consumer) {
            Some(tenant) => tenant,
            None => self.admit(consumer)?,
        };
        tenant.adopt(generation)
    }

    /// Moves a consumer's data where nobody can reach it, and forgets the consumer.
    pub(crate) fn trash(&self, consumer: ConsumerId) -> Result<(), VaultError> {
        let _making = self.making.lock();
        if let Some(tenant) = self.find(consumer) {
            tenant.retire();
        }
        let data = self.root.join("volumes").join(consumer.to_string());
        if data.exists() {
            let bin = self.trash_of(consumer);
            std::fs::create_dir_all(&bin).map_err(files("creating", &bin))?;
            let free = (0u32..).map(|n| bin.join(n.to_string())).find(|path| !path.exists());
            let target = free.expect("a directory does not hold 2^32 entries");
            std::fs::rename(&data, &target).map_err(files("moving to the trash", &data))?;
            for dir in [&bin, &self.root.join("trash"), &self.root.join("volumes")] {
                sync_dir(dir).map_err(files("syncing", dir))?;
            }
        }
        Record::remove(&self.root, consumer)?;
        self.tenants.write().remove(&consumer);
        // There is no way back from here. Killed before this, purging does it.
        Ok(self.keyring(consumer).destroy_all()?)
    }

    /// Deletes what is in the trash of a consumer.
    pub(crate) fn purge(&self, consumer: ConsumerId) -> Result<(), VaultError> {
        let bin = self.trash_of(consumer);
        if self.find(consumer).is_none() {
            self.keyring(consumer).destroy_all()?;
        }
        remove_tree(&bin).map_err(files("deleting", &bin))
    }

    fn trash_of(&self, consumer: ConsumerId) -> PathBuf {
        self.root.join("trash").join(consumer.to_string())
    }
}
