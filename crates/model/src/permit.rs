//! Permit rules: what a user writes, and what a cloud is given.
//!
//! ```text
//!   PermitRule    name, traffic, peers: tags and literals      the intent, as stored
//!       │ resolve the tags
//!       ▼
//!   PermitEntry   name, traffic, targets: addresses; tags      one line of a resource's permit list
//! ```
//!
//! A list of entries permits; nothing else does. An entry without targets cannot be made, so that no cloud can
//! take an empty list for "anybody".

pub mod list;

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Address, Member, Segment, TagName, protocol};

/// Which way a rule's traffic starts, seen from the resource that has the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Inbound,
    Outbound,
}

/// Any protocol, or one by its IANA number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Any,
    Number(u8),
}

impl Protocol {
    pub const ICMP: Self = Self::Number(protocol::ICMP);
    pub const TCP: Self = Self::Number(protocol::TCP);
    pub const UDP: Self = Self::Number(protocol::UDP);
    pub const ICMPV6: Self = Self::Number(protocol::ICMPV6);
    pub const SCTP: Self = Self::Number(protocol::SCTP);

    /// Whether packets carry ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
    pub fn has_ports(self) -> bool {
        matches!(self, Self::Number(number) if protocol::has_ports(number))
    }
}

/// Any port, or a range with both ends in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ports {
    Any,
    Range { first: u16, last: u16 },
}

impl Ports {
    pub fn one(port: u16) -> Self {
        Self::Range { first: port, last: port }
    }

    pub fn contains(self, port: u16) -> bool {
        match self {
            Self::Any => true,
            Self::Range { first, last } => (first..=last).contains(&port),
        }
    }

    /// Whether some port is in both.
    pub fn meets(self, other: Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::Range { first: a, last: b }, Self::Range { first: c, last: d }) => a <= d && c <= b,
        }
    }
}

/// The packets a rule is about, peers aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Traffic {
    pub direction: Direction,
    pub protocol: Protocol,
    /// Of the packets that open a connection.
    pub src_ports: Ports,
    pub dst_ports: Ports,
}

/// Why traffic or a rule makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PermitError {
    #[error("protocol {number} is neither an IANA number (0 to 255) nor -1 for any")]
    Protocol { number: i64 },
    #[error("{text:?} is no protocol: write any, icmp, tcp, udp, icmpv6, sctp or an IANA number")]
    ProtocolName { text: String },
    #[error("port {number} is neither a port (0 to 65535) nor -1 for any")]
    Port { number: i64 },
    #[error("{text:?} is no port: write any, a number, or a range like 8000-8010")]
    PortText { text: String },
    #[error("the port range {first}-{last} ends before it begins")]
    EmptyRange { first: u16, last: u16 },
    #[error("the rule names ports, which {protocol} does not have; leave them out")]
    PortsWithoutProtocol { protocol: Protocol },
    #[error("the rule names no tag and no address; a rule without peers would permit nobody or everybody")]
    NoPeers,
}

impl Traffic {
    pub fn new(
        direction: Direction,
        protocol: Protocol,
        src_ports: Ports,
        dst_ports: Ports,
    ) -> Result<Self, PermitError> {
        if !protocol.has_ports() && (src_ports, dst_ports) != (Ports::Any, Ports::Any) {
            return Err(PermitError::PortsWithoutProtocol { protocol });
        }
        Ok(Self { direction, protocol, src_ports, dst_ports })
    }

    /// Whether some connection is of both, seen from one end each: out of the one, into the other.
    pub fn meets(&self, other: &Self) -> bool {
        let protocols = match (self.protocol, other.protocol) {
            (Protocol::Any, _) | (_, Protocol::Any) => true,
            (Protocol::Number(a), Protocol::Number(b)) => {
                protocol::in_family(a, true) == protocol::in_family(b, true)
            }
        };
        self.direction != other.direction
            && protocols
            && self.src_ports.meets(other.src_ports)
            && self.dst_ports.meets(other.dst_ports)
    }
}

