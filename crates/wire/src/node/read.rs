//! Messages of the node protocol as a node reads them.
//!
//! A policy is always read: a part that makes no sense is noted in its rule, which then permits nothing. A node that
//! refused the whole policy would leave open what it closes.

use std::net::IpAddr;

use model::policy::{
    Kind,
    output::{
        Action, Addresses, Detail, Direction, Identifier, IpBlock, Member, MemberKind, NamedPort,
        NetworkPolicy, PolicySource, PortRef, Protocol, Rule, RuleDetail, Service,
    },
};

use crate::trestle::v1::{
    NodeIpBlock, NodeNamedPort, NodePolicy, NodePortMatch, NodeProtocol, NodeRule, SetMember,
    node_port_match, node_rule, set_member,
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    #[error("an address of {namespace}/{name} has {len} bytes, neither 4 nor 16")]
    Address { namespace: String, name: String, len: usize },
    #[error("port `{port}` of {namespace}/{name} makes no sense: number {number}, protocol {protocol}")]
    Port { namespace: String, name: String, port: String, number: u32, protocol: i32 },
}

/// Members of a kind that is not known yet count by their addresses.
impl TryFrom<&SetMember> for Member {
    type Error = MemberError;

    fn try_from(member: &SetMember) -> Result<Self, MemberError> {
        let kind = match member.kind() {
            set_member::Kind::Pod => MemberKind::Pod,
            set_member::Kind::Node => MemberKind::Node,
            set_member::Kind::Service => MemberKind::Service,
            set_member::Kind::ExternalEntity | set_member::Kind::Unspecified => MemberKind::ExternalEntity,
        };
        let addresses: Result<Addresses, MemberError> = member
            .addresses
            .iter()
            .map(|bytes| {
                address(bytes).ok_or_else(|| MemberError::Address {
                    namespace: member.namespace.clone(),
                    name: member.name.clone(),
                    len: bytes.len(),
                })
            })
            .collect();
        let ports: Result<Box<[NamedPort]>, MemberError> = member
            .ports
            .iter()
            .map(|port| {
                named_port(port).ok_or_else(|| MemberError::Port {
                    namespace: member.namespace.clone(),
                    name: member.name.clone(),
                    port: port.name.clone(),
                    number: port.port,
                    protocol: port.protocol,
                })
            })
            .collect();
        Ok(Self {
            kind,
            enforced: true,
            namespace: member.namespace.as_str().into(),
            name: member.name.as_str().into(),
            addresses: addresses?,
            ports: ports?,
            node: (!member.node.is_empty()).then(|| member.node.as_str().into()),
        })
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let short = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    short.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn named_port(port: &NodeNamedPort) -> Option<NamedPort> {
    let (number, protocol) = (u16::try_from(port.port).ok()?, protocol(port.protocol())?);
    Some(NamedPort { name: port.name.as_str().into(), port: number, protocol })
}

fn protocol(protocol: NodeProtocol) -> Option<Protocol> {
    Some(match protocol {
        NodeProtocol::Unspecified => return None,
        NodeProtocol::Tcp => Protocol::Tcp,
        NodeProtocol::Udp => Protocol::Udp,
        NodeProtocol::Sctp => Protocol::Sctp,
        NodeProtocol::Icmp => Protocol::Icmp,
        NodeProtocol::Igmp => Protocol::Igmp,
    })
}

/// The policy that goes by this name, its UID.
pub fn network_policy(name: &str, policy: &NodePolicy) -> NetworkPolicy {
    let kind = Kind::ALL.into_iter().find(|kind| format!("{kind:?}") == policy.source_kind);
    // Kinds rank policies of equal priority, nothing more.
    let kind = kind.unwrap_or(match policy.tier_priority {
        Some(_) => Kind::AntreaClusterNetworkPolicy,
        None => Kind::NetworkPolicy,
    });
    NetworkPolicy {
        uid: Identifier::parse(name),
        generation: policy.generation,
        source: PolicySource {
            kind,
            namespace: policy.source_namespace.as_str().into(),
            name: policy.source_name.as_str().into(),
            uid: Identifier::parse(name),
        },
        tier_priority: policy.tier_priority,
        // What is no number has no place among the others.
        priority: policy.priority.filter(|priority| !priority.is_nan()),
        rules: policy.rules.iter().flat_map(rules).collect(),
        applied_to_groups: identifiers(&policy.applied_to),
        applied_to_per_rule: policy.applied_to.is_empty(),
    }
}

/// One rule, or one for each direction if the message's own is unknown.
fn rules(rule: &NodeRule) -> Vec<Rule> {
    let mut notes = rule.untranslatable.clone();
    let directions: &[Direction] = match rule.direction() {
        node_rule::Direction::In => &[Direction::In],
        node_rule::Direction::Out => &[Direction::Out],
        node_rule::Direction::Unspecified => {
            notes.push(format!("direction {}", rule.direction));
            &[Direction::In, Direction::Out]
        }
    };
    let action = match node_rule::Action::try_from(rule.action) {
        Ok(node_rule::Action::Unspecified) => None,
        Ok(node_rule::Action::Allow) => Some(Action::Allow),
        Ok(node_rule::Action::Drop) => Some(Action::Drop),
        Ok(node_rule::Action::Reject) => Some(Action::Reject),
        Ok(node_rule::Action::Pass) => Some(Action::Pass),
        Err(_) => {
            notes.push(format!("action {}", rule.action));
            Some(Action::Drop)
        }
    };
    let ip_blocks = rule.ip_blocks.iter().filter_map(|block| noted(ip_block(block), &mut notes)).collect();
    let services = rule.ports.iter().filter_map(|port| noted(service(port), &mut notes)).collect();
    let detail = Detail::from(RuleDetail {
        ip_blocks,
        fqdns: rule.fqdns.clone(),
        services,
        name: rule.name.clone(),
        log_label: rule.log_label.clone(),
        untranslatable: notes,
        ..RuleDetail::default()
    });
    let of = |direction: &Direction| Rule {
        direction: *direction,
        action,
        priority: rule.priority,
        enable_logging: rule.log,
        address_groups: identifiers(&rule.address_sets),
        applied_to_groups: identifiers(&rule.applied_to),
        detail: detail.clone(),
    };
    directions.iter().map(of).collect()
}

fn noted<T>(part: Result<T, String>, notes: &mut Vec<String>) -> Option<T> {
    part.map_err(|note| notes.push(note)).ok()
}

fn identifiers(names: &[String]) -> Vec<Identifier> {
    names.iter().map(|name| Identifier::parse(name)).collect()
}

fn ip_block(block: &NodeIpBlock) -> Result<IpBlock, String> {
    let prefix = |text: &String| text.parse().map_err(|_| format!("ip block {text}"));
    Ok(IpBlock {
        cidr: prefix(&block.cidr)?,
        except: block.except.iter().map(prefix).collect::<Result<_, _>>()?,
    })
}

fn service(port: &NodePortMatch) -> Result<Service, String> {
    let number = |number: u32| u16::try_from(number).map_err(|_| format!("port {number}"));
    let byte = |number: u32| u8::try_from(number).map_err(|_| format!("ICMP type or code {number}"));
    let reference = match &port.port {
        None => None,
        Some(node_port_match::Port::Number(first)) => Some(PortRef::Number(number(*first)?)),
        Some(node_port_match::Port::Named(name)) => Some(PortRef::Name(name.as_str().into())),
    };
    let protocol = protocol(port.protocol()).ok_or_else(|| format!("protocol {}", port.protocol))?;
    Ok(Service {
        port: reference,
        end_port: port.end_port.map(number).transpose()?,
        source_port: port.source_port.map(number).transpose()?,
        source_end_port: port.source_end_port.map(number).transpose()?,
        icmp_type: port.icmp_type.map(byte).transpose()?,
        icmp_code: port.icmp_code.map(byte).transpose()?,
        ..Service::any(protocol)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
mod tests {
    use super::*;

    fn policy() -> NetworkPolicy {
        let web = Service { port: Some(PortRef::Name("web".into())), ..Service::any(Protocol::Tcp) };
        let range =
            Service { port: Some(PortRef::Number(80)), end_port: Some(90), ..Service::any(Protocol::Sctp) };
        let ping = Service { icmp_type: Some(8), icmp_code: Some(0), ..Service::any(Protocol::Icmp) };
        let block =
            IpBlock { cidr: "10.0.0.0/8".parse().unwrap(), except: vec!["10.1.0.0/16".parse().unwrap()] };
        let detail =
            RuleDetail { ip_blocks: vec![block], services: vec![web, range, ping], ..RuleDetail::default() };
        let rule = |direction, action| Rule {
            direction,
            action,
            priority: 1,
            enable_logging: false,
            address_groups: vec![Identifier::parse("s")],
            applied_to_groups: Vec::new(),
            detail: detail.clone().into(),
        };
        NetworkPolicy {
            uid: Identifier::parse("u"),
            generation: 3,
            source: PolicySource {
                kind: Kind::AntreaNetworkPolicy,
                namespace: "n".into(),
                name: "p".into(),
                uid: Identifier::parse("u"),
            },
            tier_priority: Some(5),
            priority: Some(1.5),
            rules: vec![rule(Direction::In, Some(Action::Pass)), rule(Direction::Out, None)],
            applied_to_groups: vec![Identifier::parse("a")],
            applied_to_per_rule: false,
        }
    }

    #[test]
    fn a_policy_comes_back_as_it_was_written() {
        assert_eq!(network_policy("u", &NodePolicy::from(&policy())), policy());
    }

    /// Found by fuzzing: such a policy differed from itself, and so was compiled anew with every resync.
    #[test]
    fn a_priority_that_is_no_number_is_none() {
        let odd = NodePolicy { priority: Some(f64::NAN), ..NodePolicy::from(&policy()) };
        assert_eq!(network_policy("u", &odd), NetworkPolicy { priority: None, ..policy() });
    }

    #[test]
    fn a_member_comes_back_as_it_was_written() {
        let member = Member {
            kind: MemberKind::Pod,
            enforced: true,
            namespace: "n".into(),
            name: "p".into(),
            addresses: ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()].into_iter().collect(),
            ports: Box::new([NamedPort { name: "web".into(), port: 80, protocol: Protocol::Tcp }]),
            node: None,
        };
        assert_eq!(Member::try_from(&crate::node::address_member(&member)), Ok(member));
    }

    #[test]
    fn an_address_of_another_length_is_refused() {
        let member = SetMember { addresses: vec![vec![1; 5]], ..SetMember::default() };
        assert!(matches!(Member::try_from(&member), Err(MemberError::Address { len: 5, .. })));
    }

    #[test]
    fn what_makes_no_sense_is_noted_and_closes_the_rule() {
        let block = NodeIpBlock { cidr: "10.0.0.0/77".into(), except: Vec::new() };
        let port = NodePortMatch { protocol: 99, ..NodePortMatch::default() };
        let rule = NodeRule { action: 77, ip_blocks: vec![block], ports: vec![port], ..NodeRule::default() };
        let policy = network_policy("u", &NodePolicy { rules: vec![rule], ..NodePolicy::default() });
        let directions: Vec<_> = policy.rules.iter().map(|rule| rule.direction).collect();
        assert_eq!(directions, [Direction::In, Direction::Out]);
        assert!(policy.rules.iter().all(|rule| rule.action == Some(Action::Drop)));
        let notes = policy.rules[0].detail.untranslatable.join("; ");
        assert_eq!(notes, "direction 0; action 77; ip block 10.0.0.0/77; protocol 99");
    }
}
