//! Pods that were here before their agent: what the node's container runtime says of them (CRI).
//!
//! ```text
//!   runtime ─ sandboxes: whose, addresses, network namespace ─► the node's link that leads there ─► worker
//! ```
//!
//! In: the runtime's socket, the node's links. Out: which link is which Pod, of those that nobody has attached; a worker takes those that a
//! controller covers, so that nothing which runs is cut by being found. Holds nothing: it is asked again and again. Not here: Pods that start
//! now ([`crate::cni`]), and those that routes tell (`worker`).

mod messages;

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    net::IpAddr,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    time::Duration,
};

use common::chain;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use node_kernel::{link::Links, netlink::NetlinkError};
use tokio::{net::UnixStream, time::timeout};
use tonic::{
    Code, Status,
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;
use tower::service_fn;
use tracing::{debug, warn};

use self::messages::{
    Filter, ListSandboxes, Sandbox, SandboxStatus, SandboxStatusReply, Sandboxes, State, StatusRequest,
};
use crate::{
    cni::node_end,
    endpoints::{Attachment, Container, Pod},
    worker::{Gone, Handle},
};

const LOOK: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(10);
const SERVICE: &str = "/runtime.v1.RuntimeService";

/// Why the runtime does not say what it has.
#[derive(Debug, thiserror::Error)]
enum CriError {
    #[error("cannot reach the container runtime at {}", path.display())]
    Connect {
        path: PathBuf,
        #[source]
        err: tonic::transport::Error,
    },
    #[error("the container runtime refuses: {0}")]
    Refused(#[source] Box<Status>),
    #[error("the container runtime has not answered within {} s", ANSWER.as_secs())]
    Mute,
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// Looks for Pods that nobody has attached, for ever.
pub async fn follow(socket: PathBuf, worker: Handle) {
    let mut told = String::new();
    loop {
        match look(&socket, &worker).await {
            Ok(()) => told.clear(),
            Err(CriError::Gone(_)) => return std::future::pending().await,
            Err(err) => {
                let text = chain(&err);
                if told != text {
                    warn!(error = text, "Pods that were here before are not asked for");
                    told = text;
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn look(socket: &Path, worker: &Handle) -> Result<(), CriError> {
    let mut runtime = Runtime::connect(socket).await?;
    let sandboxes = runtime.sandboxes().await?;
    let attached: BTreeSet<Pod> =
        worker.endpoints().await?.into_iter().map(|endpoint| endpoint.pod).collect();
    let mut found = Vec::new();
    for sandbox in sandboxes {
        let Some(pod) = sandbox.pod().filter(|pod| !attached.contains(pod)) else { continue };
        let Some(status) = runtime.status(&sandbox.id).await? else { continue };
        let Some(namespace) = status.network_namespace() else { continue };
        let addresses = status.addresses();
        let interface = tokio::task::spawn_blocking(move || link_to(&namespace)).await;
        match interface {
            Ok(Ok(interface)) => found.push((pod, sandbox.attachment(interface, addresses))),
            Ok(Err(why)) => debug!(%pod, why, "a Pod that was here before cannot be attached"),
            Err(err) => warn!(%pod, error = %err, "a Pod's link could not be looked for"),
        }
    }
    if !found.is_empty() {
        worker.found(found).await?;
    }
    Ok(())
}

/// The node's end of the link to the namespace in this file.
fn link_to(namespace: &Path) -> Result<String, String> {
    let read = || {
        let mut links = Links::open()?;
        let id = links.namespace_id(open(namespace).map_err(Unopened::File)?.as_fd())?;
        Ok::<_, Unopened>((links.list()?, id))
    };
    let (links, id) = read().map_err(|err| chain(&err))?;
    node_end(&links, id, &[]).map_err(|fault| fault.text)
}

#[derive(Debug, thiserror::Error)]
enum Unopened {
    #[error("its network namespace cannot be opened")]
    File(#[source] io::Error),
    #[error("the node's links cannot be read")]
    Links(#[from] NetlinkError),
}

/// Runtimes say `/var/run`, which on nodes is `/run`, and in a container nothing.
fn open(path: &Path) -> io::Result<File> {
    match path.strip_prefix("/var/run") {
        Ok(rest) => File::open(Path::new("/run").join(rest)).or_else(|_| File::open(path)),
        Err(_) => File::open(path),
    }
}

struct Runtime(Grpc<Channel>);

impl Runtime {
    async fn connect(socket: &Path) -> Result<Self, CriError> {
        let path = socket.to_owned();
        let connector = service_fn(move |_| {
            let path = path.clone();
            async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        });
        // The name is of no matter on a socket.
        let endpoint = Endpoint::from_static("http://runtime").connect_timeout(ANSWER);
        let connected = endpoint.connect_with_connector(connector).await;
        let channel = connected.map_err(|err| CriError::Connect { path: socket.to_owned(), err })?;
        Ok(Self(Grpc::new(channel)))
    }

    /// Those that run.
    async fn sandboxes(&mut self) -> Result<Vec<Sandbox>, CriError> {
        let filter = Filter { state: Some(State { ready: 0 }) };
        let reply: Sandboxes = self.ask("ListPodSandbox", ListSandboxes { filter: Some(filter) }).await?;
        Ok(reply.items)
    }

    /// None: it has gone meanwhile.
    async fn status(&mut self, id: &str) -> Result<Option<SandboxStatusReply>, CriError> {
        let request = StatusRequest { id: id.to_owned(), verbose: true };
        match self.ask("PodSandboxStatus", request).await {
            Ok(reply) => Ok(Some(reply)),
            Err(CriError::Refused(status)) if status.code() == Code::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }

    async fn ask<Q, A>(&mut self, method: &str, request: Q) -> Result<A, CriError>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let path: PathAndQuery = format!("{SERVICE}/{method}").parse().expect("methods are words");
        let asked = async {
            self.0.ready().await.map_err(|err| Status::unavailable(chain(&err)))?;
            let codec = ProstCodec::<Q, A>::default();
            Ok(self.0.unary(tonic::Request::new(request), path, codec).await?.into_inner())
        };
        match timeout(ANSWER, asked).await {
            Ok(answer) => answer.map_err(|status: Status| CriError::Refused(status.into())),
            Err(_) => Err(CriError::Mute),
        }
    }
}

impl Sandbox {
    fn pod(&self) -> Option<Pod> {
        let metadata = self.metadata.as_ref()?;
        format!("{}/{}", metadata.namespace, metadata.name).parse().ok()
    }

    /// As the plugin would have attached it.
    fn attachment(&self, interface: String, addresses: Vec<IpAddr>) -> Attachment {
        let uid = self.metadata.as_ref().map(|metadata| metadata.uid.clone()).filter(|uid| !uid.is_empty());
        let container =
            Container { id: self.id.clone(), interface: "eth0".to_owned(), network: String::new() };
        Attachment { interface, addresses, uid, container: Some(container) }
    }
}

impl SandboxStatusReply {
    /// None: it is on the node's network, or its runtime does not say.
    fn network_namespace(&self) -> Option<PathBuf> {
        let status = self.status.as_ref()?;
        if status.is_on_the_nodes_network() {
            return None;
        }
        let info: serde_json::Value = serde_json::from_str(self.info.get("info")?).ok()?;
        let namespaces = info["runtimeSpec"]["linux"]["namespaces"].as_array()?;
        let network = namespaces.iter().find(|namespace| namespace["type"] == "network")?;
        let path = network["path"].as_str().filter(|path| path.starts_with('/'))?;
        Some(path.into())
    }

    fn addresses(&self) -> Vec<IpAddr> {
        let network = self.status.as_ref().and_then(|status| status.network.as_ref());
        let all = network.into_iter().flat_map(|network| {
            std::iter::once(&network.address).chain(network.more.iter().map(|more| &more.address))
        });
        all.filter_map(|address| address.parse().ok()).collect()
    }
}

impl SandboxStatus {
    fn is_on_the_nodes_network(&self) -> bool {
        const NODE: i32 = 2;
        let options = self.linux.as_ref().and_then(|linux| linux.namespaces.as_ref()?.options.as_ref());
        options.is_some_and(|options| options.network == NODE)
    }
}

#[cfg(test)]
mod tests;
