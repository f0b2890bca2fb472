//! What a site consists of: its networks, made and taken away with what is in them, and all of it listed.

use cloud_api::{CloudError, Listing, Result};
use ipnet::Ipv4Net;
use model::{GatewayState, Segment, Site};

use crate::{
    account::{Account, Place},
    adopt, attachments, connections,
    kinds::Ec2Kind as _,
    marks::{Filter, mark},
    networks::{self, Network, region_and_vpc},
    peerings, resources,
    shapes::{NatGateway, Subnet, Vpc, actions as ask},
    subnets::{self, Parts},
    transit,
};

pub(crate) async fn make_network(place: Place<'_>, space: Ipv4Net) -> Result {
    Parts::of(space)?;
    let Place { account, site, region } = place;
    let known = account.regions().await?;
    if !known.iter().any(|one| one == region) {
        let known = known.join(", ");
        return Err(CloudError::invalid(format!("the account has no region {region}; it has {known}")));
    }
    let network = match networks::find(account, site, region).await? {
        Some(there) if there.space != space => {
            let message = format!("the network {site}.{region} has the space {}, not {space}", there.space);
            return Err(CloudError::conflict(message));
        }
        Some(there) => there,
        None => {
            let tag_specification = place.tags::<Vpc>(region, &[("region", region)])?;
            let id = place.make(&ask::CreateVpc { cidr_block: space, tag_specification }).await?.vpc_id;
            Network { region: region.to_owned(), id, space, adopted: false }
        }
    };
    subnets::of_zone(place, &network, None).await?;
    if let Some(hub) = transit::hub(account, site).await? {
        attachments::attach(account, site, &hub, &[network]).await?;
    }
    Ok(())
}

pub(crate) async fn remove_network(place: Place<'_>) -> Result {
    let Place { site, region, .. } = place;
    if let (_, Some(id)) = region_and_vpc(region) {
        return Err(CloudError::conflict(format!("{id} is somebody else's; it can only be let go")));
    }
    for network in networks::list(place).await?.into_iter().filter(|network| !network.adopted) {
        let inside = resources::instances(place, &[]).await?;
        if let Some(instance) = inside.iter().find(|one| one.vpc_id.as_ref() == Some(&network.id)) {
            let name = mark(instance, "name").unwrap_or(&instance.instance_id);
            return Err(CloudError::conflict(format!(
                "the network {site}.{region} has the resource {name} in it"
            )));
        }
        attachments::detach(place, &network).await?;
        for subnet in place.list::<Subnet>(&[Filter::new("vpc-id", [&network.id])]).await? {
            place.delete::<Subnet>(subnet.id()).await?;
        }
        place.delete::<Vpc>(&network.id).await?;
    }
    Ok(())
}

/// All that a site has. Its gateway may stand in a region that has no network any more.
pub(crate) async fn list(account: &Account, site: &Site) -> Result<Listing> {
    let mut listing = Listing::default();
    for part in account.everywhere(|region| list_region(account.at(site, region))).await? {
        listing.networks.extend(part.networks);
        listing.resources.extend(part.resources);
        listing.peerings.extend(part.peerings);
        listing.nats.extend(part.nats);
    }
    if !listing.networks.is_empty()
        && let Some(hub) = transit::hub(account, site).await?
    {
        listing.gateway = Some(GatewayState { asn: hub.asn, addresses: Vec::new() });
        let connections = connections::living(account.at(site, &hub.region)).await?;
        listing.connections = connections.iter().filter_map(|one| mark(one, "peer")?.parse().ok()).collect();
    }
    listing.peerings.sort();
    listing.peerings.dedup();
    listing.connections.sort();
    listing.connections.dedup();
    Ok(listing)
}

/// One region's part of a site, the gateway aside.
async fn list_region(place: Place<'_>) -> Result<Listing> {
    let networks = networks::list(place).await?;
    let adopted = adopt::list(place, &networks).await?;
    let Some(network) = networks.iter().find(|network| !network.adopted) else {
        // A peering that begins here with an adopted network.
        let peerings = match adopted.networks.is_empty() {
            true => Vec::new(),
            false => peerings::active_in(place).await?,
        };
        return Ok(Listing { peerings, ..adopted });
    };
    let region = place.region;
    let name: Segment =
        region.parse().map_err(|_| CloudError::invalid(format!("{region} is no region's name")))?;
    let nats = async { Ok(place.own::<NatGateway>(&[]).await?) };
    let (instances, peerings, nats) =
        futures::try_join!(resources::instances(place, &[]), peerings::active_in(place), nats)?;
    let resource =
        |instance| Some((mark(instance, "name")?.parse().ok()?, resources::state_of(instance, region)?));
    Ok(Listing {
        networks: [(name.clone(), network.space)].into_iter().chain(adopted.networks).collect(),
        resources: instances.iter().filter_map(resource).chain(adopted.resources).collect(),
        peerings,
        nats: if nats.iter().any(NatGateway::is_alive) { vec![name] } else { Vec::new() },
        ..Listing::default()
    })
}