/// The packet that opens a connection. Ports are 0 where the protocol has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub protocol: u8,
    pub src_port: u16,
    pub dst_port: u16,
}

/// A rule as a user states it, on a resource or on a tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitRule {
    pub name: Segment,
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Never empty.
    pub peers: BTreeSet<Member>,
    /// It is reason enough for a link to another cloud, whether or not the other end permits anything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub build: bool,
}

impl PermitRule {
    /// A rule without a name is named after its content, so that the same rule twice is one rule.
    pub fn new(
        name: Option<Segment>,
        traffic: Traffic,
        peers: BTreeSet<Member>,
    ) -> Result<Self, PermitError> {
        if peers.is_empty() {
            return Err(PermitError::NoPeers);
        }
        let name = match name {
            Some(name) => name,
            None => content_name(&traffic, &peers),
        };
        Ok(Self { name, traffic, peers, build: false })
    }

    /// The same rule, as reason enough for a link.
    #[must_use]
    pub fn building(self, build: bool) -> Self {
        Self { build, ..self }
    }

    /// The tags among the peers.
    pub fn tags(&self) -> impl Iterator<Item = &TagName> {
        self.peers.iter().filter_map(|peer| match peer {
            Member::Tag(tag) => Some(tag),
            Member::Literal(_) => None,
        })
    }
}

/// `rule-` and 32 hexadecimal digits of SHA-256 over the content in its canonical text.
fn content_name(traffic: &Traffic, peers: &BTreeSet<Member>) -> Segment {
    use sha2::{Digest as _, Sha256};
    let mut text = traffic.to_string();
    for peer in peers {
        text.push('\n');
        text.push_str(&peer.to_string());
    }
    let digest = Sha256::digest(text.as_bytes());
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("rule-{hex}").parse().expect("letters and digits are a legal name")
}

/// The name of an entry in a permit list: a resource's own rule (one segment), or `tag.rule` for a rule that
/// the resource has by being in a tag. A rule's name holds no dot, so the two never meet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EntryName(String);

impl EntryName {
    pub fn own(rule: &Segment) -> Self {
        Self(rule.to_string())
    }

    pub fn inherited(tag: &TagName, rule: &Segment) -> Self {
        Self(format!("{tag}.{rule}"))
    }

    /// An entry that network policies give a resource. No rule or tag begins with `_`, so it meets neither.
    pub fn of_policy(id: &str) -> Self {
        Self(format!("_policy.{id}"))
    }

    pub fn is_of_policy(&self) -> bool {
        self.0.starts_with("_policy.")
    }

    /// What a permission gives a resource; each of its passages is an entry at each end.
    pub fn of_permission(
        permission: &Segment,
        direction: Direction,
        protocol: Protocol,
        ports: Ports,
    ) -> Self {
        let way = if direction == Direction::Inbound { "in" } else { "out" };
        let ports = match ports {
            Ports::Any => String::new(),
            ports => format!("-{ports}"),
        };
        Self(format!("_allow.{permission}.{way}.{protocol}{ports}"))
    }

    /// The permission that gave it, whole or as what policies have left of it.
    pub fn permission(&self) -> Option<&str> {
        let text = self.0.strip_prefix("_part.").unwrap_or(&self.0);
        text.strip_prefix("_allow.")?.split('.').next()
    }

    /// What network policies have left of an entry.
    pub fn part_of(whole: &Self, part: &str) -> Self {
        Self(format!("_part.{whole}.{part}"))
    }

    pub fn is_part_of(&self, whole: &Self) -> bool {
        let part = self.0.strip_prefix("_part.").and_then(|text| text.strip_prefix(whole.as_str()));
        // Parts have no dots, so a rule of the tag `a` is no part of a rule `a`.
        part.and_then(|part| part.strip_prefix('.')).is_some_and(|part| !part.contains('.'))
    }

