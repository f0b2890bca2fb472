//! The engine's output as messages of the node protocol, and back ([`read`]).

pub mod read;

use std::net::IpAddr;

use model::policy::output::{
    Action, Direction, IpBlock, Member, MemberKind, NamedPort, NetworkPolicy, PortRef, Protocol, Rule,
    Service,
};

use crate::trestle::v1::{
    NodeIpBlock, NodeNamedPort, NodePolicy, NodePortMatch, NodeProtocol, NodeRule, ObjectKind, SetMember,
    node_port_match, node_rule, set_member,
};

impl ObjectKind {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::AppliedToSet => "applied-to-set",
            Self::AddressSet => "address-set",
            Self::Policy => "policy",
            Self::NodeFacts => "node-facts",
            Self::EndpointSlice => "endpoint-slice",
            Self::Service => "service",
            Self::Unspecified => "unknown",
        }
    }
}

/// A member of an address set: the workload and its addresses.
pub fn address_member(member: &Member) -> SetMember {
    workload(member)
}

/// A member of a set that policies apply to: the workload, where it is, and its addresses for those who know no other way
/// to find it.
pub fn applied_to_member(member: &Member) -> SetMember {
    let node = member.node.as_deref().unwrap_or_default().to_owned();
    SetMember { node, ..workload(member) }
}

fn workload(member: &Member) -> SetMember {
    let kind = match member.kind {
        MemberKind::Pod => set_member::Kind::Pod,
        MemberKind::ExternalEntity => set_member::Kind::ExternalEntity,
        MemberKind::Node => set_member::Kind::Node,
        MemberKind::Service => set_member::Kind::Service,
    };
    SetMember {
        kind: kind.into(),
        namespace: member.namespace.to_string(),
        name: member.name.to_string(),
        addresses: member.addresses.as_slice().iter().map(|address| octets(*address)).collect(),
        ports: member.ports.iter().map(NodeNamedPort::from).collect(),
        ..SetMember::default()
    }
}

/// An address as messages have it.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

impl From<&NamedPort> for NodeNamedPort {
    fn from(port: &NamedPort) -> Self {
        let protocol = NodeProtocol::from(port.protocol).into();
        Self { name: port.name.to_string(), port: port.port.into(), protocol }
    }
}

impl From<Protocol> for NodeProtocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp,
            Protocol::Udp => Self::Udp,
            Protocol::Sctp => Self::Sctp,
            Protocol::Icmp => Self::Icmp,
            Protocol::Igmp => Self::Igmp,
        }
    }
}

impl From<&NetworkPolicy> for NodePolicy {
    fn from(policy: &NetworkPolicy) -> Self {
        let applied_to = match policy.applied_to_per_rule {
            true => Vec::new(),
            false => policy.applied_to_groups.iter().map(ToString::to_string).collect(),
        };
        Self {
            generation: policy.generation,
            source_kind: format!("{:?}", policy.source.kind),
            source_namespace: policy.source.namespace.to_string(),
            source_name: policy.source.name.to_string(),
            tier_priority: policy.tier_priority,
            priority: policy.priority,
            applied_to,
            rules: policy.rules.iter().map(NodeRule::from).collect(),
        }
    }
}

impl From<&Rule> for NodeRule {
    fn from(rule: &Rule) -> Self {
        let direction = match rule.direction {
            Direction::In => node_rule::Direction::In,
            Direction::Out => node_rule::Direction::Out,
        };
        let action = match rule.action {
            None => node_rule::Action::Unspecified,
            Some(Action::Allow) => node_rule::Action::Allow,
            Some(Action::Drop) => node_rule::Action::Drop,
            Some(Action::Reject) => node_rule::Action::Reject,
            Some(Action::Pass) => node_rule::Action::Pass,
        };
        let detail = &rule.detail;
        Self {
            direction: direction.into(),
            action: action.into(),
            priority: rule.priority,
            name: detail.name.clone(),
            applied_to: rule.applied_to_groups.iter().map(ToString::to_string).collect(),
            address_sets: rule.address_groups.iter().map(ToString::to_string).collect(),
            ip_blocks: detail.ip_blocks.iter().map(NodeIpBlock::from).collect(),
            fqdns: detail.fqdns.clone(),
            ports: detail.services.iter().map(NodePortMatch::from).collect(),
            log: rule.enable_logging,
            log_label: detail.log_label.clone(),
            untranslatable: untranslatable(rule),
        }
    }
}

/// What a rule says that the protocol has no field for. A node must not enforce the rest as if it were all.
fn untranslatable(rule: &Rule) -> Vec<String> {
    let detail = &rule.detail;
    let services =
        detail.to_services.iter().map(|service| format!("toServices {}/{}", service.namespace, service.name));
    let layer_7 = (!detail.l7_protocols.is_empty()).then(|| "l7Protocols".to_owned());
    let is_narrower = |service: &Service| service.igmp_type.is_some() || !service.group_address.is_empty();
    let igmp = detail.services.iter().any(is_narrower).then(|| "igmp type or group address".to_owned());
    services.chain(layer_7).chain(igmp).chain(detail.untranslatable.iter().cloned()).collect()
}

impl From<&IpBlock> for NodeIpBlock {
    fn from(block: &IpBlock) -> Self {
        Self { cidr: block.cidr.to_string(), except: block.except.iter().map(ToString::to_string).collect() }
    }
}

impl From<&Service> for NodePortMatch {
    fn from(service: &Service) -> Self {
        let port = service.port.as_ref().map(|port| match port {
            PortRef::Number(number) => node_port_match::Port::Number((*number).into()),
            PortRef::Name(name) => node_port_match::Port::Named(name.to_string()),
        });
        Self {
            protocol: NodeProtocol::from(service.protocol).into(),
            port,
            end_port: service.end_port.map(Into::into),
            source_port: service.source_port.map(Into::into),
            source_end_port: service.source_end_port.map(Into::into),
            icmp_type: service.icmp_type.map(Into::into),
            icmp_code: service.icmp_code.map(Into::into),
        }
    }
}
