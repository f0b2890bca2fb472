//! The vault as a storage backend.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use storage_backend::{Backend, BackendError, Usage};
use storage_provider::{ConnectionItem, ConsumerId, Observed, VaultId};

use crate::{
    identity::Issuer,
    vault::{DEFAULT_VOLUME, Tenant, Vault, VaultError},
};

/// A session that is told to end drops its connection at once; longer means that something is stuck.
const SESSIONS_END: Duration = Duration::from_secs(10);

/// NBD volumes as storage for consumers.
pub struct NbdBackend {
    vault: Arc<Vault>,
    issuer: Arc<dyn Issuer>,
    /// Where consumers reach the server: host and port as they see them.
    endpoint: (String, u16),
}

/// One volume, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    pub name: String,
    pub size: u64,
}

impl NbdBackend {
    pub fn new(vault: Arc<Vault>, issuer: Arc<dyn Issuer>, host: impl Into<String>, port: u16) -> Self {
        Self { vault, issuer, endpoint: (host.into(), port) }
    }

    /// The endpoint of a server that consumers reach under its own address.
    pub fn at(vault: Arc<Vault>, issuer: Arc<dyn Issuer>, address: SocketAddr) -> Self {
        Self::new(vault, issuer, address.ip().to_string(), address.port())
    }

    /// Makes one more volume of a consumer, or lets one grow. All of them share its limit.
    pub async fn create_volume(
        &self,
        consumer: ConsumerId,
        name: &str,
        bytes: u64,
    ) -> Result<(), VaultError> {
        let (vault, name) = (Arc::clone(&self.vault), name.to_owned());
        blocking(move || vault.tenant(consumer)?.ensure_volume(&name, bytes)).await
    }

    /// Deletes one volume of a consumer, except its first.
    pub async fn delete_volume(&self, consumer: ConsumerId, name: &str) -> Result<(), VaultError> {
        let (vault, name) = (Arc::clone(&self.vault), name.to_owned());
        blocking(move || vault.tenant(consumer)?.remove_volume(&name)).await
    }

    pub fn volumes(&self, consumer: ConsumerId) -> Result<Vec<VolumeInfo>, VaultError> {
        let volumes = self.vault.tenant(consumer)?.volumes();
        Ok(volumes
            .iter()
            .map(|volume| VolumeInfo { name: volume.name.clone(), size: volume.size() })
            .collect())
    }

    /// Sessions a consumer has open.
    pub fn sessions(&self, consumer: ConsumerId) -> usize {
        self.vault.find(consumer).map_or(0, |tenant| tenant.open_sessions())
    }

    async fn step(
        &self,
        consumer: ConsumerId,
        attempt: &'static str,
        work: impl FnOnce(&Vault) -> Result<(), VaultError> + Send + 'static,
    ) -> Result<(), BackendError> {
        let vault = Arc::clone(&self.vault);
        blocking(move || work(&vault)).await.map_err(|error| failed(consumer, attempt, error))
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(stopped) => std::panic::resume_unwind(stopped.into_panic()),
    }
}

fn failed(consumer: ConsumerId, attempt: &str, error: VaultError) -> BackendError {
    match error {
        VaultError::BelowUse { bytes, used } => BackendError::BelowUse { bytes, used },
        VaultError::NoStorage { consumer } => BackendError::NoStorage { consumer },
        VaultError::NotOurs { what } => BackendError::NotOurs { what },
        error => BackendError::failed(format!("{attempt} of the consumer {consumer}"), common::chain(&error)),
    }
}

#[async_trait]
impl Backend for NbdBackend {
    async fn vault(&self) -> Result<VaultId, BackendError> {
        Ok(self.vault.id())
    }

    async fn capacity(&self) -> Result<u64, BackendError> {
        self.vault.capacity().map_err(|error| BackendError::failed("measuring the storage", error))
    }

    async fn observe(&self, consumer: ConsumerId) -> Result<Observed, BackendError> {
        Ok(self.vault.observe(consumer))
    }

    async fn observe_all(&self) -> Result<BTreeMap<ConsumerId, Observed>, BackendError> {
        let vault = Arc::clone(&self.vault);
        blocking(move || vault.observe_all())
            .await
            .map_err(|error| BackendError::failed("listing the storage", error))
    }

