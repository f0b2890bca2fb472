//! The evaluator of permit lists: what a list lets through. `explain`, the matrix and the fake cloud ask here, and what
//! the Linux cloud gives the kernel is held against it.
//!
//! A list permits what any of its entries permits. An entry permits what is of its protocol and ports with a peer among
//! its targets; `icmp` is ICMP of the peer's family.

use std::net::IpAddr;

use super::{Direction, Packet, PermitEntry, Ports, Protocol, Traffic};
use crate::{
    Address, ProtocolClass,
    open::{Open, Openings, Rectangle},
    protocol,
};

impl Traffic {
    /// Whether a packet that opens a connection between addresses of one family is meant, its peer aside.
    pub fn covers(&self, direction: Direction, ipv6: bool, packet: &Packet) -> bool {
        let of_protocol = match self.protocol {
            Protocol::Any => true,
            Protocol::Number(number) => protocol::in_family(number, ipv6) == packet.protocol,
        };
        self.direction == direction
            && of_protocol
            && self.src_ports.contains(packet.src_port)
            && self.dst_ports.contains(packet.dst_port)
    }
}

impl PermitEntry {
    /// Whether the entry lets a connection with this peer be opened in this direction.
    pub fn permits(&self, direction: Direction, peer: IpAddr, packet: &Packet) -> bool {
        self.traffic.covers(direction, peer.is_ipv6(), packet) && self.is_about(peer.into())
    }

    /// Whether all of a peer is in one of the targets.
    pub fn is_about(&self, peer: Address) -> bool {
        self.targets().iter().any(|target| target.net().contains(&peer.net()))
    }
}

/// What entries open to or from a peer of one family, given that they are about the peer and the direction.
pub fn open<'a>(entries: impl IntoIterator<Item = &'a PermitEntry>, ipv6: bool) -> Open {
    let mut of: [Vec<Rectangle>; 5] = Default::default();
    for traffic in entries.into_iter().map(|entry| &entry.traffic) {
        match traffic.protocol {
            Protocol::Any => {
                ProtocolClass::ALL.iter().for_each(|class| of[*class as usize].push(Openings::every(*class)));
            }
            Protocol::Number(number) => {
                let number = protocol::in_family(number, ipv6);
                let class = ProtocolClass::of(number, ipv6);
                of[class as usize].push(rectangle(class, number, traffic));
            }
        }
    }
    Open::new(|class| Openings::new(class, std::mem::take(&mut of[class as usize])))
}

fn rectangle(class: ProtocolClass, number: u8, traffic: &Traffic) -> Rectangle {
    let range = |ports: Ports| match ports {
        Ports::Any => (0, u16::MAX),
        Ports::Range { first, last } => (first, last),
    };
    match class {
        ProtocolClass::Tcp | ProtocolClass::Udp | ProtocolClass::Sctp => {
            (range(traffic.dst_ports), range(traffic.src_ports))
        }
        ProtocolClass::Icmp => Openings::every(class),
        ProtocolClass::Other => {
            let is_whole = (traffic.src_ports, traffic.dst_ports) == (Ports::Any, Ports::Any);
            ((number.into(), number.into()), (u16::from(!is_whole), 1))
        }
    }
}

/// What a list opens to or from all of a peer.
pub fn permitted<'a>(
    list: impl IntoIterator<Item = &'a PermitEntry>,
    direction: Direction,
    peer: Address,
) -> Open {
    let meant = |entry: &&PermitEntry| entry.traffic.direction == direction && entry.is_about(peer);
    open(list.into_iter().filter(meant), peer.net().addr().is_ipv6())
}

#[cfg(test)]
mod tests;
