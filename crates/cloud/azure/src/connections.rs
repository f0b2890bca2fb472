//! Links: per tunnel a local network gateway, which stands for the peer's address, and a connection to it.
//!
//! Tunnel `i` starts at the gateway's instance `i` mod 2. Azure makes every connection from both instances; only the one
//! whose address the peer knows comes up. Each connection says which BGP address each instance uses for it.

use std::net::{IpAddr, Ipv4Addr};

use cloud_api::CloudError;
use cloud_http::letters;
use futures::future::try_join_all;
use ipnet::Ipv4Net;
use model::{ConnectionSpec, ConnectionStatus, Site};

use crate::{
    gateway::{self, Ready, Sessions, check_asn, sessions_in_use},
    names::*,
    place::*,
    types::*,
};

/// Tunnels of the smaller gateways.
const MOST_TUNNELS: usize = 30;

/// Refused if the gateway could not have the link's BGP addresses, before the first request.
fn check_sessions(spec: &ConnectionSpec) -> Result {
    let apipa = Ipv4Addr::new(169, 254, 21, 0)..=Ipv4Addr::new(169, 254, 22, 255);
    if let Some(outside) = spec.local_bgp.iter().find(|address| !apipa.contains(*address)) {
        return Err(CloudError::invalid(format!(
            "a gateway of Azure cannot have the BGP address {outside}: it takes those from {} to {}",
            apipa.start(),
            apipa.end()
        )));
    }
    Ok(())
}

/// Refused if Azure could not make the tunnels, before the first request.
fn check(spec: &ConnectionSpec) -> Result {
    check_asn(spec.peer_asn)?;
    check_sessions(spec)?;
    let (own, theirs, inside) = (spec.local_bgp.len(), spec.peer_addresses.len(), spec.peer_bgp.len());
    if own == 0 || own > theirs || own > inside {
        return Err(CloudError::invalid(format!(
            "the link to {} has {own} tunnels at this end, {theirs} addresses and {inside} BGP addresses at the other",
            spec.peer
        )));
    }
    let legal = |byte: u8| byte.is_ascii_graphic() && byte != b'-' && byte != b'~';
    let key = spec.shared_key.expose().as_bytes();
    if key.is_empty() || key.len() > 128 || !key.iter().all(|byte| legal(*byte)) {
        let why = "printable letters but no space, - or ~, and at most 128 of them";
        return Err(CloudError::invalid(format!(
            "the link to {} has a key that Azure does not take: {why}",
            spec.peer
        )));
    }
    Ok(())
}

/// The BGP addresses of a link at this end, by instance.
fn sessions(spec: &ConnectionSpec) -> Sessions {
    let mut sessions = Sessions::default();
    for (number, address) in spec.local_bgp.iter().enumerate() {
        sessions[number % 2].insert(*address);
    }
    sessions
}

/// One tunnel of a link.
struct Tunnel<'t> {
    place: &'t Place<'t>,
    /// The gateway's.
    location: &'t str,
    spec: &'t ConnectionSpec,
    number: usize,
}

