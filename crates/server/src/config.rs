//! What the controller is told at start: one typed value, from a file or from the command line.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use drivers::{
    CertificateFiles, CloudConfig, ClusterConfig, FlowsConfig, NodesConfig, ServicesConfig,
    ServicesConfigError, StorageConfig, StoreKind,
};
use ipnet::Ipv4Net;
use model::{Role, Segment};
use orchestrator::plan::{PoolError, Pools};
use serde::Deserialize;

use crate::{
    access::join::identity::{self, IdentityConfig, IdentityConfigError},
    audit::AuditConfig,
};

/// The configuration of a controller. Every key has a default but `data_dir`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the store, the CA, the audit log and the first token live.
    pub data_dir: PathBuf,
    #[serde(default)]
    pub listen: Listen,
    /// Further names and addresses in the server's certificate, beside the listeners' own and `localhost`.
    #[serde(default)]
    pub names: Vec<String>,
    /// Certificate files to use instead of the local CA's. Replaced files are taken up within a minute.
    #[serde(default)]
    pub tls: Option<CertificateFiles>,
    /// Speak plaintext on all listeners. Refused unless every listener is on loopback.
    #[serde(default)]
    pub plaintext_loopback: bool,
    /// The role of callers who do not say who they are. Refused unless `plaintext_loopback` is set.
    #[serde(default)]
    pub anonymous_role: Option<Role>,
    #[serde(default)]
    pub store: StoreKind,
    /// Storage for other clusters; absent: none.
    #[serde(default)]
    pub storage: Option<StorageConfig>,
    #[serde(default)]
    pub limits: LimitsConfig,
    #[serde(default)]
    pub hosts: HostsConfig,
    #[serde(default)]
    pub audit: AuditConfig,
    #[serde(default)]
    pub nodes: NodesConfig,
    /// Connections that nodes have seen: how much of them is recorded.
    #[serde(default)]
    pub flows: FlowsConfig,
    /// The clouds there are.
    #[serde(default)]
    pub clouds: Vec<CloudConfig>,
    /// Kubernetes clusters whose API servers are read.
    #[serde(default)]
    pub kubernetes: Vec<ClusterConfig>,
    /// Where networks get their addresses.
    #[serde(default = "default_pools")]
    pub address_pools: Vec<Ipv4Net>,
    /// Where Services get addresses and node ports.
    #[serde(default)]
    pub services: ServicesConfig,
    /// The page's files, from whoever starts the controller: a change of the page is no change of this room.
    #[serde(skip, default = "no_page")]
    pub page: Page,
}

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct PageFile {
    /// Its media type.
    pub kind: &'static str,
    /// Changes with its content: an `ETag`.
    pub tag: &'static str,
    pub bytes: &'static [u8],
}

/// Finds a file of the page by its name. `index.html` is the document that `/` answers with.
pub type Page = fn(&str) -> Option<PageFile>;

fn no_page() -> Page {
    |_| None
}

fn default_pools() -> Vec<Ipv4Net> {
    vec![Ipv4Net::new_assert([10, 0, 0, 0].into(), 8)]
}

/// Addresses to listen on. Port 0 picks a free one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Listen {
    /// REST, the page, metrics and health.
    pub http: SocketAddr,
    pub grpc: SocketAddr,
    /// The watch API for node agents and kubectl.
    pub watch: SocketAddr,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            http: SocketAddr::from(([127, 0, 0, 1], 8080)),
            grpc: SocketAddr::from(([127, 0, 0, 1], 8081)),
            watch: SocketAddr::from(([127, 0, 0, 1], 8443)),
        }
    }
}

