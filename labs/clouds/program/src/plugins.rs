//! The plugins that drive the real clouds, on the simulators, each served over gRPC on loopback.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context as _;
use cloud_api::{Cloud, grpc::PluginService};
use cloud_aws::{AwsCloud, AwsOptions};
use cloud_azure::{AzureCloud, AzureOptions};
use cloud_gcp::{GcpCloud, GcpOptions};
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
    let (private_endpoints, kubernetes_clusters) = (true, true);
    let azure = AzureOptions {
        token: Some("simulated".to_owned()),
        subscription: Some("demo".to_owned()),
        resource_group: Some("demo".to_owned()),
        kubernetes_clusters,
        ..AzureOptions::default()
    };
    let gcp = GcpOptions {
        project: Some("demo".to_owned()),
        private_endpoints,
        kubernetes_clusters,
        ..GcpOptions::default()
    };
    let ibm = IbmOptions { private_endpoints, kubernetes_clusters, ..IbmOptions::default() };
    Ok([
        ("aws", Arc::new(AwsCloud::with(&AwsOptions::default(), sim.world())?)),
        ("azure", Arc::new(AzureCloud::with(&azure, sim.world())?)),
        ("gcp", Arc::new(GcpCloud::with(&gcp, sim.world())?)),
        ("ibm", Arc::new(IbmCloud::with(&ibm, sim.world())?)),
    ])
}
