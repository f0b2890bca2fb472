//! A real controller on free loopback ports, and clients for it.

use std::{
    fs::Permissions, net::SocketAddr, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use server::{Config, Controller};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::{
    Status,
    metadata::MetadataValue,
    service::interceptor::InterceptedService,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use wire::{
    tagservicepb::{TagMapping, tag_service_client::TagServiceClient},
    trestle::v1::{
        CreateTokenRequest, IssueCertificateRequest, RevokeCertificateRequest, Role,
        access_client::AccessClient,
    },
};

pub type Bearer = Box<dyn FnMut(tonic::Request<()>) -> Result<tonic::Request<()>, Status> + Send>;
pub type Client = InterceptedService<Channel, Bearer>;

/// A certificate that the controller has issued, in PEM.
#[derive(Clone)]
pub struct Credential {
    pub name: String,
    pub serial: String,
    pub certificate: String,
    pub key: String,
}

impl Credential {
    pub fn identity(&self) -> Identity {
        Identity::from_pem(&self.certificate, &self.key)
    }
}

/// A controller that is gone, with all its data, when this is dropped.
pub struct Fixture {
    pub controller: Controller,
    pub dir: TempDir,
    pub ca: String,
    pub token: String,
}

impl Fixture {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub async fn start_with(adjust: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::start_in(dir, adjust).await
    }

    pub async fn start_in(dir: TempDir, adjust: impl FnOnce(&mut Config)) -> Self {
        Self::start_beside(dir, &[], adjust).await
    }

    /// A controller that waits for further sources of objects for nodes: the tests.
    pub(crate) async fn start_beside(
        dir: TempDir,
        sources: &[&'static str],
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        let controller = Controller::start_with(config(dir.path(), adjust), sources).await.unwrap();
        let ca = std::fs::read_to_string(controller.ca_path()).unwrap();
        let token = std::fs::read_to_string(controller.token_path()).unwrap();
        Self { controller, dir, ca, token }
    }

    /// Stops the controller and hands back its directory.
    pub async fn stop(self) -> TempDir {
        self.controller.stop().await.expect("no task is missing");
        self.dir
    }

    pub async fn channel(&self) -> Channel {
        self.endpoint(None).connect().await.unwrap()
    }

    pub fn endpoint(&self, identity: Option<Identity>) -> Endpoint {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca));
        if let Some(identity) = identity {
            tls = tls.identity(identity);
        }
        let url = format!("https://{}", self.controller.grpc_addr());
        Endpoint::from_shared(url).unwrap().tls_config(tls).unwrap().connect_timeout(Duration::from_secs(5))
    }

    /// A client with the first administrator's token.
    pub async fn admin(&self) -> Client {
        self.with_token(&self.token).await
    }

    pub async fn with_token(&self, token: &str) -> Client {
        let value: MetadataValue<_> = format!("Bearer {token}").parse().unwrap();
        let bearer: Bearer = Box::new(move |mut request| {
            request.metadata_mut().insert("authorization", value.clone());
            Ok(request)
        });
        InterceptedService::new(self.channel().await, bearer)
    }

    pub async fn tags(&self) -> TagServiceClient<Client> {
        TagServiceClient::new(self.admin().await)
    }

    pub async fn token_of(&self, role: Role) -> String {
        let request = CreateTokenRequest { name: "somebody".into(), role: role as i32, ttl_seconds: None };
        AccessClient::new(self.admin().await).create_token(request).await.unwrap().into_inner().secret
    }

    pub async fn issue(&self, role: Role, name: &str) -> Credential {
        let request = IssueCertificateRequest { name: name.into(), role: role as i32, ttl_seconds: None };
        let issued =
            AccessClient::new(self.admin().await).issue_certificate(request).await.unwrap().into_inner();
        let serial = issued.info.unwrap().serial;
        Credential { name: name.into(), serial, certificate: issued.certificate_pem, key: issued.key_pem }
    }

    pub async fn revoke(&self, serial: &str) {
        let request = RevokeCertificateRequest { serial: serial.into(), with_made: false };
        AccessClient::new(self.admin().await).revoke_certificate(request).await.unwrap();
    }

    /// One REST call over TLS with the administrator's token.
    pub async fn rest(&self, method: &str, path: &str, body: &str) -> (StatusCode, serde_json::Value) {
        let (status, _, body) = self.rest_as(Some(&self.token), method, path, body.to_owned()).await;
        (status, serde_json::from_slice(&body).unwrap_or(serde_json::Value::Null))
    }

    pub async fn rest_as(
        &self,
        token: Option<&str>,
        method: &str,
        path: &str,
        body: impl Into<Bytes>,
    ) -> (StatusCode, HeaderMap, Bytes) {
        self.call_at(self.controller.http_addr(), token, method, path, body.into()).await
    }

    /// The same at another of its listeners.
    pub async fn call_at(
        &self,
        addr: SocketAddr,
        token: Option<&str>,
        method: &str,
        path: &str,
        body: Bytes,
    ) -> (StatusCode, HeaderMap, Bytes) {
        call(&self.ca, addr, token, method, path, body).await
    }
}

/// One REST call over TLS, at whatever listens there.
pub async fn call(
    ca: &str,
    addr: SocketAddr,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: Bytes,
) -> (StatusCode, HeaderMap, Bytes) {
    let mut headers = vec![("content-type", "application/json".to_owned())];
    headers.extend(token.map(|token| ("authorization", format!("Bearer {token}"))));
    call_with(ca, addr, &headers, method, path, body).await
}

/// The same with these headers and no others.
pub async fn call_with(
    ca: &str,
    addr: SocketAddr,
    headers: &[(&str, String)],
    method: &str,
    path: &str,
    body: Bytes,
) -> (StatusCode, HeaderMap, Bytes) {
    let stream = tls(ca, addr).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request.body(Full::new(body)).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let (parts, body) = response.into_parts();
    (parts.status, parts.headers, body.collect().await.unwrap().to_bytes())
}

pub fn config(dir: &Path, adjust: impl FnOnce(&mut Config)) -> Config {
    // A controller refuses a directory that others enter, and temporary ones are such.
    std::fs::set_permissions(dir, Permissions::from_mode(0o700)).unwrap();
    let mut config = Config::in_dir(dir.to_owned());
    config.listen.http.set_port(0);
    config.listen.grpc.set_port(0);
    config.listen.watch.set_port(0);
    config.page = |name| {
        let kind = "text/html; charset=utf-8";
        (name == "index.html").then_some(server::PageFile { kind, tag: "\"1\"", bytes: b"<!doctype html>" })
    };
    adjust(&mut config);
    config
}

/// A TLS connection that trusts `ca` and offers HTTP/1.1.
pub async fn tls(ca: &str, addr: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
    tls_for(ca, addr, "http/1.1").await
}

/// A TLS connection that trusts `ca` and offers one protocol.
pub async fn tls_for(ca: &str, addr: SocketAddr, protocol: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(addr).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

pub fn leaf(name: &str, ip: &str) -> TagMapping {
    TagMapping { tag_name: name.into(), child_tags: vec![], uri: None, ip: Some(ip.into()) }
}

pub fn group(name: &str, members: &[&str]) -> TagMapping {
    let child_tags = members.iter().map(|&member| member.to_owned()).collect();
    TagMapping { tag_name: name.into(), child_tags, uri: None, ip: None }
}