/// Bounds on what callers may use.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Connections open at once, over all listeners.
    pub max_connections: usize,
    /// Connections of callers who have not said who they are, on each listener.
    pub max_strangers: usize,
    /// And from one address: over IPv6 from one /64.
    pub max_strangers_per_address: usize,
    /// Calls running at once, of callers who are known.
    pub max_in_flight: usize,
    /// Calls running at once, of callers who are not: logins, the page's files, storage consumers that onboard.
    pub max_strangers_in_flight: usize,
    /// Seconds until a call is ended. Callers may ask for less.
    pub request_timeout_seconds: u64,
    /// Size of one message or body.
    pub max_message_bytes: usize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            max_connections: 20_000,
            max_strangers: 1024,
            max_strangers_per_address: 512,
            max_in_flight: 1024,
            max_strangers_in_flight: 256,
            request_timeout_seconds: 30,
            // gRPC's own default.
            max_message_bytes: 4 << 20,
        }
    }
}

impl LimitsConfig {
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.request_timeout_seconds)
    }
}

/// How machines join as hosts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostsConfig {
    /// Seconds for which a host's certificate is good. Agents renew theirs when two thirds are over.
    pub certificate_seconds: u64,
    /// By whose word machines are admitted that have no token.
    pub identities: Vec<IdentityConfig>,
}

impl Default for HostsConfig {
    fn default() -> Self {
        Self { certificate_seconds: 7 * 24 * 3600, identities: Vec::new() }
    }
}

impl HostsConfig {
    pub fn certificate_lifetime(&self) -> Duration {
        Duration::from_secs(self.certificate_seconds)
    }
}

/// Longest life of a host's certificate: one year.
const MAX_HOST_LIFE: u64 = 365 * 24 * 3600;

