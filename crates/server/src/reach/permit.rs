//! Permit lists, asked which ports they open.

use std::net::IpAddr;

use model::{Direction, PermitEntry, Ports, policy::output::Protocol};
use policy::explain::PortSet;

/// The ports that a permit list opens to or from a peer, whatever port the connection comes from.
pub fn permitted(list: &[PermitEntry], direction: Direction, peer: IpAddr, protocol: Protocol) -> PortSet {
    let entries = list.iter().filter(|entry| {
        let traffic = &entry.traffic;
        let of_protocol = match traffic.protocol {
            model::Protocol::Any => true,
            model::Protocol::Number(number) => number == protocol_number(protocol, peer),
        };
        traffic.direction == direction
            && of_protocol
            && traffic.src_ports == Ports::Any
            && entry.targets().iter().any(|target| target.net().contains(&peer))
    });
    PortSet::new(entries.map(|entry| match entry.traffic.dst_ports {
        Ports::Any => (1, u16::MAX),
        Ports::Range { first, last } => (first, last),
    }))
}

/// IANA's number.
fn protocol_number(protocol: Protocol, peer: IpAddr) -> u8 {
    match protocol {
        Protocol::Icmp if peer.is_ipv6() => 58,
        Protocol::Icmp => 1,
        Protocol::Igmp => 2,
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}
