//! The site's gateway: an active-active VPN gateway in the hub, with two public addresses, in the region of the site's
//! first network.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
};

use cloud_api::CloudError;
use futures::{
    future::{try_join, try_join_all},
    try_join,
};
use model::GatewayState;
use serde_json::{Value, json};

use crate::{
    api::is_made,
    cloud::{AzureCloud, Ground, Result},
    names::region_of,
    networks::listed,
};

/// The names of the two instances' configurations; addresses and sessions refer to them.
const INSTANCES: [&str; 2] = ["default", "activeActive"];

/// AS numbers that Azure keeps for itself, or that nobody may use: the first and the last of each range.
const RESERVED: [(u32, u32); 8] = [
    (0, 0),
    (8_074, 8_075),
    (12_076, 12_076),
    (23_456, 23_456),
    (64_496, 64_511),
    (65_515, 65_515),
    (65_517, 65_520),
    (65_535, 65_551),
];

/// Refused before the first request, with the reason.
pub(crate) fn check_asn(asn: u32) -> Result<()> {
    match RESERVED.iter().any(|(first, last)| (*first..=*last).contains(&asn)) {
        true => Err(CloudError::invalid(format!("Azure keeps the AS number {asn}; use another private one"))),
        false => Ok(()),
    }
}

/// BGP addresses of each of the two instances.
pub(crate) type Sessions = [BTreeSet<Ipv4Addr>; 2];

pub(crate) struct Gateway {
    pub(crate) state: GatewayState,
    pub(crate) sessions: Sessions,
    pub(crate) object: Value,
}

impl Ground {
    pub(crate) fn gateway(&self) -> String {
        self.network_id("virtualNetworkGateways", &self.names.gateway())
    }

    fn gateway_address(&self, number: usize) -> String {
        self.network_id("publicIPAddresses", &self.names.gateway_address(number))
    }

    /// The id of an instance's configuration.
    pub(crate) fn instance(&self, number: usize) -> String {
        format!("{}/ipConfigurations/{}", self.gateway(), INSTANCES[number])
    }
}

/// The BGP addresses that a gateway has.
fn sessions_of(gateway: &Value) -> Sessions {
    let peers = gateway["properties"]["bgpSettings"]["bgpPeeringAddresses"].as_array();
    INSTANCES.map(|name| {
        let mut own = peers.into_iter().flatten().filter(|one| {
            let id = one["ipconfigurationId"].as_str().unwrap_or_default();
            id.rsplit('/').next().is_some_and(|last| last.eq_ignore_ascii_case(name))
        });
        let custom = own.next().and_then(|one| one["customBgpIpAddresses"].as_array());
        custom.into_iter().flatten().filter_map(|text| text.as_str()?.parse().ok()).collect()
    })
}

impl AzureCloud {
    /// Whether there is a gateway that networks can use.
    pub(crate) async fn has_gateway(&self, ground: &Ground) -> Result<bool> {
        let there = self.arm.get(&ground.gateway()).await?;
        Ok(there.is_some_and(|gateway| ground.names.owns(&gateway) && is_made(&gateway)))
    }

    /// The gateway, if all its parts are there and nobody works on it.
    pub(crate) async fn gateway(&self, ground: &Ground) -> Result<Option<Gateway>> {
        self.gateway_of(ground, self.arm.get(&ground.gateway()).await?).await
    }

    /// The gateway, when whoever works on it is done: an earlier controller may have asked for a change.
    pub(crate) async fn settled_gateway(&self, ground: &Ground) -> Result<Option<Gateway>> {
        self.gateway_of(ground, self.arm.settled(&ground.gateway()).await?).await
    }

    async fn gateway_of(&self, ground: &Ground, there: Option<Value>) -> Result<Option<Gateway>> {
        let Some(object) = there.filter(|one| ground.names.owns(one) && is_made(one)) else {
            return Ok(None);
        };
        let ids = [ground.gateway_address(0), ground.gateway_address(1)];
        let (first, second) = try_join!(self.arm.get(&ids[0]), self.arm.get(&ids[1]))?;
        let address = |object: &Option<Value>| -> Option<IpAddr> {
            object.as_ref()?["properties"]["ipAddress"].as_str()?.parse().ok()
        };
        let asn = object["properties"]["bgpSettings"]["asn"].as_u64().and_then(|asn| u32::try_from(asn).ok());
        Ok(asn.zip(address(&first)).zip(address(&second)).map(|((asn, first), second)| Gateway {
            state: GatewayState { asn, addresses: vec![first, second] },
            sessions: sessions_of(&object),
            object,
        }))
    }

    pub(crate) async fn need_gateway(&self, ground: &Ground) -> Result<Gateway> {
        self.settled_gateway(ground)
            .await?
            .ok_or_else(|| CloudError::conflict(format!("{} has no gateway", ground.site)))
    }

    fn body(&self, ground: &Ground, region: &str, asn: u32, sku: &str, sessions: &Sessions) -> Value {
        let subnet = format!("{}/subnets/GatewaySubnet", ground.hub());
        let instance = |number: usize| {
            json!({"name": INSTANCES[number], "properties": {
                "privateIPAllocationMethod": "Dynamic",
                "subnet": {"id": subnet},
                "publicIPAddress": {"id": ground.gateway_address(number)},
            }})
        };
        let peering = |number: usize| json!({"ipconfigurationId": ground.instance(number), "customBgpIpAddresses": sessions[number]});
        let mut bgp = json!({ "asn": asn });
        if sessions.iter().any(|own| !own.is_empty()) {
            bgp["bgpPeeringAddresses"] = json!([peering(0), peering(1)]);
        }
        json!({
            "location": region,
            "tags": ground.names.tags(&[]),
            "properties": {
                "gatewayType": "Vpn",
                "vpnType": "RouteBased",
                "sku": {"name": sku, "tier": sku},
                "activeActive": true,
                "enableBgp": true,
                "ipConfigurations": [instance(0), instance(1)],
                "bgpSettings": bgp,
            },
        })
    }

