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
    blocking::blocking,
    config::{Config, ConfigError},
    enforcer::Enforcer,
    grpc,
    life::Life,
    limits::{self, Limits},
    listen::Listener,
    metrics::Metrics,
    namespaces::{NamespaceError, Namespaces},
    news::News,
    objects::Objects,
    open_store::{OpenStoreError, open_store},
    orchestration,
    parts::Parts,
    pki::{Pki, PkiError},
    policy::{Consumer, Follower, Policy},
    private_file, rest,
    services::Services,
    storage::{Storage, StorageError},
    tags::Tags,
    tls::{Tls, TlsError},
    transport::Transport,
    watch_api,
};

/// How long the first state may take to load before the start is given up.
const LOAD: Duration = Duration::from_secs(60);
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
    #[error("cannot provide storage")]
    Storage(#[from] StorageError),
    #[error("the initial state did not load within {LOAD:?}; see the log for what the store answers")]
    Load,
    #[error("cannot set up the clouds")]
    Clouds(#[from] orchestration::CloudsError),
    #[error("cannot enter the addresses and node ports that Services have")]
    Allotments(#[source] crate::objects::ObjectsError),
    #[error("cannot make the first token")]
    FirstToken(#[source] CredentialsError),
    #[error("cannot make the default namespace")]
    Namespace(#[source] NamespaceError),
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
        let store = open_store(&config).await?;
        let pki = Arc::new(Pki::open(&data_dir.join("pki"), OffsetDateTime::from(SystemTime::now()))?);
        let audit = Arc::new(Audit::open(&data_dir).map_err(in_data_dir)?);
        let life = Life::default();
        let metrics = Metrics::new();
        let tags = Tags::start(store.clone(), Arc::clone(&metrics), &life);
        let namespaces = Namespaces::new(store.clone());
        let orchestrator =
            orchestration::load(&config, store.clone(), Arc::clone(&tags), namespaces.clone()).await?;
        let objects = Objects::new(store.clone(), config.services.ranges()?);
        objects.adopt_allotments().await.map_err(StartError::Allotments)?;
        let names = config.certificate_names(host_name().as_deref());
        let storage = match &config.storage {
            Some(storage) => {
                let (store, pki, orchestrator) = (store.clone(), Arc::clone(&pki), Arc::clone(&orchestrator));
                let started = Storage::start(storage, &data_dir, names, store, pki, orchestrator, &life);
                Some(Arc::new(started.await?))
            }
            None => None,
        };
        let cache = Arc::new(watch::Cache::new(first_revision()));
        let credentials = Arc::new(Credentials::start(store.clone(), Arc::clone(&pki), &life));
        let transport = Transport::start(&config.nodes, sources, &credentials, &life);
        let enforcer = Enforcer::default();
        let consumers: Vec<Box<dyn Consumer>> = vec![
            Box::new(watch_api::Feed(Arc::clone(&cache))),
            transport.policy_consumer(),
            Box::new(enforcer.feed()),
        ];
        let services = Services::new();
        let followers: Vec<Box<dyn Follower>> = vec![services.follower(transport.services_source())];
        let parts = Parts {
            storage,
            policy: Policy::start(&objects, consumers, followers, &life),
            enforced: enforcer.reached(),
            services,
            watch: cache,
            objects,
            tags,
            namespaces,
            orchestrator,
            transport,
            credentials,
            config: Arc::new(config),
            store,
            audit,
            pki,
            metrics,
            news: News::new(),
            started_at: Timestamp::now(),
            life,
        };
        load(&parts).await?;
        ensure_first_token(&parts).await?;
        parts.namespaces.ensure_default().await.map_err(StartError::Namespace)?;
        enforcer.start(&parts).await;
        orchestration::run(&parts).await?;
        News::start(&parts);
        if let Some(storage) = &parts.storage {
            storage.run(&parts.life);
        }
        Self::serve(parts, http, grpc, watch)
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
            parts.life.spawn(async move { tls.keep_fresh().await });
        }
        let health = HealthReporter::new();
        parts.life.spawn_to_end(tell_health(parts.clone(), health.clone()));
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
            parts.life.spawn_to_end(listener.serve(parts.life.stopping()));
        }
        info!(http = %http_addr, grpc = %grpc_addr, watch = %watch_addr, "the controller serves");
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

    /// Stops accepting, lets calls finish, ends streams, and closes the store.
    pub async fn stop(self) {
        info!("the controller stops");
        self.parts.life.end().await;
        self.parts.orchestrator.end().await;
        // The last handle on the store is in here; closing it waits for its writer.
        blocking(move || drop(self.parts)).await;
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

/// Waits until everything stored is read.
async fn load(parts: &Parts) -> Result<(), StartError> {
    let loaded = async {
        while !(parts.tags.is_synced() && parts.credentials.is_synced() && parts.policy.is_synced()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LOAD, loaded).await.map_err(|_| StartError::Load)
}

/// Where revisions of the watch API start: later than any of an earlier process, as long as the clock does not go back.
fn first_revision() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX / 2)
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
        let ready = parts.not_ready().await.is_empty();
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

pub(crate) fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    // Names that no certificate can carry are left out rather than failing the start.
    let legal = !name.is_empty() && name.split('.').all(|label| label.parse::<model::Segment>().is_ok());
    legal.then(|| name.to_owned())
}
