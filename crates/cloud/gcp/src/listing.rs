//! What a site consists of, as its objects and their marks say.

use cloud_api::{Listing, cluster_network};
use futures::try_join;
use ipnet::Ipv4Net;
use model::{NetworkName, PeeringName, Segment};

use crate::{
    adopt, advertise, attach, clusters, dns, endpoints, gateway,
    ground::{Ground, Result},
    instances::state_of,
    networks,
    shapes::{Instance, Router, Tunnel},
};

/// Those networks that are all that they should be: one of a cluster only with the names of Google's APIs beside it, and
/// if the router, where there is one, says the whole of its space.
async fn whole(ground: &Ground, mut subnets: Vec<(Segment, Ipv4Net)>) -> Result<Vec<(Segment, Ipv4Net)>> {
    if !subnets.iter().any(|(name, _)| cluster_network(name).is_some()) {
        return Ok(subnets);
    }
    let (zones, told) = try_join!(dns::has_zones(ground), advertise::told(ground))?;
    let is_told = |space: &Ipv4Net| told.as_ref().is_none_or(|told| told.contains(space));
    subnets.retain(|(name, space)| cluster_network(name).is_none() || zones && is_told(space));
    Ok(subnets)
}

/// Subnets of one VPC reach each other by themselves.
fn peerings_inside(ground: &Ground, networks: &[(Segment, Ipv4Net)]) -> Vec<PeeringName> {
    let named = |region: &Segment| NetworkName { site: ground.site.clone(), region: region.clone() };
    let names: Vec<NetworkName> = networks.iter().map(|(region, _)| named(region)).collect();
    let pairs =
        names.iter().enumerate().flat_map(|(place, a)| names[place + 1..].iter().map(move |b| (a, b)));
    pairs.filter_map(|(a, b)| PeeringName::new(a.clone(), b.clone()).ok()).collect()
}

pub(crate) async fn list_site(ground: &Ground) -> Result<Listing> {
    let own = ground.network();
    let (own, adopted) = try_join!(ground.get(&own), adopt::adopted(ground))?;
    if own.is_none() && adopted.is_empty() {
        return Ok(Listing::default());
    }
    let attached = match adopted.is_empty() {
        true => Vec::new(),
        false => attach::attached(ground).await?,
    };
    let (all, closed, endpoints) = try_join!(
        networks::subnets(ground),
        endpoints::networks::closed(ground),
        endpoints::resources::list(ground)
    )?;
    let clusters = clusters::list(ground, &all).await?;
    let mut networks = whole(ground, all).await?;
    networks.extend(closed);
    let [vm, nat, tun, pm] = ["vm", "nat", "tun", "pm"].map(|kind| ground.names.all(kind));
    let (instances, routers, gateway, tunnels, markers) = try_join!(
        ground.owned::<Instance>(&vm),
        ground.owned::<Router>(&nat),
        gateway::find(ground),
        ground.owned::<Tunnel>(&tun),
        ground.owned_firewalls(&pm),
    )?;
    let resource = |one: &Instance| Some((one.description.mark()?.name?, state_of(ground, one)?));
    let mut connections: Vec<_> =
        tunnels.iter().filter_map(|tunnel| tunnel.description.mark()?.peer).collect();
    connections.sort();
    connections.dedup();
    let mut peerings = peerings_inside(ground, &networks);
    peerings.extend(markers.iter().filter_map(|marker| marker.description.mark()?.peering));
    networks.extend(adopted.into_iter().map(|one| (one.name, one.space)));
    let made = instances.iter().filter_map(resource);
    Ok(Listing {
        networks,
        resources: made.chain(endpoints).chain(clusters).chain(attached).collect(),
        peerings,
        nats: routers.iter().filter_map(|router| router.description.mark()?.region).collect(),
        gateway: gateway.map(|gateway| gateway.state),
        connections,
    })
}
