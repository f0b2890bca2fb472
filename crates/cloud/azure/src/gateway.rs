//! The site's gateway: an active-active VPN gateway in the hub, with two public addresses, in the region of the site's
//! first network.

use std::{collections::BTreeSet, net::Ipv4Addr};

use cloud_api::CloudError;
use futures::{
    future::{try_join, try_join_all},
    try_join,
};
use model::{GatewayState, Segment};

use crate::{border::may_join, hub, place::*, site::Network, types::*};

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
pub fn check_asn(asn: u32) -> Result {
    match RESERVED.iter().any(|(first, last)| (*first..=*last).contains(&asn)) {
        true => Err(CloudError::invalid(format!("Azure keeps the AS number {asn}; use another private one"))),
        false => Ok(()),
    }
}

/// BGP addresses of each of the two instances.
pub type Sessions = [BTreeSet<Ipv4Addr>; 2];

/// A gateway with its addresses.
pub struct Ready {
    pub state: GatewayState,
    pub sessions: Sessions,
    pub location: String,
    sku: String,
}

pub fn id(place: &Place<'_>) -> Id<Gateway> {
    place.id(&place.names.gateway())
}

fn address(place: &Place<'_>, number: usize) -> Id<PublicAddress> {
    place.id(&place.names.gateway_address(number))
}

/// The id of an instance's configuration.
pub fn instance(place: &Place<'_>, number: usize) -> Id<Instance> {
    id(place).child(INSTANCES[number])
}

/// Which instance an id is of.
fn number_of(instance: &Id<Instance>) -> Option<usize> {
    INSTANCES.iter().position(|name| instance.name().eq_ignore_ascii_case(name))
}

/// The BGP addresses that a gateway has.
fn sessions_of(gateway: &GatewayProperties) -> Sessions {
    let mut sessions = Sessions::default();
    for one in &gateway.bgp_settings.bgp_peering_addresses {
        if let Some(number) = number_of(&one.instance) {
            sessions[number].extend(&one.custom_bgp_ip_addresses);
        }
    }
    sessions
}

/// Whether there is a gateway that networks can use.
pub async fn is_made(place: &Place<'_>) -> Result<bool> {
    let there = place.get(&id(place)).await?;
    Ok(there.is_some_and(|gateway| place.owns(&gateway) && gateway.is_made()))
}

/// The gateway, if all its parts are there and nobody works on it.
pub async fn read(place: &Place<'_>) -> Result<Option<Ready>> {
    ready(place, place.get(&id(place)).await?).await
}

/// The gateway, when whoever works on it is done: an earlier controller may have asked for a change.
pub async fn settled(place: &Place<'_>) -> Result<Option<Ready>> {
    ready(place, place.settled(&id(place)).await?).await
}

async fn ready(place: &Place<'_>, there: Option<Gateway>) -> Result<Option<Ready>> {
    let Some(gateway) = there.filter(|one| place.owns(one) && one.is_made()) else {
        return Ok(None);
    };
    let ids = [address(place, 0), address(place, 1)];
    let (first, second) = try_join!(place.get(&ids[0]), place.get(&ids[1]))?;
    let ip = |address: Option<PublicAddress>| address?.properties.ip_address;
    Ok(ip(first).zip(ip(second)).map(|(first, second)| Ready {
        state: GatewayState { asn: gateway.properties.bgp_settings.asn, addresses: vec![first, second] },
        sessions: sessions_of(&gateway.properties),
        location: gateway.location,
        sku: gateway.properties.sku.name,
    }))
}

async fn put(place: &Place<'_>, region: &str, asn: u32, sku: &str, sessions: &Sessions) -> Result {
    let instances = [0, 1].map(|number| {
        let properties = InstanceProperties {
            provisioning_state: State::default(),
            allocation: "Dynamic".to_owned(),
            subnet: Ref { id: hub::id(place).child(hub::GATEWAY_SUBNET) },
            address: Ref { id: address(place, number) },
        };
        Child::new(INSTANCES[number], properties)
    });
    let own = [0, 1].map(|number| InstanceSessions {
        instance: instance(place, number),
        custom_bgp_ip_addresses: sessions[number].clone(),
    });
    let has_own = sessions.iter().any(|own| !own.is_empty());
    let properties = NewGateway {
        gateway_type: "Vpn",
        vpn_type: "RouteBased",
        sku: Sku { name: sku.to_owned(), tier: Some(sku.to_owned()) },
        active_active: true,
        enable_bgp: true,
        ip_configurations: instances,
        bgp_settings: BgpSettings {
            asn,
            bgp_peering_addresses: if has_own { own.into() } else { Vec::new() },
        },
    };
    place.put(&id(place), &Draft::new(region, place.names.tags(&[]), properties)).await.map(drop)
}

