//! Cutting connections that policies forbid by now.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use node_policy::{Decision, L4, Packet, Passage, Plane};

use super::PolicyError;
use crate::{
    conntrack::{Connection, Conntrack, ConntrackError},
    link::Links,
    netlink::NetlinkError,
};

/// Deletes them from the table of connections: the next packet of each is judged as the first of a new one. O(connections
/// of the namespace), and a question about routes for each end of those that the node forwards and might not.
pub fn forbidden(plane: &Plane) -> Result<usize, PolicyError> {
    let mut surroundings = Surroundings::open(plane).map_err(PolicyError::Addresses)?;
    let mut conntrack = Conntrack::open().map_err(|source| PolicyError::Cut(ConntrackError::Read(source)))?;
    let mut cut = 0;
    for ipv6 in [false, true] {
        cut += conntrack
            .delete_if(ipv6, |connection| is_forbidden(plane, &mut surroundings, connection))
            .map_err(PolicyError::Cut)?;
    }
    Ok(cut)
}

fn is_forbidden(plane: &Plane, around: &mut Surroundings, connection: &Connection) -> bool {
    let (source, destination) = (connection.source, connection.answered_by);
    let l4 = L4 {
        protocol: connection.protocol,
        first: connection.source_port.unwrap_or_default(),
        second: connection.answering_port.unwrap_or_default(),
    };
    let packet = Packet { source, destination, l4 };
    let decision = match (around.own.contains(&source), around.own.contains(&destination)) {
        // Through the loopback interface.
        (true, true) => return false,
        (true, false) => plane.decide_output(&packet),
        (false, true) => plane.decide_input(&packet),
        (false, false) if plane.host_restricted() == (false, false) => plane.decide(&packet),
        (false, false) => forwarded(plane, around, connection, &packet),
    };
    decision != Decision::Permit
}

fn forwarded(plane: &Plane, around: &mut Surroundings, connection: &Connection, packet: &Packet) -> Decision {
    let across = connection.published().map_or(Passage::Routed, Passage::Published);
    let hidden = if connection.is_hidden() { plane.decide_hidden(packet) } else { Decision::Permit };
    // Ends within the node only ever permit more: the kernel is asked where they may matter.
    if plane.decide_forwarded(packet, across) == Decision::Permit && hidden == Decision::Permit {
        return Decision::Permit;
    }
    let goes_in = around.is_inner(packet.destination);
    let is_from_within = plane.is_local(packet.source) || around.is_inner(packet.source);
    let is_inner = is_from_within || goes_in && across == Passage::Routed;
    match plane.decide_forwarded(packet, if is_inner { Passage::Inner } else { across }) {
        Decision::Permit if !goes_in => hidden,
        decided => decided,
    }
}

/// What tells whom the node stands between.
struct Surroundings {
    /// The node's addresses.
    own: BTreeSet<IpAddr>,
    /// Links to what lives within the node.
    inner: BTreeSet<u32>,
    links: Links,
    asked: BTreeMap<IpAddr, bool>,
}

impl Surroundings {
    fn open(plane: &Plane) -> Result<Self, NetlinkError> {
        let mut links = Links::open()?;
        let own = links.addresses()?.into_iter().map(|(_, address)| address).collect();
        let prefixes = &plane.options().inner_prefixes;
        let is_inner = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let inner = links.list()?.into_iter().filter(|link| is_inner(&link.name)).map(|link| link.index);
        Ok(Self { own, inner: inner.collect(), links, asked: BTreeMap::new() })
    }

    /// Whether the way to an address leads over an inner link. Where that cannot be told it does not: what was cut for nothing is
    /// judged by its next packet.
    fn is_inner(&mut self, address: IpAddr) -> bool {
        let (links, inner) = (&mut self.links, &self.inner);
        *self.asked.entry(address).or_insert_with(|| {
            links.way_to(address).is_ok_and(|way| way.is_some_and(|link| inner.contains(&link)))
        })
    }
}
