//! Regions of traffic: who is at the other end, and which packets. What is left of one without another.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use model::{Address, Ports, Protocol, protocol};

/// What "any protocol" is cut into when only a part of it is left: the protocols rules speak of. The others are
/// closed then, which errs on the safe side.
const CUT: [u8; 5] = protocol::NAMED;

/// The packets of a region, its peers aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match {
    pub protocol: Protocol,
    pub src_ports: Ports,
    pub dst_ports: Ports,
}

impl Match {
    pub const ANY: Self = Self { protocol: Protocol::Any, src_ports: Ports::Any, dst_ports: Ports::Any };

    pub fn protocol(protocol: Protocol) -> Self {
        Self { protocol, ..Self::ANY }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub peers: BTreeSet<Address>,
    pub packets: Match,
}

impl Region {
    /// What is left of the region without another: at most five regions, ten if it was of any protocol.
    /// Peers that the other does not touch stay as they are written.
    pub fn without(&self, other: &Self) -> Vec<Self> {
        let (mine, theirs) = (self.packets, other.packets);
        if theirs.protocol != Protocol::Any && mine.protocol == Protocol::Any {
            let cut = CUT.iter().map(|number| Protocol::Number(*number));
            let cut = cut.flat_map(|protocol| self.of(Match { protocol, ..mine }).by_family());
            return cut.flat_map(|region| region.without(other)).collect();
        }
        if theirs.protocol != Protocol::Any && theirs.protocol != mine.protocol {
            return vec![self.clone()];
        }
        let src_ports = common(mine.src_ports, theirs.src_ports);
        let (Some(src_ports), Some(_)) = (src_ports, common(mine.dst_ports, theirs.dst_ports)) else {
            return vec![self.clone()];
        };
        let (outside, inside) = split(&self.peers, &other.peers);
        if inside.is_empty() {
            return vec![self.clone()];
        }
        let mut left = vec![Self { peers: outside, packets: mine }];
        let inside = |packets| Self { peers: inside.clone(), packets };
        let rest = outside_of(mine.src_ports, theirs.src_ports);
        left.extend(rest.map(|src_ports| inside(Match { src_ports, ..mine })));
        let rest = outside_of(mine.dst_ports, theirs.dst_ports);
        left.extend(rest.map(|dst_ports| inside(Match { src_ports, dst_ports, ..mine })));
        left.retain(|region| !region.peers.is_empty());
        left
    }

    /// The same, where no protocol stands for another: `icmp` with peers of IPv6 is ICMPv6.
    pub fn by_family(self) -> Vec<Self> {
        let Self { peers, packets } = self;
        if packets.protocol != Protocol::ICMP {
            return vec![Self { peers, packets }];
        }
        let (six, four): (BTreeSet<_>, _) = peers.into_iter().partition(|peer| peer.net().addr().is_ipv6());
        let parts = [(four, packets), (six, Match { protocol: Protocol::ICMPV6, ..packets })];
        parts
            .into_iter()
            .filter(|(peers, _)| !peers.is_empty())
            .map(|(peers, packets)| Self { peers, packets })
            .collect()
    }

    fn of(&self, packets: Match) -> Self {
        Self { peers: self.peers.clone(), packets }
    }

