//! The site's gateway: an HA VPN gateway and its router, in the site's own VPC, in the first region of the site, which may
//! be one of an adopted network.

use cloud_api::CloudError;
use cloud_http::{Class, Failure};
use model::GatewayState;

use crate::{
    adopt::{self, adopted_region},
    ground::{Ground, Result, region_of},
    networks, peerings,
    shapes::{Bgp, Router, VpnGateway},
};

pub(crate) struct Gateway {
    pub(crate) region: String,
    pub(crate) state: GatewayState,
}

/// The VPN gateway, with a router or without.
async fn half(ground: &Ground) -> Result<Option<VpnGateway>> {
    Ok(ground.owned::<VpnGateway>(&ground.names.gateway()).await?.into_iter().next())
}

/// The gateway, if both its parts are there.
pub(crate) async fn find(ground: &Ground) -> Result<Option<Gateway>> {
    let Some(gateway) = half(ground).await? else { return Ok(None) };
    let region = gateway.region.name().to_owned();
    let router = ground.get(&ground.router(&region)).await?;
    let addresses = gateway.vpn_interfaces.iter().filter_map(|one| one.ip_address).collect();
    let asn = router.and_then(|router| router.bgp?.asn);
    Ok(asn.map(|asn| Gateway { region, state: GatewayState { asn, addresses } }))
}

pub(crate) async fn need(ground: &Ground) -> Result<Gateway> {
    find(ground).await?.ok_or_else(|| CloudError::conflict(format!("{} has no gateway", ground.site)))
}

pub(crate) async fn make(ground: &Ground, asn: u32) -> Result<GatewayState> {
    if let Some(there) = find(ground).await? {
        adopt::serve(ground, None).await?;
        return Ok(there.state);
    }
    let region = match half(ground).await? {
        Some(half) => half.region.name().to_owned(),
        None => region_for(ground).await?,
    };
    let (place, names, network) = (ground.region(&region), &ground.names, ground.network());
    let gateway = VpnGateway {
        name: names.gateway(),
        network: network.clone(),
        description: names.mark().into(),
        ..VpnGateway::default()
    };
    let router = Router {
        name: names.router(),
        network,
        description: names.mark().into(),
        bgp: Some(Bgp { asn: Some(asn), ..Bgp::default() }),
        ..Router::default()
    };
    let compute = ground.compute();
    futures::try_join!(compute.insert(&place, &gateway), compute.insert(&place, &router))?;
    let missing =
        || CloudError::unavailable(format!("the gateway of {} was made and is not there", ground.site));
    let made = find(ground).await?.ok_or_else(missing)?;
    adopt::serve(ground, None).await?;
    Ok(made.state)
}

/// Where a new gateway stands. A site that has adopted networks only gets a VPC for it.
async fn region_for(ground: &Ground) -> Result<String> {
    if let Some((network, _)) = networks::subnets(ground).await?.first() {
        return Ok(region_of(network.as_str()));
    }
    let none = || CloudError::conflict(format!("{} has no network for a gateway to stand in", ground.site));
    let adopted = adopt::adopted(ground).await?;
    let region = adopted.first().and_then(|one| adopted_region(one.name.as_str())).ok_or_else(none)?;
    networks::make_vpc(ground).await?;
    Ok(region.to_owned())
}

/// What there is of a gateway, half made or half gone.
async fn parts(ground: &Ground) -> Result<(Vec<VpnGateway>, Vec<Router>)> {
    let gateways = ground.owned(&ground.names.gateway()).await?;
    Ok((gateways, ground.owned(&ground.names.router()).await?))
}

/// Whether nothing is left of a gateway.
pub(crate) async fn is_gone(ground: &Ground) -> Result<bool> {
    let (gateways, routers) = parts(ground).await?;
    Ok(gateways.is_empty() && routers.is_empty())
}

pub(crate) async fn remove(ground: &Ground) -> Result {
    let in_use = |failure: Failure| match failure.class() {
        Class::InUse => {
            CloudError::conflict(format!("the gateway of {} has connections: {failure}", ground.site))
        }
        _ => failure.into(),
    };
    let (gateways, routers) = parts(ground).await?;
    for one in &gateways {
        let link = ground.region(one.region.name()).object::<VpnGateway>(&one.name);
        ground.compute().delete(&link).await.map_err(in_use)?;
    }
    for one in &routers {
        let link = ground.region(one.region.name()).object::<Router>(&one.name);
        ground.compute().delete(&link).await.map_err(in_use)?;
    }
    for adopted in adopt::adopted(ground).await? {
        peerings::part(&ground.vpc(), &adopted.vpc).await?;
    }
    networks::remove_vpc(ground).await
}
