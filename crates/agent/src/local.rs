//! The local API, on a Unix socket that only root opens: attach, detach, look.
//!
//! HTTP with JSON, so that a CNI plugin or a script needs no more than curl:
//!
//! ```text
//!   GET    /status                          how the agent is
//!   GET    /endpoints                       the Pods attached
//!   PUT    /endpoints/NAMESPACE/NAME        {"interface": "veth1", "addresses": ["10.0.0.1"]}
//!   DELETE /endpoints/NAMESPACE/NAME        ?interface=veth1 guards a later attachment of the same Pod
//!   DELETE /endpoints                       ?container=ID&interface=eth0: what was attached for a container, whichever Pod it is
//!   GET    /objects                         what the node was told
//!   GET    /services                        how services are proxied
//!   PUT    /services                        {"mode": "ipvs"} goes over to another plane
//! ```
//!
//! A change is answered when it is true in the kernel.

mod client;

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{
    Json, Router,
    extract::{Path as Segments, Query, State as Shared, rejection::JsonRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, put},
};
use life::Life;
use node_kernel::services::{Mode, NoMode};
use serde::{Deserialize, Serialize};
use tokio::{net::UnixListener, sync::watch};

use crate::{
    endpoints::{Attachment, Endpoint, EndpointError, Pod},
    services::{Services, ServicesState},
    status::{Connection, StatusView},
    worker::{AttachError, Gone, Handle},
};

pub use client::{Client, ClientError};

/// Where it listens, unless it is said otherwise.
pub const SOCKET: &str = "/run/trestle/agent.sock";

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on the socket {path}")]
pub struct ListenError {
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

/// What the local listeners show.
#[derive(Clone)]
pub struct Local {
    pub node: Arc<str>,
    pub worker: Handle,
    pub connection: watch::Receiver<Connection>,
    pub services: Option<Services>,
    pub life: Life,
}

impl Local {
    pub fn status(&self) -> StatusView {
        let state = self.worker.state().borrow().clone();
        let mut status = StatusView::new(&self.node, &state, &self.connection.borrow());
        if let Some(ailment) = self.ailment() {
            status.ready = false;
            status.failures.push(ailment);
        }
        status
    }

    /// Why the agent does not do its work, if so, whatever was in force before.
    pub fn ailment(&self) -> Option<String> {
        let fault = self.life.fault().map(|fault| fault.to_string());
        let stopping = || self.life.is_stopping().then(|| "the agent stops".to_owned());
        fault.or_else(|| self.worker.ailment()).or_else(stopping)
    }
}

/// What a failed call is answered with.
#[derive(Debug, Serialize, Deserialize)]
pub struct Problem {
    pub detail: String,
}

/// Whether a detach found something to take out.
#[derive(Debug, Serialize, Deserialize)]
pub struct Detached {
    pub detached: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Guard {
    interface: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfContainer {
    container: String,
    /// In the container.
    interface: Option<String>,
}

/// Opens the socket, in place of one that an earlier run left.
pub fn listen(path: &Path) -> Result<UnixListener, ListenError> {
    let open = || {
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            files::create_dir(dir)?;
        }
        // Bound under another name and renamed: never a moment in which others may open it, or nobody can.
        let temporary = path.with_added_extension("new");
        match fs::remove_file(&temporary) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        let listener = UnixListener::bind(&temporary)?;
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600))?;
        fs::rename(&temporary, path)?;
        Ok(listener)
    };
    open().map_err(|source| ListenError { path: path.to_owned(), source })
}

/// The routes of the socket.
pub fn router(local: Local) -> Router {
    Router::new()
        .route("/status", get(async |Shared(local): Shared<Local>| Json(local.status())))
        .route("/endpoints", get(endpoints).delete(detach_container))
        .route("/endpoints/{namespace}/{name}", put(attach).delete(detach))
        .route("/objects", get(objects))
        .route("/services", get(services).put(switch_services))
        .with_state(local)
}