/// Where a gateway is to stand: where a half of it does, or by the site's first network.
async fn region(place: &Place<'_>, half: Option<Gateway>) -> Result<Segment> {
    let location = match (half, place.get(&hub::id(place)).await?) {
        (Some(gateway), _) => Some(gateway.location),
        (None, Some(hub)) => Some(hub.location),
        (None, None) => Network::all(place).await?.into_iter().next().map(|network| network.vnet.location),
    };
    let none = || CloudError::conflict(format!("{} has no network for a gateway to stand by", place.site));
    location.as_deref().and_then(region_of).ok_or_else(none)
}

pub async fn make(place: &Place<'_>, asn: u32) -> Result<GatewayState> {
    check_asn(asn)?;
    let _turn = place.gateway_turn().await;
    let there = place.owned(&id(place)).await?;
    if !there.as_ref().is_some_and(Gateway::is_made) {
        let region = &region(place, there).await?;
        let addresses = try_join_all([0, 1].map(|number| async move {
            let body = public_address(place, region.as_str(), &place.settings.zones);
            place.ensure(&address(place, number), &body, |_| true).await
        }));
        try_join(hub::make(place, region.as_str()), addresses).await?;
        put(place, region.as_str(), asn, &place.settings.gateway_sku, &Sessions::default()).await?;
    }
    // Networks that are made from now on see the gateway; these were there before.
    let _turn = place.networks_turn().await;
    for network in Network::all(place).await? {
        if may_join(place, &network.region).await? {
            hub::lend(place, &network.region, &network.vnet).await?;
        }
    }
    let missing =
        || CloudError::unavailable(format!("the gateway of {} was made and is not there", place.site));
    Ok(settled(place).await?.ok_or_else(missing)?.state)
}

/// Gives the gateway the BGP addresses it should have, if it has others.
pub async fn set_sessions(place: &Place<'_>, gateway: &Ready, wanted: &Sessions) -> Result {
    if gateway.sessions == *wanted {
        return Ok(());
    }
    // Somebody may have bought a larger one.
    put(place, &gateway.location, gateway.state.asn, &gateway.sku, wanted).await
}

pub async fn remove(place: &Place<'_>) -> Result {
    let _turn = place.gateway_turn().await;
    if let Some(connection) = connections(place).await?.first() {
        return Err(CloudError::conflict(format!(
            "the gateway of {} has connections: {}",
            place.site, connection.name
        )));
    }
    let hub = place.settled(&hub::id(place)).await?;
    {
        let _turn = place.networks_turn().await;
        if hub.is_some() {
            for network in Network::all(place).await? {
                hub::take_back(place, &network.region).await?;
            }
        }
        place.remove(&id(place)).await?;
    }
    try_join_all([0, 1].map(|number| async move { place.remove(&address(place, number)).await })).await?;
    place.remove(&hub::id(place)).await
}

/// The site's connections, made or not.
pub async fn connections(place: &Place<'_>) -> Result<Vec<Connection>> {
    let mut found = place.list().await?;
    found.retain(|one| place.owns(one));
    Ok(found)
}

/// A public address that stays the same.
pub fn public_address(place: &Place<'_>, region: &str, zones: &[String]) -> Draft<PublicAddressProperties> {
    let properties = PublicAddressProperties {
        allocation: Some("Static".to_owned()),
        version: Some("IPv4".to_owned()),
        ..PublicAddressProperties::default()
    };
    let body = Draft::new(region, place.names.tags(&[]), properties);
    Draft { sku: Sku::standard(), zones: (!zones.is_empty()).then(|| zones.to_vec()), ..body }
}

/// The BGP addresses that connections use, by instance.
pub fn sessions_in_use(connections: &[Connection]) -> Sessions {
    let mut used = Sessions::default();
    for one in connections.iter().flat_map(|one| &one.properties.gateway_custom_bgp_ip_addresses) {
        if let (Some(number), Ok(address)) = (number_of(&one.instance), one.address.parse()) {
            used[number].insert(address);
        }
    }
    used
}
