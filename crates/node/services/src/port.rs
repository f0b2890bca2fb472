//! One port of a service in one family, in a form that a data plane consumes.

use std::{fmt, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use crate::{Protocol, ServiceName};

/// The unit of patches. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId {
    pub service: ServiceName,
    pub port_name: Arc<str>,
    pub protocol: Protocol,
    pub ipv6: bool,
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.ipv6 { "ipv6" } else { "ipv4" };
        write!(f, "{}:{}/{} {family}", self.service, self.port_name, self.protocol)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrontendKind {
    ClusterIp,
    ExternalIp,
    LoadBalancer,
    NodePort,
}

impl FrontendKind {
    /// Meant for clients outside of the cluster.
    pub fn is_external(self) -> bool {
        self != Self::ClusterIp
    }
}

/// Where clients find the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    pub address: IpAddr,
    pub port: u16,
    pub kind: FrontendKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePortInfo {
    pub protocol: Protocol,
    /// Sorted; no other port has the same address, port and protocol.
    pub frontends: Vec<Frontend>,
    /// Who may use what is guarded; empty: everybody. Never holds a whole family.
    pub source_ranges: Vec<IpNet>,
    /// The load balancer's addresses with this port, sorted: closed to others than `source_ranges`, whichever service and
    /// whichever kind of frontend answers there.
    pub guarded: Vec<(IpAddr, u16)>,
    /// Seconds for which a client keeps its endpoint.
    pub affinity: Option<u32>,
    pub internal_local: bool,
    pub external_local: bool,
    /// How IPVS chooses, where it is not to choose as the node says.
    pub scheduler: Option<Box<str>>,
    /// There is an endpoint somewhere, though perhaps not for this node: what a local policy keeps from being
    /// answered is dropped in silence, what nobody can answer is rejected.
    pub has_endpoints: bool,
}
