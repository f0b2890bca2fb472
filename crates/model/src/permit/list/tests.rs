//! What a list opens as a whole, against what its entries say of single packets.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{EntryName, open::Share};

/// A packet as one class sees it.
fn place(packet: &Packet, ipv6: bool) -> (ProtocolClass, u16, u16) {
    let class = ProtocolClass::of(packet.protocol, ipv6);
    match class {
        ProtocolClass::Icmp => (class, 8, 0),
        ProtocolClass::Other => (class, packet.protocol.into(), 0),
        _ => (class, packet.dst_port, packet.src_port),
    }
}

fn entry(text: (Direction, Protocol, Ports, Ports), targets: &[&str]) -> PermitEntry {
    let (direction, protocol, src_ports, dst_ports) = text;
    let traffic = Traffic::new(direction, protocol, src_ports, dst_ports).unwrap();
    let targets = targets.iter().map(|target| target.parse().unwrap()).collect();
    PermitEntry::new(EntryName::reported("x"), traffic, targets, BTreeSet::new()).unwrap()
}

fn ports() -> impl Strategy<Value = Ports> {
    prop_oneof![
        2 => Just(Ports::Any),
        3 => (1..30_u16, 0..5_u16).prop_map(|(first, more)| Ports::Range { first, last: first + more }),
    ]
}

fn entries() -> impl Strategy<Value = Vec<PermitEntry>> {
    let direction = prop_oneof![Just(Direction::Inbound), Just(Direction::Outbound)];
    let protocol = prop_oneof![
        Just(Protocol::Any),
        prop::sample::select(vec![1_u8, 2, 6, 6, 17, 47, 58, 132]).prop_map(Protocol::Number)
    ];
    let targets = prop::sample::subsequence(
        vec!["10.0.0.0/24", "10.0.0.7", "10.0.0.0/8", "2001:db8::/64", "2001:db8::7", "::/0"],
        1..4,
    );
    let one =
        (direction, protocol, ports(), ports(), targets).prop_map(|(direction, protocol, a, b, targets)| {
            let (a, b) = if protocol.has_ports() { (a, b) } else { (Ports::Any, Ports::Any) };
            entry((direction, protocol, a, b), &targets)
        });
    proptest::collection::vec(one, 0..8)
}

proptest! {
    #[test]
    fn a_list_opens_what_its_entries_permit(list in entries()) {
        for peer in ["10.0.0.7", "10.0.1.1", "192.0.2.1", "2001:db8::7", "2001:db8:1::1"] {
            let peer: IpAddr = peer.parse().unwrap();
            for direction in [Direction::Inbound, Direction::Outbound] {
                let open = permitted(&list, direction, peer.into());
                for protocol in [1, 2, 6, 17, 47, 58, 132] {
                    for (src_port, dst_port) in (0..36).flat_map(|a| [(a + 1, 7), (7, a + 1), (a + 1, a + 1)]) {
                        let packet = Packet { protocol, src_port, dst_port };
                        let permits = list.iter().any(|entry| entry.permits(direction, peer, &packet));
                        let (class, major, minor) = place(&packet, peer.is_ipv6());
                        prop_assert_eq!(open.of(class).contains(major, minor), permits, "{} {:?}", peer, packet);
                    }
                }
            }
        }
    }
}

/// A ping over IPv6 is another protocol, whichever way the rule names it.
#[test]
fn icmp_is_that_of_the_peers_family() {
    let of =
        |number: u8| entry((Direction::Inbound, Protocol::Number(number), Ports::Any, Ports::Any), &["::/0"]);
    for number in [1, 58] {
        let open = permitted([&of(number)], Direction::Inbound, "2001:db8::7".parse().unwrap());
        assert_eq!(open.of(ProtocolClass::Icmp).share(), Share::All, "{number}");
    }
}

#[test]
fn source_ports_are_told_and_not_guessed() {
    let (src_ports, dst_ports) = (Ports::Range { first: 40_000, last: 60_000 }, Ports::one(80));
    let one = entry((Direction::Inbound, Protocol::TCP, src_ports, dst_ports), &["10.0.0.0/8"]);
    let open = permitted([&one], Direction::Inbound, "10.1.1.1".parse().unwrap());
    assert_eq!(open.to_string(), "tcp 80 from 40000-60000");
    assert_eq!(open.of(ProtocolClass::Tcp).share_of(80), Share::Some);
}

/// A block is permitted where all of it is.
#[test]
fn a_part_of_a_peer_is_not_the_peer() {
    let one = entry((Direction::Outbound, Protocol::Any, Ports::Any, Ports::Any), &["10.3.0.0/24"]);
    let to = |peer: &str| permitted([&one], Direction::Outbound, peer.parse().unwrap());
    assert_eq!(to("10.3.0.0/16"), Open::none());
    assert_eq!(to("10.3.0.0/25"), Open::all());
}
