//! Storage for other clusters, wired: records in the store, volumes in this process or on Ceph, certificates from the
//! local CA.
//!
//! In: the configuration, calls from `grpc` and `rest`. Out: a running provider and, for NBD, its server.
//! Holds: the provider's keys, in a file of the data directory; those of encrypted volumes are in the store. Not here: what is granted to whom
//! (`storage-provider`), how it is kept true (`storage-backend`), what storage is made of (`storage-nbd`, `-ceph`).

#[cfg(test)]
mod crash;
mod keys;
mod open;
mod permits;
mod records;
mod room;
mod stats;
mod turns;
mod vaults;
mod volume_keys;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use life::Life;
use model::Ports;
use orchestrator::execute::Orchestrator;
use permits::Permits;
use records::StoreRecords;
use room::Room;
use serde::Deserialize;
use storage_backend::{Backend, Network, Provider, ProviderConfig};
use storage_provider::{
    Capacity, CapacityError, CapacityForm, ConsumerId, Refusal, Sources, Terms, TicketLimit, VerifyingKey,
};
use store::Store;

pub use keys::{KeysError, KeysFile};
pub use permits::{EndpointConfig, PermitConfig};
pub use room::Trouble;
pub use stats::{ConsumerStats, StorageStats};
pub(crate) use volume_keys::secrets;

use crate::pki::{Pki, PkiError};

/// Everything is looked at again this often, changed or not.
const RESYNC: Duration = Duration::from_secs(60);
/// How long a start waits for storage before it goes on without it.
const PATIENCE_WITH_A_DISK: Duration = Duration::from_secs(10);
const PATIENCE_WITH_A_CLUSTER: Duration = Duration::from_secs(2);

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
    /// Hours for which the data of a consumer that was put off is kept, so that it can be taken back.
    #[serde(default = "default_grace")]
    pub grace_hours: u64,
    /// The most a consumer gets by its own word with a ticket that names no limit; absent: half of the storage.
    #[serde(default)]
    pub ticket_limit: Option<Amount>,
    /// What a client is granted that names no capacity, with a ticket that names no limit.
    #[serde(default = "default_capacity")]
    pub default_capacity: Amount,
}

/// So many bytes, written as a quantity such as `10Gi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Amount(pub u64);

impl TryFrom<String> for Amount {
    type Error = CapacityError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Ok(Self(Capacity::parse(&text, CapacityForm::Text)?.bytes()))
    }
}

fn default_capacity() -> Amount {
    Amount(Terms::default().capacity)
}

fn default_grace() -> u64 {
    24
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
    /// Whatever is stored from now on is encrypted, also where neither ticket nor volume says so.
    #[serde(default)]
    pub encrypt: bool,
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
        let nbd = NbdConfig { listen, host: None, reserve_bytes: default_reserve(), encrypt: false };
        Self {
            backend: BackendConfig::Nbd(nbd),
            trusted_ticket_keys: Vec::new(),
            permit: None,
            grace_hours: default_grace(),
            ticket_limit: None,
            default_capacity: default_capacity(),
        }
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
    #[error("cannot use {}, which names the vault that belongs in the data directory", path.display())]
    VaultFile {
        path: PathBuf,
        #[source]
        err: std::io::Error,
    },
    #[error("what the store knows of the volumes is out of reach: {reason}")]
    Unreachable { reason: String },
}

/// Where records and keys of volumes are kept.
pub struct Keeping {
    pub store: Store,
    /// It seals secrets, as keys of volumes are.
    pub seals: bool,
}

/// The provider of one controller.
pub struct Storage {
    pub provider: Arc<Provider<StoreRecords, Arc<dyn Backend>>>,
    keys: KeysFile,
    store: Store,
    orchestrator: Arc<Orchestrator>,
    permits: Option<Arc<Permits>>,
    room: Arc<Room>,
    /// What is stored here can be encrypted.
    encrypts: bool,
}

