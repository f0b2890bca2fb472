//! Links: an external gateway with the peer's addresses, a tunnel per address, and a session per tunnel on the router.

use std::net::IpAddr;

use cloud_api::CloudError;
use futures::future::try_join_all;
use model::{ConnectionSpec, ConnectionStatus, Site};

use crate::{
    gateway::{self, Gateway},
    ground::{Ground, Result},
    link::Place,
    mark::Mark,
    names::hash,
    shapes::{
        BgpPeer, ExternalGateway, ExternalInterface, Router, RouterInterface, RouterStatus, Sessions, Tunnel,
    },
};

/// The peer's addresses, each once, in the order of the tunnels.
fn distinct(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for address in addresses {
        if !found.contains(address) {
            found.push(*address);
        }
    }
    found
}

fn redundancy(count: usize) -> Result<&'static str> {
    match count {
        1 => Ok("SINGLE_IP_INTERNALLY_REDUNDANT"),
        2 => Ok("TWO_IPS_REDUNDANCY"),
        4 => Ok("FOUR_IPS_REDUNDANCY"),
        _ => Err(CloudError::invalid(format!(
            "a peer of a Google VPN gateway has one, two or four addresses, not {count}"
        ))),
    }
}

/// The external gateway of a link, for the peer's addresses.
fn external(ground: &Ground, spec: &ConnectionSpec) -> Result<ExternalGateway> {
    let peers = distinct(&spec.peer_addresses);
    let texts: Vec<String> = peers.iter().map(ToString::to_string).collect();
    let interfaces = peers.iter().enumerate();
    Ok(ExternalGateway {
        name: ground.names.external(&spec.peer, &texts.join(" ")),
        description: Mark { peer: Some(spec.peer.clone()), ..ground.names.mark() }.into(),
        redundancy_type: redundancy(peers.len())?,
        interfaces: interfaces
            .map(|(id, &ip_address)| ExternalInterface { id, ip_address: Some(ip_address) })
            .collect(),
    })
}

/// The tunnels of a link that should be.
fn tunnels(ground: &Ground, gateway: &Gateway, spec: &ConnectionSpec, external: &str) -> Vec<Tunnel> {
    let (names, place) = (&ground.names, ground.region(&gateway.region));
    let peers = distinct(&spec.peer_addresses);
    let key = hash(&format!("{}/{}", spec.shared_key.expose(), external), 16);
    let mark = Mark { peer: Some(spec.peer.clone()), key: Some(key), ..names.mark() };
    let tunnel = |(number, address): (usize, &IpAddr)| Tunnel {
        name: names.tunnel(&spec.peer, number),
        description: mark.clone().into(),
        vpn_gateway: place.object(&names.gateway()),
        vpn_gateway_interface: number % gateway.state.addresses.len().max(1),
        peer_external_gateway: ground.global().object(external),
        peer_external_gateway_interface: peers.iter().position(|peer| peer == address).unwrap_or_default(),
        router: place.object(&names.router()),
        ike_version: 2,
        shared_secret: Some(spec.shared_key.clone()),
        ..Tunnel::default()
    };
    spec.peer_addresses.iter().take(spec.local_bgp.len()).enumerate().map(tunnel).collect()
}

/// The router's interface and BGP peer of a tunnel.
fn session(spec: &ConnectionSpec, place: &Place, number: usize, name: &str) -> (RouterInterface, BgpPeer) {
    let interface = RouterInterface {
        name: name.to_owned(),
        linked_vpn_tunnel: Some(place.object::<Tunnel>(name).to_string()),
        ip_range: Some(format!("{}/30", spec.local_bgp[number])),
        ..RouterInterface::default()
    };
    let peer = BgpPeer {
        name: name.to_owned(),
        interface_name: Some(name.to_owned()),
        peer_ip_address: Some(spec.peer_bgp[number].to_string()),
        peer_asn: Some(spec.peer_asn),
        ..BgpPeer::default()
    };
    (interface, peer)
}

pub(crate) async fn connect(ground: &Ground, spec: &ConnectionSpec) -> Result {
    let external = external(ground, spec)?;
    let _turn = ground.router_turn().await;
    let gateway = gateway::need(ground).await?;
    let place = ground.region(&gateway.region);
    let wanted = tunnels(ground, &gateway, spec, &external.name);
    let there = tunnels_to(ground, &place, &spec.peer).await?;
    // A tunnel's key and peer cannot be changed; such a tunnel is made anew.
    let is_same = |a: &Tunnel, b: &Tunnel| a.name == b.name && a.description == b.description;
    let is_in = |all: &[Tunnel], one: &Tunnel| all.iter().any(|other| is_same(other, one));
    let stale: Vec<&Tunnel> = there.iter().filter(|tunnel| !is_in(&wanted, tunnel)).collect();
    if !stale.is_empty() {
        set_sessions(ground, &place, &spec.peer, Vec::new()).await?;
        delete_tunnels(ground, &place, stale).await?;
    }
    ground.ensure(&ground.global(), &external).await?;
    let missing = wanted.iter().filter(|tunnel| !is_in(&there, tunnel));
    try_join_all(missing.map(|tunnel| ground.compute().insert(&place, tunnel))).await?;
    let numbered = wanted.iter().enumerate();
    let sessions = numbered.map(|(number, tunnel)| session(spec, &place, number, &tunnel.name)).collect();
    set_sessions(ground, &place, &spec.peer, sessions).await?;
    remove_externals(ground, &spec.peer, Some(&external.name)).await
}

