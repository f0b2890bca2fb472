//! Cutting connections that policies forbid by now.

use std::{collections::BTreeSet, net::IpAddr};

use node_policy::{Decision, L4, Packet, Plane};

use super::PolicyError;
use crate::{
    conntrack::{Connection, Conntrack, ConntrackError},
    link::Links,
};

/// Deletes them from the table of connections: the next packet of each is judged as the first of a new one. O(connections
/// of the namespace).
pub fn forbidden(plane: &Plane) -> Result<usize, PolicyError> {
    let own = own_addresses()?;
    let mut conntrack = Conntrack::open().map_err(|source| PolicyError::Cut(ConntrackError::Read(source)))?;
    let mut cut = 0;
    for ipv6 in [false, true] {
        cut += conntrack
            .delete_if(ipv6, |connection| is_forbidden(plane, &own, connection))
            .map_err(PolicyError::Cut)?;
    }
    Ok(cut)
}

/// The node's.
fn own_addresses() -> Result<BTreeSet<IpAddr>, PolicyError> {
    let addresses = Links::open().and_then(|mut links| links.addresses()).map_err(PolicyError::Addresses)?;
    Ok(addresses.into_iter().map(|(_, address)| address).collect())
}

fn is_forbidden(plane: &Plane, own: &BTreeSet<IpAddr>, connection: &Connection) -> bool {
    let (source, destination) = (connection.source, connection.answered_by);
    let l4 = L4 {
        protocol: connection.protocol,
        first: connection.source_port.unwrap_or_default(),
        second: connection.answering_port.unwrap_or_default(),
    };
    let packet = Packet { source, destination, l4 };
    let decision = match (own.contains(&source), own.contains(&destination)) {
        // Through the loopback interface.
        (true, true) => return false,
        (true, false) => plane.decide_output(&packet),
        (false, true) => plane.decide_input(&packet),
        (false, false) if !plane.restricts(source) && !plane.restricts(destination) => return false,
        (false, false) => plane.decide(&packet),
    };
    decision != Decision::Permit
}
