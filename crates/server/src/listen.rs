//! Listeners: accept, shake hands, serve, drain.
//!
//! In: a bound socket, the current TLS configuration, a router. Out: requests with their [`Peer`] attached.
//! Bounds: connections open at once, and those of strangers among them (`crowd`); time for a handshake, for the first byte,
//! for a request and its header, and for a peer to take what it is sent; bytes of headers, and of bodies on their way.
//! On shutdown the listener stops accepting, tells every connection to finish, and waits a bounded time.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use aws_lc_rs::digest::{SHA256, digest};
use axum::{Router, extract::Request};
use drivers::pki;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{unconstrained, yield_now},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;
use tracing::{debug, info, warn};

use crate::{
    access::{Peer, PeerCertificate},
    crowd::{Crowd, Guest},
    metrics::Metrics,
    tls::Tls,
};

/// Time for a TLS handshake, for the first byte of a plaintext connection, for the first request and for a request's header.
const PATIENCE: Duration = Duration::from_secs(10);
/// A silent HTTP/2 peer is asked for a sign of life after this, and given up after `PATIENCE` more.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Streams one HTTP/2 connection may have open at once.
const MAX_STREAMS: u32 = 256;
/// Bytes buffered per stream for a peer that does not take them.
const SEND_BUFFER: usize = 64 << 10;
/// Bytes of header one request may have.
const MAX_HEADERS: u32 = 32 << 10;
/// Bytes of bodies on their way that nobody has read yet, for one stream and for one connection.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// A peer that takes nothing of what it is sent is given up after this.
const UNREAD: Duration = Duration::from_secs(40);
/// Connections accepted before others have a turn on this thread.
const TURN: u32 = 512;
/// Pause after `accept` fails, which happens when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time connections get to finish at shutdown.
const DRAIN: Duration = Duration::from_secs(10);

/// One listener.
pub struct Listener {
    pub name: &'static str,
    pub socket: TcpListener,
    /// None: plaintext, which the configuration allows on loopback only.
    pub tls: Option<Arc<Tls>>,
    pub router: Router,
    /// Shared by all listeners.
    pub connections: Arc<Semaphore>,
    /// This listener's connections of those who have not said who they are.
    pub crowd: Arc<Crowd>,
    pub metrics: Arc<Metrics>,
}

