//! Start and stop of a controller.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{Router, middleware};
use jiff::Timestamp;
use model::{Role, Secret, Subject};
use time::OffsetDateTime;
use tokio::{net::TcpListener, sync::Semaphore};
use tonic_health::{ServingStatus, server::HealthReporter};
use tracing::{info, warn};

use crate::{
    access::{
        Credentials, CredentialsError,
        gate::{self, Gate},
    },
    audit::Audit,
    config::{Config, ConfigError},
    grpc,
    limits::{self, Limits},
    listen::Listener,
    metrics::Metrics,
    news::News,
    parts::Parts,
    rest, revocation,
    serving::{self, Serving},
    tls::{Tls, TlsError},
    watch_api,
};
use drivers::{
    Drivers, DriversError, OpenStoreError, StoreKind, blocking, open_store,
    pki::{Pki, PkiError},
    private_file,
    transport::Transport,
};
use life::{Fault, Life};
use orchestrator::plan::Pools;

/// How long the login link that a start prints can be used.
const FIRST_LOGIN: Duration = Duration::from_secs(3600);
/// How often readiness is told to gRPC health watchers.
const HEALTH_INTERVAL: Duration = Duration::from_secs(2);

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
    parts: Parts,
    http: SocketAddr,
    grpc: SocketAddr,
    watch: SocketAddr,
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
        private_file::create_dir(&data_dir).map_err(in_data_dir)?;
        // Sockets first: a port that is taken is known before anything is opened.
        let http = bind("http", config.listen.http).await?;
        let grpc = bind("grpc", config.listen.grpc).await?;
        let watch = bind("watch", config.listen.watch).await?;
        let store = open_store(&config.store, &data_dir).await?;
        let pki = Arc::new(Pki::open(&data_dir.join("pki"), OffsetDateTime::from(SystemTime::now()))?);
        let audit = Arc::new(Audit::open(&data_dir).map_err(in_data_dir)?);
        let life = Life::default();
        let options = drivers::Options {
            data_dir: data_dir.clone(),
            store: store.clone(),
            kind: config.store.clone(),
            pki: Arc::clone(&pki),
            pools: Pools::new(config.address_pools.clone()).map_err(|error| ConfigError::Pools { error })?,
            ranges: config.services.ranges().map_err(ConfigError::from)?,
            nodes: config.nodes.clone(),
            sources,
            storage: config.storage.clone(),
            names: config.certificate_names(host_name().as_deref()),
        };
        let mut drivers = Drivers::start(options, &life).await?;
        let credentials = Arc::new(Credentials::start(store.clone(), Arc::clone(&pki), &life));
        let (hub, known) = (Arc::clone(&drivers.transport.hub), Arc::clone(&credentials));
        life.spawn("revocation", async move { revocation::end_revoked(&hub, &known).await });
        let followers = [drivers.tags.progress(), drivers.policy.progress()];
        let rooms = serving::Rooms {
            store: store.clone(),
            policy: Arc::clone(&drivers.policy),
            hub: Arc::clone(&drivers.transport.hub),
            followers: followers
                .into_iter()
                .chain(credentials.progress())
                .chain(drivers.peers.progress())
                .collect(),
        };
        let bound = match &config.store {
            StoreKind::Embedded => None,
            StoreKind::Etcd(etcd) => Some(Duration::from_secs(etcd.max_staleness_seconds)),
        };
        let serving = Serving::start(rooms, bound, &life);
        let parts = Parts {
            serving,
            storage: drivers.storage.clone(),
            policy: Arc::clone(&drivers.policy),
            enforced: drivers.enforced.clone(),
            services: Arc::clone(&drivers.services),
            watch: Arc::clone(&drivers.watch),
            objects: drivers.objects.clone(),
            tags: Arc::clone(&drivers.tags),
            namespaces: drivers.namespaces.clone(),
            orchestrator: Arc::clone(&drivers.orchestrator),
            transport: Arc::clone(&drivers.transport),
            peers: Arc::clone(&drivers.peers),
            credentials,
            config: Arc::new(config),
            store,
            audit,
            pki,
            metrics: Metrics::new(),
            news: News::new(),
            started_at: Timestamp::now(),
            life: life.clone(),
        };
        // Callers are answered from here on, if only with how far the start is.
        let controller = Self::serve(parts, http, grpc, watch)?;
        let parts = &controller.parts;
        tokio::select! {
            () = parts.serving.load() => {}
            fault = life.faulted() => return Err(StartError::Fault(fault)),
        }
        ensure_first_token(parts).await?;
        drivers.run(&parts.config.clouds, name_for_people(&parts.config), &life).await?;
        News::start(parts);
        parts.serving.begin();
        info!("everything stored is read; callers are served");
        Ok(controller)
    }

    fn serve(
        parts: Parts,
        http: TcpListener,
        grpc: TcpListener,
        watch: TcpListener,
    ) -> Result<Self, StartError> {
        let addr = |listener: &TcpListener, asked| listener.local_addr().unwrap_or(asked);
        let listen = &parts.config.listen;
        let (http_addr, grpc_addr, watch_addr) =
            (addr(&http, listen.http), addr(&grpc, listen.grpc), addr(&watch, listen.watch));
        let tls = match parts.config.plaintext_loopback {
            true => None,
            false => {
                let names = parts.config.certificate_names(host_name().as_deref());
                Some(Arc::new(Tls::new(Arc::clone(&parts.pki), names, parts.config.tls.clone())?))
            }
        };
        if let Some(tls) = &tls {
            let tls = Arc::clone(tls);
            parts.life.spawn("certificate of the listeners", async move { tls.keep_fresh().await });
        }
        let health = HealthReporter::new();
        parts.life.spawn_to_end("health", tell_health(parts.clone(), health.clone()));
        let connections = Arc::new(Semaphore::new(parts.config.limits.max_connections));
        let guard = Guard::new(&parts);
        let routers = [
            ("http", http, rest::for_browsers(guard.around(rest::router(&parts)))),
            ("grpc", grpc, guard.around(grpc::router(&parts, health))),
            ("watch", watch, watch_api::speak_kubernetes(guard.around(watch_api::router(&parts)))),
        ];
        for (name, socket, router) in routers {
            let listener = Listener {
                name,
                socket,
                tls: tls.clone(),
                router,
                connections: Arc::clone(&connections),
                metrics: Arc::clone(&parts.metrics),
            };
            parts.life.spawn_to_end(format!("listener {name}"), listener.serve(parts.life.stopping()));
        }
        info!(http = %http_addr, grpc = %grpc_addr, watch = %watch_addr, "the controller listens");
        Ok(Self { parts, http: http_addr, grpc: grpc_addr, watch: watch_addr })
    }

    pub fn http_addr(&self) -> SocketAddr {
        self.http
    }

    pub fn grpc_addr(&self) -> SocketAddr {
        self.grpc
    }

    pub fn watch_addr(&self) -> SocketAddr {
        self.watch
    }

    /// Where the NBD server listens, if volumes are served by this process.
    pub fn nbd_addr(&self) -> Option<SocketAddr> {
        self.parts.storage.as_ref()?.nbd_addr()
    }

    pub fn ca_path(&self) -> PathBuf {
        self.parts.pki.ca_path()
    }

    /// Where the first administrator's token is.
    pub fn token_path(&self) -> PathBuf {
        token_path(&self.parts.config.data_dir)
    }

    /// A code with which a browser may begin one session as the first administrator.
    pub async fn login(&self) -> Result<Secret, CredentialsError> {
        self.parts.credentials.create_login(first_administrator(), FIRST_LOGIN).await
    }

    /// What sources publish through.
    pub fn transport(&self) -> &Arc<Transport> {
        &self.parts.transport
    }

    /// Returns when one of the controller's tasks is gone. It is not ready then, and can only be stopped.
    pub async fn faulted(&self) -> Fault {
        self.parts.life.faulted().await
    }

    /// The names of the tasks that run; each is missed when it is gone.
    pub fn tasks(&self) -> Vec<life::Name> {
        self.parts.life.running()
    }

    /// For tests: makes the tasks of a name panic.
    #[doc(hidden)]
    pub fn kill(&self, task: &str) -> bool {
        self.parts.life.kill(task)
    }

    /// Stops accepting, lets calls finish, ends streams, and closes the store. The fault, if there was one.
    pub async fn stop(self) -> Result<(), Fault> {
        info!("the controller stops");
        let ended = self.parts.life.end().await;
        // The last handle on the store is in here; closing it waits for its writer.
        blocking(move || drop(self.parts)).await;
        ended
    }
}

