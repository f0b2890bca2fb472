//! The wire between fake clouds: what would get through, given what they were told to make.

use model::{Direction, NetworkName, Packet, PeeringName, ResourceName};

use super::FakeCloud;

/// Whether a packet that opens a connection gets from one resource to another.
pub fn reaches(clouds: &[&FakeCloud], from: &ResourceName, to: &ResourceName, packet: &Packet) -> bool {
    let place = |name: &ResourceName| {
        let cloud = clouds.iter().find(|cloud| cloud.name == name.cloud)?;
        let inner = cloud.inner.lock();
        inner
            .state
            .resources
            .get(name)
            // Some address of a cluster stands for all.
            .map(|resource| (resource.network.clone(), resource.address.network(), resource.permit.clone()))
    };
    let (Some((a_network, a, a_permit)), Some((b_network, b, b_permit))) = (place(from), place(to)) else {
        return false;
    };
    is_joined(clouds, &a_network, &b_network)
        && a_permit.values().any(|entry| entry.permits(Direction::Outbound, b.into(), packet))
        && b_permit.values().any(|entry| entry.permits(Direction::Inbound, a.into(), packet))
}

fn is_joined(clouds: &[&FakeCloud], a: &NetworkName, b: &NetworkName) -> bool {
    if a == b {
        return true;
    }
    match PeeringName::new(a.clone(), b.clone()) {
        Ok(peering) => clouds.iter().any(|cloud| cloud.inner.lock().state.peerings.contains(&peering)),
        Err(_) => has_tunnel(clouds, a, b),
    }
}

/// Both ends must be made, know each other's gateway, agree on the key, and face each other's BGP addresses.
fn has_tunnel(clouds: &[&FakeCloud], a: &NetworkName, b: &NetworkName) -> bool {
    let end = |at: &NetworkName, peer: &NetworkName| {
        let cloud = clouds.iter().find(|cloud| cloud.name == at.site.cloud)?;
        let inner = cloud.inner.lock();
        let spec = inner.state.connections.get(&(at.site.clone(), peer.site.clone()))?.clone();
        Some((spec, inner.state.gateways.get(&at.site)?.clone()))
    };
    let (Some((a_spec, a_gateway)), Some((b_spec, b_gateway))) = (end(a, b), end(b, a)) else { return false };
    a_spec.shared_key == b_spec.shared_key
        && a_spec.peer_asn == b_gateway.asn
        && b_spec.peer_asn == a_gateway.asn
        && a_spec.peer_addresses == b_gateway.addresses
        && b_spec.peer_addresses == a_gateway.addresses
        && a_spec.local_bgp == b_spec.peer_bgp
        && a_spec.peer_bgp == b_spec.local_bgp
        && !a_spec.local_bgp.is_empty()
}
