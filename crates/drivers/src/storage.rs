//! Storage for other clusters, wired: records in the store, volumes in this process or on Ceph, certificates from the
//! local CA.
//!
//! In: the configuration, calls from `grpc` and `rest`. Out: a running provider and, for NBD, its server.
//! Holds: the provider's keys, in a file of the data directory. Not here: what is granted to whom
//! (`storage-provider`), how it is kept true (`storage-backend`), what storage is made of (`storage-nbd`, `-ceph`).

#[cfg(test)]
mod crash;
mod keys;
mod permits;
mod records;
mod stats;
mod turns;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use life::Life;
use model::{Ports, Role, Subject};
use orchestrator::execute::Orchestrator;
use permits::Permits;
use records::StoreRecords;
use serde::Deserialize;
use storage_backend::{Backend, Network, Provider, ProviderConfig};
use storage_ceph::{CephBackend, CephConfig, Target};
use storage_nbd::{
    Access, Connections, IssueError, IssuedIdentity, Issuer, NbdBackend, NbdServer, ServerConfig,
    TlsIdentity, Vault, VaultConfig,
};
use storage_provider::{ConsumerId, Refusal, Sources, VerifyingKey};
use store::Store;
use time::OffsetDateTime;
use tracing::error;

pub use keys::{KeysError, KeysFile};
pub use permits::{EndpointConfig, PermitConfig};
pub use stats::StorageStats;

use crate::{
    blocking::blocking,
    pki::{Pki, PkiError},
};

/// Everything is looked at again this often, changed or not.
const RESYNC: Duration = Duration::from_secs(60);
/// A consumer's certificate is valid this long, and renewed when half of it is over.
const CERTIFICATE: time::Duration = time::Duration::days(90);
/// How often the NBD server's certificate is looked at.
const RENEWAL: Duration = Duration::from_secs(3600);
const MAX_CONNECTIONS: usize = 10_000;
const MAX_SESSIONS: usize = 1_000;

/// Where storage comes from, and which tickets are good.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageConfig {
    pub backend: BackendConfig,
    /// PEM files of RSA keys whose tickets are accepted too, as other providers make them.
    #[serde(default)]
    pub trusted_ticket_keys: Vec<PathBuf>,
    /// The network before the storage, opened for consumers and closed after them; absent: it is not ours.
    #[serde(default)]
    pub permit: Option<PermitConfig>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendConfig {
    /// Volumes in the data directory, served by this process.
    Nbd(NbdConfig),
    Ceph(CephTarget),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NbdConfig {
    pub listen: SocketAddr,
    /// The name or address consumers reach it by; default: the one listened on.
    #[serde(default)]
    pub host: Option<String>,
    /// Bytes of the file system that are never granted.
    #[serde(default = "default_reserve")]
    pub reserve_bytes: u64,
}

/// One gibibyte, for the store and the logs on the same disk.
fn default_reserve() -> u64 {
    1 << 30
}

/// A cluster and who we are to it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CephTarget {
    pub conf: PathBuf,
    pub keyring: PathBuf,
    #[serde(default = "default_ceph_user")]
    pub user: String,
    #[serde(default)]
    pub replicas: Option<u64>,
    #[serde(default)]
    pub placement_groups: Option<u64>,
}

fn default_ceph_user() -> String {
    "client.admin".to_owned()
}

impl StorageConfig {
    /// Volumes in the data directory, on one address.
    pub fn nbd(listen: SocketAddr) -> Self {
        let nbd = NbdConfig { listen, host: None, reserve_bytes: default_reserve() };
        Self { backend: BackendConfig::Nbd(nbd), trusted_ticket_keys: Vec::new(), permit: None }
    }
}

