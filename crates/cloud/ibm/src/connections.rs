//! Links: a VPN connection per address of the peer, each with a tunnel from each of the gateway's two members.
//!
//! A connection always has two tunnels. Where the link has a tunnel between a member and an address, that tunnel has the
//! link's inside addresses; the others have addresses of their own, find nobody at the other end, and stay down.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use cloud_api::CloudError;
use futures::future::try_join_all;
use http::Method;
use model::{ConnectionSpec, ConnectionStatus, Site};
use serde_json::{Value, json};

use crate::{
    api::{CONNECTION, Place, text},
    cloud::{Ground, IbmCloud, Result},
    gateway::Gateway,
    networks::noted_links,
};

/// Connections of one gateway.
const MOST: usize = 10;
/// Inside addresses of links are below this in 169.254.0.0/16; those of tunnels that lead nowhere are above.
const NOWHERE: u8 = 128;

/// The inside addresses of a tunnel: ours and the peer's.
type Inside = (Ipv4Addr, Ipv4Addr);

/// Of a tunnel that leads nowhere: as unlike any other as the tunnel beside it.
fn nowhere((ours, theirs): Inside) -> Inside {
    let moved = |address: Ipv4Addr| {
        let [a, b, c, d] = address.octets();
        Ipv4Addr::from([a, b, c | NOWHERE, d])
    };
    (moved(ours), moved(theirs))
}

