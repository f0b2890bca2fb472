//! What drivers are told at start. Each is a part of the controller's configuration.

use std::path::PathBuf;

use ipnet::{IpNet, Ipv4Net};
use model::Segment;
use serde::Deserialize;
use services::allot::{NodePorts, ParseNodePortsError, Ranges, RangesError};

/// Ranges for Services that come without addresses and node ports.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServicesConfig {
    /// Of both families, if there are to be Services of both; the first names the family of those that do not say.
    /// Empty: no addresses are allotted.
    pub cluster_prefixes: Vec<IpNet>,
    /// First and last, as in `30000-32767`.
    pub node_ports: String,
}

impl Default for ServicesConfig {
    fn default() -> Self {
        let prefix = Ipv4Net::new_assert([10, 96, 0, 0].into(), 12);
        Self { cluster_prefixes: vec![prefix.into()], node_ports: NodePorts::default().to_string() }
    }
}

impl ServicesConfig {
    pub fn ranges(&self) -> Result<Ranges, ServicesConfigError> {
        let node_ports = self.node_ports.parse()?;
        Ok(Ranges::new(self.cluster_prefixes.clone(), node_ports)?)
    }
}

/// Why the ranges for Services cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServicesConfigError {
    #[error("`services.cluster_prefixes` cannot be used: {0}")]
    ClusterPrefixes(#[from] RangesError),
    #[error("`services.node_ports` cannot be used: {0}")]
    NodePorts(#[from] ParseNodePortsError),
}

/// A Kubernetes cluster whose API server is read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    pub name: Segment,
    /// Absent: the identity of the Pod that this runs in; elsewhere what kubectl would use.
    #[serde(default)]
    pub kubeconfig: Option<PathBuf>,
    /// Absent: the one that is current in the kubeconfig.
    #[serde(default)]
    pub context: Option<String>,
    /// A ConfigMap there, which is kept holding this controller's CA as `ca.pem`: agents that are Pods are given whom to trust by it.
    #[serde(default)]
    pub publish_ca: Option<ConfigMapName>,
}

/// `NAMESPACE/NAME` of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ConfigMapName {
    pub namespace: String,
    pub name: String,
}

impl TryFrom<String> for ConfigMapName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_name = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))
        };
        match text.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("{text:?} names no ConfigMap: write NAMESPACE/NAME")),
        }
    }
}

/// A cloud and where its plugin is.
#[derive(Clone, Debug, Deserialize)]
pub struct CloudConfig {
    pub name: Segment,
    #[serde(flatten)]
    pub plugin: PluginConfig,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PluginConfig {
    /// Network namespaces of this machine. Needs root.
    Linux {
        /// Where its resources reach public addresses.
        #[serde(default)]
        uplink: cloud_linux::Uplink,
    },
    /// A plugin in its own process, at this URL.
    Remote {
        url: String,
        /// PEM file of the CA that the plugin's certificate is from; needed for `https`.
        #[serde(default)]
        ca: Option<PathBuf>,
        /// Client certificate to show to the plugin, instead of the one that the controller makes with its own CA.
        #[serde(default)]
        client: Option<CertificateFiles>,
        /// The revision of Paraglider's protocol that a plugin speaks which knows nothing else, where it cannot be told.
        #[serde(default)]
        revision: Option<cloud_api::grpc::Revision>,
    },
    /// An AWS account; see docs/clouds/aws.md.
    Aws(cloud_aws::AwsOptions),
    /// Azure; see docs/clouds/azure.md.
    Azure(cloud_azure::AzureOptions),
    /// Google Cloud; see docs/clouds/gcp.md.
    Gcp(cloud_gcp::GcpOptions),
    /// IBM Cloud; see docs/clouds/ibm.md.
    Ibm(cloud_ibm::IbmOptions),
    /// A cloud in memory, to try things out. It forgets everything when the controller stops.
    Fake {},
}

/// Which store.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// In the data directory.
    #[default]
    Embedded,
    /// Shared, for several controllers.
    Etcd(EtcdConfig),
}

/// How to reach etcd.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdConfig {
    /// `http://` or `https://` URLs; tried in turn.
    pub endpoints: Vec<String>,
    /// All keys are below this.
    #[serde(default = "default_etcd_prefix")]
    pub prefix: String,
    /// PEM file of the CA that etcd's certificates are from.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Client certificate for etcd.
    #[serde(default)]
    pub client: Option<CertificateFiles>,
    /// File with the key that seals secrets in etcd, the same for every controller. Without it they are not sealed.
    #[serde(default)]
    pub sealing_key_file: Option<PathBuf>,
    /// Operations in one transaction: what etcd's `--max-txn-ops` says.
    #[serde(default = "default_max_txn_ops")]
    pub max_txn_ops: usize,
    /// Bytes in one request: what etcd's `--max-request-bytes` says.
    #[serde(default = "default_max_request_bytes")]
    pub max_request_bytes: usize,
    /// Seconds for which etcd may not be read before nodes and callers are sent to other controllers.
    #[serde(default = "default_max_staleness_seconds")]
    pub max_staleness_seconds: u64,
}

fn default_max_staleness_seconds() -> u64 {
    5
}

fn default_max_txn_ops() -> usize {
    128
}

fn default_max_request_bytes() -> usize {
    1_572_864
}

fn default_etcd_prefix() -> String {
    "/trestle/".to_owned()
}

/// A certificate and its key, as PEM files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// How node streams are served.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodesConfig {
    pub duplicate: DuplicateNode,
    /// Seconds after which a node that takes no byte, although there are some, is cut.
    pub stall_seconds: u64,
    /// Snapshots and other large steps sent at once.
    pub max_snapshots: usize,
}

/// Which of two connections with the same node id is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DuplicateNode {
    /// The newest: a half-dead connection must not lock a node out.
    #[default]
    Newest,
    /// The one that exists, as Azure NPM has it.
    Existing,
}

impl PluginConfig {
    /// What it is, and where, for people.
    pub fn describe(&self) -> String {
        match self {
            Self::Linux { .. } => "linux".to_owned(),
            Self::Remote { url, .. } => url.clone(),
            Self::Aws(_) => "aws".to_owned(),
            Self::Azure(_) => "azure".to_owned(),
            Self::Gcp(_) => "gcp".to_owned(),
            Self::Ibm(_) => "ibm".to_owned(),
            Self::Fake {} => "fake".to_owned(),
        }
    }
}

impl Default for NodesConfig {
    fn default() -> Self {
        Self { duplicate: DuplicateNode::Newest, stall_seconds: 120, max_snapshots: 64 }
    }
}
