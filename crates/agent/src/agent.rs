//! The agent as a whole: starts the pieces, and stops them.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use axum::Router;
use life::{Fault, Life};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::DropGuard;
use tracing::{error, info, warn};

use crate::{
    feed::{Feed, Uplink},
    flows::Flows,
    health,
    local::{self, Local},
    metrics::Metrics,
    part::Part,
    services::{self, Services, health::serve_checks},
    status::{Connection, State},
    watcher::{self, Watcher},
    worker::{self, LoadError, Patience, Worker},
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
    /// For how long a Pod waits for a controller to cover it.
    pub patience: Patience,
    /// The node has joined as a host, which [`prepare`]d its directory: if nothing is known of it, that was lost.
    pub joined: bool,
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
    #[error("cannot start a thread of the agent")]
    Thread(#[source] std::io::Error),
    #[error("cannot enforce what an earlier run knew: {0}")]
    Boot(String),
}

/// Enforces what an earlier run knew, or closes what it does not know, and no more: for the moment before the network opens.
pub fn boot(config: &Config, parts: Vec<Box<dyn Part>>) -> Result<State, AgentError> {
    let mut worker = Worker::load(&config.uplink.node, &config.data_dir, parts, Metrics::new())?;
    if config.joined {
        worker.expect_registry();
    }
    worker.begin();
    let state = worker.state();
    worker.finish();
    match state.failures.is_empty() {
        true => Ok(state),
        false => Err(AgentError::Boot(state.failures.join("; "))),
    }
}

/// A running agent. Dropped, it stops without waiting for its end.
pub struct Agent {
    local: Local,
    health: Option<SocketAddr>,
    life: Life,
    socket: PathBuf,
    _stops: DropGuard,
}

impl Agent {
    /// What an earlier run knew is in force when this returns.
    pub async fn start(config: Config, parts: Vec<Box<dyn Part>>) -> Result<Self, AgentError> {
        Self::start_watching(config, parts, None).await
    }

    /// The same, and connections are recorded, if there is a watcher.
    pub async fn start_watching(
        config: Config,
        parts: Vec<Box<dyn Part>>,
        watcher: Option<Watcher>,
    ) -> Result<Self, AgentError> {
        if config.uplink.servers.is_empty() {
            return Err(AgentError::NoServer);
        }
        let metrics = Metrics::new();
        let mut worker = Worker::load(&config.uplink.node, &config.data_dir, parts, Arc::clone(&metrics))?;
        worker.set_patience(config.patience);
        if config.joined {
            worker.expect_registry();
        }
        worker.begin();
        let socket = local::listen(&config.socket)?;
        let health = bind(config.health).await?;
        let services_health = bind(config.services_health).await?;
        let life = Life::default();
        let stops = life.stopping().drop_guard();
        let worker = worker::start(&life, worker, Arc::clone(&metrics)).map_err(AgentError::Thread)?;
        let flows = match watcher {
            Some(watcher) => {
                let flows = Flows::new(&config.uplink.node);
                watcher::start(&life, watcher, worker.clone(), Arc::clone(&flows))
                    .map_err(AgentError::Thread)?;
                Some(flows)
            }
            None => None,
        };
        let (connection, connections) = watch::channel(Connection::default());
        let local = Local {
            node: config.uplink.node.as_str().into(),
            worker: worker.clone(),
            connection: connections,
            services: config.services.clone(),
            life: life.clone(),
        };
        let served = axum::serve(socket, local::router(local.clone()));
        life.spawn_to_end(
            "local API",
            noted(served.with_graceful_shutdown(life.stopping().cancelled_owned())),
        );
        let health_addr = health.as_ref().and_then(|listener| listener.local_addr().ok());
        if let Some(listener) = health {
            let figures = health::Shown { metrics: Arc::clone(&metrics), flows: flows.clone() };
            serve(&life, "health", listener, health::router(local.clone(), figures));
        }
        if let Some(services) = config.services {
            life.spawn_to_end("health of services", serve_checks(services.clone(), life.stopping()));
            if let Some(listener) = services_health {
                serve(&life, "health of the proxy", listener, services::health::router(services));
            }
        }
        life.spawn("feed", Feed { uplink: config.uplink, worker, connection, metrics, flows }.run());
        info!(node = &*local.node, socket = %config.socket.display(), "the agent runs");
        Ok(Self { local, health: health_addr, life, socket: config.socket, _stops: stops })
    }

    pub fn local(&self) -> &Local {
        &self.local
    }

    /// Where health and metrics are served.
    pub fn health_addr(&self) -> Option<SocketAddr> {
        self.health
    }

    /// Its tasks.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Stops all but the kernel, which keeps enforcing. An error if a part of the agent was lost before or meanwhile.
    pub async fn stop(self) -> Result<(), Fault> {
        let Self { local, life, socket, _stops: stops, .. } = self;
        drop(stops);
        // The last handle but those of tasks: when these have ended the worker finishes what it has, and ends.
        drop(local);
        let ended = life.end().await;
        if let Err(error) = std::fs::remove_file(&socket) {
            warn!(path = %socket.display(), %error, "cannot remove the socket");
        }
        ended
    }
}

async fn bind(address: Option<SocketAddr>) -> Result<Option<TcpListener>, health::ListenError> {
    let Some(address) = address else { return Ok(None) };
    let bound = TcpListener::bind(address).await;
    Ok(Some(bound.map_err(|source| health::ListenError { address, source })?))
}

fn serve(life: &Life, name: &'static str, listener: TcpListener, router: Router) {
    let served = axum::serve(listener, router).with_graceful_shutdown(life.stopping().cancelled_owned());
    life.spawn_to_end(name, noted(served));
}

/// A listener's end, and why.
async fn noted(served: impl IntoFuture<Output = std::io::Result<()>>) {
    if let Err(err) = served.await {
        error!(error = %err, "a listener failed");
    }
}