    /// As a cloud reports it; anything printable, since others may have made it.
    pub fn reported(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One line of a permit list: a rule with its tags resolved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PermitEntry {
    pub name: EntryName,
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Never empty.
    #[serde(deserialize_with = "some_targets")]
    targets: BTreeSet<Address>,
    /// What the user wrote: tags and literals. Kept with the entry so that a cloud's list explains itself.
    pub tags: BTreeSet<String>,
}

fn some_targets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<Address>, D::Error> {
    let targets = BTreeSet::deserialize(deserializer)?;
    if targets.is_empty() {
        return Err(serde::de::Error::custom("an entry of a permit list has no targets"));
    }
    Ok(targets)
}

impl PermitEntry {
    /// None if there are no targets: such an entry permits nothing and must not reach a cloud.
    pub fn new(
        name: EntryName,
        traffic: Traffic,
        targets: BTreeSet<Address>,
        tags: BTreeSet<String>,
    ) -> Option<Self> {
        if targets.is_empty() { None } else { Some(Self { name, traffic, targets, tags }) }
    }

    pub fn targets(&self) -> &BTreeSet<Address> {
        &self.targets
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
        })
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Number(number) => match protocol::name(*number) {
                Some(name) => f.write_str(name),
                None => number.fmt(f),
            },
        }
    }
}

impl FromStr for Protocol {
    type Err = PermitError;

    fn from_str(text: &str) -> Result<Self, PermitError> {
        if matches!(text, "any" | "-1") {
            return Ok(Self::Any);
        }
        let unknown = || PermitError::ProtocolName { text: text.chars().take(64).collect() };
        protocol::by_name(text).or_else(|| text.parse().ok()).map(Self::Number).ok_or_else(unknown)
    }
}

impl TryFrom<i64> for Protocol {
    type Error = PermitError;

