//! Builders and random states for tests.

use std::{collections::BTreeMap, net::IpAddr};

use proptest::prelude::*;

use crate::{
    Ingress, IngressMode, Node, Protocol, Service, ServiceKind, ServiceName, ServicePort, Slice,
    SliceEndpoint, SlicePort, Store,
};

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub fn name(text: &str) -> ServiceName {
    ServiceName::new("default", text)
}

pub fn node() -> Node {
    Node {
        name: "here".into(),
        zone: Some("a".into()),
        addresses: vec![ip("192.168.0.2")],
        ..Node::default()
    }
}

pub fn port(name: &str, protocol: Protocol, port: u16) -> ServicePort {
    ServicePort { name: name.into(), protocol, port, node_port: 0 }
}

pub fn service(cluster_ip: &str) -> Service {
    Service {
        cluster_ips: vec![ip(cluster_ip)],
        ports: vec![port("http", Protocol::Tcp, 80)],
        ..Service::default()
    }
}

pub fn endpoint(address: &str, node: &str) -> SliceEndpoint {
    SliceEndpoint { addresses: vec![ip(address)], node: Some(node.into()), ..SliceEndpoint::default() }
}

pub fn slice(service: &str, endpoints: Vec<SliceEndpoint>) -> Slice {
    let ports = vec![SlicePort { name: Some("http".into()), protocol: Protocol::Tcp, port: Some(8080) }];
    Slice { service: name(service), ports, endpoints, labels: BTreeMap::new(), triggered: None }
}

/// One thing that happens to a store.
#[derive(Clone, Debug)]
pub enum Event {
    SetService(ServiceName, Box<Service>),
    DeleteService(ServiceName),
    SetSlice(String, Slice),
    DeleteSlice(String),
    SetNode(Node),
    /// The planes are told.
    Flush,
}

impl Event {
    pub fn apply(self, store: &mut Store) {
        let _changed = match self {
            Self::SetService(name, service) => store.set_service(name, *service),
            Self::DeleteService(name) => store.delete_service(&name),
            Self::SetSlice(key, slice) => store.set_slice(&key, slice),
            Self::DeleteSlice(key) => store.delete_slice(&key),
            Self::SetNode(node) => store.set_node(node),
            Self::Flush => false,
        };
    }
}

fn names() -> impl Strategy<Value = ServiceName> {
    (0..4_u8).prop_map(|number| name(&format!("s{number}")))
}

/// Few addresses, so that services get into each other's way.
fn services() -> impl Strategy<Value = Service> {
    let ports = proptest::sample::subsequence(
        vec![
            ServicePort { node_port: 30_080, ..port("http", Protocol::Tcp, 80) },
            port("dns", Protocol::Udp, 53),
            ServicePort { node_port: 30_081, ..port("alt", Protocol::Tcp, 80) },
        ],
        0..=3,
    );
    let kind = prop_oneof![4 => Just(ServiceKind::LoadBalancer), 1 => Just(ServiceKind::ExternalName)];
    let affinity = proptest::option::of(prop_oneof![Just(10), Just(10_800)]);
    let ranges = proptest::sample::subsequence(vec!["10.0.0.0/8", "192.168.0.0/24", "0.0.0.0/0"], 0..=2);
    (kind, ports, 0..3_u8, 0..3_u8, affinity, any::<(bool, bool, bool)>(), ranges).prop_map(
        |(kind, ports, cluster, balancer, affinity, (internal_local, external_local, external), ranges)| {
            Service {
                kind,
                cluster_ips: vec![[172, 30, 0, cluster].into(), ip("fd00::1")],
                external_ips: if external { vec![[1, 2, 3, balancer].into()] } else { Vec::new() },
                load_balancers: vec![Ingress { address: [1, 2, 3, balancer].into(), mode: IngressMode::Vip }],
                source_ranges: ranges.into_iter().map(|range| range.parse().expect("a prefix")).collect(),
                ports,
                affinity,
                internal_local,
                external_local,
                ..Service::default()
            }
        },
    )
}

fn slices() -> impl Strategy<Value = Slice> {
    let flag = || proptest::option::of(any::<bool>());
    let endpoint = (0..6_u8, flag(), flag(), flag(), any::<bool>()).prop_map(
        |(number, ready, serving, terminating, here)| SliceEndpoint {
            addresses: vec![[10, 0, 0, number].into()],
            ready,
            serving,
            terminating,
            node: Some(if here { "here" } else { "there" }.into()),
            ..SliceEndpoint::default()
        },
    );
    (names(), proptest::collection::vec(endpoint, 0..6), any::<bool>()).prop_map(
        |(service, endpoints, other)| {
            let port = |name: &str, protocol, port| SlicePort {
                name: Some(name.into()),
                protocol,
                port: Some(port),
            };
            let http = if other { 8081 } else { 8080 };
            Slice {
                service,
                ports: vec![
                    port("http", Protocol::Tcp, http),
                    port("alt", Protocol::Tcp, 9),
                    port("dns", Protocol::Udp, 53),
                ],
                endpoints,
                labels: BTreeMap::new(),
                triggered: None,
            }
        },
    )
}

pub fn events() -> impl Strategy<Value = Vec<Event>> {
    let key = || (0..4_u8).prop_map(|number| format!("slice{number}"));
    let event = prop_oneof![
        4 => (names(), services()).prop_map(|(name, service)| Event::SetService(name, Box::new(service))),
        1 => names().prop_map(Event::DeleteService),
        5 => (key(), slices()).prop_map(|(key, slice)| Event::SetSlice(key, slice)),
        1 => key().prop_map(Event::DeleteSlice),
        1 => any::<bool>().prop_map(|two| {
            let addresses = if two { vec![ip("192.168.0.2"), ip("192.168.0.3")] } else { vec![ip("192.168.0.2")] };
            Event::SetNode(Node { addresses, ..node() })
        }),
        4 => Just(Event::Flush),
    ];
    proptest::collection::vec(event, 0..24)
}
