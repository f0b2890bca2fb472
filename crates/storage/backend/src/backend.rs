//! What a storage backend must do.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use storage_provider::{ConnectionItem, ConsumerId, Observed, Rates, VaultId, VolumeStep, Volumes};

/// What a consumer uses and may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub used: u64,
    pub limit: u64,
    /// The size of the largest volume that cannot be made smaller now.
    pub volumes: u64,
    /// When it read or wrote last, since the process started. Seconds since 1970.
    pub last_used: Option<u64>,
    /// What the user should know about how the limit bites, if it does now.
    pub notice: Option<String>,
}

/// Bounds of how long operations took, of which there are few: a volume has a figure for each, and there are many volumes.
pub const LATENCIES: [Duration; 5] = [
    Duration::from_micros(100),
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
];

/// What clients did with one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFigures {
    pub consumer: ConsumerId,
    pub volume: String,
    pub size: u64,
    pub holds: u64,
    pub sessions: usize,
    /// Seconds since 1970.
    pub last_used: Option<u64>,
    pub operations: [OperationFigures; 4],
}

/// Operations of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationFigures {
    /// `read`, `write`, `flush` or `trim`.
    pub kind: &'static str,
    /// Of those that were done.
    pub bytes: u64,
    /// How many were refused.
    pub errors: u64,
    /// In all of them.
    pub spent: Duration,
    /// How many took up to each of [`LATENCIES`], and longer than all.
    pub took: [u64; LATENCIES.len() + 1],
}

impl OperationFigures {
    pub fn operations(&self) -> u64 {
        self.took.iter().sum()
    }
}

/// A part of a volume that holds data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub offset: u64,
    pub data: Vec<u8>,
}

/// How a volume that is being imported is filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fill {
    /// From the beginning: what an earlier try left goes.
    Clear,
    Piece(Piece),
    /// On disk, and everybody's.
    Done,
}

/// Why a backend could not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    #[error("the limit of {bytes} bytes is below the {used} bytes in use")]
    BelowUse { bytes: u64, used: u64 },
    #[error("the consumer {consumer} has no storage here")]
    NoStorage { consumer: ConsumerId },
    #[error("{what} is there already and was not made by this provider; remove or rename it")]
    NotOurs { what: String },
    #[error("the grant is used up: free some, or have it raised")]
    Full,
    #[error("consumers of this storage make their volumes themselves")]
    NoVolumes,
    #[error("the storage is out of reach: {reason}")]
    Degraded { reason: String },
    #[error("{attempt}: {reason}")]
    Failed { attempt: String, reason: String },
}

impl BackendError {
    pub fn failed(attempt: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Failed { attempt: attempt.into(), reason: reason.to_string() }
    }
}

/// Storage of one kind. Every method may be called again after it succeeded, failed or was cut off half-way, and then
/// finishes what is left; none touches storage that is not its own.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Which storage it is: data is found again only in the one it was made in.
    async fn vault(&self) -> Result<VaultId, BackendError>;

    /// Bytes that can be promised in all, used ones included.
    async fn capacity(&self) -> Result<u64, BackendError>;

    /// What is there for one consumer; the default when nothing is.
    async fn observe(&self, consumer: ConsumerId) -> Result<Observed, BackendError>;

    /// What is there for every consumer that has anything.
    async fn observe_all(&self) -> Result<BTreeMap<ConsumerId, Observed>, BackendError>;

    /// Makes the storage with its mark, or finishes making it; `encrypted` it is, or not made at all. Nobody can reach it
    /// yet. Never asked for once the consumer's record says that its data was made.
    async fn ensure_storage(
        &self,
        consumer: ConsumerId,
        bytes: u64,
        encrypted: bool,
    ) -> Result<(), BackendError>;

    /// Puts the shape of what was made right, and makes nothing: what is missing is an error.
    async fn keep_storage(&self, consumer: ConsumerId, bytes: u64) -> Result<(), BackendError>;

    /// Lets nobody at data that is not what was made: sessions on it end, new ones find no volume.
    async fn withhold(&self, consumer: ConsumerId) -> Result<(), BackendError>;

    /// Marks what is there as the consumer's data, whatever was known of it, with at least this generation, and
    /// forgets what is not there.
    async fn adopt_storage(&self, consumer: ConsumerId, generation: u64) -> Result<(), BackendError>;

    /// Puts a limit in force. Below what is in use it is refused and the old one stays.
    async fn set_quota(&self, consumer: ConsumerId, bytes: u64) -> Result<(), BackendError>;

    /// Serves a consumer so much in a second from now on. Only asked of who says what it serves now.
    async fn set_rates(&self, _consumer: ConsumerId, _rates: Rates) -> Result<(), BackendError> {
        Ok(())
    }

    async fn ensure_credentials(&self, consumer: ConsumerId) -> Result<(), BackendError>;

    /// Everything the consumer needs to connect, the same each time until credentials are renewed.
    async fn connection_details(&self, consumer: ConsumerId) -> Result<Vec<ConnectionItem>, BackendError>;

    async fn usage(&self, consumer: ConsumerId) -> Result<Usage, BackendError>;

    /// The same for every consumer that has storage, at the cost of about one.
    async fn usage_all(&self) -> Result<BTreeMap<ConsumerId, Usage>, BackendError>;

    /// When this returns, its credentials open nothing and its sessions are dead.
    async fn revoke(&self, consumer: ConsumerId) -> Result<(), BackendError>;

    /// Takes its data out of reach, fast.
    async fn trash(&self, consumer: ConsumerId) -> Result<(), BackendError>;

    /// Deletes its data that is out of reach.
    async fn purge(&self, consumer: ConsumerId) -> Result<(), BackendError>;

    /// The volumes and snapshots of a consumer, those that were deleted and are kept included.
    async fn volumes(&self, _consumer: ConsumerId) -> Result<Volumes, BackendError> {
        Err(BackendError::NoVolumes)
    }

    /// Does to a consumer's volumes what was decided. On disk when it returns.
    async fn change_volume(&self, _consumer: ConsumerId, _step: VolumeStep) -> Result<(), BackendError> {
        Err(BackendError::NoVolumes)
    }

    /// What is in a volume or snapshot, from this byte on: the next piece that holds data, in whole blocks. `None` when
    /// there is nothing but zeroes.
    async fn read_volume(
        &self,
        _consumer: ConsumerId,
        _name: String,
        _from: u64,
    ) -> Result<Option<Piece>, BackendError> {
        Err(BackendError::NoVolumes)
    }

    /// Fills a volume that is being imported.
    async fn fill_volume(
        &self,
        _consumer: ConsumerId,
        _name: String,
        _fill: Fill,
    ) -> Result<(), BackendError> {
        Err(BackendError::NoVolumes)
    }

    /// Removes volumes whose grace time is over, and what none of them needs.
    async fn tidy_volumes(&self, _consumer: ConsumerId) -> Result<(), BackendError> {
        Ok(())
    }

    /// Whether the consumer's certificate of this SHA-256 opens its storage now.
    fn admits(&self, _consumer: ConsumerId, _certificate: &[u8; 32]) -> bool {
        false
    }

    /// What clients did with each volume since the process started.
    fn figures(&self) -> Vec<VolumeFigures> {
        Vec::new()
    }

    /// What an administrator should know now. From memory and one look at the disk at most.
    fn attention(&self) -> Vec<String> {
        Vec::new()
    }
}