impl Listener {
    /// Serves until `stop`, then drains.
    pub async fn serve(self, stop: CancellationToken) {
        let (graceful, open) = (GracefulShutdown::new(), Open::default());
        // Not in turn with the thousands who were let in: who waits too long to be accepted is dropped by the kernel.
        let mut turn = 0_u32;
        while let Some(accepted) = stop.run_until_cancelled(unconstrained(self.socket.accept())).await {
            turn = turn.wrapping_add(1);
            if turn.is_multiple_of(TURN) {
                yield_now().await;
            }
            match accepted {
                Ok((stream, addr)) => self.start(stream, addr, &graceful, &open),
                Err(err) => {
                    warn!(listener = self.name, error = %err, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.socket);
        if timeout(DRAIN, graceful.shutdown()).await.is_err() {
            info!(listener = self.name, "some connections did not finish in time and are cut");
        }
        open.cut.cancel();
        open.tasks.close();
        open.tasks.wait().await;
    }

    fn start(&self, stream: TcpStream, addr: SocketAddr, graceful: &GracefulShutdown, open: &Open) {
        let permit = Arc::clone(&self.connections).try_acquire_owned().ok();
        let entered = permit.and_then(|permit| Some((permit, self.crowd.enter(addr.ip())?)));
        let Some((permit, guest)) = entered else {
            self.metrics.connections_refused.inc();
            return;
        };
        let connection = Connection {
            addr,
            guest: Arc::new(guest),
            router: self.router.clone(),
            metrics: Arc::clone(&self.metrics),
            _permit: permit,
        };
        connection.metrics.connections.inc();
        let tls = self.tls.as_ref().map(|tls| TlsAcceptor::from(tls.current()));
        let (watcher, cut) = (graceful.watcher(), open.cut.clone());
        let displaced = connection.guest.cut().clone();
        open.tasks.spawn(async move {
            let served = displaced.run_until_cancelled(connection.serve(stream, tls, watcher));
            if let Some(Some(Err(err))) = cut.run_until_cancelled(Box::pin(served)).await {
                debug!(peer = %addr, error = %err, "connection ended");
            }
        });
    }
}

/// The connections that are open.
#[derive(Default)]
struct Open {
    tasks: TaskTracker,
    /// Cancelled when those that did not finish are cut.
    cut: CancellationToken,
}

struct Connection {
    addr: SocketAddr,
    guest: Arc<Guest>,
    router: Router,
    metrics: Arc<Metrics>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.metrics.connections.dec();
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Watcher = hyper_util::server::graceful::Watcher;

impl Connection {
    async fn serve(
        self,
        stream: TcpStream,
        tls: Option<TlsAcceptor>,
        watcher: Watcher,
    ) -> Result<(), BoxError> {
        stream.set_nodelay(true)?;
        SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD))?;
        let Some(tls) = tls else {
            let mut first = [0];
            timeout(PATIENCE, stream.peek(&mut first)).await.map_err(too_slow)??;
            return self.speak(stream, None, auto::Builder::new(TokioExecutor::new()), watcher).await;
        };
        let handshake = timeout(PATIENCE, tls.accept(stream)).await.map_err(too_slow).flatten();
        let stream = handshake.inspect_err(|_| {
            self.metrics.handshake_failures.inc();
        })?;
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates().and_then(|chain| chain.first());
        let certificate = certificate.and_then(|certificate| {
            let (subject, serial) = pki::identify(certificate)?;
            let fingerprint = digest(&SHA256, certificate).as_ref().try_into().ok()?;
            Some(PeerCertificate { subject, serial, fingerprint })
        });
        // The protocol is agreed in the handshake, so nobody waits for a first byte to guess it.
        let builder = auto::Builder::new(TokioExecutor::new());
        let builder =
            if session.alpn_protocol() == Some(b"h2") { builder.http2_only() } else { builder.http1_only() };
        Box::pin(self.speak(stream, certificate, builder, watcher)).await
    }

    async fn speak<S>(
        self,
        stream: S,
        certificate: Option<PeerCertificate>,
        mut builder: auto::Builder<TokioExecutor>,
        watcher: Watcher,
    ) -> Result<(), BoxError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(MAX_HEADERS as usize);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(PATIENCE)
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(MAX_HEADERS);
        let peer = Peer { addr: self.addr, certificate, guest: Arc::clone(&self.guest) };
        let router = self.router.clone().map_request(move |mut request: Request<Incoming>| {
            peer.guest.spoke();
            request.extensions_mut().insert(peer.clone());
            request
        });
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        // On its own in memory, so that an open connection does not also hold the room its handshake took.
        let mut connection = Box::pin(watcher.watch(connection.into_owned()));
        if let Ok(ended) = timeout(PATIENCE, &mut connection).await {
            return ended;
        }
        if !self.guest.has_spoken() {
            return Err(Box::new(io::Error::new(io::ErrorKind::TimedOut, "the peer asked for nothing")));
        }
        connection.await
    }
}

fn too_slow(_: tokio::time::error::Elapsed) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the peer was too slow")
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn listener(socket: TcpListener, router: Router) -> Listener {
        let (connections, crowd) = (Arc::new(Semaphore::new(8)), Crowd::new(8, 8));
        Listener { name: "test", socket, tls: None, router, connections, crowd, metrics: Metrics::new() }
    }

    #[tokio::test]
    async fn calls_in_flight_are_finished_and_new_ones_are_not_taken() {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = socket.local_addr().unwrap();
        let (begun_tx, mut begun_rx) = tokio::sync::mpsc::channel(1);
        let slow = move || async move {
            begun_tx.send(()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
            "finished"
        };
        let stop = CancellationToken::new();
        let serving = tokio::spawn(listener(socket, Router::new().route("/", get(slow))).serve(stop.clone()));
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        begun_rx.recv().await.unwrap();
        stop.cancel();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with("finished"), "{reply}");
        serving.await.unwrap();
        assert!(TcpStream::connect(addr).await.is_err());
    }
}
