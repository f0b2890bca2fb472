//! The hosts, services and endpoints that the tests of both planes share.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::{collections::BTreeMap, net::IpAddr};

use node_services::{
    Ingress, IngressMode, Node, Protocol, Service, ServiceName, ServicePort, Slice, SliceEndpoint, SlicePort,
    Store, nftables::Config,
};

use super::lab::{Fate, Lab};

pub const LOCAL: &str = "10.180.0.1";
pub const REMOTE: &str = "10.180.2.1";
pub const POD: &str = "10.180.0.2";
pub const CLIENT: &str = "203.0.113.2";
pub const BLOCKED: &str = "203.0.113.130";
pub const NODE: &str = "192.168.0.2";

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub fn lab() -> Lab {
    let mut lab = Lab::new();
    lab.host(&[LOCAL], &[80, 53, 5353, 8443]).host(&[REMOTE], &[80, 53, 5353, 8443]);
    lab.host(&[POD], &[]).host(&[CLIENT, BLOCKED], &[]).gateway();
    lab
}

pub fn store() -> Store {
    Store::new(Node { name: "here".into(), addresses: vec![ip(NODE)], ..Node::default() })
}

pub fn rules() -> Config {
    Config {
        pod_prefixes: vec!["10.0.0.0/8".parse().expect("a prefix")],
        service_prefixes: vec!["172.30.0.0/16".parse().expect("a prefix")],
        node_addresses: vec![ip(NODE)],
        ..Config::default()
    }
}

pub fn name(text: &str) -> ServiceName {
    ServiceName::new("ns", text)
}

pub fn port(name: &str, protocol: Protocol, port: u16, node_port: u16) -> ServicePort {
    ServicePort { name: name.into(), protocol, port, node_port }
}

pub fn http(cluster_ip: &str, node_port: u16) -> Service {
    let ports = vec![port("http", Protocol::Tcp, 80, node_port)];
    Service { cluster_ips: vec![ip(cluster_ip)], ports, ..Service::default() }
}

/// A balancer at 1.2.3.4, an external address 50.60.70.81 and node port 3001.
pub fn everywhere(cluster_ip: &str) -> Service {
    Service {
        external_ips: vec![ip("50.60.70.81")],
        load_balancers: vec![Ingress { address: ip("1.2.3.4"), mode: IngressMode::Vip }],
        ..http(cluster_ip, 3001)
    }
}

pub fn slice(service: &str, endpoints: &[&str], ports: &[(&str, Protocol, u16)]) -> Slice {
    let endpoint = |address: &&str| SliceEndpoint {
        addresses: vec![ip(address)],
        node: Some(if *address == LOCAL { "here" } else { "there" }.into()),
        ..SliceEndpoint::default()
    };
    let port = |(name, protocol, port): &(&str, Protocol, u16)| SlicePort {
        name: Some((*name).into()),
        protocol: *protocol,
        port: Some(*port),
    };
    Slice {
        service: name(service),
        ports: ports.iter().map(port).collect(),
        endpoints: endpoints.iter().map(endpoint).collect(),
        labels: BTreeMap::new(),
    }
}

pub fn http_slice(service: &str, endpoints: &[&str]) -> Slice {
    slice(service, endpoints, &[("http", Protocol::Tcp, 80)])
}

/// Rows of source, destination and fate over TCP. Enough connections that both of two endpoints are seen.
pub fn check(lab: &Lab, rows: &[(&str, &str, Fate)]) {
    for (from, to, fate) in rows {
        assert_eq!(lab.tcp(from, to, 20, fate), *fate, "{from} to {to}");
    }
}

pub const BOTH: &[&str] = &["10.180.0.1:80", "10.180.2.1:80"];
pub const ONLY_LOCAL: &[&str] = &["10.180.0.1:80"];
