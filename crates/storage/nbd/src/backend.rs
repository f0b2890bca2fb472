//! The vault as a storage backend.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use storage_backend::{Backend, BackendError, Fill, Piece, Usage, VolumeFigures};
use storage_provider::{
    ConnectionItem, ConsumerId, DEFAULT_VOLUME, Observed, Rates, VaultId, VolumeStep, Volumes,
};

use crate::{
    account::Balance,
    identity::{Fingerprint, Issuer},
    vault::{Tenant, Vault, VaultError},
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

impl NbdBackend {
    pub fn new(vault: Arc<Vault>, issuer: Arc<dyn Issuer>, host: impl Into<String>, port: u16) -> Self {
        Self { vault, issuer, endpoint: (host.into(), port) }
    }

    /// The endpoint of a server that consumers reach under its own address.
    pub fn at(vault: Arc<Vault>, issuer: Arc<dyn Issuer>, address: SocketAddr) -> Self {
        Self::new(vault, issuer, address.ip().to_string(), address.port())
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
        VaultError::Full => BackendError::Full,
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
        let vault = Arc::clone(&self.vault);
        Ok(blocking(move || vault.observe(consumer)).await)
    }

    async fn observe_all(&self) -> Result<BTreeMap<ConsumerId, Observed>, BackendError> {
        let vault = Arc::clone(&self.vault);
        blocking(move || vault.observe_all())
            .await
            .map_err(|error| BackendError::failed("listing the storage", error))
    }

    async fn ensure_storage(
        &self,
        consumer: ConsumerId,
        bytes: u64,
        encrypted: bool,
    ) -> Result<(), BackendError> {
        self.step(consumer, "making the storage", move |vault| vault.ensure(consumer, bytes, encrypted)).await
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

    async fn set_rates(&self, consumer: ConsumerId, rates: Rates) -> Result<(), BackendError> {
        let tenant = self.vault.find(consumer).ok_or(BackendError::NoStorage { consumer })?;
        tenant.pace.set(rates, Instant::now());
        Ok(())
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

    async fn volumes(&self, consumer: ConsumerId) -> Result<Volumes, BackendError> {
        let tenant = self.vault.find(consumer).ok_or(BackendError::NoStorage { consumer })?;
        blocking(move || Ok(tenant.statuses())).await
    }

    async fn change_volume(&self, consumer: ConsumerId, step: VolumeStep) -> Result<(), BackendError> {
        self.step(consumer, "changing a volume", move |vault| vault.tenant(consumer)?.change(&step)).await
    }

    async fn read_volume(
        &self,
        consumer: ConsumerId,
        name: String,
        from: u64,
    ) -> Result<Option<Piece>, BackendError> {
        let tenant = self.vault.find(consumer).ok_or(BackendError::NoStorage { consumer })?;
        let read = blocking(move || tenant.piece(&name, from)).await;
        read.map_err(|error| failed(consumer, "reading a volume", error))
    }

    async fn fill_volume(&self, consumer: ConsumerId, name: String, fill: Fill) -> Result<(), BackendError> {
        self.step(consumer, "filling a volume", move |vault| vault.tenant(consumer)?.fill(&name, &fill)).await
    }

    async fn tidy_volumes(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        let tidied = self.step(consumer, "tidying the volumes", move |vault| vault.tenant(consumer)?.tidy());
        tidied.await?;
        if let Some(tenant) = self.vault.find(consumer) {
            // In turn with what others want of the disk.
            self.vault.disk().run(consumer, move || tenant.merge_all());
        }
        Ok(())
    }

    fn admits(&self, consumer: ConsumerId, certificate: &[u8; 32]) -> bool {
        self.vault.admits(consumer, Fingerprint::from(*certificate))
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

    fn figures(&self) -> Vec<VolumeFigures> {
        let of = |(consumer, tenant): (ConsumerId, Arc<Tenant>)| tenant.figures(consumer);
        self.vault.tenants().into_iter().flat_map(of).collect()
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
    let last_used = tenant.volumes().iter().filter_map(|volume| volume.figures.last_used()).max();
    let (Balance { used, limit }, volumes, notice) = (balance, tenant.floor(), broken.or(full));
    Usage { used, limit, volumes, last_used, notice }
}