#[async_trait]
impl<B: Backend + ?Sized> Backend for Arc<B> {
    async fn vault(&self) -> Result<VaultId, BackendError> {
        (**self).vault().await
    }
    async fn capacity(&self) -> Result<u64, BackendError> {
        (**self).capacity().await
    }
    async fn observe(&self, consumer: ConsumerId) -> Result<Observed, BackendError> {
        (**self).observe(consumer).await
    }
    async fn observe_all(&self) -> Result<BTreeMap<ConsumerId, Observed>, BackendError> {
        (**self).observe_all().await
    }
    async fn ensure_storage(
        &self,
        consumer: ConsumerId,
        bytes: u64,
        encrypted: bool,
    ) -> Result<(), BackendError> {
        (**self).ensure_storage(consumer, bytes, encrypted).await
    }
    async fn keep_storage(&self, consumer: ConsumerId, bytes: u64) -> Result<(), BackendError> {
        (**self).keep_storage(consumer, bytes).await
    }
    async fn withhold(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        (**self).withhold(consumer).await
    }
    async fn adopt_storage(&self, consumer: ConsumerId, generation: u64) -> Result<(), BackendError> {
        (**self).adopt_storage(consumer, generation).await
    }
    async fn set_quota(&self, consumer: ConsumerId, bytes: u64) -> Result<(), BackendError> {
        (**self).set_quota(consumer, bytes).await
    }
    async fn set_rates(&self, consumer: ConsumerId, rates: Rates) -> Result<(), BackendError> {
        (**self).set_rates(consumer, rates).await
    }
    async fn ensure_credentials(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        (**self).ensure_credentials(consumer).await
    }
    async fn connection_details(&self, consumer: ConsumerId) -> Result<Vec<ConnectionItem>, BackendError> {
        (**self).connection_details(consumer).await
    }
    async fn usage(&self, consumer: ConsumerId) -> Result<Usage, BackendError> {
        (**self).usage(consumer).await
    }
    async fn usage_all(&self) -> Result<BTreeMap<ConsumerId, Usage>, BackendError> {
        (**self).usage_all().await
    }
    async fn revoke(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        (**self).revoke(consumer).await
    }
    async fn trash(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        (**self).trash(consumer).await
    }
    async fn purge(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        (**self).purge(consumer).await
    }
    async fn volumes(&self, consumer: ConsumerId) -> Result<Volumes, BackendError> {
        (**self).volumes(consumer).await
    }
    async fn change_volume(&self, consumer: ConsumerId, step: VolumeStep) -> Result<(), BackendError> {
        (**self).change_volume(consumer, step).await
    }
    async fn read_volume(
        &self,
        consumer: ConsumerId,
        name: String,
        from: u64,
    ) -> Result<Option<Piece>, BackendError> {
        (**self).read_volume(consumer, name, from).await
    }
    async fn fill_volume(&self, consumer: ConsumerId, name: String, fill: Fill) -> Result<(), BackendError> {
        (**self).fill_volume(consumer, name, fill).await
    }
    async fn tidy_volumes(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        (**self).tidy_volumes(consumer).await
    }
    fn admits(&self, consumer: ConsumerId, certificate: &[u8; 32]) -> bool {
        (**self).admits(consumer, certificate)
    }
    fn figures(&self) -> Vec<VolumeFigures> {
        (**self).figures()
    }
    fn attention(&self) -> Vec<String> {
        (**self).attention()
    }
}
