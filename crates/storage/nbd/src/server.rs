//! The server: listens, lets clients in, ends their sessions when told.
//!
//! In: TCP connections. Out: sessions on volumes. Holds: the listener, one task per
//! connection; all of them end with it.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use rustls::ServerConfig as RustlsConfig;
use storage_provider::ConsumerId;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use crate::{
    buffers::BufferPool,
    handshake::{Export, HandshakeError, greet, negotiate, until_tls},
    identity::{Fingerprint, consumer_of},
    session::{Session, SessionError},
    socket,
    threads::{self, End},
    tls::{TlsError, TlsIdentity},
    vault::{SessionPass, Tenant, Vault},
    wire::Wire,
};

/// A client has this long to become a session.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Who may connect.
pub enum Access {
    /// Clients with a certificate of a consumer.
    Tls(TlsIdentity),
    /// Anybody on this machine, as this consumer. For tests and measurements.
    PlainLoopback(ConsumerId),
}

pub struct ServerConfig {
    pub listen: SocketAddr,
    pub access: Access,
    /// Connections in all, sessions or not yet.
    pub max_connections: usize,
    /// Sessions of one consumer.
    pub max_sessions: usize,
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("listening on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("without TLS only a loopback address can be listened on, and {address} is none")]
    PlainBeyondLoopback { address: SocketAddr },
    #[error("setting up TLS")]
    Tls(#[from] TlsError),
}

/// Why a connection ended before its client wanted it to.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("handshake")]
    Handshake(#[from] HandshakeError),
    #[error("TLS")]
    Tls(#[source] io::Error),
    #[error("the client took too long to choose a volume")]
    Slow,
    #[error("the certificate names no consumer")]
    Nobody,
    #[error("the consumer is not welcome, or has too many sessions")]
    NotAdmitted,
    #[error("session")]
    Session(#[from] SessionError),
    #[error("the consumer was revoked, or the server stops")]
    Stopped,
}

pub struct NbdServer {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    vault: Arc<Vault>,
    access: Door,
    pool: Arc<BufferPool>,
    connections: Arc<Semaphore>,
    max_connections: usize,
    /// Connections closed at once because too many were open.
    refused: AtomicU64,
    max_sessions: usize,
}

enum Door {
    /// Replaced when the certificate is renewed; open sessions go on with the old one.
    Tls(ArcSwap<RustlsConfig>),
    Plain(ConsumerId),
}

/// Counts a running server's connections.
pub struct Connections(Arc<Shared>);

impl Connections {
    pub fn open(&self) -> u64 {
        self.0.max_connections.saturating_sub(self.0.connections.available_permits()) as u64
    }

    /// Closed at once because too many were open.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }
}

/// Gives a running server a new certificate.
pub struct Renewal(Arc<Shared>);

impl Renewal {
    pub fn renew(&self, identity: TlsIdentity) -> Result<(), TlsError> {
        if let Door::Tls(config) = &self.0.access {
            config.store(Arc::new(identity.server_config(&self.0.vault)?));
        }
        Ok(())
    }
}

impl NbdServer {
    pub async fn bind(vault: Arc<Vault>, config: ServerConfig) -> Result<Self, BindError> {
        let ServerConfig { listen: address, access, max_connections, max_sessions } = config;
        let access = match access {
            Access::Tls(identity) => Door::Tls(ArcSwap::from_pointee(identity.server_config(&vault)?)),
            Access::PlainLoopback(_) if !address.ip().is_loopback() => {
                return Err(BindError::PlainBeyondLoopback { address });
            }
            Access::PlainLoopback(consumer) => Door::Plain(consumer),
        };
        let listener =
            TcpListener::bind(address).await.map_err(|source| BindError::Listen { address, source })?;
        let shared = Shared {
            vault,
            access,
            pool: Arc::default(),
            connections: Arc::new(Semaphore::new(max_connections)),
            max_connections,
            refused: AtomicU64::new(0),
            max_sessions,
        };
        Ok(Self { listener, shared: Arc::new(shared) })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub fn connections(&self) -> Connections {
        Connections(Arc::clone(&self.shared))
    }

    /// What renews the server's certificate while it serves.
    pub fn renewal(&self) -> Renewal {
        Renewal(Arc::clone(&self.shared))
    }

    /// Serves until told to stop; every session has ended when this returns.
    pub async fn run(self, stop: CancellationToken) {
        let tasks = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, most likely: the next try would fail as fast.
                    warn!(%error, "NBD connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&self.shared.connections).try_acquire_owned() else {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                warn!(%peer, "NBD connection refused: too many are open");
                continue;
            };
            let (shared, stop) = (Arc::clone(&self.shared), stop.clone());
            tasks.spawn(async move {
                let _permit = permit;
                if let Err(error) = shared.connection(socket, &stop).await {
                    let cause =
                        std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    debug!(%peer, %error, cause, "NBD connection ended");
                }
            });
        }
        tasks.close();
        tasks.wait().await;
    }
}

impl Shared {
    async fn connection(
        &self,
        mut socket: TcpStream,
        stop: &CancellationToken,
    ) -> Result<(), ConnectionError> {
        // A socket that takes no options is about to fail anyway.
        let _ = socket::tune(&socket);
        let opened = async {
            let no_zeroes = greet(&mut socket).await?;
            match &self.access {
                Door::Plain(consumer) => {
                    let pass = self.admit(*consumer, None)?;
                    Ok(Some((Stream::Plain(socket), pass, no_zeroes)))
                }
                Door::Tls(config) => {
                    if !until_tls(&mut socket).await? {
                        return Ok(None);
                    }
                    let acceptor = TlsAcceptor::from(config.load_full());
                    let stream = acceptor.accept(socket).await.map_err(ConnectionError::Tls)?;
                    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                    let shown = shown.ok_or(ConnectionError::Nobody)?;
                    let consumer = consumer_of(shown).ok_or(ConnectionError::Nobody)?;
                    let pass = self.admit(consumer, Some(Fingerprint::of(shown)))?;
                    Ok(Some((Stream::Tls(Box::new(stream)), pass, no_zeroes)))
                }
            }
        };
        let opened: Result<_, ConnectionError> = tokio::select! {
            opened = tokio::time::timeout(HANDSHAKE, opened) => opened.map_err(|_| ConnectionError::Slow)?,
            () = stop.cancelled() => return Ok(()),
        };
        let Some((stream, pass, no_zeroes)) = opened? else { return Ok(()) };
        // The larger part of a connection's life needs none of what the handshake did.
        Box::pin(self.session(stream, pass, no_zeroes, stop)).await
    }

    fn admit(
        &self,
        consumer: ConsumerId,
        shown: Option<Fingerprint>,
    ) -> Result<SessionPass, ConnectionError> {
        let tenant = self.vault.find(consumer).ok_or(ConnectionError::NotAdmitted)?;
        tenant.open_session(shown, self.max_sessions).ok_or(ConnectionError::NotAdmitted)
    }

    async fn session(
        &self,
        mut stream: Stream,
        pass: SessionPass,
        no_zeroes: bool,
        stop: &CancellationToken,
    ) -> Result<(), ConnectionError> {
        let stopped = || async {
            tokio::select! {
                () = pass.stop.cancelled() => {}
                () = stop.cancelled() => {}
            }
        };
        let negotiated = tokio::time::timeout(HANDSHAKE, stream.negotiate(&pass.tenant, no_zeroes));
        let chosen = tokio::select! {
            chosen = negotiated => chosen.map_err(|_| ConnectionError::Slow)??,
            () = stopped() => return Err(ConnectionError::Stopped),
        };
        let Some(export) = chosen else { return Ok(()) };
        let consumer = pass.tenant.id;
        debug!(%consumer, volume = export.volume.name, "NBD session opened");
        let wire = stream.into_wire().map_err(SessionError::from)?;
        let pace = Arc::clone(&pass.tenant.pace);
        let session = Session::new(wire, export, Arc::clone(&self.pool), self.vault.disk(), consumer, pace);
        match threads::serve(session, &pass.tenant.talking, stopped()).await? {
            End::Left => Ok(()),
            End::Stopped => {
                info!(%consumer, "NBD session ended: the consumer was revoked, or the server stops");
                Err(ConnectionError::Stopped)
            }
        }
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    async fn negotiate(
        &mut self,
        tenant: &Tenant,
        no_zeroes: bool,
    ) -> Result<Option<Export>, HandshakeError> {
        match self {
            Self::Plain(stream) => negotiate(stream, tenant, no_zeroes).await,
            Self::Tls(stream) => negotiate(stream, tenant, no_zeroes).await,
        }
    }

    fn into_wire(self) -> io::Result<Wire> {
        match self {
            Self::Plain(socket) => Wire::new(socket.into_std()?, None),
            Self::Tls(stream) => {
                let (socket, connection) = stream.into_inner();
                Wire::new(socket.into_std()?, Some(connection))
            }
        }
    }
}
