//! The plugins that drive the real clouds, on the simulators, each served over gRPC on loopback.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context as _;
use cloud_api::{Cloud, grpc::PluginService};
use cloud_aws::{AwsCloud, AwsOptions};
use cloud_azure::{AzureCloud, AzureOptions};
use cloud_gcp::{GcpCloud, GcpOptions};
use cloud_http::auth::Environment;
use cloud_ibm::{IbmCloud, IbmOptions};
use cloud_sim::Sim;
use model::Segment;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use wire::{
    invisinetspb::cloud_plugin_server::CloudPluginServer,
    trestle::v1::cloud_extension_server::CloudExtensionServer,
};

/// Where each cloud's plugin listens. They end with the process.
pub async fn serve(sim: &Sim) -> anyhow::Result<BTreeMap<&'static str, String>> {
    let mut urls = BTreeMap::new();
    for (name, cloud) in drivers(sim)? {
        let segment: Segment = name.parse().context("a cloud has no legal name")?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot start a plugin")?;
        urls.insert(name, format!("http://{}", listener.local_addr()?));
        let service = PluginService::new(segment, cloud);
        let router = Server::builder()
            .add_service(CloudPluginServer::new(service.clone()))
            .add_service(CloudExtensionServer::new(service));
        tokio::spawn(async move {
            if let Err(err) = router.serve_with_incoming(TcpListenerStream::new(listener)).await {
                tracing::error!(cloud = name, error = %err, "a plugin has ended");
            }
        });
    }
    Ok(urls)
}

/// The plugins, with the simulators' clock, so that waiting for a gateway takes no time, and with every kind of resource
/// that they can make.
fn drivers(sim: &Sim) -> anyhow::Result<[(&'static str, Arc<dyn Cloud>); 4]> {
    let (url, clock) = (sim.url(), || Some(Arc::clone(&sim.clock) as _));
    let endpoint = Some(url.clone());
    let keys = Environment::of([
        ("AWS_ACCESS_KEY_ID", "simulated"),
        ("AWS_SECRET_ACCESS_KEY", "simulated"),
        ("IBMCLOUD_API_KEY", "simulated"),
        ("IBMCLOUD_IAM_API_ENDPOINT", url.as_str()),
    ]);
    let token = || Some("simulated".to_owned());
    let aws = AwsOptions { endpoint: endpoint.clone(), ..AwsOptions::default() };
    let azure = AzureOptions {
        endpoint,
        token: token(),
        subscription: Some("demo".to_owned()),
        resource_group: Some("demo".to_owned()),
        kubernetes_clusters: true,
        ..AzureOptions::default()
    };
    let gcp = GcpOptions {
        endpoint: Some(format!("{url}/compute/v1")),
        container_endpoint: Some(format!("{url}/v1")),
        dns_endpoint: Some(format!("{url}/dns/v1")),
        token: token(),
        project: Some("demo".to_owned()),
        private_endpoints: true,
        kubernetes_clusters: true,
        ..GcpOptions::default()
    };
    let ibm = IbmOptions {
        endpoint: Some(format!("{url}/{{region}}/v1")),
        transit_endpoint: Some(format!("{url}/v1")),
        containers_endpoint: Some(format!("{url}/global")),
        private_endpoints: true,
        kubernetes_clusters: true,
        ..IbmOptions::default()
    };
    Ok([
        ("aws", Arc::new(AwsCloud::with(&aws, keys.clone(), clock(), None)?)),
        ("azure", Arc::new(AzureCloud::with(&azure, keys.clone(), clock(), None)?)),
        ("gcp", Arc::new(GcpCloud::with(&gcp, keys.clone(), clock(), None)?)),
        ("ibm", Arc::new(IbmCloud::with(&ibm, keys, clock(), None)?)),
    ])
}
