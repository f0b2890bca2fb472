//! One list of cases for every data plane: states, and where packets go in them.
//!
//! In: nothing. Out: [`all`], to be played against the planes in memory (`evaluate`), against nftables in network
//! namespaces, and against IPVS in a virtual machine. Rows are written once for IPv4; [`Case::in_ipv6`] is the same
//! case with every address in a prefix of IPv6.
//!
//! ```text
//!   203.0.113.2    client ─────────┐              ┌── 10.180.0.1  endpoint here    80 53 5353 8443
//!   203.0.113.130  blocked client ─┤  192.168.0.2 ├── 10.180.0.2  Pod
//!                                  └──── node ────┴── 10.180.2.1  endpoint there   80 53 5353 8443
//! ```

mod list;
mod six;

use std::net::IpAddr;

use ipnet::IpNet;

use crate::{
    Node, Protocol, Service, ServiceName, ServicePort, Slice, SliceEndpoint, SlicePort, Store,
    nftables::Config,
};

pub use list::all;
pub use six::{node as node_in_ipv6, rules as rules_in_ipv6, six};

pub const LOCAL: &str = "10.180.0.1";
pub const REMOTE: &str = "10.180.2.1";
pub const POD: &str = "10.180.0.2";
pub const CLIENT: &str = "203.0.113.2";
pub const BLOCKED: &str = "203.0.113.130";
pub const NODE: &str = "192.168.0.2";
/// What both endpoints listen on.
pub const PORTS: &[u16] = &[80, 53, 5353, 8443];

#[derive(Clone, Debug)]
pub struct Case {
    pub name: &'static str,
    /// Full states, one after the other.
    pub stages: Vec<Stage>,
}

#[derive(Clone, Debug, Default)]
pub struct Stage {
    pub services: Vec<(ServiceName, Service)>,
    pub slices: Vec<(String, Slice)>,
    pub rows: Vec<Row>,
}

/// A packet and its fate.
#[derive(Clone, Debug)]
pub struct Row {
    pub protocol: Protocol,
    pub from: IpAddr,
    pub to: (IpAddr, u16),
    pub expected: Expected,
    /// Where IPVS cannot do better: it does not tell clients apart.
    pub with_ipvs: Option<Expected>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// All of these answer, and some see another source than the client's, or none does.
    Answered {
        by: Vec<(IpAddr, u16)>,
        hidden: bool,
    },
    /// Always the same of these answers.
    Sticky(Vec<(IpAddr, u16)>),
    Refused,
    Silent,
    /// No service has to do with it.
    Passed,
}

impl Stage {
    pub fn fill(&self, store: &mut Store) {
        store.replace(self.services.iter().cloned(), self.slices.iter().cloned());
    }
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub fn name(text: &str) -> ServiceName {
    ServiceName::new("ns", text)
}

pub fn prefix(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

pub fn node() -> Node {
    Node { name: "here".into(), zone: Some("a".into()), addresses: vec![ip(NODE)], ..Node::default() }
}

pub fn rules() -> Config {
    Config {
        pod_prefixes: vec![prefix("10.0.0.0/8")],
        service_prefixes: vec![prefix("172.30.0.0/16")],
        node_addresses: vec![ip(NODE)],
        ..Config::default()
    }
}

pub fn port(name: &str, protocol: Protocol, port: u16, node_port: u16) -> ServicePort {
    ServicePort { name: name.into(), protocol, port, node_port }
}

pub fn http(cluster_ip: &str, node_port: u16) -> Service {
    let ports = vec![port("http", Protocol::Tcp, 80, node_port)];
    Service { cluster_ips: vec![ip(cluster_ip)], ports, ..Service::default() }
}

pub fn endpoint(address: &str) -> SliceEndpoint {
    let node = if address == LOCAL { "here" } else { "there" };
    SliceEndpoint { addresses: vec![ip(address)], node: Some(node.into()), ..SliceEndpoint::default() }
}

pub fn slice(service: &str, endpoints: Vec<SliceEndpoint>, ports: &[(&str, Protocol, u16)]) -> Slice {
    let port = |(name, protocol, port): &(&str, Protocol, u16)| SlicePort {
        name: Some((*name).into()),
        protocol: *protocol,
        port: Some(*port),
    };
    let ports = ports.iter().map(port).collect();
    Slice { service: name(service), ports, endpoints, labels: Default::default(), triggered: None }
}

pub fn http_slice(service: &str, endpoints: &[&str]) -> Slice {
    slice(service, endpoints.iter().map(|one| endpoint(one)).collect(), &[("http", Protocol::Tcp, 80)])
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