/// What is put around every router.
struct Guard {
    gate: Arc<Gate>,
    limits: Arc<Limits>,
}

impl Guard {
    fn new(parts: &Parts) -> Self {
        let limits = &parts.config.limits;
        Self {
            gate: Arc::new(Gate {
                credentials: Arc::clone(&parts.credentials),
                audit: Arc::clone(&parts.audit),
                metrics: Arc::clone(&parts.metrics),
                serving: Arc::clone(&parts.serving),
                anonymous: parts.config.anonymous_role,
                secure: !parts.config.plaintext_loopback,
            }),
            limits: Arc::new(Limits::new(
                limits.max_in_flight,
                limits.request_timeout(),
                Arc::clone(&parts.metrics),
            )),
        }
    }

    fn around(&self, router: Router) -> Router {
        router
            .layer(middleware::from_fn_with_state(Arc::clone(&self.gate), gate::pass))
            .layer(middleware::from_fn_with_state(Arc::clone(&self.limits), limits::keep))
    }
}

async fn bind(listener: &'static str, addr: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(addr).await.map_err(|err| StartError::Listen { listener, addr, err })
}

fn token_path(data_dir: &Path) -> PathBuf {
    data_dir.join("admin.token")
}

/// Makes an administrator's token if nobody has one, so that somebody can make the others.
async fn ensure_first_token(parts: &Parts) -> Result<(), StartError> {
    let path = token_path(&parts.config.data_dir);
    let someone = parts.credentials.tokens().iter().any(|(_, token)| token.subject.role == Role::Admin);
    if someone {
        if !path.exists() {
            warn!("administrators have tokens, but {} is not here", path.display());
        }
        return Ok(());
    }
    let made =
        parts.credentials.create_token(first_administrator(), None).await.map_err(StartError::FirstToken)?;
    private_file::write(&path, made.token.expose().as_bytes())
        .map_err(|err| StartError::DataDir { path, err })
}

