//! Services and their endpoints, as the service proxy speaks of them.
//!
//! In: objects as users write them ([`kubernetes`]). Out: values without anything a proxy does not need, addresses
//! parsed. Not here: which endpoints a node uses (`node-services`), the wire (`wire`).

pub mod kubernetes;
mod node;
mod slice;

use std::{collections::BTreeMap, fmt, net::IpAddr, str::FromStr, sync::Arc};

use ipnet::IpNet;

pub use node::NodeFacts;
pub use slice::{Slice, SliceEndpoint, SlicePort};

pub use crate::policy::service::{parse_address, parse_prefix};
use crate::protocol;

/// A service or slice with this label belongs to another proxy.
pub const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";
/// A service or slice with this label is not load-balanced.
pub const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// Cheap to clone: it is the key of much.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl ServiceName {
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => protocol::TCP,
            Self::Udp => protocol::UDP,
            Self::Sctp => protocol::SCTP,
        }
    }
}

impl FromStr for Protocol {
    type Err = ();

    /// In capitals as Kubernetes writes it, or not; nothing means TCP.
    fn from_str(text: &str) -> Result<Self, ()> {
        match text.to_ascii_lowercase().as_str() {
            "" | "tcp" => Ok(Self::Tcp),
            "udp" => Ok(Self::Udp),
            "sctp" => Ok(Self::Sctp),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceKind {
    #[default]
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IngressMode {
    /// Packets arrive with the balancer's address: the node takes them.
    Vip,
    /// The balancer translates itself: its address is none of the node's business.
    Proxy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ingress {
    pub address: IpAddr,
    pub mode: IngressMode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Empty if the service has only one.
    pub name: Arc<str>,
    pub protocol: Protocol,
    pub port: u16,
    /// 0 if there is none.
    pub node_port: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    pub kind: ServiceKind,
    /// Empty: headless.
    pub cluster_ips: Vec<IpAddr>,
    pub external_ips: Vec<IpAddr>,
    pub load_balancers: Vec<Ingress>,
    /// Who may use the load balancer's addresses; empty: everybody.
    pub source_ranges: Vec<IpNet>,
    pub ports: Vec<ServicePort>,
    /// Seconds for which a client keeps its endpoint.
    pub affinity: Option<u32>,
    /// Traffic from within stays on its node.
    pub internal_local: bool,
    /// Traffic from outside stays on its node and keeps its source.
    pub external_local: bool,
    /// 0 if there is none.
    pub health_check_node_port: u16,
    /// How IPVS chooses among the endpoints, where it is not to choose as the node says.
    pub scheduler: Option<String>,
    pub labels: BTreeMap<String, String>,
}

impl Service {
    /// Addresses that it has from outside of the cluster.
    pub fn outside(&self) -> impl Iterator<Item = IpAddr> {
        let balancers = self.load_balancers.iter().filter(|ingress| ingress.mode == IngressMode::Vip);
        self.external_ips.iter().copied().chain(balancers.map(|ingress| ingress.address))
    }

    /// Whether this proxy has anything to do with it.
    pub fn is_ours(&self) -> bool {
        self.kind != ServiceKind::ExternalName
            && !self.labels.contains_key(PROXY_NAME_LABEL)
            && !self.labels.contains_key(HEADLESS_LABEL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_and_white_space_are_forgiven() {
        assert_eq!(parse_address(" 010.000.001.09 "), parse_address("10.0.1.9"));
        assert_eq!(parse_prefix(" 203.0.113.7/25"), parse_prefix("203.0.113.0/25"));
        for bad in ["", "10.0.0", "10.0.0.256", "10.0.0.1.2", "+1.0.0.0", "10..0.1"] {
            assert_eq!(parse_address(bad), None, "{bad}");
        }
    }
}
