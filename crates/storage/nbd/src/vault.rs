//! The vault: the directory in which consumers' data lives, and who is in it.
//!
//! In: steps of the backend, lookups of the server. Out: tenants with their volumes. Holds: the directory, alone
//! (a lock keeps other processes out), and every tenant opened from it.
//!
//! ```text
//!   <root>/lock                      held while we run
//!         /consumers/<id>.json       limit, volumes, credential: written whole, then renamed into place
//!         /volumes/<id>/<volume>     sparse files and nothing else
//!         /trash/<id>/<n>/           on its way out
//! ```
//! A consumer's record is written before its data is made and removed after its data is trashed, so data without a
//! record does not come from a crash.

mod files;
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
use storage_provider::{ConsumerId, Observed, ObservedStorage};

use self::files::{Record, ids_in, remove_tree, sync_dir};
pub(crate) use self::tenant::{DEFAULT_VOLUME, SessionPass, Tenant};
use crate::{
    identity::{Fingerprint, IssueError},
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
    #[error("the record {} is damaged; restore it, or move it and the consumer's volumes away", path.display())]
    Record {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
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
    /// Opens the directory, or makes it, and every tenant in it. O(extents of all volumes).
    pub fn open(config: VaultConfig) -> Result<Self, VaultError> {
        let VaultConfig { root, reserve } = config;
        for folder in ["consumers", "volumes", "trash"] {
            let path = root.join(folder);
            ::files::create_dir(&path).map_err(files("creating", &path))?;
        }
        let path = root.join("lock");
        let lock = ::files::Lock::take(&path).map_err(|err| match err {
            TryLockError::WouldBlock => VaultError::InUse { root: root.clone() },
            TryLockError::Error(err) => files("taking", &path)(err),
        })?;
        let vault = Self { root, reserve, tenants: RwLock::default(), making: Mutex::new(()), _lock: lock };
        for id in vault.ids("consumers")? {
            let tenant = Tenant::open(&vault.root, id)?;
            vault.tenants.write().insert(id, Arc::new(tenant));
        }
        Ok(vault)
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
        let space =
            rustix::fs::statvfs(&self.root).map_err(|os| files("measuring", &self.root)(os.into()))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let used: u64 = self.tenants.read().values().map(|tenant| tenant.account.balance().used).sum();
        let total = free.saturating_add(used);
        Ok((total - total / 100).saturating_sub(self.reserve))
    }

    pub(crate) fn observe(&self, consumer: ConsumerId) -> Observed {
        let mut observed = self.find(consumer).map(|tenant| tenant.observe()).unwrap_or_default();
        observed.trash = self.trash_of(consumer).exists();
        if observed.storage.is_none() && self.root.join("volumes").join(consumer.to_string()).exists() {
            observed.storage = Some(ObservedStorage { quota: None, used: 0, in_shape: false });
        }
        observed
    }

    pub(crate) fn observe_all(&self) -> Result<BTreeMap<ConsumerId, Observed>, VaultError> {
        let folders = [self.ids("consumers")?, self.ids("volumes")?, self.ids("trash")?];
        Ok(folders.into_iter().flatten().map(|id| (id, self.observe(id))).collect())
    }

    /// Makes the tenant and its default volume, or lets the volume grow.
    pub(crate) fn ensure(&self, consumer: ConsumerId, bytes: u64) -> Result<(), VaultError> {
        let _making = self.making.lock();
        let tenant = match self.find(consumer) {
            Some(tenant) => tenant,
            None => {
                Record::default().write(&self.root, consumer)?;
                let tenant = Arc::new(Tenant::open(&self.root, consumer)?);
                self.tenants.write().insert(consumer, Arc::clone(&tenant));
                tenant
            }
        };
        tenant.ensure_volume(DEFAULT_VOLUME, bytes)
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
        Ok(())
    }

    /// Deletes what is in the trash of a consumer.
    pub(crate) fn purge(&self, consumer: ConsumerId) -> Result<(), VaultError> {
        let bin = self.trash_of(consumer);
        remove_tree(&bin).map_err(files("deleting", &bin))
    }

    fn trash_of(&self, consumer: ConsumerId) -> PathBuf {
        self.root.join("trash").join(consumer.to_string())
    }
}
