//! Flows sent on to others' collectors, as they are recorded.
//!
//! ```text
//!   recorded ─► room for so many rows, for each collector ─► told, and told again until it takes them ─► next
//!                └─ full: counted as lost, never waited for
//! ```
//!
//! In: flows that were just recorded. Out: calls of OpenTelemetry's `LogsService`, or messages of IPFIX over TCP or UDP. Holds: what waits,
//! bounded. A collector that is away or slow costs its own rows and nobody else's; the record has them all the same. Over UDP nobody
//! knows what arrived. Not here: what the messages say (`flows::otlp`, `flows::ipfix`).

use std::{
    fs, io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use ::flows::{
    Flow, ipfix,
    otlp::{self, ExportLogsRequest, ExportLogsResponse},
};
use life::Life;
use model::protocol;
use serde::Deserialize;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpStream, UdpSocket, lookup_host},
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tonic::{
    Code, Request, Status,
    codegen::http::uri::PathAndQuery,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use tonic_prost::ProstCodec;
use tracing::{info, warn};

use super::now;

/// Rows that wait for one collector.
const WAITING: usize = 65_536;
/// Rows of one call.
const AT_ONCE: usize = 1_000;
/// How long a collector may take for one, and how long it is left alone when it could not.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What may be lost is said again so often.
const TEMPLATES: Duration = Duration::from_secs(30);
/// Bytes of a message, so that a datagram is not cut up.
const DATAGRAM: usize = 1_400;
const MESSAGE: usize = 32_768;

/// Where flows are sent to: one of the two.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct ExportConfig {
    /// `http://collector:4317`, or `https://…` with `ca`: OTLP over gRPC.
    pub otlp: Option<String>,
    /// `tcp://collector:4739`, or `udp://…`.
    pub ipfix: Option<String>,
    /// PEM file of the CA that the collector's certificate is from.
    pub ca: Option<PathBuf>,
}

/// What is no collector.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectorError {
    #[error("`flows.export`: each has either `otlp` or `ipfix`")]
    OneOf,
    #[error("`flows.export`: {0:?} is no address of a collector: write {1}")]
    Address(String, &'static str),
    #[error(
        "`flows.export`: an `https` address needs `ca`, the file of the CA that its certificate is from; nothing else needs it"
    )]
    Authority,
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Collector(#[from] CollectorError),
    #[error("`flows.export`: cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`flows.export`: {url} cannot be used")]
    Endpoint {
        url: String,
        #[source]
        source: tonic::transport::Error,
    },
}

/// A collector that may be reached.
enum Way {
    Otlp(Channel),
    Ipfix { is_tcp: bool, address: String },
}

impl ExportConfig {
    /// As people know it.
    fn name(&self) -> String {
        self.otlp.iter().chain(&self.ipfix).cloned().collect::<Vec<_>>().join(", ")
    }

    /// Whether it makes sense. Nothing is read.
    pub fn check(&self) -> Result<(), CollectorError> {
        match (&self.otlp, &self.ipfix) {
            (Some(url), None) => {
                let is_https = url.starts_with("https://");
                if !is_https && !url.starts_with("http://") {
                    return Err(CollectorError::Address(
                        url.clone(),
                        "http://HOST:PORT or https://HOST:PORT",
                    ));
                }
                if is_https == self.ca.is_some() { Ok(()) } else { Err(CollectorError::Authority) }
            }
            (None, Some(_)) if self.ca.is_some() => Err(CollectorError::Authority),
            (None, Some(url)) => self.ipfix_way(url).map(drop),
            _ => Err(CollectorError::OneOf),
        }
    }

    fn ipfix_way(&self, url: &str) -> Result<Way, CollectorError> {
        let wrong = || CollectorError::Address(url.to_owned(), "tcp://HOST:PORT or udp://HOST:PORT");
        let (scheme, address) = url.split_once("://").ok_or_else(wrong)?;
        let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        port.and_then(|(_, port)| port.parse::<u16>().ok()).ok_or_else(wrong)?;
        let is_tcp = match scheme {
            "tcp" => true,
            "udp" => false,
            _ => return Err(wrong()),
        };
        Ok(Way::Ipfix { is_tcp, address: address.to_owned() })
    }

