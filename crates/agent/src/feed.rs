//! The stream from a controller: connects, hands messages to the worker, reports what is in force.
//!
//! In: [`Uplink`], the worker's state. Out: messages to the worker, reports to the controller. Holds: one stream at a
//! time. A stream that ends, for whatever reason, is followed by another, from another controller if there is one, after
//! a wait that grows and spreads; until then the worker keeps in force what it has.
//! Not here: which controller is next ([`crate::servers`]), how a mute one is noticed ([`link`]).

pub mod link;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use tracing::{debug, error, info, warn};
use wire::trestle::v1::{
    FromNode, NodeHello, NodeHost, NodeReport, ToNode, from_node, node_feed_client::NodeFeedClient,
};

use crate::{
    flows::Flows,
    metrics::Metrics,
    servers::Servers,
    status::{Connection, State},
    worker::{Gone, Handle, Opening},
};

/// A controller that has not brought the node to its present and says nothing for so long is left for another, if there
/// is one: it waits for sources that may not come.
const SILENCE: Duration = Duration::from_secs(30);
/// A controller cuts its messages to an eighth of the default; this leaves room for single large policies.
const MAX_MESSAGE: usize = 16 << 20;
/// Reports that only say how far the node has come are spread over this time.
const REPORT_WITHIN: Duration = Duration::from_secs(2);

/// Where the controllers are, and how the node proves who it is.
#[derive(Clone, Debug, Default)]
pub struct Uplink {
    pub node: String,
    /// The node is connected to one of them, whichever; if that fails, to another.
    pub servers: Vec<String>,
    pub ca: Option<PathBuf>,
    /// Certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Uplink {
    /// What would be shown now; none if it cannot be read.
    fn certificate(&self) -> Option<Vec<u8>> {
        std::fs::read(&self.identity.as_ref()?.0).ok()
    }
}

