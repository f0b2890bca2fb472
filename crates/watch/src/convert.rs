//! From the engine's words to the wire's.

use std::net::IpAddr;

use model::policy::{
    Kind,
    antrea::{L7Protocol, NamespacedName},
    output::{
        Action, Direction, IpBlock, Member, MemberKind, NetworkPolicy, PolicySource, PortRef, Rule, Service,
    },
};

use crate::{oversize, proto};

/// Four bytes never: stock agents compare members by raw bytes, and theirs are 16.
pub fn ip_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// A member of an AddressGroup: with its addresses.
pub fn address_member(member: &Member) -> proto::GroupMember {
    let ips = member.addresses.as_slice().iter().map(|address| ip_bytes(*address)).collect();
    proto::GroupMember { ips, ..applied_to_member(member) }
}

/// A member of an AppliedToGroup: without, because its node knows them first.
pub fn applied_to_member(member: &Member) -> proto::GroupMember {
    let reference =
        proto::Reference { name: member.name.to_string(), namespace: member.namespace.to_string() };
    let ports = member.ports.iter().map(|port| proto::NamedPort {
        port: i32::from(port.port),
        name: port.name.to_string(),
        protocol: port.protocol.to_string(),
    });
    let mut message = proto::GroupMember { ports: ports.collect(), ..Default::default() };
    match member.kind {
        MemberKind::Pod => message.pod = Some(reference),
        MemberKind::ExternalEntity => message.external_entity = Some(reference),
        MemberKind::Node => message.node = Some(reference),
        MemberKind::Service => message.service = Some(reference),
    }
    message
}

/// The whole policy, or what stands in for one that does not fit a frame.
pub fn policy(policy: &NetworkPolicy) -> proto::NetworkPolicy {
    match oversize::closed(policy) {
        Some(closed) => whole_policy(&closed),
        None => whole_policy(policy),
    }
}

fn whole_policy(policy: &NetworkPolicy) -> proto::NetworkPolicy {
    // Rule-level groups override the policy's, so the two are never sent together.
    let groups = if policy.applied_to_per_rule { &[] } else { policy.applied_to_groups.as_slice() };
    proto::NetworkPolicy {
        rules: policy.rules.iter().map(rule).collect(),
        applied_to_groups: groups.iter().map(ToString::to_string).collect(),
        priority: policy.priority,
        tier_priority: policy.tier_priority,
        ..policy_stub(policy)
    }
}

/// What remains of a policy that went: enough to say which it was.
pub fn policy_stub(policy: &NetworkPolicy) -> proto::NetworkPolicy {
    let uid = policy.uid.to_string();
    proto::NetworkPolicy {
        metadata: proto::ObjectMeta {
            name: uid.clone(),
            uid,
            generation: policy.generation,
            ..Default::default()
        },
        source_ref: Some(source(&policy.source)),
        ..Default::default()
    }
}

fn source(source: &PolicySource) -> proto::SourceRef {
    proto::SourceRef {
        kind: source_kind(source.kind).to_owned(),
        namespace: source.namespace.to_string(),
        name: source.name.to_string(),
        uid: source.uid.to_string(),
    }
}

pub fn source_kind(kind: Kind) -> &'static str {
    match kind {
        Kind::AntreaNetworkPolicy => "AntreaNetworkPolicy",
        Kind::AntreaClusterNetworkPolicy => "AntreaClusterNetworkPolicy",
        // What agents of Antrea know them by; today's is the successor of both, and they do not know it.
        Kind::AdminNetworkPolicy | Kind::ClusterNetworkPolicy => "AdminNetworkPolicy",
        Kind::BaselineAdminNetworkPolicy => "BaselineAdminNetworkPolicy",
        _ => "K8sNetworkPolicy",
    }
}

fn rule(rule: &Rule) -> proto::NetworkPolicyRule {
    let detail = &rule.detail;
    let peer = proto::NetworkPolicyPeer {
        address_groups: rule.address_groups.iter().map(ToString::to_string).collect(),
        ip_blocks: detail.ip_blocks.iter().map(ip_block).collect(),
        fqdns: detail.fqdns.clone(),
        to_services: detail.to_services.iter().map(reference).collect(),
    };
    let nobody = proto::NetworkPolicyPeer::default();
    let (from, to) = match rule.direction {
        Direction::In => (peer, nobody),
        Direction::Out => (nobody, peer),
    };
    proto::NetworkPolicyRule {
        direction: direction_name(rule.direction).to_owned(),
        from,
        to,
        services: detail.services.iter().map(service).collect(),
        priority: rule.priority,
        action: rule.action.map(|action| action_name(action).to_owned()),
        enable_logging: rule.enable_logging,
        applied_to_groups: rule.applied_to_groups.iter().map(ToString::to_string).collect(),
        name: detail.name.clone(),
        l7_protocols: detail.l7_protocols.iter().map(l7_protocol).collect(),
        log_label: detail.log_label.clone(),
    }
}

pub fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "In",
        Direction::Out => "Out",
    }
}

pub fn action_name(action: Action) -> &'static str {
    match action {
        Action::Allow => "Allow",
        Action::Drop => "Drop",
        Action::Reject => "Reject",
        Action::Pass => "Pass",
    }
}

fn reference(name: &NamespacedName) -> proto::Reference {
    proto::Reference { name: name.name.clone(), namespace: name.namespace.clone() }
}

fn ip_block(block: &IpBlock) -> proto::IpBlock {
    proto::IpBlock { cidr: ip_net(&block.cidr), except: block.except.iter().map(ip_net).collect() }
}

pub fn ip_net(net: &ipnet::IpNet) -> proto::IpNet {
    proto::IpNet { ip: ip_bytes(net.addr()), prefix_length: i32::from(net.prefix_len()) }
}

fn service(service: &Service) -> proto::Service {
    let port = service.port.as_ref().map(|port| match port {
        PortRef::Number(number) => {
            proto::IntOrString { kind: 0, int_val: i32::from(*number), str_val: String::new() }
        }
        PortRef::Name(name) => proto::IntOrString { kind: 1, int_val: 0, str_val: name.to_string() },
    });
    proto::Service {
        protocol: Some(service.protocol.to_string()),
        port,
        end_port: service.end_port.map(i32::from),
        icmp_type: service.icmp_type.map(i32::from),
        icmp_code: service.icmp_code.map(i32::from),
        igmp_type: service.igmp_type,
        group_address: service.group_address.clone(),
        src_port: service.source_port.map(i32::from),
        src_end_port: service.source_end_port.map(i32::from),
    }
}

fn l7_protocol(protocol: &L7Protocol) -> proto::L7Protocol {
    proto::L7Protocol {
        http: protocol.http.as_ref().map(|http| proto::Http {
            host: http.host.clone(),
            method: http.method.clone(),
            path: http.path.clone(),
        }),
        tls: protocol.tls.as_ref().map(|tls| proto::Tls { sni: tls.sni.clone() }),
    }
}