/// Replaces the sessions of one peer on the router. Whoever calls this holds the router's turn.
async fn set_sessions(
    ground: &Ground,
    place: &Place,
    peer: &Site,
    sessions: Vec<(RouterInterface, BgpPeer)>,
) -> Result {
    let link = place.object::<Router>(&ground.names.router());
    let Some(router) = ground.get(&link).await? else { return Ok(()) };
    let ours = ground.names.tunnels(peer);
    let (old_interfaces, mut interfaces): (Vec<_>, Vec<_>) =
        router.interfaces.into_iter().partition(|one| one.name.starts_with(&ours));
    let (old_peers, mut bgp_peers): (Vec<_>, Vec<_>) =
        router.bgp_peers.into_iter().partition(|one| one.name.starts_with(&ours));
    let (new_interfaces, new_peers): (Vec<_>, Vec<_>) = sessions.into_iter().unzip();
    let same_interfaces =
        is_same_set(&old_interfaces, &new_interfaces, |a, b| a.name == b.name && a.ip_range == b.ip_range);
    let same_peers = is_same_set(&old_peers, &new_peers, |a, b| {
        a.name == b.name && a.peer_ip_address == b.peer_ip_address && a.peer_asn == b.peer_asn
    });
    if same_interfaces && same_peers {
        return Ok(());
    }
    interfaces.extend(new_interfaces);
    bgp_peers.extend(new_peers);
    Ok(ground.compute().patch(&link, &Sessions { interfaces, bgp_peers }).await?)
}

fn is_same_set<T>(old: &[T], new: &[T], is_same: impl Fn(&T, &T) -> bool) -> bool {
    old.len() == new.len() && new.iter().all(|new| old.iter().any(|old| is_same(old, new)))
}

async fn tunnels_to(ground: &Ground, place: &Place, peer: &Site) -> Result<Vec<Tunnel>> {
    let mut found: Vec<Tunnel> = ground.compute().list(place, &ground.names.tunnels(peer)).await?;
    found.retain(|tunnel| ground.owns(&tunnel.description));
    Ok(found)
}

/// All at once.
async fn delete_tunnels(
    ground: &Ground,
    place: &Place,
    tunnels: impl IntoIterator<Item = &Tunnel>,
) -> Result {
    let links: Vec<_> = tunnels.into_iter().map(|tunnel| place.object::<Tunnel>(&tunnel.name)).collect();
    try_join_all(links.iter().map(|link| ground.delete(link))).await.map(drop)
}

async fn remove_externals(ground: &Ground, peer: &Site, kept: Option<&str>) -> Result {
    let (global, prefix) = (ground.global(), ground.names.externals(peer));
    let found: Vec<ExternalGateway> = ground.compute().list(&global, &prefix).await?;
    let ours = found.iter().filter(|one| ground.owns(&one.description));
    for external in ours.filter(|one| kept != Some(&one.name)) {
        ground.delete(&global.object::<ExternalGateway>(&external.name)).await?;
    }
    Ok(())
}

pub(crate) async fn disconnect(ground: &Ground, peer: &Site) -> Result {
    let _turn = ground.router_turn().await;
    let tunnels: Vec<Tunnel> = ground.owned(&ground.names.tunnels(peer)).await?;
    if let Some(tunnel) = tunnels.first() {
        let place = ground.region(tunnel.region.name());
        set_sessions(ground, &place, peer, Vec::new()).await?;
        delete_tunnels(ground, &place, &tunnels).await?;
    }
    remove_externals(ground, peer, None).await
}

pub(crate) async fn status(ground: &Ground, peer: &Site) -> Result<ConnectionStatus> {
    let gateway = gateway::need(ground).await?;
    let tunnels = tunnels_to(ground, &ground.region(&gateway.region), peer).await?;
    if tunnels.is_empty() {
        return Err(CloudError::not_found(format!("{} has no connection to {peer}", ground.site)));
    }
    let router = ground.router(&gateway.region);
    let RouterStatus { result } = ground.compute().ask(&router, "getRouterStatus", "").await?;
    let is_up =
        |name: &String| result.bgp_peer_status.iter().any(|one| one.name == *name && one.status == "UP");
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Ok(ConnectionStatus {
        tunnels: count(tunnels.len()),
        tunnels_up: count(tunnels.iter().filter(|tunnel| tunnel.status == "ESTABLISHED").count()),
        bgp_established: count(tunnels.iter().filter(|tunnel| is_up(&tunnel.name)).count()),
        routes: result.best_routes.iter().filter_map(|route| route.dest_range.parse().ok()).collect(),
        ..ConnectionStatus::default()
    })
}