/// Why storage could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("cannot use the keys of the storage provider")]
    Keys(#[from] KeysError),
    #[error("cannot use the trusted ticket key {}", path.display())]
    TrustedKey {
        path: PathBuf,
        #[source]
        err: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("cannot open the volumes")]
    Vault(#[source] storage_nbd::VaultError),
    #[error("cannot make the NBD server's certificate")]
    Certificate(#[from] PkiError),
    #[error("cannot start the NBD server")]
    Nbd(#[source] storage_nbd::BindError),
    #[error("cannot use Ceph")]
    Ceph(#[source] storage_ceph::ConnectError),
}

/// The provider of one controller.
pub struct Storage {
    pub provider: Arc<Provider<StoreRecords, Arc<dyn Backend>>>,
    keys: KeysFile,
    store: Store,
    orchestrator: Arc<Orchestrator>,
    permits: Option<Arc<Permits>>,
    /// The NBD server, if there is one.
    nbd: Option<RunningNbd>,
}

/// What is known of a running NBD server.
struct RunningNbd {
    address: SocketAddr,
    connections: Connections,
}

impl Storage {
    /// Opens everything. Consumers are served what they have; nothing is changed before [`Self::run`].
    pub async fn start(
        config: &StorageConfig,
        data_dir: &Path,
        names: Vec<String>,
        store: Store,
        pki: Arc<Pki>,
        orchestrator: Arc<Orchestrator>,
        life: &Life,
    ) -> Result<Self, StorageError> {
        let keys = KeysFile::open(data_dir.join("storage-keys.json"))?;
        let (mut ring, sealer) = keys.load()?;
        for path in &config.trusted_ticket_keys {
            ring.trust(trusted_key(path)?);
        }
        let (backend, nbd): (Arc<dyn Backend>, _) = match &config.backend {
            BackendConfig::Nbd(config) => {
                let (backend, running) = start_nbd(config, data_dir, names, pki, life).await?;
                (Arc::new(backend), Some(running))
            }
            BackendConfig::Ceph(target) => (Arc::new(connect_ceph(target.clone()).await?), None),
        };
        let own_ports = nbd.as_ref().map_or_else(ceph_ports, |nbd| vec![Ports::one(nbd.address.port())]);
        let permits = config
            .permit
            .as_ref()
            .map(|permit| Arc::new(Permits::new(Arc::clone(&orchestrator), permit, own_ports)));
        let network = permits.clone().map(|permits| -> Arc<dyn Network> { permits });
        let clock = Arc::new(now);
        let config = ProviderConfig { keys: ring, sealer, clock, resync: RESYNC, network };
        let provider = Arc::new(Provider::new(StoreRecords::new(store.clone()), backend, config));
        Ok(Self { provider, keys, store, orchestrator, permits, nbd })
    }

    /// Makes storage and network match the records from now on, whenever this controller leads. Tags must be loaded:
    /// rules may name them.
    pub fn run(self: &Arc<Self>, life: &Life) {
        life.spawn_to_end("storage: reconciler", turns::run(Arc::clone(self), life.stopping()));
    }

    /// Lets a consumer come from these addresses and no others. Written down when this returns, and tried once if it is
    /// this controller's turn.
    pub async fn permit(&self, consumer: ConsumerId, sources: &Sources) -> Result<(), Refusal> {
        self.provider.permit(consumer, sources).await?;
        if self.orchestrator.leads() {
            let tried = self.provider.reconcile(consumer).await;
            tried.map_err(|err| Refusal::Provider { reason: common::chain(&err) })?;
        }
        Ok(())
    }

    /// Where the NBD server listens, if there is one.
    pub fn nbd_addr(&self) -> Option<SocketAddr> {
        self.nbd.as_ref().map(|nbd| nbd.address)
    }

    /// Signs tickets with a new key from now on. It is on disk before it is used.
    pub fn rotate_ticket_key(&self, overlap: Duration) -> Result<String, StorageError> {
        let id = self.keys.rotate(&self.provider, now(), overlap.as_secs())?;
        Ok(id.as_str().to_owned())
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Monitors in both protocols, and the range daemons take their ports from.
fn ceph_ports() -> Vec<Ports> {
    vec![Ports::one(3300), Ports::one(6789), Ports::Range { first: 6800, last: 7300 }]
}

fn trusted_key(path: &Path) -> Result<VerifyingKey, StorageError> {
    let failed = |err: Box<dyn std::error::Error + Send + Sync>| StorageError::TrustedKey {
        path: path.to_owned(),
        err,
    };
    let pem = std::fs::read_to_string(path).map_err(|err| failed(err.into()))?;
    VerifyingKey::rsa_from_pem(&pem).map_err(|err| failed(err.into()))
}

async fn start_nbd(
    config: &NbdConfig,
    data_dir: &Path,
    names: Vec<String>,
    pki: Arc<Pki>,
    life: &Life,
) -> Result<(NbdBackend, RunningNbd), StorageError> {
    let vault = VaultConfig { root: data_dir.join("volumes"), reserve: config.reserve_bytes };
    let vault = Arc::new(blocking(move || Vault::open(vault)).await.map_err(StorageError::Vault)?);
    let server = ServerConfig {
        listen: config.listen,
        access: Access::Tls(tls_identity(&pki, &names)?),
        max_connections: MAX_CONNECTIONS,
        max_sessions: MAX_SESSIONS,
    };
    let server = NbdServer::bind(Arc::clone(&vault), server).await.map_err(StorageError::Nbd)?;
    let addr = server.local_addr().unwrap_or(config.listen);
    let connections = server.connections();
    let (renewal, authority) = (server.renewal(), Arc::clone(&pki));
    life.spawn("storage: certificate", async move {
        loop {
            tokio::time::sleep(RENEWAL).await;
            let renewed = tls_identity(&authority, &names).map_err(|err| common::chain(&err));
            if let Err(error) =
                renewed.and_then(|identity| renewal.renew(identity).map_err(|err| common::chain(&err)))
            {
                error!(error, "cannot renew the NBD server's certificate; the old one stays in use");
            }
        }
    });
    life.spawn_to_end("storage: NBD server", server.run(life.stopping()));
    let host = config.host.clone().unwrap_or_else(|| addr.ip().to_string());
    Ok((
        NbdBackend::new(vault, Arc::new(LocalCa(pki)), host, addr.port()),
        RunningNbd { address: addr, connections },
    ))
}

fn tls_identity(pki: &Pki, names: &[String]) -> Result<TlsIdentity, PkiError> {
    let (certificate_chain, key) = pki.server_certificate(names, OffsetDateTime::from(SystemTime::now()))?;
    let client_authority = pki.ca_pem().to_owned();
    Ok(TlsIdentity { certificate_chain, key: key.expose().to_owned(), client_authority })
}

async fn connect_ceph(target: CephTarget) -> Result<CephBackend, StorageError> {
    let defaults = CephConfig::default();
    let config = CephConfig {
        replicas: target.replicas.unwrap_or(defaults.replicas),
        placement_groups: target.placement_groups.unwrap_or(defaults.placement_groups),
    };
    let target = Target { conf: target.conf, user: target.user, keyring: target.keyring };
    let commands = blocking(move || storage_ceph::connect(&target)).await.map_err(StorageError::Ceph)?;
    Ok(CephBackend::new(commands, config))
}

/// The local CA, as NBD asks for certificates.
struct LocalCa(Arc<Pki>);

impl Issuer for LocalCa {
    fn issue(&self, uri: &str) -> Result<IssuedIdentity, IssueError> {
        let failed = |reason: String| IssueError { reason };
        let subject = Subject::from_uri(uri).map_err(|err| failed(common::chain(&err)))?;
        if subject.role != Role::Consumer {
            return Err(failed(format!("{uri} names no consumer")));
        }
        let now = SystemTime::now();
        let issued = self.0.issue_client(&subject, OffsetDateTime::from(now), CERTIFICATE);
        let issued = issued.map_err(|err| failed(common::chain(&err)))?;
        Ok(IssuedIdentity {
            certificate: issued.certificate_pem,
            key: issued.key_pem.expose().to_owned(),
            authority: self.0.ca_pem().to_owned(),
            renew_at: now + CERTIFICATE.unsigned_abs() / 2,
        })
    }
}
