//! A slice of a service's endpoints.

use std::{collections::BTreeMap, net::IpAddr};

use super::{HEADLESS_LABEL, PROXY_NAME_LABEL, Protocol, ServiceName};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub service: ServiceName,
    pub ports: Vec<SlicePort>,
    pub endpoints: Vec<SliceEndpoint>,
    pub labels: BTreeMap<String, String>,
    /// When what it tells of happened, as whoever wrote it says; RFC 3339.
    pub triggered: Option<String>,
}

impl Slice {
    pub fn is_ours(&self) -> bool {
        !self.labels.contains_key(PROXY_NAME_LABEL) && !self.labels.contains_key(HEADLESS_LABEL)
    }
}

/// Without a name or a number a port is of no use to a proxy and is passed over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlicePort {
    pub name: Option<String>,
    pub protocol: Protocol,
    pub port: Option<u16>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceEndpoint {
    pub addresses: Vec<IpAddr>,
    /// Unknown counts as true.
    pub ready: Option<bool>,
    /// Unknown counts as true.
    pub serving: Option<bool>,
    /// Unknown counts as false.
    pub terminating: Option<bool>,
    pub node: Option<String>,
    /// Zones that ought to use it; `None` or empty: no hint.
    pub zone_hints: Vec<String>,
    /// Nodes that ought to use it; empty: no hint.
    pub node_hints: Vec<String>,
}