    fn try_from(number: i64) -> Result<Self, PermitError> {
        match number {
            -1 => Ok(Self::Any),
            _ => u8::try_from(number).map(Self::Number).map_err(|_| PermitError::Protocol { number }),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Range { first, last } if first == last => first.fmt(f),
            Self::Range { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

impl FromStr for Ports {
    type Err = PermitError;

    fn from_str(text: &str) -> Result<Self, PermitError> {
        if matches!(text, "any" | "-1") {
            return Ok(Self::Any);
        }
        let bad = || PermitError::PortText { text: text.chars().take(64).collect() };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.parse().map_err(|_| bad())?, last.parse().map_err(|_| bad())?);
        Self::range(first, last)
    }
}

impl Ports {
    pub fn range(first: u16, last: u16) -> Result<Self, PermitError> {
        if first > last {
            Err(PermitError::EmptyRange { first, last })
        } else {
            Ok(Self::Range { first, last })
        }
    }

    /// From the wire's pair: -1 is any; a last port of 0 stands for a single port.
    pub fn from_numbers(first: i64, last: i64) -> Result<Self, PermitError> {
        if first == -1 {
            return Ok(Self::Any);
        }
        let port = |number: i64| u16::try_from(number).map_err(|_| PermitError::Port { number });
        let first = port(first)?;
        Self::range(first, if last == 0 { first } else { port(last)? })
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.direction, self.protocol)?;
        if self.protocol.has_ports() {
            write!(f, " {}>{}", self.src_ports, self.dst_ports)?;
        }
        Ok(())
    }
}

/// Serde as text, both ways.
macro_rules! text_serde {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
text_serde!(Protocol);
text_serde!(Ports);

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(text: &str) -> Traffic {
        let protocol = text.parse().unwrap();
        Traffic::new(Direction::Inbound, protocol, Ports::Any, Ports::Any).unwrap()
    }

    fn peers(list: &[&str]) -> BTreeSet<Member> {
        list.iter().map(|peer| peer.parse().unwrap()).collect()
    }

    #[test]
    fn the_same_content_has_the_same_name_and_other_content_another() {
        let name = |list: &[&str]| PermitRule::new(None, traffic("tcp"), peers(list)).unwrap().name;
        assert_eq!(name(&["a", "10.0.0.1"]), name(&["10.0.0.1/32", "a"]));
        assert_ne!(name(&["a"]), name(&["b"]));
        let udp = PermitRule::new(None, traffic("udp"), peers(&["a"])).unwrap().name;
        assert_ne!(name(&["a"]), udp);
    }

    #[test]
    fn a_rule_without_peers_and_an_entry_without_targets_do_not_exist() {
        assert_eq!(PermitRule::new(None, traffic("any"), BTreeSet::new()), Err(PermitError::NoPeers));
        let name = EntryName::reported("x");
        assert_eq!(PermitEntry::new(name, traffic("any"), BTreeSet::new(), BTreeSet::new()), None);
    }

    #[test]
    fn ports_need_a_protocol_that_has_them() {
        for (protocol, fine) in
            [("tcp", true), ("udp", true), ("sctp", true), ("icmp", false), ("any", false)]
        {
            let made =
                Traffic::new(Direction::Outbound, protocol.parse().unwrap(), Ports::Any, Ports::one(22));
            assert_eq!(made.is_ok(), fine, "{protocol}");
        }
    }

    #[test]
    fn protocols_and_ports_read_as_they_print() {
        for text in ["any", "icmp", "tcp", "50", "255"] {
            assert_eq!(text.parse::<Protocol>().unwrap().to_string(), text);
        }
        for text in ["any", "0", "22", "8000-8010"] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), text);
        }
        for bad in ["256", "tcpp", "", "-2"] {
            assert!(bad.parse::<Protocol>().is_err(), "{bad}");
        }
        for bad in ["70000", "5-4", "a-b", "", "1-"] {
            assert!(bad.parse::<Ports>().is_err(), "{bad}");
        }
        assert_eq!(Ports::from_numbers(-1, 0), Ok(Ports::Any));
        assert_eq!(Ports::from_numbers(0, 0), Ok(Ports::one(0)));
        assert_eq!(Ports::from_numbers(10, 20), Ports::range(10, 20));
        assert!(Protocol::try_from(-2).is_err() && Protocol::try_from(256).is_err());
    }

    #[test]
    fn an_inherited_entry_never_has_the_name_of_an_own_one() {
        let own = EntryName::own(&"a-b".parse().unwrap());
        let inherited = EntryName::inherited(&"a".parse().unwrap(), &"b".parse().unwrap());
        assert!(!own.as_str().contains('.') && inherited.as_str().contains('.'));
    }

    #[test]
    fn an_entry_permits_what_it_says_and_nothing_else() {
        let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(80)).unwrap();
        let targets = ["10.0.0.0/24".parse().unwrap(), "2001:db8::1".parse().unwrap()].into();
        let entry = PermitEntry::new(EntryName::reported("web"), traffic, targets, BTreeSet::new()).unwrap();
        let packet = Packet { protocol: 6, src_port: 40000, dst_port: 80 };
        let peer = |text: &str| text.parse().unwrap();
        assert!(entry.permits(Direction::Inbound, peer("10.0.0.9"), &packet));
        assert!(entry.permits(Direction::Inbound, peer("2001:db8::1"), &packet));
        assert!(!entry.permits(Direction::Outbound, peer("10.0.0.9"), &packet));
        assert!(!entry.permits(Direction::Inbound, peer("10.0.1.9"), &packet));
        assert!(!entry.permits(Direction::Inbound, peer("10.0.0.9"), &Packet { dst_port: 81, ..packet }));
        assert!(!entry.permits(Direction::Inbound, peer("10.0.0.9"), &Packet { protocol: 17, ..packet }));
    }
}
