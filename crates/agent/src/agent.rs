//! The agent as a whole: starts the pieces, and stops them.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use axum::Router;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    feed::{Feed, Uplink},
    health,
    local::{self, Local},
    metrics::Metrics,
    part::Part,
    services::{self, Services, health::serve_checks},
    status::{Connection, State},
    worker::{self, LoadError, Worker},
};

/// How an agent is set up.
#[derive(Clone)]
pub struct Config {
    pub uplink: Uplink,
    /// The state and the local registry.
    pub data_dir: PathBuf,
    /// The local API.
    pub socket: PathBuf,
    /// Health, readiness and metrics; none: not served.
    pub health: Option<SocketAddr>,
    /// What the part that keeps services says of itself; none: there is no such part.
    pub services: Option<Services>,
    /// `/healthz` and `/livez` of the service proxy; none: not served.
    pub services_health: Option<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("no controller is named: give --server")]
    NoServer,
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Socket(#[from] local::ListenError),
    #[error(transparent)]
    Health(#[from] health::ListenError),
    #[error("cannot enforce what an earlier run knew: {0}")]
    Boot(String),
}

/// Enforces what an earlier run knew, and no more: for the moment before the network opens.
pub fn boot(config: &Config, parts: Vec<Box<dyn Part>>) -> Result<State, AgentError> {
    let mut worker = Worker::load(&config.uplink.node, &config.data_dir, parts, Metrics::new())?;
    worker.begin();
    let state = worker.state();
    worker.finish();
    match state.failures.is_empty() {
        true => Ok(state),
        false => Err(AgentError::Boot(state.failures.join("; "))),
    }
}

/// A running agent.
pub struct Agent {
    local: Local,
    health: Option<SocketAddr>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    worker: std::thread::JoinHandle<()>,
    socket: PathBuf,
}

impl Agent {
    /// What an earlier run knew is in force when this returns.
    pub async fn start(config: Config, parts: Vec<Box<dyn Part>>) -> Result<Self, AgentError> {
        if config.uplink.servers.is_empty() {
            return Err(AgentError::NoServer);
        }
        let metrics = Metrics::new();
        let mut worker = Worker::load(&config.uplink.node, &config.data_dir, parts, Arc::clone(&metrics))?;
        worker.begin();
        let (worker, thread) = worker::start(worker, Arc::clone(&metrics));
        let (connection, connections) = watch::channel(Connection::default());
        let node: Arc<str> = config.uplink.node.as_str().into();
        let services = config.services.clone();
        let local = Local { node, worker: worker.clone(), connection: connections, services };
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let socket = local::listen(&config.socket)?;
        tasks.spawn(serve_socket(socket, local.clone(), stop.clone()));
        let mut health = None;
        if let Some(address) = config.health {
            let listener = bind(address).await?;
            health = listener.local_addr().ok();
            let router = health::router(local.clone(), Arc::clone(&metrics));
            tasks.spawn(serve_health(listener, router, stop.clone()));
        }
        if let Some(services) = &config.services {
            tasks.spawn(serve_checks(services.clone(), stop.clone()));
        }
        if let (Some(services), Some(address)) = (&config.services, config.services_health) {
            let router = services::health::router(services.clone());
            tasks.spawn(serve_health(bind(address).await?, router, stop.clone()));
        }
        let feed = Feed { uplink: config.uplink, worker, connection, metrics };
        let stopped = stop.clone();
        tasks.spawn(async move {
            stopped.run_until_cancelled_owned(feed.run()).await;
        });
        info!(node = &*local.node, socket = %config.socket.display(), "the agent runs");
        Ok(Self { local, health, stop, tasks, worker: thread, socket: config.socket })
    }

    pub fn local(&self) -> &Local {
        &self.local
    }

    /// Where health and metrics are served.
    pub fn health_addr(&self) -> Option<SocketAddr> {
        self.health
    }

    /// Stops all but the kernel, which keeps enforcing.
    pub async fn stop(self) {
        let Self { local, stop, mut tasks, worker, socket, .. } = self;
        stop.cancel();
        while tasks.join_next().await.is_some() {}
        // The last handle: the worker finishes what it has, and ends.
        drop(local);
        let joined = tokio::task::spawn_blocking(move || worker.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            error!("the worker fell; see above");
        }
        let _ = std::fs::remove_file(socket);
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, health::ListenError> {
    TcpListener::bind(address).await.map_err(|source| health::ListenError { address, source })
}

async fn serve_health(listener: TcpListener, router: Router, stop: CancellationToken) {
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned());
    if let Err(err) = served.await {
        error!(error = %err, "the health listener failed");
    }
}

async fn serve_socket(listener: tokio::net::UnixListener, local: Local, stop: CancellationToken) {
    let served = axum::serve(listener, local::router(local)).with_graceful_shutdown(stop.cancelled_owned());
    if let Err(err) = served.await {
        error!(error = %err, "the local listener failed");
    }
}
