//! The site's gateway: a route-mode VPN gateway in a VPC of its own, so that it outlives any network. Routes go through
//! the site's transit gateway.

use std::net::IpAddr;

use cloud_api::CloudError;
use ipnet::Ipv4Net;
use model::{GatewayState, Site};
use serde_json::{Value, json};

use crate::{
    api::{CONNECTION, IKE, IPSEC, Place, SUBNET, VPC, VPN_GATEWAY, is_alive, text},
    cloud::{Ground, IbmCloud, Result},
    networks::noted_links,
    vpcs::{Home, Vpc},
};

pub(crate) struct Gateway {
    pub(crate) region: String,
    pub(crate) id: String,
    pub(crate) crn: String,
    pub(crate) advertised: Vec<Ipv4Net>,
    asn: u32,
    /// Public addresses of its two members.
    pub(crate) members: Vec<IpAddr>,
    /// Names of its connections.
    connections: Vec<String>,
}

impl Gateway {
    fn read(region: &str, value: &Value) -> Self {
        let members = value["members"].as_array().into_iter().flatten();
        let connections = value["connections"].as_array().into_iter().flatten();
        let cidrs = value["advertised_cidrs"].as_array().into_iter().flatten();
        Self {
            region: region.to_owned(),
            id: text(value, "id").to_owned(),
            crn: text(value, "crn").to_owned(),
            advertised: cidrs.filter_map(|cidr| cidr.as_str()?.parse().ok()).collect(),
            connections: connections.map(|one| text(one, "name").to_owned()).collect(),
            asn: value["local_asn"].as_u64().and_then(|asn| u32::try_from(asn).ok()).unwrap_or_default(),
            members: members
                .filter_map(|member| text(&member["public_ip"], "address").parse().ok())
                .collect(),
        }
    }

    /// A connection has a tunnel from each member, so that with two peers' addresses there are four tunnels: by the
    /// order of these, each member meets each of the peer's two addresses, which go round and round, once.
    fn state(&self) -> GatewayState {
        let order: &[usize] = if self.members.len() == 2 { &[0, 1, 1, 0] } else { &[] };
        GatewayState { asn: self.asn, addresses: order.iter().map(|number| self.members[*number]).collect() }
    }
}

