//! Services and endpoints as messages of the node protocol.

use std::net::IpAddr;

use model::service::{
    Ingress, IngressMode, NodeFacts, Protocol, Service, ServiceKind, ServiceName, ServicePort, Slice,
    SliceEndpoint, SlicePort, parse_prefix,
};
use thiserror::Error;

use crate::trestle::v1::{
    self as message, NodeEndpoint, NodeEndpointSlice, NodeIngress, NodeProtocol, NodeService,
    NodeServicePort, NodeSlicePort, node_service,
};

/// Why a message is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ServiceMessageError {
    #[error("{field} is {length} bytes long; an address has 4 or 16")]
    Address { field: &'static str, length: usize },
    #[error("{field} is {number}, which is no port")]
    Port { field: &'static str, number: u32 },
    #[error("protocol {0} is none that services have")]
    Protocol(i32),
    #[error("type {0} is none that services have; is the controller newer than this agent?")]
    Type(i32),
    #[error("{0:?} is not a range of addresses")]
    Range(String),
}

impl From<&NodeFacts> for message::NodeFacts {
    fn from(facts: &NodeFacts) -> Self {
        Self {
            zone: facts.zone.clone().unwrap_or_default(),
            addresses: facts.addresses.iter().map(octets).collect(),
            leaving: facts.leaving,
            pods: Vec::new(),
        }
    }
}

impl TryFrom<&message::NodeFacts> for NodeFacts {
    type Error = ServiceMessageError;

    fn try_from(facts: &message::NodeFacts) -> Result<Self, Self::Error> {
        Ok(Self {
            zone: Some(facts.zone.clone()).filter(|zone| !zone.is_empty()),
            addresses: addresses("addresses", &facts.addresses)?,
            leaving: facts.leaving,
        })
    }
}

impl From<&Slice> for NodeEndpointSlice {
    fn from(slice: &Slice) -> Self {
        let port = |port: &SlicePort| NodeSlicePort {
            name: port.name.clone().unwrap_or_default(),
            protocol: protocol(port.protocol),
            port: port.port.unwrap_or(0).into(),
        };
        Self {
            namespace: slice.service.namespace.to_string(),
            service: slice.service.name.to_string(),
            ports: slice.ports.iter().map(port).collect(),
            endpoints: slice.endpoints.iter().map(NodeEndpoint::from).collect(),
            last_change_trigger_time: slice.triggered.clone().unwrap_or_default(),
        }
    }
}

impl From<&SliceEndpoint> for NodeEndpoint {
    fn from(endpoint: &SliceEndpoint) -> Self {
        Self {
            addresses: endpoint.addresses.iter().map(octets).collect(),
            ready: endpoint.ready,
            serving: endpoint.serving,
            terminating: endpoint.terminating,
            node: endpoint.node.clone().unwrap_or_default(),
            zone_hints: endpoint.zone_hints.clone(),
            node_hints: endpoint.node_hints.clone(),
        }
    }
}

impl TryFrom<&NodeEndpointSlice> for Slice {
    type Error = ServiceMessageError;

    fn try_from(slice: &NodeEndpointSlice) -> Result<Self, Self::Error> {
        let port = |one: &NodeSlicePort| {
            let port = Some(port("port", one.port)?).filter(|port| *port != 0);
            Ok(SlicePort { name: Some(one.name.clone()), protocol: read_protocol(one.protocol)?, port })
        };
        let endpoint = |one: &NodeEndpoint| {
            Ok(SliceEndpoint {
                addresses: addresses("endpoint", &one.addresses)?,
                ready: one.ready,
                serving: one.serving,
                terminating: one.terminating,
                node: Some(one.node.clone()).filter(|node| !node.is_empty()),
                zone_hints: one.zone_hints.clone(),
                node_hints: one.node_hints.clone(),
            })
        };
        Ok(Self {
            service: ServiceName::new(slice.namespace.clone(), slice.service.clone()),
            ports: slice.ports.iter().map(port).collect::<Result<_, _>>()?,
            endpoints: slice.endpoints.iter().map(endpoint).collect::<Result<_, _>>()?,
            labels: Default::default(),
            triggered: Some(slice.last_change_trigger_time.clone()).filter(|text| !text.is_empty()),
        })
    }
}

/// A service under its name.
pub fn node_service(name: &ServiceName, service: &Service) -> NodeService {
    let kind = match service.kind {
        ServiceKind::ClusterIp => node_service::Type::ClusterIp,
        ServiceKind::NodePort => node_service::Type::NodePort,
        ServiceKind::LoadBalancer => node_service::Type::LoadBalancer,
        // Has no addresses, and is not told.
        ServiceKind::ExternalName => node_service::Type::Unspecified,
    };
    let port = |port: &ServicePort| NodeServicePort {
        name: port.name.to_string(),
        protocol: protocol(port.protocol),
        port: port.port.into(),
        node_port: port.node_port.into(),
    };
    let ingress =
        |one: &Ingress| NodeIngress { address: octets(&one.address), proxy: one.mode == IngressMode::Proxy };
    NodeService {
        namespace: name.namespace.to_string(),
        name: name.name.to_string(),
        r#type: kind.into(),
        cluster_ips: service.cluster_ips.iter().map(octets).collect(),
        external_ips: service.external_ips.iter().map(octets).collect(),
        load_balancers: service.load_balancers.iter().map(ingress).collect(),
        source_ranges: service.source_ranges.iter().map(ToString::to_string).collect(),
        ports: service.ports.iter().map(port).collect(),
        affinity: service.affinity,
        internal_local: service.internal_local,
        external_local: service.external_local,
        health_check_node_port: service.health_check_node_port.into(),
        scheduler: service.scheduler.clone().unwrap_or_default(),
    }
}

/// The reverse of [`node_service`].
pub fn read_service(service: &NodeService) -> Result<(ServiceName, Service), ServiceMessageError> {
    let kind = match service.r#type() {
        node_service::Type::ClusterIp => ServiceKind::ClusterIp,
        node_service::Type::NodePort => ServiceKind::NodePort,
        node_service::Type::LoadBalancer => ServiceKind::LoadBalancer,
        node_service::Type::Unspecified => return Err(ServiceMessageError::Type(service.r#type)),
    };
    let port = |one: &NodeServicePort| {
        Ok(ServicePort {
            name: one.name.as_str().into(),
            protocol: read_protocol(one.protocol)?,
            port: port("port", one.port)?,
            node_port: port("node_port", one.node_port)?,
        })
    };
    let ingress = |one: &NodeIngress| {
        let mode = if one.proxy { IngressMode::Proxy } else { IngressMode::Vip };
        Ok(Ingress { address: address("load_balancers", &one.address)?, mode })
    };
    let range = |text: &String| parse_prefix(text).ok_or_else(|| ServiceMessageError::Range(text.clone()));
    let read = Service {
        kind,
        cluster_ips: addresses("cluster_ips", &service.cluster_ips)?,
        external_ips: addresses("external_ips", &service.external_ips)?,
        load_balancers: service.load_balancers.iter().map(ingress).collect::<Result<_, _>>()?,
        source_ranges: service.source_ranges.iter().map(range).collect::<Result<_, _>>()?,
        ports: service.ports.iter().map(port).collect::<Result<_, _>>()?,
        affinity: service.affinity,
        internal_local: service.internal_local,
        external_local: service.external_local,
        health_check_node_port: self::port("health_check_node_port", service.health_check_node_port)?,
        scheduler: Some(service.scheduler.clone()).filter(|name| !name.is_empty()),
        labels: Default::default(),
    };
    Ok((ServiceName::new(service.namespace.clone(), service.name.clone()), read))
}

fn octets(address: &IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn addresses(field: &'static str, all: &[Vec<u8>]) -> Result<Vec<IpAddr>, ServiceMessageError> {
    all.iter().map(|bytes| address(field, bytes)).collect()
}

fn address(field: &'static str, bytes: &[u8]) -> Result<IpAddr, ServiceMessageError> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| v6()).map_err(|_| ServiceMessageError::Address { field, length: bytes.len() })
}

fn port(field: &'static str, number: u32) -> Result<u16, ServiceMessageError> {
    u16::try_from(number).map_err(|_| ServiceMessageError::Port { field, number })
}

fn protocol(protocol: Protocol) -> i32 {
    match protocol {
        Protocol::Tcp => NodeProtocol::Tcp.into(),
        Protocol::Udp => NodeProtocol::Udp.into(),
        Protocol::Sctp => NodeProtocol::Sctp.into(),
    }
}

fn read_protocol(number: i32) -> Result<Protocol, ServiceMessageError> {
    match NodeProtocol::try_from(number) {
        Ok(NodeProtocol::Tcp) => Ok(Protocol::Tcp),
        Ok(NodeProtocol::Udp) => Ok(Protocol::Udp),
        Ok(NodeProtocol::Sctp) => Ok(Protocol::Sctp),
        _ => Err(ServiceMessageError::Protocol(number)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
mod tests {
    use super::*;

    #[test]
    fn a_service_survives_the_round_trip() {
        let name = ServiceName::new("shop", "web");
        let service = Service {
            kind: ServiceKind::LoadBalancer,
            cluster_ips: vec!["10.96.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            external_ips: vec!["198.51.100.1".parse().unwrap()],
            load_balancers: vec![
                Ingress { address: "1.2.3.4".parse().unwrap(), mode: IngressMode::Vip },
                Ingress { address: "1.2.3.5".parse().unwrap(), mode: IngressMode::Proxy },
            ],
            source_ranges: vec!["203.0.113.0/25".parse().unwrap()],
            ports: vec![ServicePort {
                name: "dns".into(),
                protocol: Protocol::Udp,
                port: 53,
                node_port: 30053,
            }],
            affinity: Some(60),
            internal_local: true,
            external_local: true,
            health_check_node_port: 31000,
            scheduler: Some("lc".into()),
            labels: Default::default(),
        };
        let message = node_service(&name, &service);
        assert_eq!(read_service(&message), Ok((name, service)));
        let broken = NodeService { cluster_ips: vec![vec![1, 2, 3]], ..message.clone() };
        assert_eq!(
            read_service(&broken),
            Err(ServiceMessageError::Address { field: "cluster_ips", length: 3 })
        );
        let newer = NodeService { r#type: 77, ..message };
        assert_eq!(read_service(&newer), Err(ServiceMessageError::Type(77)));
    }

    #[test]
    fn a_slice_survives_the_round_trip() {
        let slice = Slice {
            service: ServiceName::new("shop", "web"),
            ports: vec![SlicePort { name: Some("http".into()), protocol: Protocol::Sctp, port: Some(8080) }],
            endpoints: vec![SliceEndpoint {
                addresses: vec!["10.0.0.1".parse().unwrap()],
                ready: Some(false),
                serving: None,
                terminating: Some(true),
                node: Some("n1".into()),
                zone_hints: vec!["a".into()],
                node_hints: vec!["n1".into()],
            }],
            labels: Default::default(),
            triggered: Some("2026-01-02T03:04:05.5Z".into()),
        };
        let message = NodeEndpointSlice::from(&slice);
        assert_eq!(Slice::try_from(&message), Ok(slice));
        let mut broken = message;
        broken.ports[0].port = 70_000;
        assert_eq!(
            Slice::try_from(&broken),
            Err(ServiceMessageError::Port { field: "port", number: 70_000 })
        );
    }
}
