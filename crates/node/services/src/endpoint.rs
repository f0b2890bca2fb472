//! An endpoint as a data plane consumes it.

use std::net::IpAddr;

/// One place where a port of a service is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointInfo {
    pub address: IpAddr,
    pub port: u16,
    /// It runs on this node.
    pub is_local: bool,
    /// Traffic that may go to any node may go to it.
    pub in_cluster_pool: bool,
    /// Traffic that must stay on this node may go to it.
    pub in_local_pool: bool,
    /// It still answers: flows to it are not stale, whether or not new ones go there.
    pub is_serving: bool,
}

impl EndpointInfo {
    pub fn socket(&self) -> (IpAddr, u16) {
        (self.address, self.port)
    }
}
