//! Start and stop of a controller.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use drivers::{
    Drivers, DriversError, OpenStoreError, blocking, open_store,
    pki::{Pki, PkiError},
    transport::Transport,
};
use jiff::Timestamp;
use life::{Fault, Life};
use model::{Role, Secret, Subject};
use orchestrator::plan::Pools;
use store::Store;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tracing::{info, warn};

use crate::{
    access::{CredentialsError, changes},
    audit::{Audit, Record},
    config::{Config, ConfigError},
    front::{Addresses, Front, Sockets, host_name},
    metrics::Metrics,
    tls::TlsError,
};

/// Why a controller did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the configuration cannot be used")]
    Config(#[from] ConfigError),
    #[error("cannot use the data directory {}", path.display())]
    DataDir {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("cannot open the store")]
    Store(#[from] OpenStoreError),
    #[error("cannot set up the local CA")]
    Pki(#[from] PkiError),
    #[error("cannot set up TLS")]
    Tls(#[from] TlsError),
    #[error("cannot listen on {addr} for {listener}; is another controller running?")]
    Listen {
        listener: &'static str,
        addr: SocketAddr,
        #[source]
        err: io::Error,
    },
    #[error(transparent)]
    Drivers(#[from] DriversError),
    #[error("the controller cannot go on")]
    Fault(#[source] Fault),
    #[error("cannot make the first token")]
    FirstToken(#[source] CredentialsError),
}

/// A running controller.
pub struct Controller {
    front: Front,
    drivers: Drivers,
    addresses: Addresses,
}

impl Controller {
    /// Starts everything; returns when the controller serves.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, &[]).await
    }

    /// The same, with further sources of objects for nodes, which somebody else in this process drives.
    pub async fn start_with(config: Config, sources: &[&str]) -> Result<Self, StartError> {
        config.check()?;
        let data_dir = config.data_dir.clone();
        let in_data_dir = |err| StartError::DataDir { path: data_dir.clone(), err };
        files::closed_dir(&data_dir).map_err(in_data_dir)?;
        // Sockets first: a port that is taken is known before anything is opened.
        let sockets = Sockets {
            http: bind("http", config.listen.http).await?,
            grpc: bind("grpc", config.listen.grpc).await?,
            watch: bind("watch", config.listen.watch).await?,
        };
        let store = open_store(&config.store, &data_dir).await?;
        let pki = Arc::new(Pki::open(&data_dir.join("pki"), OffsetDateTime::from(SystemTime::now()))?);
        let life = Life::default();
        let metrics = Metrics::new();
        let audit = Audit::open(&data_dir, config.audit, Arc::clone(&metrics));
        let audit = Arc::new(audit.map_err(in_data_dir)?);
        audit.start();
        let mut drivers = Drivers::start(options(&config, sources, store, &pki)?, &life).await?;
        let front = Front::new(config, pki, audit, metrics, &drivers, life);
        // Callers are answered from here on, if only with how far the start is.
        let addresses = front.serve(&drivers, sockets)?;
        tokio::select! {
            () = front.serving.load() => {}
            fault = front.life.faulted() => return Err(StartError::Fault(fault)),
        }
        ensure_first_token(&front).await?;
        let name = name_for_people(&front.config);
        drivers.run(&front.config.clouds, &front.pki, name, &front.life).await?;
        front.begin(&drivers);
        info!("everything stored is read; callers are served");
        Ok(Self { front, drivers, addresses })
    }

    pub fn http_addr(&self) -> SocketAddr {
        self.addresses.http
    }

    pub fn grpc_addr(&self) -> SocketAddr {
        self.addresses.grpc
    }

    pub fn watch_addr(&self) -> SocketAddr {
        self.addresses.watch
    }

    /// Where the NBD server listens, if volumes are served by this process.
    pub fn nbd_addr(&self) -> Option<SocketAddr> {
        self.drivers.storage.as_ref()?.nbd_addr()
    }

    pub fn ca_path(&self) -> PathBuf {
        self.front.pki.ca_path()
    }

    /// Where the first administrator's token is.
    pub fn token_path(&self) -> PathBuf {
        token_path(&self.front.config.data_dir)
    }

    /// A code with which a browser may begin one session as the first administrator.
    pub async fn login(&self) -> Result<Secret, CredentialsError> {
        let login = self.front.credentials.create_login(first_administrator(), None).await?;
        let mut record = Record::event(Timestamp::now(), "controller login link", String::new());
        record.object = first_administrator().to_string();
        self.front.audit.conclude(record);
        Ok(login)
    }

    /// What sources publish through.
    pub fn transport(&self) -> &Arc<Transport> {
        &self.drivers.transport
    }

    /// Returns when one of the controller's tasks is gone. It is not ready then, and can only be stopped.
    pub async fn faulted(&self) -> Fault {
        self.front.life.faulted().await
    }

    /// The names of the tasks that run; each is missed when it is gone.
    pub fn tasks(&self) -> Vec<life::Name> {
        self.front.life.running()
    }

    /// For tests: makes the tasks of a name panic.
    #[doc(hidden)]
    pub fn kill(&self, task: &str) -> bool {
        self.front.life.kill(task)
    }

    /// Stops accepting, lets calls finish, ends streams, and closes the store. The fault, if there was one.
    pub async fn stop(self) -> Result<(), Fault> {
        info!("the controller stops");
        let ended = self.front.life.end().await;
        self.drivers.orchestrator.end().await;
        // The last handle on the store is in here; closing it waits for its writer.
        blocking(move || drop((self.front, self.drivers))).await;
        ended
    }
}

/// What the configuration comes to for the drivers.
fn options<'a>(
    config: &'a Config,
    sources: &'a [&'a str],
    store: Store,
    pki: &Arc<Pki>,
) -> Result<drivers::Options<'a>, ConfigError> {
    Ok(drivers::Options {
        data_dir: config.data_dir.clone(),
        store,
        kind: config.store.clone(),
        pki: Arc::clone(pki),
        pools: Pools::new(config.address_pools.clone()).map_err(|error| ConfigError::Pools { error })?,
        ranges: config.services.ranges()?,
        nodes: config.nodes.clone(),
        sources,
        clusters: &config.kubernetes,
        storage: config.storage.clone(),
        flows: config.flows.clone(),
        names: config.certificate_names(host_name().as_deref()),
    })
}

async fn bind(listener: &'static str, addr: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(addr).await.map_err(|err| StartError::Listen { listener, addr, err })
}

fn token_path(data_dir: &Path) -> PathBuf {
    data_dir.join("admin.token")
}

/// Makes an administrator's token if nobody has one, so that somebody can make the others.
async fn ensure_first_token(front: &Front) -> Result<(), StartError> {
    let path = token_path(&front.config.data_dir);
    let someone = front.credentials.tokens().iter().any(|(_, token)| token.subject.role == Role::Admin);
    if someone {
        if !path.exists() {
            warn!("administrators have tokens, but {} is not here", path.display());
        }
        return Ok(());
    }
    let made = front
        .credentials
        .create_token(first_administrator(), None, None)
        .await
        .map_err(StartError::FirstToken)?;
    let mut record = Record::event(Timestamp::now(), "controller first token", String::new());
    record.object = first_administrator().to_string();
    record.changes = vec![changes::token(&made.id, None, Some(&made.record))];
    front.audit.conclude(record);
    files::write(&path, made.token.expose().as_bytes()).map_err(|err| StartError::DataDir { path, err })
}

fn first_administrator() -> Subject {
    Subject { role: Role::Admin, name: "admin".parse().expect("it is a legal name") }
}

/// What people know this controller by, where there are several.
fn name_for_people(config: &Config) -> String {
    let host = host_name().unwrap_or_else(|| "a host without a name".to_owned());
    format!("{host}, gRPC at {}, process {}", config.listen.grpc, std::process::id())
}
