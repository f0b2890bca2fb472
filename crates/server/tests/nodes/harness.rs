//! A controller in a directory of its own, and credentials for those who call it.

use std::{fs::Permissions, os::unix::fs::PermissionsExt as _, sync::Arc, time::Duration};

use model::Secret;
use server::{Config, Controller};
use tempfile::TempDir;
use tonic::{
    Request,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use transport::{Change, Source};
use wire::trestle::v1::{
    IssueCertificateRequest, NodeStatus, RevokeCertificateRequest, Role, access_client::AccessClient,
};

/// The source the tests are.
const SOURCE: &str = "test";

pub struct Harness {
    pub controller: Controller,
    pub source: Source,
    pub dir: Arc<TempDir>,
    token: Secret,
    ca: String,
}

/// A node's certificate.
#[derive(Clone)]
pub struct Credential {
    pub name: String,
    pub serial: String,
    identity: Identity,
}

impl Harness {
    /// A controller whose sources are not in sync yet.
    pub async fn unsynced() -> Self {
        Self::start(Arc::new(tempfile::tempdir().unwrap()), |_| {}).await
    }

    /// A controller whose sources are in sync and empty.
    pub async fn synced() -> Self {
        let harness = Self::unsynced().await;
        harness.source.synced();
        harness
    }

    pub async fn start(dir: Arc<TempDir>, change: impl FnOnce(&mut Config)) -> Self {
        // A controller refuses a directory that others enter, and temporary ones are such.
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        let mut config = Config::in_dir(dir.path().to_owned());
        config.listen.http = "127.0.0.1:0".parse().unwrap();
        config.listen.grpc = "127.0.0.1:0".parse().unwrap();
        config.listen.watch = "127.0.0.1:0".parse().unwrap();
        change(&mut config);
        let controller = start(config).await;
        let source = controller.transport().source(SOURCE).unwrap();
        let token = Secret::new(std::fs::read_to_string(controller.token_path()).unwrap());
        let ca = std::fs::read_to_string(controller.ca_path()).unwrap();
        Self { controller, source, dir, token, ca }
    }

    /// The same data directory, with another controller in it.
    pub async fn restart(self) -> Self {
        let dir = Arc::clone(&self.dir);
        self.stop().await;
        Self::start(dir, |_| {}).await
    }

    pub async fn stop(self) {
        self.controller.stop().await.expect("no task is missing");
    }

    pub fn publish(&self, changes: impl IntoIterator<Item = Change>) {
        self.source.publish(changes);
    }

    pub async fn issue(&self, name: &str, role: Role) -> Credential {
        let request = IssueCertificateRequest { name: name.into(), role: role.into(), ..Default::default() };
        let mut access = AccessClient::new(self.channel(None).await);
        let reply = access.issue_certificate(self.as_admin(request)).await.unwrap().into_inner();
        let info = reply.info.unwrap();
        let identity = Identity::from_pem(&reply.certificate_pem, &reply.key_pem);
        Credential { name: name.to_owned(), serial: info.serial, identity }
    }

    pub async fn node(&self, name: &str) -> Credential {
        self.issue(name, Role::Node).await
    }

    pub async fn revoke(&self, serial: &str) {
        let request = RevokeCertificateRequest { serial: serial.into() };
        let mut access = AccessClient::new(self.channel(None).await);
        access.revoke_certificate(self.as_admin(request)).await.unwrap();
    }

    pub fn as_admin<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let bearer = format!("Bearer {}", self.token.expose());
        request.metadata_mut().insert("authorization", bearer.parse().unwrap());
        request
    }

    pub async fn channel(&self, credential: Option<&Credential>) -> Channel {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca));
        if let Some(credential) = credential {
            tls = tls.identity(credential.identity.clone());
        }
        let url = format!("https://localhost:{}", self.controller.grpc_addr().port());
        let endpoint = Endpoint::from_shared(url).unwrap().tls_config(tls).unwrap();
        // A small window for the stream, so that a client which does not read is noticed; not for the connection, by
        // which h2 clients measure how many small frames they bear unread before they end it.
        let endpoint = endpoint.initial_stream_window_size(65_535).initial_connection_window_size(1 << 20);
        endpoint.http2_keep_alive_interval(Duration::from_secs(20)).connect().await.unwrap()
    }

    pub fn status(&self, name: &str) -> Option<transport::SessionView> {
        self.controller.transport().hub.session(name)
    }

    pub fn stats(&self) -> transport::Stats {
        self.controller.transport().hub.stats()
    }

    pub async fn list(&self) -> Vec<NodeStatus> {
        let mut nodes = wire::trestle::v1::nodes_client::NodesClient::new(self.channel(None).await);
        let request = self.as_admin(wire::trestle::v1::ListNodesRequest {});
        nodes.list_nodes(request).await.unwrap().into_inner().nodes
    }
}

async fn start(config: Config) -> Controller {
    Controller::start_with(config, &[SOURCE]).await.unwrap()
}

/// Waits for a condition, with a bound.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not come true in half a minute");
}
