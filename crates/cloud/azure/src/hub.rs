//! The hub: a virtual network that holds nothing but the site's gateway, and lends it to the site's networks. It stands
//! apart from them, so that any of them can come and go.

use model::Segment;

use crate::{
    peerings::{Side, join, part},
    place::*,
    site::vnet_id,
    types::*,
};

/// The name by which Azure knows where gateways go.
pub const GATEWAY_SUBNET: &str = "GatewaySubnet";

pub fn id(place: &Place<'_>) -> Id<Vnet> {
    place.id(&place.names.hub())
}

/// The hub's side comes first: a network can use a gateway only if it is lent.
fn sides(place: &Place<'_>, region: &str, vnet: Id<Vnet>) -> [Side; 2] {
    let (hub, name) = (id(place), place.names.of("lend", region));
    let lends = Side { lends_gateway: true, ..Side::new(hub.clone(), name, vnet.clone()) };
    let uses = Side { uses_gateway: true, ..Side::new(vnet, place.names.hub(), hub) };
    [lends, uses]
}

/// The hub, made if it is not there.
pub async fn make(place: &Place<'_>, region: &str) -> Result<Vnet> {
    let space = place.settings.gateway_space;
    let properties = SubnetProperties { address_prefix: Some(space.to_string()), ..Default::default() };
    let subnet = Child::new(GATEWAY_SUBNET, properties);
    let body = Draft::new(region, place.names.tags(&[]), VnetProperties::of(space, subnet));
    place.ensure(&id(place), &body, |_| true).await
}

/// Lets a network use the gateway.
pub async fn lend(place: &Place<'_>, region: &Segment, vnet: &Vnet) -> Result {
    let name = place.names.hub();
    let mut peerings = vnet.properties.virtual_network_peerings.iter();
    if peerings.any(|peering| peering.name == name && peering.properties.is_up()) {
        return Ok(());
    }
    let what = format!("of {}.{region} with its gateway", place.site);
    let id = vnet_id(place, region).await?;
    join(place, &sides(place, region.as_str(), id), &what).await
}

/// Takes a network off the gateway.
pub async fn take_back(place: &Place<'_>, region: &Segment) -> Result {
    let id = vnet_id(place, region).await?;
    let [lends, uses] = sides(place, region.as_str(), id);
    part(place, &[uses, lends]).await
}
