//! Links: an external gateway with the peer's addresses, a tunnel per address, and a session per tunnel on the router.

use std::net::IpAddr;

use cloud_api::CloudError;
use futures::future::try_join_all;
use model::{ConnectionSpec, ConnectionStatus, Site};
use serde_json::{Value, json};

use crate::{
    cloud::{GcpCloud, Ground, Result},
    gateway::Gateway,
    names::{self, hash, last},
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

impl GcpCloud {
    /// The tunnels of a link that should be, by name.
    fn tunnels(
        &self,
        ground: &Ground,
        gateway: &Gateway,
        spec: &ConnectionSpec,
        external: &str,
    ) -> Vec<Value> {
        let place = ground.region(&gateway.region);
        let peers = distinct(&spec.peer_addresses);
        let key = hash(&format!("{}/{}", spec.shared_key.expose(), external), 16);
        let tunnel = |(number, address): (usize, &IpAddr)| {
            let mark =
                names::Mark { peer: Some(spec.peer.clone()), key: Some(key.clone()), ..ground.names.mark() };
            json!({
                "name": ground.names.tunnel(&spec.peer, number),
                "description": names::write(mark),
                "vpnGateway": place.object("vpnGateways", &ground.names.gateway()),
                "vpnGatewayInterface": number % gateway.state.addresses.len().max(1),
                "peerExternalGateway": ground.global().object("externalVpnGateways", external),
                "peerExternalGatewayInterface": peers.iter().position(|peer| peer == address).unwrap_or_default(),
                "router": place.object("routers", &ground.names.router()),
                "ikeVersion": 2,
                "sharedSecret": spec.shared_key.expose(),
            })
        };
        spec.peer_addresses.iter().take(spec.local_bgp.len()).enumerate().map(tunnel).collect()
    }

    pub(crate) async fn connect(&self, ground: &Ground, spec: &ConnectionSpec) -> Result<()> {
        let peers = distinct(&spec.peer_addresses);
        let redundancy = redundancy(peers.len())?;
        let _turn = self.turns.take(&format!("router {}", ground.site)).await;
        let (compute, gateway) = (&self.compute, self.need_gateway(ground).await?);
        let place = ground.region(&gateway.region);
        let texts: Vec<String> = peers.iter().map(ToString::to_string).collect();
        let external = ground.names.external(&spec.peer, &texts.join(" "));
        let wanted = self.tunnels(ground, &gateway, spec, &external);
        let there = self.tunnels_to(ground, &gateway.region, &spec.peer).await?;
        // A tunnel's key and peer cannot be changed; such a tunnel is made anew.
        let is_same = |tunnel: &Value| {
            wanted
                .iter()
                .any(|new| new["name"] == tunnel["name"] && new["description"] == tunnel["description"])
        };
        let stale: Vec<&Value> = there.iter().filter(|tunnel| !is_same(tunnel)).collect();
        if !stale.is_empty() {
            self.set_sessions(ground, &gateway.region, &spec.peer, Vec::new()).await?;
            let names = stale.iter().filter_map(|tunnel| tunnel["name"].as_str());
            try_join_all(names.map(|name| compute.delete(&place, "vpnTunnels", name))).await?;
        }
        let globals = ground.global();
        if compute.get(&globals, "externalVpnGateways", &external).await?.is_none() {
            let interface =
                |(number, address): (usize, &IpAddr)| json!({"id": number, "ipAddress": address.to_string()});
            let interfaces: Vec<Value> = peers.iter().enumerate().map(interface).collect();
            let mark = names::Mark { peer: Some(spec.peer.clone()), ..ground.names.mark() };
            let body = json!({"name": external, "description": names::write(mark), "redundancyType": redundancy, "interfaces": interfaces});
            compute.insert(&globals, "externalVpnGateways", &body).await?;
        }
        let missing = wanted
            .iter()
            .filter(|new| !there.iter().any(|tunnel| tunnel["name"] == new["name"] && is_same(tunnel)));
        try_join_all(missing.map(|tunnel| compute.insert(&place, "vpnTunnels", tunnel))).await?;
        let numbers = 0..wanted.len();
        let sessions = numbers.map(|number| self.session(ground, &gateway.region, spec, number)).collect();
        self.set_sessions(ground, &gateway.region, &spec.peer, sessions).await?;
        self.remove_externals(ground, &spec.peer, Some(&external)).await
    }

    /// The router's interface and BGP peer of a tunnel.
    fn session(&self, ground: &Ground, region: &str, spec: &ConnectionSpec, number: usize) -> (Value, Value) {
        let name = ground.names.tunnel(&spec.peer, number);
        let tunnel = ground.region(region).object("vpnTunnels", &name);
        let interface = json!({"name": name, "linkedVpnTunnel": tunnel, "ipRange": format!("{}/30", spec.local_bgp[number])});
        let peer = json!({"name": name, "interfaceName": name, "peerIpAddress": spec.peer_bgp[number].to_string(), "peerAsn": spec.peer_asn});
        (interface, peer)
    }

    /// Replaces the sessions of one peer on the router. The router has no version, so whoever changes it holds the turn.
    async fn set_sessions(
        &self,
        ground: &Ground,
        region: &str,
        peer: &Site,
        sessions: Vec<(Value, Value)>,
    ) -> Result<()> {
        let (place, name) = (ground.region(region), ground.names.router());
        let Some(router) = self.compute.get(&place, "routers", &name).await? else { return Ok(()) };
        let ours = ground.names.tunnel(peer, 0);
        let ours = ours.trim_end_matches('0');
        let others = |list: &str| -> Vec<Value> {
            let all = router[list].as_array().into_iter().flatten();
            all.filter(|one| !one["name"].as_str().is_some_and(|name| name.starts_with(ours)))
                .cloned()
                .collect()
        };
        let same = |list: &str, new: &[Value], field: &str| {
            let there: Vec<&Value> = router[list]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|one| one["name"].as_str().is_some_and(|name| name.starts_with(ours)))
                .collect();
            there.len() == new.len()
                && new.iter().all(|new| {
                    there.iter().any(|old| {
                        old["name"] == new["name"]
                            && old[field] == new[field]
                            && old["peerAsn"] == new["peerAsn"]
                    })
                })
        };
        let (interfaces, peers): (Vec<Value>, Vec<Value>) = sessions.into_iter().unzip();
        if same("interfaces", &interfaces, "ipRange") && same("bgpPeers", &peers, "peerIpAddress") {
            return Ok(());
        }
        let body = json!({
            "interfaces": others("interfaces").into_iter().chain(interfaces).collect::<Vec<_>>(),
            "bgpPeers": others("bgpPeers").into_iter().chain(peers).collect::<Vec<_>>(),
        });
        Ok(self.compute.patch(&place, "routers", &name, &body).await?)
    }

    async fn tunnels_to(&self, ground: &Ground, region: &str, peer: &Site) -> Result<Vec<Value>> {
        let name = ground.names.tunnel(peer, 0);
        let found =
            self.compute.list(&ground.region(region), "vpnTunnels", name.trim_end_matches('0')).await?;
        Ok(found.into_iter().filter(|tunnel| ground.names.owns(tunnel)).collect())
    }

    async fn remove_externals(&self, ground: &Ground, peer: &Site, kept: Option<&str>) -> Result<()> {
        let name = ground.names.external(peer, "");
        let prefix = name.rsplit_once('-').map_or(name.as_str(), |(prefix, _)| prefix);
        let found = self.compute.list(&ground.global(), "externalVpnGateways", prefix).await?;
        for external in found.iter().filter(|one| ground.names.owns(one)) {
            let name = external["name"].as_str().unwrap_or_default();
            if kept != Some(name) {
                self.compute.delete(&ground.global(), "externalVpnGateways", name).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn disconnect(&self, ground: &Ground, peer: &Site) -> Result<()> {
        let _turn = self.turns.take(&format!("router {}", ground.site)).await;
        let name = ground.names.tunnel(peer, 0);
        let tunnels =
            self.compute.list_all(&ground.project, "vpnTunnels", name.trim_end_matches('0')).await?;
        let tunnels: Vec<&Value> = tunnels.iter().filter(|tunnel| ground.names.owns(tunnel)).collect();
        if let Some(tunnel) = tunnels.first() {
            let region = last(&tunnel["region"]).to_owned();
            self.set_sessions(ground, &region, peer, Vec::new()).await?;
            let place = ground.region(&region);
            let names = tunnels.iter().filter_map(|tunnel| tunnel["name"].as_str());
            try_join_all(names.map(|name| self.compute.delete(&place, "vpnTunnels", name))).await?;
        }
        self.remove_externals(ground, peer, None).await
    }

    pub(crate) async fn status(&self, ground: &Ground, peer: &Site) -> Result<ConnectionStatus> {
        let gateway = self.need_gateway(ground).await?;
        let tunnels = self.tunnels_to(ground, &gateway.region, peer).await?;
        if tunnels.is_empty() {
            return Err(CloudError::not_found(format!("{} has no connection to {peer}", ground.site)));
        }
        let place = ground.region(&gateway.region);
        let answer =
            self.compute.ask(&place, "routers", &ground.names.router(), "getRouterStatus", "").await?;
        let ours = |one: &&Value| tunnels.iter().any(|tunnel| tunnel["name"] == one["name"]);
        let sessions = answer["result"]["bgpPeerStatus"].as_array().into_iter().flatten().filter(ours);
        let up = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let routes = answer["result"]["bestRoutes"].as_array().into_iter().flatten();
        Ok(ConnectionStatus {
            tunnels: up(tunnels.len()),
            tunnels_up: up(tunnels.iter().filter(|tunnel| tunnel["status"] == "ESTABLISHED").count()),
            bgp_established: up(sessions.filter(|one| one["status"] == "UP").count()),
            routes: routes.filter_map(|route| route["destRange"].as_str()?.parse().ok()).collect(),
            ..ConnectionStatus::default()
        })
    }
}
