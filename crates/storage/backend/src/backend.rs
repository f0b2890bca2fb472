//! What a storage backend must do.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use storage_provider::{ConnectionItem, ConsumerId, Observed, VaultId};

/// What a consumer uses and may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub used: u64,
    pub limit: u64,
    /// The size of the largest volume that cannot be made smaller now.
    pub volumes: u64,
    /// What the user should know about how the limit bites, if it does now.
    pub notice: Option<String>,
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

    /// Makes the storage with its mark, or finishes making it. Nobody can reach it yet. Never asked for once the
    /// consumer's record says that its data was made.
    async fn ensure_storage(&self, consumer: ConsumerId, bytes: u64) -> Result<(), BackendError>;

    /// Puts the shape of what was made right, and makes nothing: what is missing is an error.
    async fn keep_storage(&self, consumer: ConsumerId, bytes: u64) -> Result<(), BackendError>;

    /// Lets nobody at data that is not what was made: sessions on it end, new ones find no volume.
    async fn withhold(&self, consumer: ConsumerId) -> Result<(), BackendError>;

    /// Marks what is there as the consumer's data, whatever was known of it, with at least this generation, and
    /// forgets what is not there.
    async fn adopt_storage(&self, consumer: ConsumerId, generation: u64) -> Result<(), BackendError>;

    /// Puts a limit in force. Below what is in use it is refused and the old one stays.
    async fn set_quota(&self, consumer: ConsumerId, bytes: u64) -> Result<(), BackendError>;

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
    async fn ensure_storage(&self, consumer: ConsumerId, bytes: u64) -> Result<(), BackendError> {
        (**self).ensure_storage(consumer, bytes).await
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
    fn attention(&self) -> Vec<String> {
        (**self).attention()
    }
}
