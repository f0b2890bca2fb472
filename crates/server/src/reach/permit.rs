//! Permit lists, asked which ports they open.

use model::{Address, Direction, PermitEntry, Ports, policy::output::Protocol};
use policy::explain::PortSet;

/// The ports that a permit list opens to or from all of a peer, whatever port the connection comes from.
pub fn permitted(list: &[PermitEntry], direction: Direction, peer: Address, protocol: Protocol) -> PortSet {
    let entries = list.iter().filter(|entry| {
        let traffic = &entry.traffic;
        let of_protocol = match traffic.protocol {
            model::Protocol::Any => true,
            model::Protocol::Number(number) => number == protocol_number(protocol, peer),
        };
        traffic.direction == direction
            && of_protocol
            && traffic.src_ports == Ports::Any
            && entry.targets().iter().any(|target| target.net().contains(&peer.net()))
    });
    PortSet::new(entries.map(|entry| match entry.traffic.dst_ports {
        Ports::Any => (1, u16::MAX),
        Ports::Range { first, last } => (first, last),
    }))
}

/// IANA's number.
fn protocol_number(protocol: Protocol, peer: Address) -> u8 {
    match protocol {
        Protocol::Icmp if peer.net().addr().is_ipv6() => 58,
        Protocol::Icmp => 1,
        Protocol::Igmp => 2,
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}
