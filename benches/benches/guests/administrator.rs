//! Somebody who is known: calls on an open connection, and on new ones.

use std::{fs, net::SocketAddr, sync::Arc, time::Duration};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use server::Controller;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tonic::{
    Request,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use wire::tagservicepb::{ListTagsRequest, tag_service_client::TagServiceClient};

use crate::Outcome;

/// A call that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Administrator {
    token: String,
    http: SocketAddr,
    tags: TagServiceClient<Channel>,
    tls: TlsConnector,
}

/// TLS that trusts this CA and speaks one protocol.
pub fn connector(ca: &[u8], protocol: &[u8]) -> Outcome<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca)?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

impl Administrator {
    pub async fn new(controller: &Controller) -> Outcome<Self> {
        let token = fs::read_to_string(controller.token_path())?.trim().to_owned();
        let ca = fs::read(controller.ca_path())?;
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&ca));
        let url = format!("https://localhost:{}", controller.grpc_addr().port());
        let channel = Endpoint::from_shared(url)?.tls_config(tls)?.connect().await?;
        let (http, tags) = (controller.http_addr(), TagServiceClient::new(channel));
        Ok(Self { token, http, tags, tls: connector(&ca, b"http/1.1")? })
    }

    /// A call on the open connection.
    pub async fn call(&mut self) -> Outcome<()> {
        let mut request = Request::new(ListTagsRequest::default());
        request.metadata_mut().insert("authorization", format!("Bearer {}", self.token).parse()?);
        timeout(PATIENCE, self.tags.list_tags(request)).await??;
        Ok(())
    }

    /// A call on a new connection, its handshakes included.
    pub async fn call_anew(&self) -> Outcome<()> {
        self.get("/tags").await.map(drop)
    }

    pub async fn health(&self) -> Outcome<()> {
        self.get("/healthz").await.map(drop)
    }

    pub async fn metrics(&self) -> Outcome<String> {
        self.get("/metrics").await
    }

    async fn get(&self, path: &str) -> Outcome<String> {
        let reply = async {
            let stream = TcpStream::connect(self.http).await?;
            stream.set_nodelay(true)?;
            let mut stream = self.tls.connect(ServerName::try_from("localhost")?, stream).await?;
            let token = &self.token;
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await?;
            let mut reply = Vec::new();
            // Servers that close without a last word of TLS have said all the same what they had to say.
            let _ = stream.read_to_end(&mut reply).await;
            let reply = String::from_utf8_lossy(&reply).into_owned();
            if !reply.starts_with("HTTP/1.1 200") {
                return Err(format!("{path}: {}", reply.lines().next().unwrap_or("no answer")).into());
            }
            Ok(reply)
        };
        timeout(PATIENCE, reply).await?
    }
}