impl Tunnel<'_> {
    fn peer_id(&self) -> Id<LocalGateway> {
        self.place.id(&self.place.names.tunnel("lng", &self.spec.peer, self.number))
    }

    fn tags(&self, key: Option<&str>) -> Tags {
        let peer = &self.spec.peer;
        let mut more = vec![(PEER_NAMESPACE, peer.namespace.as_str()), (PEER_CLOUD, peer.cloud.as_str())];
        more.extend(key.map(|key| (KEY, key)));
        self.place.names.tags(&more)
    }

    async fn make_peer(&self) -> Result {
        let (spec, number) = (self.spec, self.number);
        let properties = LocalGatewayProperties {
            gateway_ip_address: Some(spec.peer_addresses[number].to_string()),
            bgp_settings: Some(PeerSettings {
                asn: Some(spec.peer_asn),
                bgp_peering_address: Some(spec.peer_bgp[number].to_string()),
            }),
            ..LocalGatewayProperties::default()
        };
        let body = Draft::new(self.location, self.tags(None), properties);
        let fits = |there: &LocalGateway| {
            let (have, want) = (&there.properties, &body.properties);
            (&have.gateway_ip_address, &have.bgp_settings) == (&want.gateway_ip_address, &want.bgp_settings)
        };
        self.place.ensure(&self.peer_id(), &body, fits).await.map(drop)
    }

    /// Which BGP address each instance uses: its own for the one the tunnel starts at, any of the link for the other.
    fn custom(&self) -> Vec<CustomAddress> {
        let all = || self.spec.local_bgp.iter().enumerate();
        let own = all().find(|(number, _)| *number == self.number);
        let other = all().find(|(number, _)| number % 2 != self.number % 2);
        let mut used: Vec<_> = own.into_iter().chain(other).collect();
        used.sort_by_key(|(number, _)| number % 2);
        let address = |(number, address): (usize, &Ipv4Addr)| CustomAddress {
            instance: gateway::instance(self.place, number % 2),
            address: address.to_string(),
        };
        used.into_iter().map(address).collect()
    }

    /// Not by `ensure`: a connection's key is written, never read, and has a request of its own.
    async fn make_connection(&self) -> Result {
        let (place, spec) = (self.place, self.spec);
        let id: Id<Connection> = place.id(&place.names.tunnel("con", &spec.peer, self.number));
        let mut there = place.owned(&id).await?;
        if there.as_ref().is_some_and(|there| !there.is_made()) {
            // Nobody knows what key it has.
            place.delete(&id).await?;
            there = None;
        }
        let (custom, key, shared_key) = (self.custom(), key_mark(spec), spec.shared_key.expose());
        if let Some(there) = &there {
            let has_key = there.tags.get(KEY) == Some(&key);
            let have = &there.properties.gateway_custom_bgp_ip_addresses;
            if has_key && have.len() == custom.len() && custom.iter().all(|one| have.contains(one)) {
                return Ok(());
            }
            // Azure ignores a new key in the request that replaces a connection: it has one of its own. The mark follows
            // when the key is set.
            if !has_key {
                place.arm.set(&id, "sharedkey", &SharedKey { value: shared_key }).await?;
            }
        }
        let properties = NewConnection {
            near: Linked::to(gateway::id(place)),
            far: Linked::to(self.peer_id()),
            connection_type: "IPsec",
            connection_protocol: "IKEv2",
            enable_bgp: true,
            dpd_timeout_seconds: 45,
            shared_key,
            gateway_custom_bgp_ip_addresses: custom,
        };
        place.put(&id, &Draft::new(self.location, self.tags(Some(&key)), properties)).await.map(drop)
    }
}

fn key_mark(spec: &ConnectionSpec) -> String {
    letters(&format!("{}/{}", spec.peer, spec.shared_key.expose()), 16)
}

pub async fn offer_sessions(place: &Place<'_>, spec: &ConnectionSpec) -> Result {
    // The other end's addresses need not be known yet.
    check_sessions(spec)?;
    let _turn = place.gateway_turn().await;
    add_sessions(place, spec).await.map(drop)
}

/// Gives the gateway the link's BGP addresses. Those of other links stay: the addresses of all links are one list.
async fn add_sessions(place: &Place<'_>, spec: &ConnectionSpec) -> Result<Ready> {
    let none = || CloudError::conflict(format!("{} has no gateway", place.site));
    let gateway = gateway::settled(place).await?.ok_or_else(none)?;
    let mut wanted = gateway.sessions.clone();
    for (wanted, own) in wanted.iter_mut().zip(sessions(spec)) {
        wanted.extend(own);
    }
    gateway::set_sessions(place, &gateway, &wanted).await?;
    Ok(gateway)
}

pub async fn make(place: &Place<'_>, spec: &ConnectionSpec) -> Result {
    check(spec)?;
    let _turn = place.gateway_turn().await;
    let gateway = add_sessions(place, spec).await?;
    let there = gateway::connections(place).await?;
    let others = there.iter().filter(|one| peer_of(&one.tags).as_ref() != Some(&spec.peer)).count();
    let count = spec.local_bgp.len();
    if others + count > MOST_TUNNELS {
        return Err(CloudError::conflict(format!(
            "the gateway of {} has {others} tunnels and would have {count} more; Azure has room for {MOST_TUNNELS}",
            place.site
        )));
    }
    let tunnels: Vec<_> =
        (0..count).map(|number| Tunnel { place, location: &gateway.location, spec, number }).collect();
    try_join_all(tunnels.iter().map(Tunnel::make_peer)).await?;
    // One after another: each is a change of the gateway, which takes one at a time.
    for tunnel in &tunnels {
        tunnel.make_connection().await?;
    }
    remove_tunnels(place, &spec.peer, count).await
}