    fn way(&self) -> Result<Way, ExportError> {
        self.check()?;
        let Some(url) = &self.otlp else {
            return Ok(self.ipfix_way(self.ipfix.as_deref().unwrap_or_default())?);
        };
        let bad = |source| ExportError::Endpoint { url: url.clone(), source };
        let mut endpoint = Endpoint::from_shared(url.clone()).map_err(bad)?.connect_timeout(PATIENCE);
        if let Some(path) = &self.ca {
            let pem = fs::read(path).map_err(|source| ExportError::Read { path: path.clone(), source })?;
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
            endpoint = endpoint.tls_config(tls).map_err(bad)?;
        }
        Ok(Way::Otlp(endpoint.connect_lazy()))
    }
}

/// Since the controller runs, of all collectors together.
#[derive(Debug, Default)]
pub struct ExportFigures {
    /// Rows that collectors have taken; over UDP, that were sent.
    pub told: AtomicU64,
    /// Rows that found no room, or that a collector would not take.
    pub lost: AtomicU64,
    /// Calls and messages that failed; they are told again.
    pub failures: AtomicU64,
}

/// All collectors.
#[derive(Default)]
pub struct Exports {
    each: Vec<Sender>,
    pub figures: Arc<ExportFigures>,
}

/// The near end of one.
struct Sender {
    /// Bounded by `waiting`.
    rows: mpsc::UnboundedSender<Arc<Vec<Flow>>>,
    waiting: Arc<AtomicUsize>,
}

impl Exports {
    pub fn start(configs: &[ExportConfig], life: &Life) -> Result<Self, ExportError> {
        let figures = Arc::<ExportFigures>::default();
        let mut each = Vec::new();
        for config in configs {
            let (rows, taken) = mpsc::unbounded_channel();
            let waiting = Arc::<AtomicUsize>::default();
            let export = Export {
                name: config.name(),
                way: config.way()?,
                waiting: Arc::clone(&waiting),
                figures: Arc::clone(&figures),
                stream: None,
                words: ipfix::Exporter::default(),
                templates_at: None,
            };
            info!(collector = export.name, "flows are sent on");
            life.spawn(format!("flows to {}", export.name), export.run(taken));
            each.push(Sender { rows, waiting });
        }
        Ok(Self { each, figures })
    }

    /// Never waits.
    pub fn offer(&self, flows: &Arc<Vec<Flow>>) {
        for one in &self.each {
            let is_room = one.waiting.load(Relaxed).saturating_add(flows.len()) <= WAITING;
            // Whoever takes them is gone when the process stops.
            if is_room && one.rows.send(Arc::clone(flows)).is_ok() {
                one.waiting.fetch_add(flows.len(), Relaxed);
            } else {
                self.figures.lost.fetch_add(flows.len() as u64, Relaxed);
            }
        }
    }
}

/// One collector, and how far it is.
struct Export {
    name: String,
    way: Way,
    waiting: Arc<AtomicUsize>,
    figures: Arc<ExportFigures>,
    stream: Option<Stream>,
    words: ipfix::Exporter,
    /// When the collector was told what messages of IPFIX mean.
    templates_at: Option<Instant>,
}

enum Stream {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// Why rows were not taken.
enum Refused {
    /// They are told again.
    Now(String),
    /// They would never be.
    Ever(String),
}

impl Export {
    async fn run(mut self, mut rows: mpsc::UnboundedReceiver<Arc<Vec<Flow>>>) {
        while let Some(flows) = rows.recv().await {
            for chunk in flows.chunks(AT_ONCE) {
                self.deliver(chunk).await;
                // What is told waits no more; what one report has beyond that does.
                self.waiting.fetch_sub(chunk.len(), Relaxed);
            }
        }
    }