    async fn ensure_storage(&self, consumer: ConsumerId, bytes: u64) -> Result<(), BackendError> {
        self.step(consumer, "making the storage", move |vault| vault.ensure(consumer, bytes)).await
    }

    async fn keep_storage(&self, consumer: ConsumerId, bytes: u64) -> Result<(), BackendError> {
        self.step(consumer, "keeping the storage", move |vault| vault.tenant(consumer)?.keep(bytes)).await
    }

    async fn adopt_storage(&self, consumer: ConsumerId, generation: u64) -> Result<(), BackendError> {
        self.step(consumer, "adopting the storage", move |vault| vault.adopt(consumer, generation)).await
    }

    async fn withhold(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        let withhold = move |vault: &Vault| {
            vault.find(consumer).iter().for_each(|tenant| tenant.withhold());
            Ok(())
        };
        self.step(consumer, "withholding the storage", withhold).await
    }

    async fn set_quota(&self, consumer: ConsumerId, bytes: u64) -> Result<(), BackendError> {
        self.step(consumer, "setting the limit", move |vault| vault.tenant(consumer)?.set_limit(bytes)).await
    }

    async fn ensure_credentials(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        let issuer = Arc::clone(&self.issuer);
        let work = move |vault: &Vault| vault.tenant(consumer)?.ensure_credential(&*issuer);
        self.step(consumer, "making the credential", work).await
    }

    async fn connection_details(&self, consumer: ConsumerId) -> Result<Vec<ConnectionItem>, BackendError> {
        let tenant = self.vault.find(consumer).ok_or(BackendError::NoStorage { consumer })?;
        let held = tenant.credential().ok_or(BackendError::NoStorage { consumer })?;
        let (host, port) = &self.endpoint;
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        Ok(vec![
            ConnectionItem::new(
                "nbd-endpoint",
                "NBDServer",
                [
                    ("address", host.clone()),
                    ("port", port.to_string()),
                    ("export", DEFAULT_VOLUME.to_owned()),
                    ("tls", "required".to_owned()),
                ],
            ),
            ConnectionItem::new(
                "nbd-client",
                "Secret",
                [("ca", held.authority), ("cert", held.certificate), ("key", held.key)],
            ),
            ConnectionItem::new(
                "nbd",
                "StorageClass",
                [
                    ("uri", format!("nbds://{bracketed}:{port}/{DEFAULT_VOLUME}")),
                    ("secret-name", "nbd-client".to_owned()),
                ],
            ),
        ])
    }

    async fn usage(&self, consumer: ConsumerId) -> Result<Usage, BackendError> {
        let tenant = self.vault.find(consumer).ok_or(BackendError::NoStorage { consumer })?;
        Ok(usage(&tenant))
    }

    async fn usage_all(&self) -> Result<BTreeMap<ConsumerId, Usage>, BackendError> {
        Ok(self.vault.tenants().into_iter().map(|(id, tenant)| (id, usage(&tenant))).collect())
    }

    async fn revoke(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        let Some(tenant) = self.vault.find(consumer) else { return Ok(()) };
        self.step(consumer, "revoking the credential", move |vault| match vault.find(consumer) {
            Some(tenant) => tenant.revoke(),
            None => Ok(()),
        })
        .await?;
        tokio::time::timeout(SESSIONS_END, tenant.sessions_ended()).await.map_err(|_| {
            BackendError::failed(
                format!("ending the sessions of the consumer {consumer}"),
                "some are still open",
            )
        })
    }

    async fn trash(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        self.step(consumer, "trashing the data", move |vault| vault.trash(consumer)).await
    }

    async fn purge(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        self.step(consumer, "deleting the data", move |vault| vault.purge(consumer)).await
    }

    fn attention(&self) -> Vec<String> {
        self.vault.attention()
    }
}

fn usage(tenant: &Tenant) -> Usage {
    let balance = tenant.account.balance();
    let full = balance.used >= balance.limit;
    let full = full.then(|| {
        "the grant is used up: writes of new blocks fail with ENOSPC until some are freed".to_owned()
    });
    let broken = tenant.volumes().into_iter().find(|volume| volume.is_broken()).map(|volume| {
        format!(
            "writing the volume {:?} to the disk failed, so it takes no more writes: check the disk, then restart \
             the controller and check the file system on it",
            volume.name
        )
    });
    Usage { used: balance.used, limit: balance.limit, volumes: tenant.floor(), notice: broken.or(full) }
}
