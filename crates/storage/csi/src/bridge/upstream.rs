//! A connection to the storage's NBD server: handshake, TLS with the consumer's certificate, and the export.

use std::{io, path::Path, sync::Arc, time::Duration};

use rustix::net::sockopt;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::account::{AccountError, CA, CERTIFICATE, KEY, read, server_of};

const PATIENCE: Duration = Duration::from_secs(10);
/// A server that acknowledges nothing for so long is gone, whatever its kernel says.
const SILENCE: Duration = Duration::from_secs(20);
const GREETING: &[u8; 16] = b"NBDMAGICIHAVEOPT";
const OPTION: &[u8; 8] = b"IHAVEOPT";
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// Fixed newstyle, without zeroes.
const CLIENT_FLAGS: u32 = 3;
const STARTTLS: u32 = 5;
const GO: u32 = 7;
const ACKNOWLEDGED: u32 = 1;
const INFO: u32 = 3;
const UNKNOWN: u32 = 1 << 31 | 6;
const EXPORT_INFO: u16 = 0;
const LONGEST: u32 = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    #[error("the server has no such export now")]
    NoExport,
    #[error("the connection to the storage failed")]
    Io(#[from] io::Error),
    #[error("the storage does not answer")]
    Silent,
    #[error("the storage answers something else than NBD should")]
    Protocol,
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error("the consumer's certificate cannot be used")]
    Tls(#[from] rustls::Error),
    #[error("the consumer's certificate is not PEM as it should be")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("{0:?} is no name of a server")]
    Name(String),
}

pub(crate) struct Upstream {
    pub(crate) stream: TlsStream<TcpStream>,
    pub(crate) size: u64,
    pub(crate) flags: u16,
}

/// Connects with the credentials as they are in the directory now.
pub(crate) async fn connect(credentials: &Path, export: &str) -> Result<Upstream, UpstreamError> {
    timeout(PATIENCE, negotiate(credentials, export)).await.map_err(|_| UpstreamError::Silent)?
}

async fn negotiate(credentials: &Path, export: &str) -> Result<Upstream, UpstreamError> {
    let (host, port) = server_of(credentials)?;
    let name = ServerName::try_from(host.clone()).map_err(|_| UpstreamError::Name(host.clone()))?;
    let config = config(credentials)?;
    let mut socket = TcpStream::connect((host.as_str(), port)).await?;
    socket.set_nodelay(true)?;
    sockopt::set_tcp_user_timeout(&socket, u32::try_from(SILENCE.as_millis()).expect("it is short"))
        .map_err(io::Error::from)?;
    sockopt::set_socket_keepalive(&socket, true).map_err(io::Error::from)?;
    sockopt::set_tcp_keepidle(&socket, SILENCE / 2).map_err(io::Error::from)?;
    sockopt::set_tcp_keepintvl(&socket, SILENCE / 4).map_err(io::Error::from)?;
    let mut greeting = [0; 18];
    socket.read_exact(&mut greeting).await?;
    if greeting[..16] != GREETING[..] {
        return Err(UpstreamError::Protocol);
    }
    socket.write_all(&CLIENT_FLAGS.to_be_bytes()).await?;
    socket.write_all(&option(STARTTLS, &[])).await?;
    let mut head = [0; 20];
    socket.read_exact(&mut head).await?;
    match parse(&head, STARTTLS)? {
        (ACKNOWLEDGED, 0) => {}
        _ => return Err(UpstreamError::Protocol),
    }
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
    let length = u32::try_from(export.len()).expect("names are short").to_be_bytes();
    stream.write_all(&option(GO, &[&length[..], export.as_bytes(), &[0, 0]].concat())).await?;
    stream.flush().await?;
    let (mut size, mut flags) = (None, 0);
    loop {
        stream.read_exact(&mut head).await?;
        let (kind, length) = parse(&head, GO)?;
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data).await?;
        match (kind, data.as_slice()) {
            (ACKNOWLEDGED, _) => break,
            (UNKNOWN, _) => return Err(UpstreamError::NoExport),
            (INFO, &[a, b, ref rest @ ..]) if u16::from_be_bytes([a, b]) == EXPORT_INFO => {
                let (bytes, rest) = rest.split_first_chunk::<8>().ok_or(UpstreamError::Protocol)?;
                size = Some(u64::from_be_bytes(*bytes));
                flags = u16::from_be_bytes(*rest.first_chunk().ok_or(UpstreamError::Protocol)?);
            }
            (INFO, _) => {}
            _ => return Err(UpstreamError::Protocol),
        }
    }
    Ok(Upstream { stream, size: size.ok_or(UpstreamError::Protocol)?, flags })
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("options are short");
    [&OPTION[..], &option.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

/// Kind and length of a reply to an option.
fn parse(head: &[u8; 20], to: u32) -> Result<(u32, u32), UpstreamError> {
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let magic = u64::from(word(0)) << 32 | u64::from(word(4));
    match (magic, word(8), word(16)) {
        (OPTION_REPLY, option, length) if option == to && length <= LONGEST => Ok((word(12), length)),
        _ => Err(UpstreamError::Protocol),
    }
}

fn config(dir: &Path) -> Result<ClientConfig, UpstreamError> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(&read(dir, CA)?) {
        roots.add(authority?)?;
    }
    let chain = CertificateDer::pem_slice_iter(&read(dir, CERTIFICATE)?).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(&read(dir, KEY)?)?;
    Ok(ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?)
}