fn leads_nowhere(tunnel: &Value) -> bool {
    let inside = text(&tunnel["tunnel_interface_ip"], "address").parse::<Ipv4Addr>();
    inside.is_ok_and(|address| address.octets()[2] >= NOWHERE)
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

/// What makes a connection this one, its key aside.
fn same(there: &Value, wanted: &Value) -> bool {
    let inside = |connection: &Value| -> Vec<(String, String)> {
        let all = connection["tunnels"].as_array().into_iter().flatten();
        all.map(|one| {
            let of = |field: &str| text(&one[field], "address").to_owned();
            (of("tunnel_interface_ip"), of("neighbor_ip"))
        })
        .collect()
    };
    there["peer"]["address"] == wanted["peer"]["address"]
        && there["peer"]["asn"] == wanted["peer"]["asn"]
        && there["admin_state_up"] != false
        && inside(there) == inside(wanted)
}

impl IbmCloud {
    async fn connections_to(&self, ground: &Ground, gateway: &Gateway, peer: &Site) -> Result<Vec<Value>> {
        let path = format!("vpn_gateways/{}/connections", gateway.id);
        let found = self.api.list(Place::Region(&gateway.region), &CONNECTION, &path).await?;
        let prefix = ground.names.connections(peer);
        Ok(found.into_iter().filter(|one| text(one, "name").starts_with(&prefix)).collect())
    }

    pub(crate) async fn connect(&self, ground: &Ground, spec: &ConnectionSpec) -> Result<()> {
        let _turn = self.turns.take(&format!("connections {}", ground.site)).await;
        let none = || CloudError::conflict(format!("{} has no gateway", ground.site));
        let (vpc, gateway) = self.gateway(ground).await?.ok_or_else(none)?;
        let tunnels = tunnels(spec, gateway.members.len())?;
        let (place, path) =
            (Place::Region(&gateway.region), format!("vpn_gateways/{}/connections", gateway.id));
        let all = self.api.list(place, &CONNECTION, &path).await?;
        let prefix = ground.names.connections(&spec.peer);
        let (there, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|one| text(one, "name").starts_with(&prefix));
        if others.len() + tunnels.len() > MOST {
            return Err(CloudError::conflict(format!(
                "the gateway of {} has {} connections and would need {} more; IBM Cloud gives a gateway {MOST}",
                ground.site,
                others.len(),
                tunnels.len()
            )));
        }
        if !noted_links(ground, &self.groups(&vpc).await?).contains(&spec.peer) {
            let name = ground.names.link_note(&spec.peer);
            self.note_down(ground, &vpc, &name, "a link", &spec.peer.to_string()).await?;
        }
        let (ike, ipsec) = futures::try_join!(
            self.policy(ground, &gateway.region, true),
            self.policy(ground, &gateway.region, false)
        )?;
        let wanted = tunnels.iter().enumerate().map(|(number, (peer, inside))| {
            let ends = inside.iter().map(|(ours, theirs)| {
                json!({"tunnel_interface_ip": {"address": ours.to_string()}, "neighbor_ip": {"address": theirs.to_string()}})
            });
            json!({
                "name": format!("{prefix}{number}"),
                "psk": spec.shared_key.expose(),
                "peer": {"address": peer.to_string(), "asn": spec.peer_asn},
                "routing_protocol": "bgp",
                "tunnels": ends.collect::<Vec<_>>(),
                "ike_policy": {"id": ike},
                "ipsec_policy": {"id": ipsec},
                "establish_mode": "bidirectional",
                "dead_peer_detection": {"action": "restart", "interval": 10, "timeout": 30},
            })
        });
        let wanted: Vec<Value> = wanted.collect();
        // What cannot be changed in place goes first: a name is free only then.
        for old in &there {
            let kept = wanted.iter().find(|new| new["name"] == old["name"]).filter(|new| same(old, new));
            let one = format!("{path}/{}", text(old, "id"));
            match kept {
                None => self.api.remove(place, &CONNECTION, &one).await?,
                Some(new) if new["psk"] != old["psk"] => {
                    let body = json!({"psk": new["psk"]});
                    self.api
                        .send(place, "update_vpn_gateway_connection", Method::PATCH, &one, Some(&body))
                        .await?;
                }
                Some(_) => {}
            }
        }
        let is_there = |new: &Value| there.iter().any(|old| old["name"] == new["name"] && same(old, new));
        for new in wanted.iter().filter(|new| !is_there(new)) {
            self.api.make(place, &CONNECTION, &path, new).await?;
        }
        Ok(())
    }

    pub(crate) async fn disconnect(&self, ground: &Ground, peer: &Site) -> Result<()> {
        let _turn = self.turns.take(&format!("connections {}", ground.site)).await;
        let Some(vpc) = self.vpcs(ground).await?.gateway else { return Ok(()) };
        if let Some(gateway) = self.gateway_in(ground, Some(&vpc)).await? {
            let place = Place::Region(&gateway.region);
            let there = self.connections_to(ground, &gateway, peer).await?;
            try_join_all(there.iter().map(|one| {
                let path = format!("vpn_gateways/{}/connections/{}", gateway.id, text(one, "id"));
                async move { self.api.remove(place, &CONNECTION, &path).await }
            }))
            .await?;
        }
        let name = ground.names.link_note(peer);
        for group in self.groups(&vpc).await?.iter().filter(|group| text(group, "name") == name) {
            self.forget(&vpc, group).await?;
        }
        Ok(())
    }

    pub(crate) async fn status(&self, ground: &Ground, peer: &Site) -> Result<ConnectionStatus> {
        let missing = || CloudError::not_found(format!("{} has no connection to {peer}", ground.site));
        let (_, gateway) = self.gateway(ground).await?.ok_or_else(missing)?;
        let there = self.connections_to(ground, &gateway, peer).await?;
        let tunnels: Vec<&Value> = there
            .iter()
            .flat_map(|one| one["tunnels"].as_array().into_iter().flatten())
            .filter(|tunnel| !leads_nowhere(tunnel))
            .collect();
        let count = |is: &dyn Fn(&Value) -> bool| {
            u32::try_from(tunnels.iter().filter(|tunnel| is(tunnel)).count()).unwrap_or(u32::MAX)
        };
        let bgp_established = count(&|tunnel| tunnel["protocol_state"] == "established");
        let asn = there.iter().find_map(|one| one["peer"]["asn"].as_u64());
        let routes = match asn.and_then(|asn| u32::try_from(asn).ok()) {
            // Without the report the rest is still true, and worth more.
            Some(asn) if bgp_established > 0 => self.learnt(ground, asn).await.unwrap_or_default(),
            _ => Vec::new(),
        };
        Ok(ConnectionStatus {
            tunnels: count(&|_| true),
            tunnels_up: count(&|tunnel| tunnel["status"] == "up"),
            bgp_established,
            routes,
            ..ConnectionStatus::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use model::Secret;

    use super::*;

    fn spec(peers: &[&str], count: u8) -> ConnectionSpec {
        let inside = |host: u8| (0..count).map(|n| [169, 254, 21, 4 * n + host].into()).collect::<Vec<_>>();
        ConnectionSpec {
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
