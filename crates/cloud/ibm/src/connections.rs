//! Links: a VPN connection per address of the peer, each with a tunnel from each of the gateway's two members.
//!
//! A connection always has two tunnels. Where the link has a tunnel between a member and an address, that tunnel has the
//! link's inside addresses; the others have addresses of their own, find nobody at the other end, and stay down.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use cloud_api::CloudError;
use model::{ConnectionSpec, ConnectionStatus, Site};

use crate::gateway::{Gateway, policies};
use crate::shapes::{
    ConnectionRequest, Ip, KeyPatch, Peer, Probing, ShownTunnel, Tunnel, VpnConnection, VpnGateway,
};
use crate::{Collection, Ground, Groups, Result, Vpcs, reports};

/// Connections of one gateway.
const MOST: usize = 10;
/// Inside addresses of links are below this in 169.254.0.0/16; those of tunnels that lead nowhere are above.
const NOWHERE: u8 = 128;

/// The inside addresses of a tunnel: ours and the peer's.
type Inside = (Ipv4Addr, Ipv4Addr);

impl Tunnel {
    fn between((ours, theirs): Inside) -> Self {
        let ip = |address: Ipv4Addr| Ip { address: address.into() };
        Self { tunnel_interface_ip: ip(ours), neighbor_ip: ip(theirs) }
    }
}

/// Of a tunnel that leads nowhere: as unlike any other as the tunnel beside it.
fn nowhere((ours, theirs): Inside) -> Inside {
    let moved = |address: Ipv4Addr| {
        let [a, b, c, d] = address.octets();
        Ipv4Addr::from([a, b, c | NOWHERE, d])
    };
    (moved(ours), moved(theirs))
}

fn leads_nowhere(tunnel: &ShownTunnel) -> bool {
    matches!(tunnel.tunnel_interface_ip, Some(Ip { address: IpAddr::V4(inside) }) if inside.octets()[2] >= NOWHERE)
}

/// The tunnels of each connection, by the peer's address, in the order of the gateway's members. Pure.
fn tunnels(spec: &ConnectionSpec, members: usize) -> Result<BTreeMap<IpAddr, Vec<Inside>>> {
    // The same order as in the gateway's state.
    let member_of = |number: usize| [0, 1, 1, 0][number % 4];
    let mut found: BTreeMap<IpAddr, Vec<Option<Inside>>> = BTreeMap::new();
    for (number, inside) in spec.local_bgp.iter().copied().zip(spec.peer_bgp.iter().copied()).enumerate() {
        let Some(peer) = spec.peer_addresses.get(number) else { continue };
        if inside.0.octets()[2] >= NOWHERE || inside.1.octets()[2] >= NOWHERE {
            return Err(CloudError::invalid(format!(
                "the inside addresses {} and {} are above 169.254.{NOWHERE}.0, which the IBM Cloud plugin keeps",
                inside.0, inside.1
            )));
        }
        let slots = found.entry(*peer).or_insert_with(|| vec![None; members]);
        match slots.get_mut(member_of(number)) {
            Some(slot @ None) => *slot = Some(inside),
            _ => {
                return Err(CloudError::invalid(format!(
                    "two tunnels of the link to {} would be between the same two addresses",
                    spec.peer
                )));
            }
        }
    }
    let fill = |slots: Vec<Option<Inside>>| -> Option<Vec<Inside>> {
        let real = slots.iter().flatten().next().copied()?;
        Some(slots.into_iter().map(|slot| slot.unwrap_or_else(|| nowhere(real))).collect())
    };
    Ok(found.into_iter().filter_map(|(peer, slots)| Some((peer, fill(slots)?))).collect())
}

