//! Services as people see them, over gRPC and REST alike.

use ::services::{
    Entry,
    explain::{Explanation, Plane, Query, frontend_name},
};
use drivers::services::Services;
use ipnet::IpNet;
use model::service::{
    IngressMode, Protocol, Service, ServiceKind, ServiceName, Slice, SliceEndpoint, parse_address,
};
use node_services::evaluate::Fate;
use tonic::Code;
use wire::trestle::v1::{
    ExplainServiceRequest, ExplainServiceResponse, ExplainedEndpoint, ServiceEndpointState, ServicePortState,
    ServiceState, explain_service_response::Outcome,
};

use crate::failure::Failure;

/// Services of a namespace, or all.
pub fn list(services: &Services, namespace: &str) -> Vec<ServiceState> {
    services.read(|catalog| {
        let wanted =
            catalog.services().filter(|entry| namespace.is_empty() || *entry.name.namespace == *namespace);
        wanted.map(|entry| ServiceState { endpoints: Vec::new(), ..state(&entry) }).collect()
    })
}

pub fn get(services: &Services, namespace: &str, name: &str) -> Result<ServiceState, Failure> {
    let name = ServiceName::new(if namespace.is_empty() { "default" } else { namespace }, name);
    let found = services.read(|catalog| catalog.service(&name).map(|entry| state(&entry)));
    found.ok_or_else(|| {
        let text = format!(
            "no service {name} is balanced: is it stored, and does it have a cluster address? \
             See `trestle get services`"
        );
        Failure::new(Code::NotFound, text)
    })
}

fn state(entry: &Entry<'_>) -> ServiceState {
    let service: &Service = entry.service;
    let kind = match service.kind {
        ServiceKind::ClusterIp => "ClusterIP",
        ServiceKind::NodePort => "NodePort",
        ServiceKind::LoadBalancer => "LoadBalancer",
        ServiceKind::ExternalName => "ExternalName",
    };
    let endpoints: Vec<_> = entry.slices().flat_map(|(key, slice)| endpoints(service, key, slice)).collect();
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let all = || entry.slices().flat_map(|(_, slice)| &slice.endpoints);
    let balancers = service.load_balancers.iter().map(|one| match one.mode {
        IngressMode::Vip => one.address.to_string(),
        IngressMode::Proxy => format!("{} (not taken by nodes)", one.address),
    });
    ServiceState {
        namespace: entry.name.namespace.to_string(),
        name: entry.name.name.to_string(),
        r#type: kind.to_owned(),
        cluster_ips: service.cluster_ips.iter().map(ToString::to_string).collect(),
        external_ips: service.external_ips.iter().map(ToString::to_string).collect(),
        load_balancers: balancers.collect(),
        ports: ports(service),
        ready: count(all().filter(|one| one.ready.unwrap_or(true)).count()),
        total: count(all().count()),
        from_pods: entry.is_derived,
        endpoints,
        traits: traits(service),
    }
}

fn ports(service: &Service) -> Vec<ServicePortState> {
    let ports = service.ports.iter().map(|port| ServicePortState {
        name: port.name.to_string(),
        protocol: port.protocol.to_string(),
        port: port.port.into(),
        node_port: port.node_port.into(),
    });
    ports.collect()
}

fn endpoints(service: &Service, key: &str, slice: &Slice) -> Vec<ServiceEndpointState> {
    let mut states = Vec::new();
    for endpoint in &slice.endpoints {
        for address in &endpoint.addresses {
            let ports = slice.ports.iter().filter(|port| {
                let name = port.name.as_deref().unwrap_or_default();
                service.ports.iter().any(|known| *known.name == *name && known.protocol == port.protocol)
            });
            for port in ports {
                let text = match port.port {
                    Some(number) => std::net::SocketAddr::new(*address, number).to_string(),
                    None => address.to_string(),
                };
                states.push(ServiceEndpointState {
                    endpoint: text,
                    port_name: port.name.clone().unwrap_or_default(),
                    slice: key.to_owned(),
                    ..endpoint_state(endpoint)
                });
            }
        }
    }
    states
}

fn endpoint_state(endpoint: &SliceEndpoint) -> ServiceEndpointState {
    let zones = endpoint.zone_hints.iter().map(|zone| format!("zone {zone}"));
    let nodes = endpoint.node_hints.iter().map(|node| format!("node {node}"));
    ServiceEndpointState {
        node: endpoint.node.clone().unwrap_or_default(),
        ready: endpoint.ready.unwrap_or(true),
        serving: endpoint.serving.unwrap_or(true),
        terminating: endpoint.terminating.unwrap_or(false),
        hints: zones.chain(nodes).collect(),
        ..ServiceEndpointState::default()
    }
}