impl Storage {
    /// Opens everything. Consumers are served what they have; nothing is changed before [`Self::run`]. Storage that cannot
    /// be opened is degraded, and opened when it can be: no error of it is one of the controller's.
    pub async fn start(
        config: &StorageConfig,
        data_dir: &Path,
        names: Vec<String>,
        Keeping { store, seals }: Keeping,
        pki: Arc<Pki>,
        orchestrator: Arc<Orchestrator>,
        life: &Life,
    ) -> Result<Self, StorageError> {
        let keys = KeysFile::open(data_dir.join("storage-keys.json"))?;
        let (mut ring, sealer) = keys.load()?;
        for path in &config.trusted_ticket_keys {
            ring.trust(trusted_key(path)?);
        }
        let (room, backend) = (Arc::new(Room::new()), config.backend.clone());
        let patience = match &backend {
            BackendConfig::Nbd(_) => PATIENCE_WITH_A_DISK,
            BackendConfig::Ceph(_) => PATIENCE_WITH_A_CLUSTER,
        };
        let wiring = open::Wiring {
            data_dir: data_dir.to_owned(),
            names,
            store: store.clone(),
            seals,
            pki,
            life: life.clone(),
        };
        room.run(patience, life, move || open::open(backend.clone(), wiring.clone())).await;
        let own_ports = match (&config.backend, room.opened().and_then(|it| Some(it.nbd.as_ref()?.address))) {
            (BackendConfig::Nbd(_), Some(address)) => vec![Ports::one(address.port())],
            (BackendConfig::Nbd(config), None) => vec![Ports::one(config.listen.port())],
            (BackendConfig::Ceph(_), _) => ceph_ports(),
        };
        let permits = config
            .permit
            .as_ref()
            .map(|permit| Arc::new(Permits::new(Arc::clone(&orchestrator), permit, own_ports)));
        let network = permits.clone().map(|permits| -> Arc<dyn Network> { permits });
        let clock = Arc::new(now);
        let grace = config.grace_hours.saturating_mul(3600);
        let limit = config.ticket_limit.map_or(TicketLimit::Half, |amount| TicketLimit::Bytes(amount.0));
        let (encrypts, encrypted) = match &config.backend {
            BackendConfig::Nbd(nbd) => (true, nbd.encrypt),
            BackendConfig::Ceph(_) => (false, false),
        };
        let terms = Terms { limit, capacity: config.default_capacity.0, encrypted };
        let config = ProviderConfig { keys: ring, sealer, clock, resync: RESYNC, grace, network, terms };
        let backend = Arc::clone(&room) as Arc<dyn Backend>;
        let provider = Arc::new(Provider::new(StoreRecords::new(store.clone()), backend, config));
        Ok(Self { provider, keys, store, orchestrator, permits, room, encrypts })
    }

    /// Makes storage and network match the records from now on, whenever this controller leads. Tags must be loaded:
    /// rules may name them.
    pub fn run(self: &Arc<Self>, life: &Life) {
        life.spawn_to_end("storage: reconciler", turns::run(Arc::clone(self), life.stopping()));
        let storage = Arc::clone(self);
        life.spawn("storage: recovery", async move {
            loop {
                storage.room.until_recovered().await;
                storage.provider.wake_all();
            }
        });
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

    /// Whether what is stored here can be encrypted.
    pub fn encrypts(&self) -> bool {
        self.encrypts
    }

    /// Where the NBD server listens, if there is one.
    pub fn nbd_addr(&self) -> Option<SocketAddr> {
        Some(self.room.opened()?.nbd.as_ref()?.address)
    }

    /// Since when and why storage as a whole is out of order, if it is.
    pub fn trouble(&self) -> Option<Trouble> {
        self.room.trouble()
    }

    /// What an administrator should know now; asks nobody who could keep it waiting.
    pub fn attention(&self) -> Vec<String> {
        let trouble = self.trouble().map(|Trouble { since, why }| {
            let since = jiff::Timestamp::try_from(since).map(|at| at.strftime("%FT%TZ").to_string());
            format!("storage is degraded since {}: {why}", since.unwrap_or_default())
        });
        trouble.into_iter().chain(self.room.attention()).collect()
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
