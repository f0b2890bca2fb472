//! Protocols by IANA's numbers: the one table, and the classes in which people ask about them.

use std::{fmt, str::FromStr};

pub const ICMP: u8 = 1;
pub const IGMP: u8 = 2;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const DCCP: u8 = 33;
pub const ICMPV6: u8 = 58;
pub const SCTP: u8 = 132;
pub const UDP_LITE: u8 = 136;

/// Names people use; everything else is written as a number.
const NAMES: [(&str, u8); 5] =
    [("icmp", ICMP), ("tcp", TCP), ("udp", UDP), ("icmpv6", ICMPV6), ("sctp", SCTP)];

/// The numbers that have a name, ascending: those that rules speak of.
pub const NAMED: [u8; 5] = [ICMP, TCP, UDP, ICMPV6, SCTP];

pub fn name(number: u8) -> Option<&'static str> {
    NAMES.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

pub fn by_name(name: &str) -> Option<u8> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// Whether packets carry ports.
pub fn has_ports(number: u8) -> bool {
    matches!(number, TCP | UDP | DCCP | SCTP | UDP_LITE)
}

/// The number that a rule's number stands for between addresses of one family: whoever may ping may ping over IPv6.
pub fn in_family(number: u8, ipv6: bool) -> u8 {
    if ipv6 && number == ICMP { ICMPV6 } else { number }
}

/// What is asked about: a protocol that rules name, or all others together. ICMP is that of the ends' family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProtocolClass {
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Other,
}

impl ProtocolClass {
    pub const ALL: [Self; 5] = [Self::Tcp, Self::Udp, Self::Sctp, Self::Icmp, Self::Other];

    /// Of a packet between addresses of one family.
    pub fn of(number: u8, ipv6: bool) -> Self {
        match number {
            TCP => Self::Tcp,
            UDP => Self::Udp,
            SCTP => Self::Sctp,
            ICMP if !ipv6 => Self::Icmp,
            ICMPV6 if ipv6 => Self::Icmp,
            _ => Self::Other,
        }
    }

    pub fn has_ports(self) -> bool {
        matches!(self, Self::Tcp | Self::Udp | Self::Sctp)
    }
}

impl fmt::Display for ProtocolClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
            Self::Icmp => "icmp",
            Self::Other => "other",
        })
    }
}

/// Why a text is no class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not one of tcp, udp, sctp, icmp, other")]
pub struct ParseClassError(String);

impl FromStr for ProtocolClass {
    type Err = ParseClassError;

    fn from_str(text: &str) -> Result<Self, ParseClassError> {
        let lower = text.to_ascii_lowercase();
        let found = Self::ALL.into_iter().find(|class| class.to_string() == lower);
        found.ok_or_else(|| ParseClassError(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_number_and_reads_back() {
        let numbers: Vec<u8> = NAMES.iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers, NAMED);
        for (text, number) in NAMES {
            assert_eq!((name(number), by_name(text)), (Some(text), Some(number)));
        }
        for class in ProtocolClass::ALL {
            assert_eq!(class.to_string().parse(), Ok(class));
        }
        assert!("igmp".parse::<ProtocolClass>().is_err());
    }

    #[test]
    fn icmp_is_that_of_the_family() {
        assert_eq!((in_family(ICMP, true), in_family(ICMP, false), in_family(TCP, true)), (58, 1, 6));
        assert_eq!(ProtocolClass::of(ICMPV6, true), ProtocolClass::Icmp);
        assert_eq!(ProtocolClass::of(ICMPV6, false), ProtocolClass::Other, "nobody speaks it over IPv4");
    }
}