/// Deletes a peer's tunnels from a number on.
async fn remove_tunnels(place: &Place<'_>, peer: &Site, first: usize) -> Result {
    fn is_surplus<P>(object: &Resource<P>, peer: &Site, first: usize) -> bool {
        let number = object.name.rsplit('-').next().and_then(|text| text.parse::<usize>().ok());
        peer_of(&object.tags).as_ref() == Some(peer) && number.is_none_or(|number| number >= first)
    }
    let connections = gateway::connections(place).await?;
    for connection in connections.iter().filter(|one| is_surplus(one, peer, first)) {
        place.delete(&connection.id).await?;
    }
    let peers: Vec<LocalGateway> = place.list().await?;
    let stale = peers.iter().filter(|one| place.owns(one) && is_surplus(one, peer, first));
    try_join_all(stale.map(|one| place.delete(&one.id))).await?;
    Ok(())
}

pub async fn remove(place: &Place<'_>, peer: &Site) -> Result {
    let _turn = place.gateway_turn().await;
    remove_tunnels(place, peer, 0).await?;
    let Some(gateway) = gateway::settled(place).await? else { return Ok(()) };
    let left = gateway::connections(place).await?;
    gateway::set_sessions(place, &gateway, &sessions_in_use(&left)).await
}

pub async fn status(place: &Place<'_>, peer: &Site) -> Result<ConnectionStatus> {
    let id = gateway::id(place);
    let mut ours = gateway::connections(place).await?;
    ours.retain(|one| peer_of(&one.tags).as_ref() == Some(peer));
    if ours.is_empty() {
        return Err(CloudError::not_found(format!("{} has no connection to {peer}", place.site)));
    }
    // What a connection says of itself in a list is old; by itself it says how it is.
    let shown = async { try_join_all(ours.iter().map(|one| place.get(&one.id))).await };
    let sessions = async { Ok(place.arm.ask::<_, Answers<BgpPeer>>(&id, "getBgpPeerStatus").await?) };
    let routes = async { Ok(place.arm.ask::<_, Answers<LearnedRoute>>(&id, "getLearnedRoutes").await?) };
    let (shown, peers, sessions, routes) =
        futures::try_join!(shown, place.list::<LocalGateway>(), sessions, routes)?;
    let is_peer = |one: &&LocalGateway| place.owns(one) && peer_of(&one.tags).as_ref() == Some(peer);
    let facing: Vec<IpAddr> = peers
        .iter()
        .filter(is_peer)
        .filter_map(|one| one.properties.bgp_settings.as_ref()?.bgp_peering_address.as_ref()?.parse().ok())
        .collect();
    let is_from = |address: &Option<String>| {
        address.as_ref().and_then(|text| text.parse().ok()).is_some_and(|ip| facing.contains(&ip))
    };
    let is_up = |one: &&BgpPeer| is_from(&one.neighbor) && one.state.as_deref() == Some("Connected");
    let learned = routes.value.iter().filter(|route| is_from(&route.source_peer));
    let mut routes: Vec<Ipv4Net> = learned.filter_map(|route| route.network.as_ref()?.parse().ok()).collect();
    routes.sort();
    routes.dedup();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let shown: Vec<_> = shown.into_iter().flatten().map(|one| one.properties).collect();
    let connected = shown.iter().filter(|one| one.connection_status.as_deref() == Some("Connected"));
    Ok(ConnectionStatus {
        tunnels: count(ours.len()),
        tunnels_up: count(connected.count()),
        bgp_established: count(sessions.value.iter().filter(is_up).count()),
        routes,
        bytes_in: shown.iter().filter_map(|one| one.ingress_bytes_transferred).sum(),
        bytes_out: shown.iter().filter_map(|one| one.egress_bytes_transferred).sum(),
    })
}