/// The space of a gateway's VPC: private, outside of what networks are made from unless somebody chose otherwise, and
/// not the same for every site.
fn space(ground: &Ground) -> Ipv4Net {
    let number =
        ground.names.gateway().bytes().fold(7u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    Ipv4Net::new_assert([192, 168, 128 | number >> 1, 0].into(), 28)
}

impl IbmCloud {
    /// The gateway that stands in a VPC.
    pub(crate) async fn gateway_in(&self, ground: &Ground, vpc: Option<&Vpc>) -> Result<Option<Gateway>> {
        let Some(vpc) = vpc else { return Ok(None) };
        let path = ground.within("vpn_gateways");
        let found =
            self.api.find(Place::Region(&vpc.region), &VPN_GATEWAY, &path, &ground.names.gateway()).await?;
        let ready =
            found.filter(|gateway| VPN_GATEWAY.is_ready(gateway) || gateway["lifecycle_state"] == "updating");
        Ok(ready.map(|gateway| Gateway::read(&vpc.region, &gateway)))
    }

    pub(crate) async fn gateway(&self, ground: &Ground) -> Result<Option<(Vpc, Gateway)>> {
        let vpc = self.vpcs(ground).await?.gateway;
        let gateway = self.gateway_in(ground, vpc.as_ref()).await?;
        Ok(vpc.zip(gateway))
    }

    pub(crate) async fn list_gateway(
        &self,
        ground: &Ground,
        vpc: Option<&Vpc>,
    ) -> Result<(Option<GatewayState>, Vec<Site>)> {
        let Some(vpc) = vpc else { return Ok((None, Vec::new())) };
        let (gateway, groups) = futures::try_join!(self.gateway_in(ground, Some(vpc)), self.groups(vpc))?;
        let Some(gateway) = gateway else { return Ok((None, Vec::new())) };
        let mut peers = noted_links(ground, &groups);
        peers.retain(|peer| {
            let prefix = ground.names.connections(peer);
            gateway.connections.iter().any(|name| name.starts_with(&prefix))
        });
        Ok((Some(gateway.state()), peers))
    }

    pub(crate) async fn make_gateway(&self, ground: &Ground, asn: u32) -> Result<GatewayState> {
        let vpcs = self.vpcs(ground).await?;
        let there = self.gateway_in(ground, vpcs.gateway.as_ref()).await?;
        if there.is_none() {
            let reserved = Self::traits().asn_reserved;
            if reserved.iter().any(|(first, last)| (*first..=*last).contains(&asn)) {
                return Err(CloudError::invalid(format!("IBM Cloud keeps the AS number {asn} for itself")));
            }
            let none = || {
                CloudError::conflict(format!("{} has no network for a gateway to stand near", ground.site))
            };
            let region = match (&vpcs.gateway, vpcs.networks.first()) {
                (Some(vpc), _) | (None, Some(vpc)) => vpc.region.clone(),
                (None, None) => return Err(none()),
            };
            self.build(ground, &region, vpcs.gateway, asn).await?;
        }
        self.settle_hub(ground, None).await?;
        let missing =
            || CloudError::unavailable(format!("the gateway of {} was made and is not there", ground.site));
        Ok(self.gateway(ground).await?.ok_or_else(missing)?.1.state())
    }

    /// The VPC, its only subnet, the gateway in it, and the policies of its connections.
    async fn build(&self, ground: &Ground, region: &str, vpc: Option<Vpc>, asn: u32) -> Result<()> {
        let (names, place, space) = (&ground.names, Place::Region(region), space(ground));
        let vpc = match vpc {
            Some(vpc) => vpc,
            None => self.make_vpc(ground, region, &names.gateway_network(), Home::Region).await?,
        };
        let zones = self.zones(region).await?;
        if self.prefixes(&vpc).await?.is_empty() {
            self.make_prefix(&vpc, &names.part(0), space, &zones[0]).await?;
        }
        let there = self.subnets(&vpc).await?;
        let subnet = match there.iter().find(|subnet| names.owns(subnet) && SUBNET.is_ready(subnet)) {
            Some(subnet) => subnet.clone(),
            None => {
                let body = ground.place(json!({"name": names.subnet(&zones[0]), "vpc": {"id": vpc.id}, "zone": {"name": zones[0]}, "ipv4_cidr_block": space.to_string()}));
                let path = format!("subnets?vpc.id={}", vpc.id);
                self.api.make(place, &SUBNET, &path, &body).await?
            }
        };
        let gateway = ground.place(json!({"name": names.gateway(), "mode": "route", "subnet": {"id": text(&subnet, "id")}, "local_asn": asn}));
        let path = ground.within("vpn_gateways");
        futures::try_join!(
            self.api.make(place, &VPN_GATEWAY, &path, &gateway),
            self.policy(ground, region, true),
            self.policy(ground, region, false)
        )?;
        Ok(())
    }

    /// How keys are agreed on: what every cloud's gateway takes, with perfect forward secrecy, which AWS insists on.
    pub(crate) async fn policy(&self, ground: &Ground, region: &str, is_ike: bool) -> Result<String> {
        let name = ground.names.policy();
        let (kind, body) = if is_ike {
            let algorithms = json!({"name": name, "ike_version": 2, "authentication_algorithms": ["sha256"], "encryption_algorithms": ["aes256"], "dh_groups": [14], "key_lifetime": 28800});
            (&IKE, algorithms)
        } else {
            let algorithms = json!({"name": name, "authentication_algorithms": ["sha256"], "encryption_algorithms": ["aes256"], "pfs_groups": ["group_14"], "key_lifetime": 3600});
            (&IPSEC, algorithms)
        };
        if let Some(there) = self.api.find(Place::Region(region), kind, kind.many, &name).await? {
            return Ok(text(&there, "id").to_owned());
        }
        let made = self.api.make(Place::Region(region), kind, kind.many, &ground.place(body)).await?;
        Ok(text(&made, "id").to_owned())
    }

    pub(crate) async fn remove_gateway(&self, ground: &Ground) -> Result<()> {
        let Some(vpc) = self.vpcs(ground).await?.gateway else { return self.settle_hub(ground, None).await };
        let (place, names) = (Place::Region(&vpc.region), &ground.names);
        let gateways = self.api.list(place, &VPN_GATEWAY, &ground.within("vpn_gateways")).await?;
        let gateway = gateways.iter().find(|one| one["name"] == names.gateway().as_str());
        if let Some(gateway) = gateway.filter(|one| is_alive(one)) {
            let path = format!("vpn_gateways/{}/connections", text(gateway, "id"));
            if let Some(connection) = self.api.list(place, &CONNECTION, &path).await?.first() {
                return Err(CloudError::conflict(format!(
                    "the gateway of {} has the connection {}",
                    ground.site,
                    text(connection, "name")
                )));
            }
            self.detach_gateway(ground, text(gateway, "crn")).await?;
        }
        if let Some(gateway) = gateway {
            self.api.remove(place, &VPN_GATEWAY, &format!("vpn_gateways/{}", text(gateway, "id"))).await?;
        }
        for kind in [&IKE, &IPSEC] {
            if let Some(policy) = self.api.find(place, kind, kind.many, &names.policy()).await? {
                self.api.remove(place, kind, &format!("{}/{}", kind.many, text(&policy, "id"))).await?;
            }
        }
        for subnet in self.subnets(&vpc).await?.iter().filter(|subnet| names.owns(subnet)) {
            self.api.remove(place, &SUBNET, &format!("subnets/{}", text(subnet, "id"))).await?;
        }
        self.api.remove(place, &VPC, &format!("vpcs/{}", vpc.id)).await?;
        self.settle_hub(ground, None).await
    }

    /// Takes the VPN gateway off the transit gateway, which must be before it goes.
    async fn detach_gateway(&self, ground: &Ground, crn: &str) -> Result<()> {
        use crate::api::{JOINT, TRANSIT_GATEWAY};
        let hub =
            self.api.find(Place::Transit, &TRANSIT_GATEWAY, "transit_gateways", &ground.names.hub()).await?;
        let Some(hub) = hub else { return Ok(()) };
        let path = format!("transit_gateways/{}/connections", text(&hub, "id"));
        for joint in
            self.api.list(Place::Transit, &JOINT, &path).await?.iter().filter(|one| one["network_id"] == crn)
        {
            self.api.remove(Place::Transit, &JOINT, &format!("{path}/{}", text(joint, "id"))).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_meets_each_address_of_the_peer_once() {
        let member = |last: u8| json!({"public_ip": {"address": format!("52.0.0.{last}")}});
        let value = json!({"id": "g", "local_asn": 64520, "members": [member(1), member(2)]});
        let own = Gateway::read("us-south", &value).state().addresses;
        let peer = ["p", "q"];
        let met: std::collections::BTreeSet<_> =
            own.iter().enumerate().map(|(number, own)| (own.to_string(), peer[number % 2])).collect();
        assert_eq!(met.len(), 4);
    }
}
