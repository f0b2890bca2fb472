//! Callers of the controllers, each on a connection that is made again when it breaks.

use std::time::Duration;

use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use wire::{
    tagservicepb::tag_service_client::TagServiceClient,
    trestle::v1::{
        access_client::AccessClient, nodes_client::NodesClient, objects_client::ObjectsClient,
        orchestrator_client::OrchestratorClient, policies_client::PoliciesClient,
    },
};

/// Longest wait for an answer: somebody who is halted gives none.
const DEADLINE: Duration = Duration::from_secs(10);
const MAX_MESSAGE: usize = 64 << 20;

#[derive(Clone)]
pub struct Bearer(MetadataValue<Ascii>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

pub type Connection = InterceptedService<Channel, Bearer>;

/// One connection to each controller.
#[derive(Clone)]
pub struct Clients(Vec<Connection>);

impl Clients {
    /// Must be called within a runtime, whose threads make the connections.
    pub fn new(urls: &[String], ca: &str, token: &str) -> Self {
        let bearer = Bearer(format!("Bearer {token}").parse().unwrap());
        let connect = |url: &String| {
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
            let endpoint = Endpoint::from_shared(url.clone()).unwrap().tls_config(tls).unwrap();
            let endpoint = endpoint.connect_timeout(Duration::from_secs(3)).timeout(DEADLINE);
            let endpoint = endpoint
                .http2_keep_alive_interval(Duration::from_secs(5))
                .keep_alive_timeout(Duration::from_secs(5));
            InterceptedService::new(endpoint.connect_lazy(), bearer.clone())
        };
        Self(urls.iter().map(connect).collect())
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn tags(&self, controller: usize) -> TagServiceClient<Connection> {
        TagServiceClient::new(self.0[controller].clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    pub fn objects(&self, controller: usize) -> ObjectsClient<Connection> {
        ObjectsClient::new(self.0[controller].clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    pub fn orchestrator(&self, controller: usize) -> OrchestratorClient<Connection> {
        OrchestratorClient::new(self.0[controller].clone())
    }

    pub fn nodes(&self, controller: usize) -> NodesClient<Connection> {
        NodesClient::new(self.0[controller].clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    pub fn policies(&self, controller: usize) -> PoliciesClient<Connection> {
        PoliciesClient::new(self.0[controller].clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    pub fn access(&self, controller: usize) -> AccessClient<Connection> {
        AccessClient::new(self.0[controller].clone())
    }
}