fn first_administrator() -> Subject {
    Subject { role: Role::Admin, name: "admin".parse().expect("it is a legal name") }
}

/// Tells gRPC health watchers what `/readyz` says.
async fn tell_health(parts: Parts, health: HealthReporter) {
    let mut told = None;
    let stopping = parts.life.stopping();
    while !stopping.is_cancelled() {
        let ready = parts.serving.not_ready().await.is_empty();
        if told != Some(ready) {
            told = Some(ready);
            set_health(&health, if ready { ServingStatus::Serving } else { ServingStatus::NotServing }).await;
        }
        stopping.run_until_cancelled(tokio::time::sleep(HEALTH_INTERVAL)).await;
    }
    set_health(&health, ServingStatus::NotServing).await;
}

async fn set_health(health: &HealthReporter, status: ServingStatus) {
    // The empty name stands for the server as a whole.
    for service in std::iter::once(&"").chain(grpc::SERVED) {
        health.set_service_status(service, status).await;
    }
}

/// What people know this controller by, where there are several.
fn name_for_people(config: &Config) -> String {
    let host = host_name().unwrap_or_else(|| "a host without a name".to_owned());
    format!("{host}, gRPC at {}, process {}", config.listen.grpc, std::process::id())
}

fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    // Names that no certificate can carry are left out rather than failing the start.
    let legal = !name.is_empty() && name.split('.').all(|label| label.parse::<model::Segment>().is_ok());
    legal.then(|| name.to_owned())
}
