//! Four simulated public clouds, each behind the plugin that drives the real one.
//!
//! ```text
//!   controller ── gRPC ── plugin ── the cloud's own API over HTTP ── simulator ── wire: who reaches whom?
//! ```
//!
//! Out: the clouds' configuration, and what the wire, the clouds' clock and their books say. Holds the listeners, which
//! end with it. The only place outside of tests that knows the simulators: nothing that a controller runs on does.

use std::{net::IpAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use cloud_api::Cloud;
use cloud_aws::{AwsCloud, AwsOptions};
use cloud_azure::{AzureCloud, AzureOptions};
use cloud_gcp::{GcpCloud, GcpOptions};
use cloud_http::auth::Environment;
use cloud_ibm::{IbmCloud, IbmOptions};
use cloud_sim::Sim;
use model::{Packet, Segment};
use server::{CloudConfig, PluginConfig};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use crate::commands::plugin;

const PING: Packet = Packet { protocol: 1, src_port: 0, dst_port: 0 };

pub struct Simulated {
    sim: Sim,
    clouds: Vec<CloudConfig>,
    _plugins: JoinSet<()>,
}

impl Simulated {
    pub async fn start() -> anyhow::Result<Self> {
        let sim = Sim::start().await.context("cannot start the simulated clouds")?;
        let (mut clouds, mut plugins) = (Vec::new(), JoinSet::new());
        for (name, cloud) in drivers(&sim)? {
            let name: Segment = name.parse().context("a cloud has no legal name")?;
            let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot start a plugin")?;
            let url = format!("http://{}", listener.local_addr()?);
            let router = plugin::router(Server::builder(), name.clone(), cloud, plugin::Admit::Anyone);
            plugins.spawn(async move {
                if let Err(err) = router.serve_with_incoming(TcpListenerStream::new(listener)).await {
                    tracing::error!(error = %err, "a plugin of a simulated cloud has ended");
                }
            });
            clouds.push(CloudConfig { name, plugin: PluginConfig::Remote { url, ca: None, client: None } });
        }
        Ok(Self { sim, clouds, _plugins: plugins })
    }

    pub fn clouds(&self) -> Vec<CloudConfig> {
        self.clouds.clone()
    }

    /// Where the clouds' own clients find them.
    pub fn url(&self) -> String {
        self.sim.url()
    }

    /// Where a person asks what `ping` asks.
    pub fn question(&self, from: IpAddr, to: IpAddr) -> String {
        format!("{}/wire?from={from}&to={to}", self.sim.url())
    }

    /// Whether a ping gets from one address to another, and in words.
    pub fn ping(&self, from: IpAddr, to: IpAddr) -> (bool, String) {
        match self.sim.trip(from, to, &PING) {
            Some(trip) => (trip.is_made(), trip.to_string()),
            None => (false, "one of the two is nobody's address".to_owned()),
        }
    }

    /// What the clouds' clock shows, since they are there.
    pub fn now(&self) -> Duration {
        self.sim.clock.elapsed()
    }

    /// How many requests the clouds have had since this was last asked.
    pub fn requests(&self) -> usize {
        self.sim.take_calls().len()
    }

    /// What somebody has to pay for in a cloud.
    pub fn left_in(&self, cloud: &str) -> Vec<String> {
        self.sim.left_in(cloud)
    }
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