async fn endpoints(Shared(local): Shared<Local>) -> Result<Response, Failure> {
    Ok(Json(local.worker.endpoints().await?).into_response())
}

async fn objects(Shared(local): Shared<Local>) -> Result<Response, Failure> {
    Ok(Json(local.worker.objects().await?).into_response())
}

/// How services are proxied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicesView {
    /// nftables, ipvs or none.
    pub mode: String,
    /// IPVS waits for connections of its own before it goes.
    #[serde(default)]
    pub leaving: bool,
    #[serde(default)]
    pub healthy: bool,
    /// Ports on which the health of a service is told.
    #[serde(default)]
    pub health_check_ports: Vec<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Switch {
    mode: String,
}

fn view(state: &ServicesState) -> ServicesView {
    ServicesView {
        mode: state.mode.to_string(),
        leaving: state.leaving,
        healthy: state.healthy,
        health_check_ports: state.checks.iter().map(|check| check.node_port).collect(),
    }
}

fn no_services() -> Failure {
    Failure(StatusCode::NOT_FOUND, "this agent keeps no services".to_owned())
}

async fn services(Shared(local): Shared<Local>) -> Result<Response, Failure> {
    let services = local.services.ok_or_else(no_services)?;
    let state = services.state().borrow().clone();
    Ok(Json(view(&state)).into_response())
}

/// Answers when it is done.
async fn switch_services(
    Shared(local): Shared<Local>,
    body: Result<Json<Switch>, JsonRejection>,
) -> Result<Response, Failure> {
    let services = local.services.ok_or_else(no_services)?;
    let Json(Switch { mode }) = body.map_err(|err| Failure(StatusCode::BAD_REQUEST, err.body_text()))?;
    let mode: Mode = mode.parse().map_err(|err: NoMode| Failure(StatusCode::BAD_REQUEST, err.to_string()))?;
    let state = services.switch(mode).await.map_err(|err| Failure(StatusCode::CONFLICT, err.to_string()))?;
    Ok(Json(view(&state)).into_response())
}

async fn attach(
    Shared(local): Shared<Local>,
    Segments((namespace, name)): Segments<(String, String)>,
    attachment: Result<Json<Attachment>, JsonRejection>,
) -> Result<Json<Endpoint>, Failure> {
    let Json(attachment) = attachment.map_err(|err| Failure(StatusCode::BAD_REQUEST, err.body_text()))?;
    Ok(Json(local.worker.attach(pod(&namespace, &name)?, attachment).await??))
}

async fn detach(
    Shared(local): Shared<Local>,
    Segments((namespace, name)): Segments<(String, String)>,
    Query(guard): Query<Guard>,
) -> Result<Json<Detached>, Failure> {
    let detached = local.worker.detach(pod(&namespace, &name)?, guard.interface).await??;
    Ok(Json(Detached { detached }))
}

async fn detach_container(
    Shared(local): Shared<Local>,
    Query(of): Query<OfContainer>,
) -> Result<Json<Detached>, Failure> {
    let detached = local.worker.detach_container(of.container, of.interface).await??;
    Ok(Json(Detached { detached }))
}

fn pod(namespace: &str, name: &str) -> Result<Pod, AttachError> {
    Ok(format!("{namespace}/{name}").parse::<Pod>()?)
}

struct Failure(StatusCode, String);

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Self {
        match &error {
            AttachError::Endpoint(error) => Self(StatusCode::BAD_REQUEST, error.to_string()),
            AttachError::Keep { source, .. } => {
                Self(StatusCode::INSUFFICIENT_STORAGE, format!("{error}: {source}"))
            }
        }
    }
}

impl From<EndpointError> for Failure {
    fn from(error: EndpointError) -> Self {
        Self::from(AttachError::from(error))
    }
}

impl From<Gone> for Failure {
    fn from(gone: Gone) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, gone.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(Problem { detail: self.1 })).into_response()
    }
}
