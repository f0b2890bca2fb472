//! Services and EndpointSlices as Kubernetes writes them, in our words.
//!
//! Lenient, as all that reads objects which were accepted elsewhere: what does not parse is left out, so that one wrong
//! address does not take the others of its service away. `policy::validate` is the strict half.

use std::net::IpAddr;

use super::{
    Ingress, IngressMode, NodeFacts, Protocol, Service, ServiceKind, ServiceName, ServicePort, Slice,
    SliceEndpoint, SlicePort, parse_address, parse_prefix,
};
use crate::policy::{
    Labels, ObjectMeta,
    endpoint_slice::{EndpointSlice, Hint, SERVICE_NAME_LABEL},
    service::{self as written, SCHEDULER_ANNOTATION},
    workload::Node,
};

/// When what a slice tells of happened.
const TRIGGER_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The label that says which zone a node is in.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// Seconds of session affinity, unless the service says otherwise.
const AFFINITY_SECONDS: u32 = 10_800;
/// The taint of a node that an autoscaler is about to remove.
const LEAVING_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

impl From<&ObjectMeta> for ServiceName {
    fn from(metadata: &ObjectMeta) -> Self {
        Self::new(metadata.namespace.clone(), metadata.name.clone())
    }
}

impl From<&written::Service> for Service {
    fn from(service: &written::Service) -> Self {
        let spec = &service.spec;
        let kind = match spec.kind.as_str() {
            "NodePort" => ServiceKind::NodePort,
            "LoadBalancer" => ServiceKind::LoadBalancer,
            "ExternalName" => ServiceKind::ExternalName,
            _ => ServiceKind::ClusterIp,
        };
        let has_node_ports = matches!(kind, ServiceKind::NodePort | ServiceKind::LoadBalancer);
        let load_balancers = match kind {
            ServiceKind::LoadBalancer => {
                service.status.load_balancer.ingress.iter().filter_map(ingress).collect()
            }
            _ => Vec::new(),
        };
        let external_local = spec.external_traffic_policy == "Local";
        let checks_health = kind == ServiceKind::LoadBalancer && external_local;
        let ports = spec.ports.iter().filter_map(|port| self::port(port, has_node_ports)).collect();
        Self {
            kind,
            cluster_ips: addresses(spec.cluster_addresses()),
            external_ips: addresses(spec.external_ips.iter().map(String::as_str)),
            load_balancers,
            source_ranges: source_ranges(&spec.load_balancer_source_ranges),
            ports,
            affinity: (spec.session_affinity == "ClientIP").then(|| affinity(spec)),
            internal_local: spec.internal_traffic_policy == "Local",
            external_local,
            health_check_node_port: if checks_health { number(spec.health_check_node_port) } else { 0 },
            scheduler: service.metadata.annotations.get(SCHEDULER_ANNOTATION).cloned(),
            labels: marks(&service.metadata.labels),
        }
    }
}

impl Slice {
    /// `None` if it belongs to no Service, or names hosts instead of addresses.
    pub fn read(slice: &EndpointSlice) -> Option<Self> {
        let service = slice.metadata.labels.get(SERVICE_NAME_LABEL).filter(|name| !name.is_empty())?;
        let ipv6 = match slice.address_type.as_str() {
            "IPv4" => false,
            "IPv6" => true,
            _ => return None,
        };
        let ports = slice.ports.iter().filter_map(|port| {
            Some(SlicePort {
                name: Some(port.name.clone().unwrap_or_default()),
                protocol: port.protocol.as_deref().unwrap_or_default().parse().ok()?,
                port: port.port.map(number).filter(|port| *port != 0),
            })
        });
        let endpoints = slice.endpoints.iter().map(|endpoint| {
            let hints = endpoint.hints.clone().unwrap_or_default();
            let names = |hints: Vec<Hint>| hints.into_iter().map(|hint| hint.name).collect();
            let mut addresses = addresses(endpoint.addresses.iter().map(String::as_str));
            addresses.retain(|address| address.is_ipv6() == ipv6);
            // All are of the same endpoint: a proxy that took each for one would give it more than its share.
            addresses.truncate(1);
            SliceEndpoint {
                addresses,
                ready: endpoint.conditions.ready,
                serving: endpoint.conditions.serving,
                terminating: endpoint.conditions.terminating,
                node: endpoint.node_name.clone(),
                zone_hints: names(hints.for_zones),
                node_hints: names(hints.for_nodes),
            }
        });
        Some(Self {
            service: ServiceName::new(slice.metadata.namespace.clone(), service.clone()),
            ports: ports.collect(),
            endpoints: endpoints.collect(),
            labels: marks(&slice.metadata.labels),
            triggered: slice.metadata.annotations.get(TRIGGER_ANNOTATION).cloned(),
        })
    }
}

impl From<&Node> for NodeFacts {
    fn from(node: &Node) -> Self {
        let own = node.status.addresses.iter().filter(|one| one.kind == "InternalIP");
        Self {
            zone: node.metadata.labels.get(ZONE_LABEL).filter(|zone| !zone.is_empty()).cloned(),
            addresses: addresses(own.map(|one| one.address.as_str())),
            leaving: node.metadata.is_going()
                || node.spec.taints.iter().any(|taint| taint.key == LEAVING_TAINT),
        }
    }
}

fn port(port: &written::ServicePort, has_node_ports: bool) -> Option<ServicePort> {
    let protocol: Protocol = port.protocol.parse().ok()?;
    let node_port = if has_node_ports { number(port.node_port) } else { 0 };
    let number = Some(number(port.port)).filter(|port| *port != 0)?;
    Some(ServicePort { name: port.name.as_str().into(), protocol, port: number, node_port })
}

fn ingress(ingress: &written::LoadBalancerIngress) -> Option<Ingress> {
    let mode = match ingress.ip_mode.as_deref() {
        Some("Proxy") => IngressMode::Proxy,
        _ => IngressMode::Vip,
    };
    Some(Ingress { address: parse_address(&ingress.ip)?, mode })
}

fn affinity(spec: &written::ServiceSpec) -> u32 {
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds = config.and_then(|config| config.timeout_seconds);
    seconds.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(AFFINITY_SECONDS)
}

/// A range that cannot be read permits nobody; if none can be, nobody may enter, rather than everybody.
fn source_ranges(ranges: &[String]) -> Vec<ipnet::IpNet> {
    let read: Vec<_> = ranges.iter().filter_map(|range| parse_prefix(range)).collect();
    if read.is_empty() && !ranges.is_empty() {
        let nobody = [IpAddr::from([0; 4]).into(), IpAddr::from([0_u16; 8]).into()];
        return nobody.to_vec();
    }
    read
}

fn addresses<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for address in texts.filter_map(parse_address) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// The labels that a proxy looks at.
fn marks(labels: &Labels) -> std::collections::BTreeMap<String, String> {
    let ours = [super::PROXY_NAME_LABEL, super::HEADLESS_LABEL];
    ours.iter().filter_map(|key| Some(((*key).to_owned(), labels.get(key)?.clone()))).collect()
}

/// 0, which stands for none, if it is not a port.
fn number(port: i32) -> u16 {
    u16::try_from(port).unwrap_or(0)
}

#[cfg(test)]
mod tests;
