//! The backend of this controller, opened: a vault with its NBD server, or a way to a Ceph cluster.
//!
//! In: the configuration, and what of the controller storage is wired to. Out: an open backend, or why not; to be tried
//! again as a whole. Holds: nothing. Not here: when it is tried (`room`), which vault belongs here (`vaults`).

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use life::Life;
use model::{Role, Subject};
use storage_ceph::{CephBackend, CephConfig, Target};
use storage_nbd::{
    Access, Connections, IssueError, IssuedIdentity, Issuer, NbdBackend, NbdServer, ServerConfig,
    TlsIdentity, VaultConfig,
};
use store::Store;
use time::OffsetDateTime;
use tracing::error;

use super::{
    BackendConfig, CephTarget, NbdConfig, StorageError, room::Opened, vaults, volume_keys::StoreKeys,
};
use crate::pki::{Pki, PkiError};

/// A consumer's certificate is valid this long, and renewed when half of it is over.
const CERTIFICATE: time::Duration = time::Duration::days(90);
/// How often the NBD server's certificate is looked at.
const RENEWAL: Duration = Duration::from_secs(3600);
const MAX_CONNECTIONS: usize = 10_000;
const MAX_SESSIONS: usize = 1_000;

/// What is known of a running NBD server.
pub(super) struct RunningNbd {
    pub(super) address: SocketAddr,
    pub(super) connections: Connections,
}

/// What the NBD server is started with, as often as it takes.
#[derive(Clone)]
pub(super) struct Wiring {
    pub(super) data_dir: PathBuf,
    pub(super) names: Vec<String>,
    pub(super) store: Store,
    pub(super) seals: bool,
    pub(super) pki: Arc<Pki>,
    pub(super) life: Life,
}

/// Opens what the configuration names.
pub(super) async fn open(backend: BackendConfig, wiring: Wiring) -> Result<Opened, StorageError> {
    match backend {
        BackendConfig::Nbd(config) => start_nbd(&config, wiring).await,
        BackendConfig::Ceph(target) => {
            Ok(Opened { backend: Arc::new(connect_ceph(target).await?), nbd: None })
        }
    }
}

async fn start_nbd(config: &NbdConfig, wiring: Wiring) -> Result<Opened, StorageError> {
    let Wiring { data_dir, names, store, seals, pki, life } = wiring;
    let vault = VaultConfig { root: data_dir.join("volumes"), reserve: config.reserve_bytes };
    let keys = Arc::new(StoreKeys::new(store.clone(), seals));
    let vault = Arc::new(vaults::open(&store, &data_dir, vault, keys).await?);
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
    Ok(Opened {
        backend: Arc::new(NbdBackend::new(vault, Arc::new(LocalCa(pki)), host, addr.port())),
        nbd: Some(RunningNbd { address: addr, connections }),
    })
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
    let (told, heard) = tokio::sync::oneshot::channel();
    // A thread of its own: one that waits for a monitor that is gone keeps no process from ending.
    let connecting = std::thread::Builder::new().name("ceph: connecting".to_owned());
    let unreachable = |reason: String| StorageError::Unreachable { reason };
    let connecting = connecting.spawn(move || told.send(storage_ceph::connect(&target)).ok());
    connecting.map_err(|err| unreachable(err.to_string()))?;
    let connected = heard.await.map_err(|err| unreachable(err.to_string()))?;
    let commands = connected.map_err(StorageError::Ceph)?;
    Ok(CephBackend::new(commands, config))
}

/// The local CA, as NBD asks for certificates.
pub(super) struct LocalCa(pub(super) Arc<Pki>);

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
