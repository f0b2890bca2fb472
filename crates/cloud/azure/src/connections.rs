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
use serde_json::{Value, json};

use crate::{
    api::is_made,
    cloud::{AzureCloud, Ground, Result},
    gateway::{Gateway, Sessions, check_asn, sessions_in_use},
    names::{KEY, PEER_CLOUD, PEER_NAMESPACE, peer_of, tag},
    networks::listed,
};

/// Tunnels of the smaller gateways.
const MOST_TUNNELS: usize = 30;

/// Refused if the gateway could not have the link's BGP addresses, before the first request.
fn check_sessions(spec: &ConnectionSpec) -> Result<()> {
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
fn check(spec: &ConnectionSpec) -> Result<()> {
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

fn peer_gateway(ground: &Ground, region: &str, spec: &ConnectionSpec, number: usize) -> Value {
    json!({
        "location": region,
        "tags": peer_tags(ground, &spec.peer, None),
        "properties": {
            "gatewayIpAddress": spec.peer_addresses[number].to_string(),
            "bgpSettings": {"asn": spec.peer_asn, "bgpPeeringAddress": spec.peer_bgp[number].to_string()},
        },
    })
}

fn peer_tags(ground: &Ground, peer: &Site, key: Option<&str>) -> Value {
    let mut more = vec![(PEER_NAMESPACE, peer.namespace.as_str()), (PEER_CLOUD, peer.cloud.as_str())];
    more.extend(key.map(|key| (KEY, key)));
    ground.names.tags(&more)
}

/// Which BGP address each instance uses for a tunnel: its own for the one it starts at, any of the link for the other.
fn custom(ground: &Ground, spec: &ConnectionSpec, number: usize) -> Vec<Value> {
    let other = spec.local_bgp.iter().enumerate().find(|(other, _)| other % 2 != number % 2);
    let own = (number, &spec.local_bgp[number]);
    let entry = |(number, address): (usize, &Ipv4Addr)| json!({"ipConfigurationId": ground.instance(number % 2), "customBgpIpAddress": address.to_string()});
    let mut entries: Vec<(usize, Value)> =
        std::iter::once(own).chain(other).map(|pair| (pair.0 % 2, entry(pair))).collect();
    entries.sort_by_key(|(instance, _)| *instance);
    entries.into_iter().map(|(_, entry)| entry).collect()
}

fn connection(ground: &Ground, region: &str, spec: &ConnectionSpec, number: usize) -> Value {
    let far = ground.network_id("localNetworkGateways", &ground.names.tunnel("lng", &spec.peer, number));
    json!({
        "location": region,
        "tags": peer_tags(ground, &spec.peer, Some(&key_mark(spec))),
        "properties": {
            "virtualNetworkGateway1": {"id": ground.gateway(), "properties": {}},
            "localNetworkGateway2": {"id": far, "properties": {}},
            "connectionType": "IPsec",
            "connectionProtocol": "IKEv2",
            "enableBgp": true,
            "dpdTimeoutSeconds": 45,
            "sharedKey": spec.shared_key.expose(),
            "gatewayCustomBgpIpAddresses": custom(ground, spec, number),
        },
    })
}

fn key_mark(spec: &ConnectionSpec) -> String {
    letters(&format!("{}/{}", spec.peer, spec.shared_key.expose()), 16)
}

fn custom_of(connection: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_ascii_lowercase();
    let mut all: Vec<_> = listed(connection, "gatewayCustomBgpIpAddresses")
        .map(|one| (text(&one["ipConfigurationId"]), text(&one["customBgpIpAddress"])))
        .collect();
    all.sort();
    all
}

impl AzureCloud {
    /// Gives the gateway the link's BGP addresses; those of other links stay (B15).
    pub(crate) async fn offer_sessions(&self, ground: &Ground, spec: &ConnectionSpec) -> Result<Gateway> {
        // The other end's addresses need not be known yet.
        check_sessions(spec)?;
        let gateway = self.need_gateway(ground).await?;
        let mut wanted = gateway.sessions.clone();
        for (wanted, own) in wanted.iter_mut().zip(sessions(spec)) {
            wanted.extend(own);
        }
        self.set_sessions(ground, &gateway, &wanted).await?;
        Ok(gateway)
    }

    pub(crate) async fn connect(&self, ground: &Ground, spec: &ConnectionSpec) -> Result<()> {
        check(spec)?;
        let gateway = self.offer_sessions(ground, spec).await?;
        let region = gateway.object["location"].as_str().unwrap_or_default();
        let there = self.connections(ground).await?;
        let others = there.iter().filter(|one| peer_of(one).as_ref() != Some(&spec.peer)).count();
        let count = spec.local_bgp.len();
        if others + count > MOST_TUNNELS {
            return Err(CloudError::conflict(format!(
                "the gateway of {} has {others} tunnels and would have {count} more; Azure has room for {MOST_TUNNELS}",
                ground.site
            )));
        }
        try_join_all((0..count).map(|number| self.make_peer(ground, region, spec, number))).await?;
        // One after another: each is a change of the gateway, which takes one at a time.
        for number in 0..count {
            self.make_connection(ground, region, spec, number).await?;
        }
        self.remove_tunnels(ground, &spec.peer, count).await
    }

    async fn make_peer(
        &self,
        ground: &Ground,
        region: &str,
        spec: &ConnectionSpec,
        number: usize,
    ) -> Result<()> {
        let id = ground.network_id("localNetworkGateways", &ground.names.tunnel("lng", &spec.peer, number));
        let body = peer_gateway(ground, region, spec, number);
        let fits = |there: &Value| {
            let (have, want) = (&there["properties"], &body["properties"]);
            have["gatewayIpAddress"] == want["gatewayIpAddress"]
                && ["asn", "bgpPeeringAddress"]
                    .iter()
                    .all(|field| have["bgpSettings"][field] == want["bgpSettings"][field])
        };
        self.ensure(ground, &id, &body, fits).await.map(drop)
    }

    async fn make_connection(
        &self,
        ground: &Ground,
        region: &str,
        spec: &ConnectionSpec,
        number: usize,
    ) -> Result<()> {
        let id = ground.network_id("connections", &ground.names.tunnel("con", &spec.peer, number));
        let body = connection(ground, region, spec, number);
        let mut there = self.owned(ground, &id).await?;
        if there.as_ref().is_some_and(|there| !is_made(there)) {
            // Nobody knows what key it has.
            self.arm.delete(&id).await?;
            there = None;
        }
        let same_key = |there: &Value| tag(there, KEY) == Some(&key_mark(spec));
        match &there {
            Some(there) if same_key(there) && custom_of(there) == custom_of(&body) => return Ok(()),
            // Azure ignores a new key in the request that replaces a connection: it has one of its own. The mark follows
            // when the key is set.
            Some(there) if !same_key(there) => {
                let key = json!({"value": spec.shared_key.expose()});
                self.arm.set(&format!("{id}/sharedkey"), &key).await?;
            }
            _ => {}
        }
        Ok(self.arm.put(&id, &body).await.map(drop)?)
    }

    /// Deletes a peer's tunnels from a number on.
    async fn remove_tunnels(&self, ground: &Ground, peer: &Site, first: usize) -> Result<()> {
        let number =
            |object: &Value| -> Option<usize> { object["name"].as_str()?.rsplit('-').next()?.parse().ok() };
        let surplus = |object: &&Value| {
            peer_of(object).as_ref() == Some(peer) && number(object).is_none_or(|number| number >= first)
        };
        let connections = self.connections(ground).await?;
        for connection in connections.iter().filter(surplus) {
            self.arm.delete(connection["id"].as_str().unwrap_or_default()).await?;
        }
        let peers = self.arm.list(&ground.group, "Microsoft.Network/localNetworkGateways").await?;
        let stale = peers.iter().filter(|one| ground.names.owns(one)).filter(surplus);
        try_join_all(stale.filter_map(|one| one["id"].as_str()).map(|id| self.arm.delete(id))).await?;
        Ok(())
    }

    pub(crate) async fn disconnect(&self, ground: &Ground, peer: &Site) -> Result<()> {
        self.remove_tunnels(ground, peer, 0).await?;
        let Some(gateway) = self.settled_gateway(ground).await? else { return Ok(()) };
        let left = self.connections(ground).await?;
        self.set_sessions(ground, &gateway, &sessions_in_use(left.iter())).await
    }

    pub(crate) async fn status(&self, ground: &Ground, peer: &Site) -> Result<ConnectionStatus> {
        let id = ground.gateway();
        let connections = self.connections(ground).await?;
        let ours: Vec<&Value> =
            connections.iter().filter(|one| peer_of(one).as_ref() == Some(peer)).collect();
        if ours.is_empty() {
            return Err(CloudError::not_found(format!("{} has no connection to {peer}", ground.site)));
        }
        // What a connection says of itself in a list is old; by itself it says how it is.
        let asked = ours.iter().filter_map(|one| one["id"].as_str()).map(|id| self.arm.get(id));
        let kind = "Microsoft.Network/localNetworkGateways";
        let (shown, peers, sessions, routes) = futures::try_join!(
            try_join_all(asked),
            self.arm.list(&ground.group, kind),
            self.arm.ask(&id, "getBgpPeerStatus"),
            self.arm.ask(&id, "getLearnedRoutes"),
        )?;
        let is_peer = |one: &&Value| ground.names.owns(one) && peer_of(one).as_ref() == Some(peer);
        let facing: Vec<IpAddr> = peers
            .iter()
            .filter(is_peer)
            .filter_map(|one| one["properties"]["bgpSettings"]["bgpPeeringAddress"].as_str()?.parse().ok())
            .collect();
        let from = |value: &Value| {
            value.as_str().and_then(|text| text.parse().ok()).is_some_and(|ip| facing.contains(&ip))
        };
        let up = |one: &&Value| from(&one["neighbor"]) && one["state"] == "Connected";
        let routes = listed_in(&routes).filter(|route| from(&route["sourcePeer"]));
        let mut routes: Vec<Ipv4Net> =
            routes.filter_map(|route| route["network"].as_str()?.parse().ok()).collect();
        routes.sort();
        routes.dedup();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let connected =
            shown.iter().flatten().filter(|one| one["properties"]["connectionStatus"] == "Connected");
        let bytes = |field: &str| -> u64 {
            shown.iter().flatten().filter_map(|one| one["properties"][field].as_u64()).sum()
        };
        Ok(ConnectionStatus {
            tunnels: count(ours.len()),
            tunnels_up: count(connected.count()),
            bgp_established: count(listed_in(&sessions).filter(up).count()),
            routes,
            bytes_in: bytes("ingressBytesTransferred"),
            bytes_out: bytes("egressBytesTransferred"),
        })
    }
}

fn listed_in(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["value"].as_array().into_iter().flatten()
}