/// Why there is no stream, or no longer one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    #[error("{0:?} is not a URL like https://controller:8081")]
    Url(String, #[source] tonic::transport::Error),
    #[error("cannot read {path}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{0} speaks TLS: name the CA of its certificate with --ca")]
    NoCa(String),
    #[error("cannot reach the controller at {0}")]
    Connect(String, #[source] tonic::transport::Error),
    #[error("the controller at {0} has not answered within {1:?}")]
    Mute(String, Duration),
    #[error("the controller is not in sync with its sources and has said nothing for {SILENCE:?}")]
    Silent,
    #[error("the controller ended the stream")]
    Ended(#[source] Box<Status>),
    #[error("the controller closed the stream")]
    Closed,
    #[error("the controller's stream makes no sense: {0}")]
    Nonsense(String),
    #[error(transparent)]
    Gone(#[from] Gone),
}

impl From<Status> for StreamError {
    fn from(status: Status) -> Self {
        Self::Ended(Box::new(status))
    }
}

impl StreamError {
    fn code(&self) -> Option<Code> {
        if let Self::Ended(status) = self { Some(status.code()) } else { None }
    }
}

/// Keeps a stream open, for ever.
pub struct Feed {
    pub uplink: Uplink,
    pub worker: Handle,
    pub connection: watch::Sender<Connection>,
    pub metrics: Arc<Metrics>,
    /// None: none are recorded.
    pub flows: Option<Arc<Flows>>,
}

impl Feed {
    pub async fn run(self) {
        let mut servers = Servers::new(self.uplink.servers.len());
        let mut found = BTreeMap::new();
        loop {
            let number = servers.next(fastrand::f64());
            let server = &self.uplink.servers[number];
            let shown = self.uplink.certificate();
            // Before the connection, which a policy on this node could forbid.
            link::find(&self.uplink.servers, &mut found).await;
            let controllers: BTreeSet<SocketAddr> = found.values().flatten().copied().collect();
            if self.worker.controllers(controllers).await.is_err() {
                return;
            }
            let Err(error) = self.stream(server, &mut servers).await;
            if let StreamError::Gone(_) = error {
                return;
            }
            self.note_end(server, &error);
            if self.worker.lost().await.is_err() {
                return;
            }
            // The certificate has ended, and there is another one meanwhile.
            if error.code() == Some(Code::Unauthenticated) && shown != self.uplink.certificate() {
                continue;
            }
            // Another agent has this node's name, or this one may not have it.
            let soon_is_no_use =
                matches!(error.code(), Some(Code::Aborted | Code::PermissionDenied | Code::Unauthenticated));
            sleep(servers.fail(number, soon_is_no_use, fastrand::f64())).await;
        }
    }

    fn note_end(&self, server: &str, error: &StreamError) {
        let text = chain(error);
        match error.code() {
            Some(Code::PermissionDenied | Code::Unauthenticated) => {
                error!(
                    server,
                    error = text,
                    "the controller does not let this node in; what is in force stays"
                );
            }
            _ => warn!(server, error = text, "no stream from the controller; what is in force stays"),
        }
        self.connection.send_modify(|connection| {
            connection.open = false;
            connection.last_error = text;
        });
    }

    /// One stream, from its opening to its end.
    async fn stream(&self, server: &str, servers: &mut Servers) -> Result<Infallible, StreamError> {
        let patience = servers.patience();
        let (channel, heard) = link::connect(&self.uplink, server, patience).await?;
        // The worker may be busy, which is not the controller's fault.
        let opening = self.worker.open().await?;
        let (reports, outgoing) = mpsc::channel(4);
        let number = opening.stream;
        let hello = hello(&self.uplink.node, opening);
        let hello = FromNode { message: Some(from_node::Message::Hello(hello)) };
        reports.try_send(hello).expect("the channel has room, and its reader is held here");
        let mut client = NodeFeedClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE);
        let call = timeout(patience, client.connect(ReceiverStream::new(outgoing))).await;
        let stream = call.map_err(|_| StreamError::Mute(server.to_owned(), patience))??.into_inner();
        debug!(server, stream = number, "stream opened");
        self.metrics.connects.inc();
        self.connection.send_modify(|connection| {
            connection.open = true;
            connection.heard = heard;
            connection.connects += 1;
            server.clone_into(&mut connection.server);
        });
        let following = self.follow(stream, number, Reporter::new(reports), servers);
        match &self.flows {
            None => following.await,
            Some(flows) => tokio::select! {
                ended = following => ended,
                never = flows.tell(channel) => match never {},
            },
        }
    }

    async fn follow(
        &self,
        mut stream: Streaming<ToNode>,
        number: u64,
        mut reporter: Reporter,
        servers: &mut Servers,
    ) -> Result<Infallible, StreamError> {
        let mut state = self.worker.state();
        let mut silent = Instant::now() + SILENCE;
        loop {
            tokio::select! {
                message = stream.message() => match message? {
                    Some(message) => {
                        self.worker.take(message).await?;
                        silent = Instant::now() + SILENCE;
                    }
                    None => return Err(StreamError::Closed),
                },
                changed = state.changed() => {
                    changed.map_err(|_| Gone)?;
                    let now = state.borrow_and_update().clone();
                    if let Some((_, text)) = now.nonsense.as_ref().filter(|(stream, _)| *stream == number) {
                        return Err(StreamError::Nonsense(text.clone()));
                    }
                    if now.synced && !reporter.synced {
                        info!(revision = now.token.map(|token| token.revision), "in sync with the controller");
                        self.connection.send_modify(|connection| connection.last_error.clear());
                        servers.synced();
                    }
                    reporter.note(&now);
                }
                () = reporter.due() => reporter.send(&state.borrow()),
                () = sleep_until(silent), if servers.has_other() && !reporter.synced => {
                    return Err(StreamError::Silent);
                }
            }
        }
    }
}

/// Decides when to tell the controller how far the node has come: at once when it is in sync or when errors changed,
/// and otherwise within a while.
struct Reporter {
    reports: mpsc::Sender<FromNode>,
    sent: Option<NodeReport>,
    synced: bool,
    at: Option<Instant>,
}

impl Reporter {
    fn new(reports: mpsc::Sender<FromNode>) -> Self {
        Self { reports, sent: None, synced: false, at: None }
    }

    fn note(&mut self, state: &State) {
        if !state.synced {
            return;
        }
        let report = state.report();
        let urgent = !self.synced
            || self.sent.as_ref().is_none_or(|sent| {
                sent.errors != report.errors
                    || sent.skipped != report.skipped
                    || without_count(&sent.host) != without_count(&report.host)
            });
        self.synced = true;
        if urgent {
            self.at = Some(Instant::now());
        } else if self.sent.as_ref() != Some(&report) && self.at.is_none() {
            self.at = Some(Instant::now() + REPORT_WITHIN.mul_f64(0.1 + 0.9 * fastrand::f64()));
        }
    }

    async fn due(&self) {
        match self.at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    fn send(&mut self, state: &State) {
        self.at = None;
        let report = state.report();
        // A controller that reads no reports sends no messages either; the stream's end is found by reading.
        let message = FromNode { message: Some(from_node::Message::Report(report.clone())) };
        if self.reports.try_send(message).is_ok() {
            self.sent = Some(report);
        } else {
            self.at = Some(Instant::now() + REPORT_WITHIN);
        }
    }
}

/// A count goes up with every packet, which is no news.
fn without_count(host: &Option<NodeHost>) -> Option<NodeHost> {
    host.clone().map(|host| NodeHost { observed: host.observed.map(|_| 0), ..host })
}

fn hello(node: &str, opening: Opening) -> NodeHello {
    NodeHello {
        node: node.to_owned(),
        epoch: opening.token.map(|token| token.epoch),
        revision: opening.token.map(|token| token.revision),
        digest: opening.digest,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// An error and what caused it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    if let Some(status) = error.source().and_then(|source| source.downcast_ref::<Box<Status>>()) {
        return format!("{error}: {} ({:?})", status.message(), status.code());
    }
    common::chain(error)
}