    /// Whether a packet with this peer is in the region.
    pub fn covers(&self, peer: IpAddr, packet: &model::Packet) -> bool {
        let of_protocol = match self.packets.protocol {
            Protocol::Any => true,
            Protocol::Number(number) => protocol::in_family(number, peer.is_ipv6()) == packet.protocol,
        };
        of_protocol
            && self.packets.src_ports.contains(packet.src_port)
            && self.packets.dst_ports.contains(packet.dst_port)
            && self.peers.iter().any(|address| address.net().contains(&peer))
    }
}

fn range(ports: Ports) -> (u16, u16) {
    match ports {
        Ports::Any => (0, u16::MAX),
        Ports::Range { first, last } => (first, last),
    }
}

fn ports(first: u16, last: u16) -> Ports {
    if (first, last) == (0, u16::MAX) { Ports::Any } else { Ports::Range { first, last } }
}

fn common(a: Ports, b: Ports) -> Option<Ports> {
    let ((a, b), (c, d)) = (range(a), range(b));
    let (first, last) = (a.max(c), b.min(d));
    (first <= last).then(|| ports(first, last))
}

/// The ports of `a` that are not in `b`.
fn outside_of(a: Ports, b: Ports) -> impl Iterator<Item = Ports> {
    let ((first, last), (from, to)) = (range(a), range(b));
    let before = (first < from).then(|| ports(first, last.min(from - 1)));
    let after = (to < last).then(|| ports(first.max(to + 1), last));
    before.into_iter().chain(after)
}

/// First and last address of a family, as numbers.
type Interval = (u128, u128);

/// The parts of `peers` outside and inside of `others`.
fn split(peers: &BTreeSet<Address>, others: &BTreeSet<Address>) -> (BTreeSet<Address>, BTreeSet<Address>) {
    let merged = [true, false].map(|v4| merged(others, v4));
    let (mut outside, mut inside) = (BTreeSet::new(), BTreeSet::new());
    for peer in peers {
        let (v4, (first, last)) = interval(*peer);
        let cuts = &merged[usize::from(!v4)];
        let start = cuts.partition_point(|(_, end)| *end < first);
        let mut overlapping = cuts[start..].iter().take_while(|(begin, _)| *begin <= last).peekable();
        match overlapping.peek() {
            None => {
                outside.insert(*peer);
                continue;
            }
            Some((begin, end)) if *begin <= first && *end >= last => {
                inside.insert(*peer);
                continue;
            }
            Some(_) => {}
        }
        let mut next = Some(first);
        for (begin, end) in overlapping {
            let at = next.expect("a cut that reaches the end is the last");
            if at < *begin {
                outside.extend(prefixes(v4, (at, begin - 1)));
            }
            inside.extend(prefixes(v4, (at.max(*begin), last.min(*end))));
            next = end.checked_add(1).filter(|next| *next <= last);
        }
        if let Some(at) = next {
            outside.extend(prefixes(v4, (at, last)));
        }
    }
    (outside, inside)
}

fn interval(address: Address) -> (bool, Interval) {
    match address.net() {
        IpNet::V4(net) => (true, (u32::from(net.network()).into(), u32::from(net.broadcast()).into())),
        IpNet::V6(net) => (false, (net.network().into(), net.broadcast().into())),
    }
}

/// The addresses of one family as intervals that neither touch nor overlap, ascending.
fn merged(addresses: &BTreeSet<Address>, v4: bool) -> Vec<Interval> {
    let mut all: Vec<Interval> = addresses
        .iter()
        .map(|address| interval(*address))
        .filter_map(|(family, interval)| (family == v4).then_some(interval))
        .collect();
    all.sort_unstable();
    let mut merged: Vec<Interval> = Vec::new();
    for (begin, end) in all {
        match merged.last_mut() {
            Some((_, last)) if begin <= last.saturating_add(1) => *last = end.max(*last),
            _ => merged.push((begin, end)),
        }
    }
    merged
}

/// The fewest prefixes that make up an interval.
fn prefixes(v4: bool, (first, last): Interval) -> Vec<Address> {
    let small = |number: u128| Ipv4Addr::from(u32::try_from(number).expect("it came from an IPv4 address"));
    let nets: Vec<IpNet> = match v4 {
        true => Ipv4Subnets::new(small(first), small(last), 0).map(IpNet::from).collect(),
        false => Ipv6Subnets::new(Ipv6Addr::from(first), Ipv6Addr::from(last), 0).map(IpNet::from).collect(),
    };
    nets.into_iter().map(Address::from).collect()
}
