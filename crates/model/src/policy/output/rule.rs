//! A rule over groups: what a node enforces.

use std::{fmt, net::IpAddr, ops, sync::Arc};

use ipnet::IpNet;

use super::Identifier;
use crate::{
    policy::antrea::{L7Protocol, NamespacedName},
    protocol,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    In,
    Out,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    Allow,
    Drop,
    Reject,
    /// Leave the Antrea tiers; Kubernetes policies and the baseline tier decide.
    Pass,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Igmp,
}

impl Protocol {
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "" | "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            "SCTP" => Protocol::Sctp,
            "ICMP" => Protocol::Icmp,
            "IGMP" => Protocol::Igmp,
            _ => return None,
        })
    }

    /// IANA's, between addresses of one family.
    pub fn number(self, ipv6: bool) -> u8 {
        let number = match self {
            Protocol::Tcp => protocol::TCP,
            Protocol::Udp => protocol::UDP,
            Protocol::Sctp => protocol::SCTP,
            Protocol::Icmp => protocol::ICMP,
            Protocol::Igmp => protocol::IGMP,
        };
        protocol::in_family(number, ipv6)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
            Protocol::Icmp => "ICMP",
            Protocol::Igmp => "IGMP",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub direction: Direction,
    /// Absent: nothing is permitted by this rule, it only isolates (Kubernetes policies without rules).
    pub action: Option<Action>,
    /// Index within its direction; -1 for Kubernetes policies, whose rules have no order.
    pub priority: i32,
    pub enable_logging: bool,
    /// Any of these, or any of the other peers in `detail`.
    pub address_groups: Vec<Identifier>,
    /// Set only when the policy has `applied_to_per_rule`.
    pub applied_to_groups: Vec<Identifier>,
    pub detail: Detail,
}

/// The part of a rule that names no group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleDetail {
    pub ip_blocks: Vec<IpBlock>,
    pub fqdns: Vec<String>,
    pub to_services: Vec<NamespacedName>,
    /// Any of these; empty means every protocol and port.
    pub services: Vec<Service>,
    pub l7_protocols: Vec<L7Protocol>,
    pub name: String,
    pub log_label: String,
    /// What a message said of the rule that cannot be said here, for people: a rule that has any permits nothing. The
    /// engine leaves it empty.
    pub untranslatable: Vec<String>,
}

/// A shared [`RuleDetail`]. Most rules have none, which has no counter that writer and readers would count at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Detail(Option<Arc<RuleDetail>>);

static BARE: RuleDetail = RuleDetail {
    ip_blocks: Vec::new(),
    fqdns: Vec::new(),
    to_services: Vec::new(),
    services: Vec::new(),
    l7_protocols: Vec::new(),
    name: String::new(),
    log_label: String::new(),
    untranslatable: Vec::new(),
};

impl ops::Deref for Detail {
    type Target = RuleDetail;
    fn deref(&self) -> &RuleDetail {
        self.0.as_deref().unwrap_or(&BARE)
    }
}

impl From<RuleDetail> for Detail {
    fn from(detail: RuleDetail) -> Self {
        Detail((detail != BARE).then(|| Arc::new(detail)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IpBlock {
    pub cidr: IpNet,
    pub except: Vec<IpNet>,
}

impl IpBlock {
    pub fn contains(&self, address: IpAddr) -> bool {
        self.cidr.contains(&address) && !self.except.iter().any(|except| except.contains(&address))
    }

    /// The same addresses as networks without exceptions, ascending. O(exceptions × address bits).
    pub fn networks(&self) -> Vec<IpNet> {
        let mut left = vec![self.cidr];
        for except in &self.except {
            left = left.into_iter().flat_map(|net| without(net, *except)).collect();
        }
        left.sort_unstable();
        left
    }
}

/// Halves the network until the exception is one of the halves.
fn without(net: IpNet, except: IpNet) -> Vec<IpNet> {
    if except.contains(&net) {
        return Vec::new();
    }
    if !net.contains(&except) {
        return vec![net];
    }
    let halves = net.subnets(net.prefix_len() + 1).expect("a network with another inside can be halved");
    halves.flat_map(|half| without(half, except)).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub protocol: Protocol,
    pub port: Option<PortRef>,
    pub end_port: Option<u16>,
    pub source_port: Option<u16>,
    pub source_end_port: Option<u16>,
    pub icmp_type: Option<u8>,
    pub icmp_code: Option<u8>,
    pub igmp_type: Option<i32>,
    pub group_address: String,
}

impl Service {
    pub fn any(protocol: Protocol) -> Self {
        Service {
            protocol,
            port: None,
            end_port: None,
            source_port: None,
            source_end_port: None,
            icmp_type: None,
            icmp_code: None,
            igmp_type: None,
            group_address: String::new(),
        }
    }
}

/// A named port is looked up at the destination, so it may be another number on each member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortRef {
    Number(u16),
    Name(Arc<str>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_without_its_exceptions_is_the_rest() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let block = |cidr: &str, except: &[&str]| IpBlock {
            cidr: net(cidr),
            except: except.iter().map(|text| net(text)).collect(),
        };
        let rest = block("10.0.0.0/30", &["10.0.0.1/32"]).networks();
        assert_eq!(rest, [net("10.0.0.0/32"), net("10.0.0.2/31")]);
        assert_eq!(block("10.0.0.0/8", &[]).networks(), [net("10.0.0.0/8")]);
        assert_eq!(block("10.0.0.0/8", &["10.0.0.0/8"]).networks(), []);
        assert_eq!(block("fd00::/64", &["10.0.0.0/8"]).networks(), [net("fd00::/64")]);
        let all = block("::/0", &["fd00::1/128", "fd00::/127"]).networks();
        assert_eq!(all.len(), 127);
        assert!(!all.iter().any(|net| net.contains(&"fd00::".parse::<IpAddr>().unwrap())));
    }
}
