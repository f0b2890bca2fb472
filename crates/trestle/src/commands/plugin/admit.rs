//! Whom a plugin obeys: the controller, and nobody else whose certificate is from the same CA.
//!
//! TLS has checked the chain when the connection was made. Here the name in the certificate is checked, and that it is still
//! valid, at every call.

use std::{sync::Arc, time::SystemTime};

use server::pki;
use time::OffsetDateTime;
use tonic::{Request, Status, service::Interceptor};
use tracing::warn;

/// Lets calls in.
#[derive(Clone)]
pub enum Admit {
    /// From whoever reaches the listener, which is on loopback.
    Anyone,
    /// From whoever has a certificate for this name.
    Only(Arc<str>),
}

impl Interceptor for Admit {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Self::Only(name) = self else { return Ok(request) };
        let chain = request.peer_certs();
        let leaf = chain.as_ref().and_then(|chain| chain.first());
        let now = OffsetDateTime::from(SystemTime::now());
        if leaf.is_some_and(|leaf| pki::is_for(leaf, name, now)) {
            return Ok(request);
        }
        let peer = request.remote_addr().map(|addr| addr.to_string()).unwrap_or_default();
        warn!(peer, "a caller that is not the controller is refused");
        let text =
            format!("this plugin obeys {name} only, and the certificate shown is not valid for that name");
        Err(Status::permission_denied(text))
    }
}

#[cfg(test)]
mod tests {
    use cloud_api::{FakeCloud, grpc::PluginService};
    use model::{Role, Segment, Subject};
    use server::pki::{CONTROLLER, Issued, Pki};
    use tokio::net::TcpListener;
    use tokio_stream::wrappers::TcpListenerStream;
    use tonic::{
        Code,
        transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig},
    };
    use wire::trestle::v1::{DescribeCloudRequest, cloud_extension_client::CloudExtensionClient};

    use super::*;

    async fn ask(url: &str, ca: &str, shown: &Issued) -> Result<(), Code> {
        let identity = Identity::from_pem(&shown.certificate_pem, shown.key_pem.expose());
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).identity(identity);
        let endpoint =
            Endpoint::from_shared(url.to_owned()).unwrap().tls_config(tls.domain_name("localhost"));
        let channel = endpoint.unwrap().connect_lazy();
        let answer = CloudExtensionClient::new(channel).describe_cloud(DescribeCloudRequest::default()).await;
        answer.map(drop).map_err(|status| status.code())
    }

    #[tokio::test]
    async fn only_the_controller_is_obeyed_and_only_while_its_certificate_is_valid() {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::from(SystemTime::now());
        let pki = Pki::open(dir.path(), now).unwrap();
        let (certificate, key) = pki.server_certificate(&["localhost".to_owned()], now).unwrap();
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(certificate, key.expose()))
            .client_ca_root(Certificate::from_pem(pki.ca_pem()));
        let name: Segment = "lab".parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let service = PluginService::new(name.clone(), Arc::new(FakeCloud::new(name)));
        let admit = Admit::Only(CONTROLLER.into());
        let router = super::super::router(Server::builder().tls_config(tls).unwrap(), service, admit);
        tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));

        let day = time::Duration::days(1);
        let controller = pki.issue_controller(now).unwrap();
        assert_eq!(ask(&url, pki.ca_pem(), &controller).await, Ok(()));
        for role in [Role::Admin, Role::Node, Role::Plugin, Role::Consumer] {
            let subject = Subject { role, name: "controller".parse().unwrap() };
            let other = pki.issue_client(&subject, now, day).unwrap();
            assert_eq!(ask(&url, pki.ca_pem(), &other).await, Err(Code::PermissionDenied), "{role}");
        }
    }
}