/// What makes a configuration unsafe or senseless.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "`plaintext_loopback` is set, but `listen.{listener}` is {addr}, which is not a loopback address"
    )]
    PlaintextOffLoopback { listener: &'static str, addr: SocketAddr },
    #[error(
        "`anonymous_role` is set without `plaintext_loopback`: callers from elsewhere must say who they are"
    )]
    AnonymousWithoutPlaintext,
    #[error("`store.etcd.endpoints` is empty")]
    NoEtcdEndpoints,
    #[error("`store.etcd.max_staleness_seconds` is 0: nobody could ever be served")]
    ZeroStaleness,
    #[error("`clouds` names {name} twice")]
    DuplicateCloud { name: Segment },
    #[error("`kubernetes` names several clusters; one is read for now")]
    SeveralClusters,
    #[error("`address_pools` cannot be used: {error}")]
    Pools { error: PoolError },
    #[error(transparent)]
    Services(#[from] ServicesConfigError),
    #[error(transparent)]
    Identities(#[from] IdentityConfigError),
    #[error("`hosts.certificate_seconds` is {seconds}; from 10 to {MAX_HOST_LIFE} are allowed")]
    HostLife { seconds: u64 },
    #[error("`limits.{key}` is 0")]
    ZeroLimit { key: &'static str },
    #[error("`flows.bytes` or `flows.days` is 0: set `flows.enabled` to false to record none")]
    ZeroFlows,
    #[error(transparent)]
    Export(#[from] drivers::flows::export::CollectorError),
    #[error("`nodes.stall_seconds` or `nodes.max_snapshots` is 0: no node could be served")]
    ZeroNodes,
}

impl Config {
    /// The default configuration in a directory.
    pub fn in_dir(data_dir: PathBuf) -> Self {
        Self {
            data_dir,
            listen: Listen::default(),
            names: Vec::new(),
            tls: None,
            plaintext_loopback: false,
            anonymous_role: None,
            store: StoreKind::Embedded,
            storage: None,
            limits: LimitsConfig::default(),
            hosts: HostsConfig::default(),
            audit: AuditConfig::default(),
            nodes: NodesConfig::default(),
            flows: FlowsConfig::default(),
            clouds: Vec::new(),
            kubernetes: Vec::new(),
            address_pools: default_pools(),
            services: ServicesConfig::default(),
            page: no_page(),
        }
    }

    pub fn check(&self) -> Result<(), ConfigError> {
        if self.plaintext_loopback {
            let Listen { http, grpc, watch } = self.listen;
            for (listener, addr) in [("http", http), ("grpc", grpc), ("watch", watch)] {
                if !addr.ip().is_loopback() {
                    return Err(ConfigError::PlaintextOffLoopback { listener, addr });
                }
            }
        } else if self.anonymous_role.is_some() {
            return Err(ConfigError::AnonymousWithoutPlaintext);
        }
        if let StoreKind::Etcd(etcd) = &self.store {
            if etcd.endpoints.is_empty() {
                return Err(ConfigError::NoEtcdEndpoints);
            }
            if etcd.max_staleness_seconds == 0 {
                return Err(ConfigError::ZeroStaleness);
            }
        }
        for (place, cloud) in self.clouds.iter().enumerate() {
            if self.clouds[..place].iter().any(|other| other.name == cloud.name) {
                return Err(ConfigError::DuplicateCloud { name: cloud.name.clone() });
            }
        }
        if self.kubernetes.len() > 1 {
            return Err(ConfigError::SeveralClusters);
        }
        Pools::new(self.address_pools.clone()).map_err(|error| ConfigError::Pools { error })?;
        self.services.ranges()?;
        let seconds = self.hosts.certificate_seconds;
        if !(10..=MAX_HOST_LIFE).contains(&seconds) {
            return Err(ConfigError::HostLife { seconds });
        }
        identity::check(&self.hosts.identities)?;
        let limits = &self.limits;
        for (key, value) in [
            ("max_connections", limits.max_connections),
            ("max_strangers", limits.max_strangers),
            ("max_strangers_per_address", limits.max_strangers_per_address),
            ("max_in_flight", limits.max_in_flight),
            ("max_strangers_in_flight", limits.max_strangers_in_flight),
            (
                "request_timeout_seconds",
                usize::try_from(limits.request_timeout_seconds).unwrap_or(usize::MAX),
            ),
            ("max_message_bytes", limits.max_message_bytes),
        ] {
            if value == 0 {
                return Err(ConfigError::ZeroLimit { key });
            }
        }
        if self.nodes.stall_seconds == 0 || self.nodes.max_snapshots == 0 {
            return Err(ConfigError::ZeroNodes);
        }
        if self.flows.bytes == 0 || self.flows.days == 0 {
            return Err(ConfigError::ZeroFlows);
        }
        for export in &self.flows.export {
            export.check()?;
        }
        Ok(())
    }

    /// Names and addresses the server's certificate is for.
    pub fn certificate_names(&self, host_name: Option<&str>) -> Vec<String> {
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        names.extend(host_name.map(str::to_owned));
        names.extend(
            [self.listen.http, self.listen.grpc, self.listen.watch]
                .iter()
                .filter(|a| !a.ip().is_unspecified())
                .map(|a| a.ip().to_string()),
        );
        names.extend(self.names.iter().cloned());
        names.sort();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::in_dir("/x".into())
    }

    #[test]
    fn plaintext_is_for_loopback_only() {
        let mut config = config();
        config.plaintext_loopback = true;
        assert_eq!(config.check(), Ok(()));
        config.listen.grpc = "0.0.0.0:8081".parse().unwrap();
        assert!(matches!(config.check(), Err(ConfigError::PlaintextOffLoopback { listener: "grpc", .. })));
    }

    #[test]
    fn strangers_need_plaintext_loopback() {
        let mut config = config();
        config.anonymous_role = Some(Role::Viewer);
        assert_eq!(config.check(), Err(ConfigError::AnonymousWithoutPlaintext));
    }

    #[test]
    fn a_store_that_may_never_be_unread_is_refused() {
        let mut config = config();
        let etcd = r#"{"etcd": {"endpoints": ["http://127.0.0.1:1"], "max_staleness_seconds": 0}}"#;
        config.store = serde_json::from_str(etcd).unwrap();
        assert_eq!(config.check(), Err(ConfigError::ZeroStaleness));
        config.store = serde_json::from_str(&etcd.replace(": 0", ": 1")).unwrap();
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn limits_of_zero_are_refused() {
        let mut config = config();
        config.limits.max_in_flight = 0;
        assert_eq!(config.check(), Err(ConfigError::ZeroLimit { key: "max_in_flight" }));
    }
}
