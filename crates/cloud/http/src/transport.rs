//! The only place that opens connections: HTTP/1.1 over TCP, TLS by rustls where the URL says so.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::{Reply, Request};

/// The longest one exchange may take; long work is asked for, then polled.
const TIMEOUT: Duration = Duration::from_secs(130);
/// The longest answer that is read.
const LONGEST: usize = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TransportError(pub String);

/// Sends a request as it is.
#[async_trait]
pub trait Transport: Send + Sync {
    async fn send(&self, request: &Request) -> Result<Reply, TransportError>;
}

pub struct HttpTransport {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl HttpTransport {
    /// Trusts what the machine trusts, or the certificates of a PEM file instead.
    pub fn new(extra_ca: Option<&Path>) -> Result<Self, TransportError> {
        let config = extra_ca.map_or_else(trusting_the_machine, trusting)?;
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
        let client =
            Client::builder(TokioExecutor::new()).pool_idle_timeout(Duration::from_secs(20)).build(connector);
        Ok(Self { client })
    }
}

/// Read once: a machine trusts hundreds of certificates, and clouds are opened often.
fn trusting_the_machine() -> Result<ClientConfig, TransportError> {
    static CONFIG: OnceLock<ClientConfig> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let config = builder()?.with_native_roots().map_err(|err| cannot(&err))?.with_no_client_auth();
    Ok(CONFIG.get_or_init(|| config).clone())
}

fn trusting(certificates: &Path) -> Result<ClientConfig, TransportError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(certificates).map_err(|err| cannot(&err))? {
        roots.add(certificate.map_err(|err| cannot(&err))?).map_err(|err| cannot(&err))?;
    }
    Ok(builder()?.with_root_certificates(roots).with_no_client_auth())
}

fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, TransportError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|err| cannot(&err))
}

fn cannot(err: &dyn std::fmt::Display) -> TransportError {
    TransportError(format!("cannot set up TLS: {err}"))
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(&self, request: &Request) -> Result<Reply, TransportError> {
        let mut message = http::Request::builder()
            .method(request.method.clone())
            .uri(&request.url)
            .body(Full::new(request.body.clone()))
            .map_err(|err| TransportError(format!("{:?} is no request: {err}", request.url)))?;
        message.headers_mut().extend(request.headers.clone());
        let exchange = async {
            let reply =
                self.client.request(message).await.map_err(|err| TransportError(common::chain(&err)))?;
            let (head, body) = reply.into_parts();
            let body = Limited::new(body, LONGEST).collect().await;
            let body = body.map_err(|err| TransportError(format!("the answer was cut off: {err}")))?;
            Ok(Reply { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes() })
        };
        let late = |_| TransportError(format!("no answer within {} s", TIMEOUT.as_secs()));
        tokio::time::timeout(TIMEOUT, exchange).await.map_err(late)?
    }
}
