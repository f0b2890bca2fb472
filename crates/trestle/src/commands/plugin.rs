//! `trestle plugin`: a cloud as a process of its own.

mod admit;

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

pub use admit::Admit;

use anyhow::{Context as _, bail};
use cloud_api::{Cloud, FakeCloud, grpc::PluginService};
use cloud_aws::{AwsCloud, AwsOptions};
use cloud_azure::{AzureCloud, AzureOptions};
use cloud_gcp::{GcpCloud, GcpOptions};
use cloud_ibm::{IbmCloud, IbmOptions};
use cloud_linux::LinuxCloud;
use life::Life;
use model::Segment;
use server::pki;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Certificate, Endpoint, Identity, Server, ServerTlsConfig, server::Router};
use wire::{
    invisinetspb::cloud_plugin_server::CloudPluginServer,
    trestle::v1::cloud_extension_server::CloudExtensionServer,
};

use crate::output::print;

/// Time for a TLS handshake, and for a sign of life.
const PATIENCE: Duration = Duration::from_secs(10);
/// A silent controller is asked for a sign of life after this.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Bytes of header one request may have.
const MAX_HEADERS: u32 = 32 << 10;

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Kind {
    /// Network namespaces of this machine; needs root
    Linux,
    /// An AWS account, with the credentials that AWS's own tools would use
    Aws,
    /// Azure, with a service principal, the machine's identity, or whoever az is logged in as
    Azure,
    /// Google Cloud, with application default credentials
    Gcp,
    /// IBM Cloud, with the API key IBMCLOUD_API_KEY
    Ibm,
    /// In memory
    Fake,
}

/// Flags of `trestle plugin`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The controller's configuration names the plugin under `clouds`; see docs/cloud-plugins.md. --client-ca is the controller's
CA (DATA/pki/ca.pem); of the certificates from it only the one that the controller shows of itself is obeyed.

Examples:
  trestle plugin fake --name lab --plaintext-loopback
  sudo trestle plugin linux --name lab --cert lab.pem --key lab.key --client-ca ca.pem"
)]
pub struct PluginArgs {
    kind: Kind,
    /// The cloud's name
    #[arg(long)]
    name: Segment,
    /// Where to listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    /// Where a Linux cloud keeps its state
    #[arg(long, value_name = "DIR", default_value = "/var/lib/trestle/linux")]
    data_dir: PathBuf,
    /// Where a public cloud's API is, instead of the cloud's own endpoint
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Marks what is made in a public cloud; two controllers on one account need two
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// The Google Cloud project of namespaces that name none
    #[arg(long, value_name = "PROJECT")]
    project: Option<String>,
    /// Take descriptions of private endpoints, in Google Cloud and IBM Cloud
    #[arg(long)]
    private_endpoints: bool,
    /// Take descriptions of managed Kubernetes clusters, in Azure, Google Cloud and IBM Cloud
    #[arg(long)]
    kubernetes_clusters: bool,
    /// PEM file of the plugin's certificate
    #[arg(long, value_name = "FILE", requires = "key", required_unless_present = "plaintext_loopback")]
    cert: Option<PathBuf>,
    /// PEM file of the certificate's key
    #[arg(long, value_name = "FILE", requires = "client_ca")]
    key: Option<PathBuf>,
    /// PEM file of the CA that the controller's client certificate must be from
    #[arg(long, value_name = "FILE", requires = "cert")]
    client_ca: Option<PathBuf>,
    /// The name that the controller's certificate must be for, where it shows one of your own
    #[arg(long, value_name = "NAME", default_value = pki::CONTROLLER, requires = "cert")]
    controller: String,
    /// Ask the orchestrator at this URL (http://…) for address spaces. For an orchestrator of Paraglider's; a controller
    /// says them by itself
    #[arg(long, value_name = "URL")]
    orchestrator: Option<String>,
    /// Speak plaintext, to whoever asks; on loopback addresses only
    #[arg(long, conflicts_with = "cert")]
    plaintext_loopback: bool,
}

pub async fn run(args: PluginArgs) -> anyhow::Result<()> {
    let PluginArgs { kind, name, listen, data_dir, cert, key, client_ca, plaintext_loopback, .. } = args;
    let PluginArgs { endpoint, owner, project, private_endpoints, kubernetes_clusters, .. } = args;
    let PluginArgs { controller, orchestrator, .. } = args;
    if plaintext_loopback && !listen.ip().is_loopback() {
        bail!("--plaintext-loopback is for loopback addresses, and {listen} is none");
    }
    let life = Life::default();
    let cloud: Arc<dyn Cloud> = match kind {
        Kind::Fake => Arc::new(FakeCloud::new(name.clone())),
        Kind::Aws => Arc::new(AwsCloud::new(&AwsOptions { endpoint, owner, ..AwsOptions::default() })?),
        Kind::Azure => {
            let options = AzureOptions { endpoint, owner, kubernetes_clusters, ..AzureOptions::default() };
            Arc::new(AzureCloud::new(&options)?)
        }
        Kind::Gcp => {
            let options = GcpOptions {
                endpoint,
                owner,
                project,
                private_endpoints,
                kubernetes_clusters,
                ..GcpOptions::default()
            };
            Arc::new(GcpCloud::new(&options)?)
        }
        Kind::Ibm => {
            let options = IbmOptions {
                endpoint,
                owner,
                private_endpoints,
                kubernetes_clusters,
                ..IbmOptions::default()
            };
            Arc::new(IbmCloud::new(&options)?)
        }
        Kind::Linux => {
            let cloud = LinuxCloud::open(name.clone(), data_dir, cloud_linux::Options::default()).await?;
            life.spawn("daemons", cloud.unsupervised());
            Arc::new(cloud)
        }
    };
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(PATIENCE))
        .http2_max_header_list_size(MAX_HEADERS);
    let mut admit = Admit::Anyone;
    if let (Some(cert), Some(key), Some(client_ca)) = (cert, key, client_ca) {
        let identity = Identity::from_pem(read(&cert)?, read(&key)?);
        let tls = ServerTlsConfig::new()
            .identity(identity)
            .client_ca_root(Certificate::from_pem(read(&client_ca)?))
            .timeout(PATIENCE);
        admit = Admit::Only(controller.into());
        server = server.tls_config(tls).context("the certificate, its key and the CA do not fit")?;
    }
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    print(&format!("Cloud {name} listens on {}", listener.local_addr()?))?;
    let mut service = PluginService::new(name, cloud);
    if let Some(url) = orchestrator {
        let endpoint = Endpoint::from_shared(url).context("--orchestrator is no URL")?;
        service = service.asking(endpoint.connect_timeout(PATIENCE).connect_lazy());
    }
    let router = router(server, service, admit);
    let stop = async {
        tokio::select! {
            // Without the signal there is nothing to wait for; the process is then ended by force.
            _ = tokio::signal::ctrl_c() => {}
            _ = life.faulted() => {}
        }
    };
    router.serve_with_incoming_shutdown(TcpListenerStream::new(listener), stop).await?;
    Ok(life.end().await?)
}

/// A cloud, served.
fn router(mut server: Server, service: PluginService, admit: Admit) -> Router {
    server
        .add_service(CloudPluginServer::with_interceptor(service.clone(), admit.clone()))
        .add_service(CloudExtensionServer::with_interceptor(service, admit))
}

fn read(path: &PathBuf) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