    /// Until they are taken, or never would be.
    async fn deliver(&mut self, flows: &[Flow]) {
        let (mut pause, mut has_failed) = (PAUSE, false);
        loop {
            let told = timeout(PATIENCE, self.tell(flows)).await;
            let refused = match told {
                Ok(Ok(lost)) => {
                    if has_failed {
                        info!(collector = self.name, "flows are taken again");
                    }
                    self.figures.told.fetch_add((flows.len() as u64).saturating_sub(lost), Relaxed);
                    self.figures.lost.fetch_add(lost, Relaxed);
                    return;
                }
                Ok(Err(Refused::Ever(why))) => {
                    warn!(collector = self.name, rows = flows.len(), why, "flows are refused, and lost");
                    self.figures.lost.fetch_add(flows.len() as u64, Relaxed);
                    return;
                }
                Ok(Err(Refused::Now(why))) => why,
                Err(_) => "it takes too long".to_owned(),
            };
            self.stream = None;
            self.figures.failures.fetch_add(1, Relaxed);
            if !has_failed {
                warn!(
                    collector = self.name,
                    why = refused,
                    "flows cannot be sent on; what finds no room is lost"
                );
                has_failed = true;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// How many of them were not wanted.
    async fn tell(&mut self, flows: &[Flow]) -> Result<u64, Refused> {
        match &self.way {
            Way::Otlp(channel) => tell_otlp(channel.clone(), flows).await,
            Way::Ipfix { is_tcp, address } => {
                let (is_tcp, address) = (*is_tcp, address.clone());
                let told = self.tell_ipfix(is_tcp, &address, flows).await;
                told.map(|()| 0).map_err(|err| Refused::Now(err.to_string()))
            }
        }
    }

    async fn tell_ipfix(&mut self, is_tcp: bool, address: &str, flows: &[Flow]) -> io::Result<()> {
        let seconds = u32::try_from(now() / 1_000).unwrap_or(u32::MAX);
        if self.stream.is_none() {
            self.stream = Some(connect(is_tcp, address).await?);
            // A collector that was started anew has forgotten what it was told, and one session begins at none.
            (self.words, self.templates_at) = (ipfix::Exporter::default(), None);
        }
        let Some(stream) = &mut self.stream else { return Ok(()) };
        if self.templates_at.is_none_or(|at| !is_tcp && at.elapsed() >= TEMPLATES) {
            stream.send(&self.words.templates(seconds)).await?;
            self.templates_at = Some(Instant::now());
        }
        for (message, _) in self.words.messages(flows, seconds, if is_tcp { MESSAGE } else { DATAGRAM }) {
            stream.send(&message).await?;
        }
        Ok(())
    }
}

async fn connect(is_tcp: bool, address: &str) -> io::Result<Stream> {
    if is_tcp {
        return Ok(Stream::Tcp(TcpStream::connect(address).await?));
    }
    let found = lookup_host(address).await?.next();
    let found = found.ok_or_else(|| io::Error::other(format!("{address} has no address")))?;
    let any: SocketAddr = if found.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(found).await?;
    Ok(Stream::Udp(socket))
}

impl Stream {
    async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(message).await,
            Self::Udp(socket) => socket.send(message).await.map(drop),
        }
    }
}

async fn tell_otlp(channel: Channel, flows: &[Flow]) -> Result<u64, Refused> {
    let request = otlp::request(flows, protocol::name, now());
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.map_err(|err| Refused::Now(common::chain(&err)))?;
    let codec = ProstCodec::<ExportLogsRequest, ExportLogsResponse>::default();
    let answer = grpc.unary(Request::new(request), PathAndQuery::from_static(otlp::METHOD), codec).await;
    match answer {
        Ok(answer) => {
            let partly = answer.into_inner().partial_success;
            Ok(partly.map_or(0, |partly| u64::try_from(partly.rejected_log_records).unwrap_or(0)))
        }
        Err(status) => Err(refused(&status)),
    }
}

/// As the protocol has it: of some answers it is no use to try again.
fn refused(status: &Status) -> Refused {
    let why = format!("{}: {}", status.code(), status.message());
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss
        | Code::ResourceExhausted
        | Code::Unknown
        | Code::Internal => Refused::Now(why),
        _ => Refused::Ever(why),
    }
}

#[cfg(test)]
mod tests;
