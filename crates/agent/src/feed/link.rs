//! One connection to a controller: TCP, TLS, HTTP/2, and when it was last heard.
//!
//! A controller that is halted, or from which nothing comes through any more, does not say so: each end pings when the
//! other is silent. What comes in, be it the answer to a ping, beats the connection's [`Pulse`]; so who asks whether the
//! node is connected is answered by what was heard, not by what nobody has noticed yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    path::Path,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::future::join_all;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tower::ServiceExt as _;
use tracing::warn;

use super::{StreamError, Uplink};
use crate::{pulse::Pulse, status::ALIVE};

/// A connection on which nothing came for so long is pinged. 10,000 idle agents make 3,300 pings a second, of about a
/// hundred bytes there and a hundred back.
const PING: Duration = Duration::from_secs(3);
/// A ping that is not answered within this is the end of the connection.
const ANSWER: Duration = Duration::from_secs(4);
/// A resolver that says nothing for so long does not hold up the connection.
const LOOKUP: Duration = Duration::from_secs(2);
/// What may be on its way to a node that is busy. The connection's is larger: by it h2 measures how many small frames
/// it bears unread.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Connects. Certificates are read anew each time, so that renewed ones are used without a restart.
pub(crate) async fn connect(
    uplink: &Uplink,
    server: &str,
    patience: Duration,
) -> Result<(Channel, Pulse), StreamError> {
    let endpoint = endpoint(uplink, server)?;
    let heard = Pulse::default();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // Shared by the addresses of the name, so that one that is mute does not hide the others; the rest is for TLS.
    tcp.set_connect_timeout(Some(patience / 2));
    // For what is left in the kernel of a connection that was given up.
    tcp.set_tcp_user_timeout(Some(ALIVE));
    let pulse = heard.clone();
    let connector = tcp.map_response(move |stream: TokioIo<TcpStream>| {
        TokioIo::new(Overheard { stream: stream.into_inner(), heard: pulse.clone() })
    });
    let connecting = timeout(patience, endpoint.connect_with_connector(connector)).await;
    let connected = connecting.map_err(|_| StreamError::Mute(server.to_owned(), patience))?;
    Ok((connected.map_err(|source| StreamError::Connect(server.to_owned(), source))?, heard))
}

/// Where the controllers are, by URL. Of one that is not found, what was found before stays.
pub(super) async fn find(servers: &[String], found: &mut BTreeMap<String, BTreeSet<SocketAddr>>) {
    let lookups = servers.iter().map(|server| async move { (server, timeout(LOOKUP, lookup(server)).await) });
    for (server, looked_up) in join_all(lookups).await {
        match looked_up {
            Ok(Some(addresses)) if !addresses.is_empty() => drop(found.insert(server.clone(), addresses)),
            _ => warn!(server, "the controller's address is not found"),
        }
    }
}

async fn lookup(server: &str) -> Option<BTreeSet<SocketAddr>> {
    let uri: http::Uri = server.parse().ok()?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    Some(tokio::net::lookup_host((host, port)).await.ok()?.collect())
}

fn endpoint(uplink: &Uplink, server: &str) -> Result<Endpoint, StreamError> {
    let endpoint = Endpoint::from_shared(server.to_owned())
        .map_err(|source| StreamError::Url(server.to_owned(), source))?
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(ANSWER)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    if !server.starts_with("https://") {
        return Ok(endpoint);
    }
    let ca = uplink.ca.as_deref().ok_or_else(|| StreamError::NoCa(server.to_owned()))?;
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
    if let Some((certificate, key)) = &uplink.identity {
        tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    endpoint.tls_config(tls).map_err(|source| StreamError::Connect(server.to_owned(), source))
}

fn read(path: &Path) -> Result<Vec<u8>, StreamError> {
    std::fs::read(path).map_err(|source| StreamError::File { path: path.to_owned(), source })
}

/// A stream whose every byte that comes in is a sign of life.
struct Overheard<S> {
    stream: S,
    heard: Pulse,
}

impl<S: AsyncRead + Unpin> AsyncRead for Overheard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.heard.beat();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Overheard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
