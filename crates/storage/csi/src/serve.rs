//! The driver as a server on a unix socket.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;

use crate::{
    Account,
    attach::Attacher,
    keyed::Keyed,
    proto::{controller_server::ControllerServer, identity_server::IdentityServer, node_server::NodeServer},
};

/// Which services a process offers, beside Identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Services {
    pub controller: bool,
    pub node: bool,
}

/// What calls are answered with; cheap to clone.
#[derive(Clone)]
pub struct Driver {
    pub(crate) account: Account,
    pub(crate) services: Services,
    /// What the node is called, beside the mark of the storage.
    pub(crate) node: Arc<str>,
    pub(crate) segments: Arc<BTreeMap<String, String>>,
    pub(crate) keep_deleted: bool,
    pub(crate) attacher: Option<Arc<dyn Attacher>>,
    pub(crate) turns: Arc<Keyed>,
}

impl Driver {
    pub fn new(account: Account, services: Services, node: &str) -> Self {
        Self {
            account,
            services,
            node: node.into(),
            segments: Arc::default(),
            keep_deleted: false,
            attacher: None,
            turns: Arc::default(),
        }
    }

    /// How this node attaches volumes.
    #[must_use]
    pub fn attaching(mut self, attacher: Arc<dyn Attacher>) -> Self {
        self.attacher = Some(attacher);
        self
    }

    /// Further segments of this node's topology.
    #[must_use]
    pub fn at(mut self, segments: BTreeMap<String, String>) -> Self {
        self.segments = Arc::new(segments);
        self
    }

    /// What is deleted can be taken back for a while, and counts for as long.
    #[must_use]
    pub fn keeping_deleted(mut self, keep: bool) -> Self {
        self.keep_deleted = keep;
        self
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {path}")]
    Listen {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("serving failed")]
    Serve(#[from] tonic::transport::Error),
}

/// Serves until it is told to stop. A socket that a process before has left is replaced.
pub async fn serve(driver: Driver, socket: &Path, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
    let failed = |source| ServeError::Listen { path: socket.to_owned(), source };
    if let Some(dir) = socket.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    match fs::remove_file(socket) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(failed(err)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(failed)?;
    tracing::info!(socket = %socket.display(), "serving");
    let Services { controller, node } = driver.services;
    tonic::transport::Server::builder()
        .add_service(IdentityServer::new(driver.clone()))
        .add_optional_service(controller.then(|| ControllerServer::new(driver.clone())))
        .add_optional_service(node.then(|| NodeServer::new(driver)))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop)
        .await?;
    Ok(())
}