/// Whether a connection is the one that is asked for, its key aside.
fn same(there: &VpnConnection, wanted: &ConnectionRequest) -> bool {
    let inside = |tunnel: &ShownTunnel| tunnel.tunnel_interface_ip.zip(tunnel.neighbor_ip);
    let asked = |tunnel: &Tunnel| Some((tunnel.tunnel_interface_ip, tunnel.neighbor_ip));
    there.name == wanted.name
        && there.peer.address == Some(wanted.peer.address)
        && there.peer.asn == Some(wanted.peer.asn)
        && there.admin_state_up
        && there.tunnels.iter().map(inside).eq(wanted.tunnels.iter().map(asked))
}

/// The connections of a gateway.
fn all<'g>(ground: &'g Ground, gateway: &'g Gateway) -> Collection<'g, VpnConnection> {
    ground.api.in_region(&gateway.region).of::<VpnGateway>(&gateway.shown.id)
}

async fn list_to(ground: &Ground, gateway: &Gateway, peer: &Site) -> Result<Vec<VpnConnection>> {
    let (mut found, prefix) = (all(ground, gateway).list().await?, ground.names.connections(peer));
    found.retain(|one| one.name.starts_with(&prefix));
    Ok(found)
}

pub(crate) async fn connect(ground: &Ground, spec: &ConnectionSpec) -> Result {
    let _turn = ground.turns.take(&format!("connections {}", ground.site)).await;
    let none = || CloudError::conflict(format!("{} has no gateway", ground.site));
    let (vpc, gateway) = Gateway::find(ground).await?.ok_or_else(none)?;
    let tunnels = tunnels(spec, gateway.shown.members.len())?;
    let connections = all(ground, &gateway);
    let prefix = ground.names.connections(&spec.peer);
    let (there, others): (Vec<_>, Vec<_>) =
        connections.list().await?.into_iter().partition(|one| one.name.starts_with(&prefix));
    if others.len() + tunnels.len() > MOST {
        return Err(CloudError::conflict(format!(
            "the gateway of {} has {} connections and would need {} more; IBM Cloud gives a gateway {MOST}",
            ground.site,
            others.len(),
            tunnels.len()
        )));
    }
    let groups = Groups::read(ground, &vpc).await?;
    if !groups.links().contains(&spec.peer) {
        groups.note_down(ground.names.link_note(&spec.peer), "a link", &spec.peer.to_string()).await?;
    }
    let (ike_policy, ipsec_policy) = policies(ground, &gateway.region).await?;
    let request = |(number, (peer, inside)): (usize, (&IpAddr, &Vec<Inside>))| ConnectionRequest {
        name: format!("{prefix}{number}"),
        psk: spec.shared_key.expose().to_owned(),
        peer: Peer { address: *peer, asn: spec.peer_asn },
        routing_protocol: "bgp",
        tunnels: inside.iter().copied().map(Tunnel::between).collect(),
        ike_policy: ike_policy.clone(),
        ipsec_policy: ipsec_policy.clone(),
        establish_mode: "bidirectional",
        dead_peer_detection: Probing { action: "restart", interval: 10, timeout: 30 },
    };
    let wanted: Vec<ConnectionRequest> = tunnels.iter().enumerate().map(request).collect();
    // What cannot be changed in place goes first: a name is free only then.
    for old in &there {
        match wanted.iter().find(|new| same(old, new)) {
            None => connections.remove(&old.id).await?,
            Some(new) if new.psk != old.psk => {
                connections.update(&old.id, &KeyPatch { psk: &new.psk }).await?;
            }
            Some(_) => {}
        }
    }
    for new in wanted.iter().filter(|new| !there.iter().any(|old| same(old, new))) {
        connections.ensure(None, new).await?;
    }
    Ok(())
}

pub(crate) async fn disconnect(ground: &Ground, peer: &Site) -> Result {
    let _turn = ground.turns.take(&format!("connections {}", ground.site)).await;
    let Some(vpc) = Vpcs::read(ground).await?.gateway else { return Ok(()) };
    if let Some(gateway) = Gateway::find_in(ground, Some(&vpc)).await? {
        let there = list_to(ground, &gateway, peer).await?;
        all(ground, &gateway).remove_all(there.iter().map(|one| one.id.as_str())).await?;
    }
    let groups = Groups::read(ground, &vpc).await?;
    groups.forget(groups.named(&ground.names.link_note(peer))).await
}

