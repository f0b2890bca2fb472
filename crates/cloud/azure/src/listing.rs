//! What a site consists of.

use std::collections::BTreeSet;

use cloud_api::Listing;
use futures::try_join;
use model::{NetworkName, PeeringName, Segment};

use crate::{attach, clusters, gateway, machines, names::*, peerings, place::*, site::*, types::*};

pub async fn read(place: &Place<'_>) -> Result<Listing> {
    // Everything stands in a network or, gateways, in the hub: without them there is nothing.
    let (vnets, groups) = try_join!(place.list::<Vnet>(), place.list::<Group>())?;
    let adopted = adopted_networks(place, &groups).await?;
    if adopted.is_empty() && !vnets.iter().any(|vnet| place.owns(vnet)) {
        return Ok(Listing::default());
    }
    let attached = attach::all(place, &groups).await?;
    let (machines, interfaces, nats, gateway, connections) = try_join!(
        place.list::<Machine>(),
        place.list::<Interface>(),
        place.list::<Nat>(),
        gateway::read(place),
        place.list::<Connection>(),
    )?;
    let mut networks = Network::made(place, &vnets);
    let clusters = clusters::all(place, &networks, &groups).await?;
    networks.extend(adopted);
    let resource = |machine: &Machine| {
        let wanted = machine.properties.network_profile.network_interfaces.first()?;
        let interface = interfaces.iter().find(|one| one.id == wanted.id)?;
        Some((machine.tags.parsed::<Segment>(NAME)?, machines::state_of(place, machine, interface)?))
    };
    let subnets = || networks.iter().flat_map(|network| &network.vnet.properties.subnets);
    let is_used = |nat: &&Nat| subnets().any(|one| is_to(&one.properties.nat_gateway, &nat.id));
    let peers: BTreeSet<_> = place.mine(&connections).filter_map(|one| peer_of(&one.tags)).collect();
    Ok(Listing {
        resources: place.mine(&machines).filter_map(resource).chain(attached).chain(clusters).collect(),
        peerings: open_peerings(place, &networks, &vnets, &adopted_names(place, &groups)).await?,
        nats: place.mine(&nats).filter(is_used).filter_map(network_of).collect(),
        networks: networks.iter().map(|network| (network.region.clone(), network.space)).collect(),
        gateway: gateway.map(|gateway| gateway.state),
        connections: peers.into_iter().collect(),
    })
}

/// Peerings that were asked for and are open, by the networks they join. A network of another resource group is
/// asked for its name.
async fn open_peerings(
    place: &Place<'_>,
    networks: &[Network],
    known: &[Vnet],
    adopted: &[(Id<Vnet>, NetworkName)],
) -> Result<Vec<PeeringName>> {
    let mut found = BTreeSet::new();
    for network in networks {
        let all = peerings::asked_for(place, &network.vnet).map(|one| &one.properties);
        for peering in all.filter(|one| one.is_up() && one.lets_through()) {
            let Some(Ref { id }) = &peering.remote_virtual_network else { continue };
            let far = match adopted.iter().find(|(other, _)| other == id) {
                Some((_, name)) => Some(name.clone()),
                None => match known.iter().find(|vnet| vnet.id == *id) {
                    Some(vnet) => name_of(place, vnet),
                    None => place.get(id).await?.and_then(|vnet| name_of(place, &vnet)),
                },
            };
            let near = NetworkName { site: place.site.clone(), region: network.region.clone() };
            found.extend(far.and_then(|far| PeeringName::new(near, far).ok()));
        }
    }
    Ok(found.into_iter().collect())
}

/// The name of a network that was made for some site of this owner.
fn name_of(place: &Place<'_>, vnet: &Vnet) -> Option<NetworkName> {
    Some(NetworkName { site: place.names.owns_site(&vnet.tags)?, region: network_of(vnet)? })
}