fn traits(service: &Service) -> Vec<String> {
    let mut traits = Vec::new();
    if let Some(seconds) = service.affinity {
        traits.push(format!("a client keeps its endpoint for {seconds} s"));
    }
    if service.internal_local {
        traits.push("internal traffic stays on its node".to_owned());
    }
    if service.external_local {
        traits.push("external traffic stays on its node".to_owned());
    }
    if !service.source_ranges.is_empty() {
        let ranges: Vec<_> = service.source_ranges.iter().map(ToString::to_string).collect();
        traits.push(format!("load balancer open to {}", ranges.join(", ")));
    }
    if service.health_check_node_port != 0 {
        traits.push(format!("health check on node port {}", service.health_check_node_port));
    }
    if let Some(scheduler) = &service.scheduler {
        traits.push(format!("IPVS scheduler {scheduler}"));
    }
    traits
}

pub fn explain(
    services: &Services,
    request: &ExplainServiceRequest,
) -> Result<ExplainServiceResponse, Failure> {
    let query = query(request)?;
    let explanation = services.explain(&query).map_err(|what| {
        Failure::new(Code::Internal, format!("a table of the plane says what is not understood: {}", what.0))
    })?;
    Ok(reply(&explanation))
}

fn query(request: &ExplainServiceRequest) -> Result<Query, Failure> {
    let invalid = |text: String| Failure::new(Code::InvalidArgument, text);
    let address =
        |text: &str| parse_address(text).ok_or_else(|| invalid(format!("{text:?} is not an IP address")));
    let port = u16::try_from(request.port).ok().filter(|port| *port != 0);
    let port = port.ok_or_else(|| invalid(format!("{} is not a port between 1 and 65535", request.port)))?;
    let protocol: Protocol = request
        .protocol
        .parse()
        .map_err(|()| invalid(format!("{:?} is not one of tcp, udp, sctp", request.protocol)))?;
    let plane = match request.plane.as_str() {
        "" | "nftables" => Plane::Nftables,
        "ipvs" => Plane::Ipvs,
        other => return Err(invalid(format!("{other:?} is not one of nftables, ipvs"))),
    };
    let prefix = |text: &String| -> Result<IpNet, Failure> {
        model::service::parse_prefix(text)
            .ok_or_else(|| invalid(format!("{text:?} is not a prefix like 10.0.0.0/8")))
    };
    let to = (address(&request.address)?, port);
    let from = if request.from.is_empty() { None } else { Some(address(&request.from)?) };
    if from.is_some_and(|from| from.is_ipv6() != to.0.is_ipv6()) {
        return Err(invalid("sender and destination must be of one family".to_owned()));
    }
    let prefixes = |texts: &[String]| texts.iter().map(prefix).collect::<Result<Vec<_>, _>>();
    Ok(Query {
        to,
        protocol,
        node: Some(request.node.clone()).filter(|node| !node.is_empty()),
        from,
        plane,
        pod_prefixes: prefixes(&request.pod_prefixes)?,
        service_prefixes: prefixes(&request.service_prefixes)?,
        excluded: prefixes(&request.exclude)?,
        masquerade_all: request.masquerade_all,
        refuse_external_ips: request.refuse_external_ips,
    })
}

fn reply(explanation: &Explanation) -> ExplainServiceResponse {
    let socket =
        |(address, port): &(std::net::IpAddr, u16)| std::net::SocketAddr::new(*address, *port).to_string();
    let (outcome, endpoints, source_hidden) = match &explanation.fate {
        Fate::Balanced(all) => {
            (Outcome::Balanced, all.keys().map(socket).collect(), all.values().any(|hidden| *hidden))
        }
        Fate::Rejected => (Outcome::Rejected, Vec::new(), false),
        Fate::Dropped => (Outcome::Dropped, Vec::new(), false),
        Fate::Passed => (Outcome::Passed, Vec::new(), false),
    };
    let judged = explanation.judged.iter().map(|one| {
        let endpoint = socket(&one.endpoint.socket());
        ExplainedEndpoint {
            used: endpoints.contains(&endpoint),
            endpoint,
            node: one.node.clone().unwrap_or_default(),
            reason: one.reason.clone(),
        }
    });
    let port = explanation.port.as_ref();
    ExplainServiceResponse {
        outcome: outcome.into(),
        service: port.map(|port| format!("{}:{}", port.service, port.port_name)).unwrap_or_default(),
        frontend: explanation.frontend.map(frontend_name).unwrap_or_default().to_owned(),
        judged: judged.collect(),
        endpoints,
        source_hidden,
        reasons: explanation.reasons.clone(),
    }
}