    pub(crate) async fn make_gateway(&self, ground: &Ground, asn: u32) -> Result<GatewayState> {
        check_asn(asn)?;
        let there = self.owned(ground, &ground.gateway()).await?;
        if !there.as_ref().is_some_and(is_made) {
            let region = match (there, self.arm.get(&ground.hub()).await?) {
                (Some(half), _) | (None, Some(half)) => half["location"].as_str().and_then(region_of),
                (None, None) => {
                    let first = self.vnets(ground).await?.into_iter().next();
                    first.and_then(|vnet| region_of(vnet.object["location"].as_str()?))
                }
            };
            let none =
                || CloudError::conflict(format!("{} has no network for a gateway to stand by", ground.site));
            let region = region.ok_or_else(none)?;
            let addresses =
                try_join_all((0..2).map(|number| self.gateway_ip(ground, region.as_str(), number)));
            try_join(self.make_hub(ground, region.as_str()), addresses).await?;
            let body = self.body(ground, region.as_str(), asn, &self.gateway_sku, &Sessions::default());
            self.arm.put(&ground.gateway(), &body).await?;
        }
        // Networks that are made from now on see the gateway; these were there before.
        let _turn = self.networks_turn(&ground.site).await;
        for vnet in self.vnets(ground).await? {
            if self.may_join(ground, &vnet.region).await? {
                self.join_hub(ground, &vnet.region, &vnet.object).await?;
            }
        }
        let missing =
            || CloudError::unavailable(format!("the gateway of {} was made and is not there", ground.site));
        Ok(self.settled_gateway(ground).await?.ok_or_else(missing)?.state)
    }

    async fn gateway_ip(&self, ground: &Ground, region: &str, number: usize) -> Result<Value> {
        let id = ground.gateway_address(number);
        let body = public_address(ground, region, &self.zones);
        self.ensure(ground, &id, &body, |_| true).await
    }

    /// Gives the gateway the BGP addresses it should have, if it has others.
    pub(crate) async fn set_sessions(
        &self,
        ground: &Ground,
        gateway: &Gateway,
        wanted: &Sessions,
    ) -> Result<()> {
        if gateway.sessions == *wanted {
            return Ok(());
        }
        let object = &gateway.object;
        let region = object["location"].as_str().unwrap_or_default();
        // Somebody may have bought a larger one.
        let sku = object["properties"]["sku"]["name"].as_str().unwrap_or(&self.gateway_sku);
        let body = self.body(ground, region, gateway.state.asn, sku, wanted);
        Ok(self.arm.put(&ground.gateway(), &body).await.map(drop)?)
    }

    pub(crate) async fn remove_gateway(&self, ground: &Ground) -> Result<()> {
        if let Some(connection) = self.connections(ground).await?.first() {
            return Err(CloudError::conflict(format!(
                "the gateway of {} has connections: {}",
                ground.site,
                connection["name"].as_str().unwrap_or_default()
            )));
        }
        let hub = self.arm.settled(&ground.hub()).await?;
        {
            let _turn = self.networks_turn(&ground.site).await;
            if hub.is_some() {
                for vnet in self.vnets(ground).await? {
                    self.leave_hub(ground, &vnet.region).await?;
                }
            }
            self.remove(ground, &ground.gateway()).await?;
        }
        try_join_all(
            (0..2).map(|number| async move { self.remove(ground, &ground.gateway_address(number)).await }),
        )
        .await?;
        self.remove(ground, &ground.hub()).await
    }

    /// The site's connections, made or not.
    pub(crate) async fn connections(&self, ground: &Ground) -> Result<Vec<Value>> {
        let found = self.arm.list(&ground.group, "Microsoft.Network/connections").await?;
        Ok(found.into_iter().filter(|one| ground.names.owns(one)).collect())
    }
}

/// A public address that stays the same.
pub(crate) fn public_address(ground: &Ground, region: &str, zones: &[String]) -> Value {
    let mut body = json!({
        "location": region,
        "tags": ground.names.tags(&[]),
        "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"},
    });
    if !zones.is_empty() {
        body["zones"] = json!(zones);
    }
    body
}

/// The BGP addresses that connections use, by instance.
pub(crate) fn sessions_in_use<'c>(connections: impl Iterator<Item = &'c Value>) -> Sessions {
    let mut used = Sessions::default();
    for one in connections.flat_map(|connection| listed(connection, "gatewayCustomBgpIpAddresses")) {
        let id = one["ipConfigurationId"].as_str().unwrap_or_default();
        let number =
            INSTANCES.iter().position(|name| id.to_ascii_lowercase().ends_with(&name.to_ascii_lowercase()));
        let address = one["customBgpIpAddress"].as_str().and_then(|text| text.parse().ok());
        if let (Some(number), Some(address)) = (number, address) {
            used[number].insert(address);
        }
    }
    used
}