pub(crate) async fn status(ground: &Ground, peer: &Site) -> Result<ConnectionStatus> {
    let missing = || CloudError::not_found(format!("{} has no connection to {peer}", ground.site));
    let (_, gateway) = Gateway::find(ground).await?.ok_or_else(missing)?;
    let there = list_to(ground, &gateway, peer).await?;
    let tunnels = there.iter().flat_map(|one| &one.tunnels).filter(|tunnel| !leads_nowhere(tunnel));
    let tunnels: Vec<&ShownTunnel> = tunnels.collect();
    let count = |is: &dyn Fn(&ShownTunnel) -> bool| {
        u32::try_from(tunnels.iter().filter(|tunnel| is(tunnel)).count()).unwrap_or(u32::MAX)
    };
    let bgp_established = count(&|tunnel| tunnel.protocol_state.as_deref() == Some("established"));
    let routes = match there.iter().find_map(|one| one.peer.asn) {
        // Without the report the rest is still true, and worth more.
        Some(asn) if bgp_established > 0 => reports::learnt(ground, asn).await.unwrap_or_default(),
        _ => Vec::new(),
    };
    Ok(ConnectionStatus {
        tunnels: count(&|_| true),
        tunnels_up: count(&|tunnel| tunnel.status == "up"),
        bgp_established,
        routes,
        ..ConnectionStatus::default()
    })
}

#[cfg(test)]
mod tests {
    use model::Secret;

    use super::*;

    fn spec(peers: &[&str], count: u8) -> ConnectionSpec {
        let inside = |host: u8| (0..count).map(|n| [169, 254, 21, 4 * n + host].into()).collect::<Vec<_>>();
        ConnectionSpec {
            bgp: true,
            site: "ns.ibm".parse().unwrap(),
            peer: "ns.gcp".parse().unwrap(),
            peer_asn: 64_999,
            peer_addresses: peers
                .iter()
                .cycle()
                .take(count.into())
                .map(|text| text.parse().unwrap())
                .collect(),
            local_bgp: inside(2),
            peer_bgp: inside(1),
            peer_spaces: vec![],
            shared_key: Secret::new("k"),
        }
    }

    fn shown(spec: &ConnectionSpec) -> Vec<Vec<String>> {
        let found = tunnels(spec, 2).unwrap();
        found.values().map(|list| list.iter().map(|(ours, _)| ours.to_string()).collect()).collect()
    }

    #[test]
    fn tunnels_belong_to_members_and_addresses() {
        // Two addresses, four tunnels: a full mesh.
        assert_eq!(
            shown(&spec(&["34.0.0.1", "34.0.0.2"], 4)),
            [["169.254.21.2", "169.254.21.10"], ["169.254.21.14", "169.254.21.6"]]
        );
        // Four addresses, as AWS has: a connection each, half of it used.
        let aws = shown(&spec(&["34.0.0.1", "34.0.0.2", "34.0.0.3", "34.0.0.4"], 4));
        assert_eq!(aws.len(), 4);
        assert_eq!(aws[0], ["169.254.21.2", "169.254.149.2"]);
        assert_eq!(aws[2], ["169.254.149.10", "169.254.21.10"]);
        // One address, two tunnels: one connection.
        assert_eq!(shown(&spec(&["34.0.0.1"], 2)), [["169.254.21.2", "169.254.21.6"]]);
        let all: Vec<String> = aws.into_iter().flatten().collect();
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 8, "no address twice");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(
            tunnels(&spec(&["34.0.0.1"], 4), 2).is_err(),
            "four tunnels between two members and one address"
        );
        let mut high = spec(&["34.0.0.1"], 2);
        high.local_bgp[0] = [169, 254, 200, 1].into();
        assert!(tunnels(&high, 2).is_err());
    }
}
