//! Networks: a VPC. And what a region's part of a site consists of.

use cloud_api::{CloudError, Listing, Result};
use ipnet::Ipv4Net;
use model::{GatewayState, Segment, Site};

use crate::{
    account::{Account, Place},
    adopt, attachments, connections,
    kinds::Ec2Kind as _,
    marks::{Filter, mark},
    peerings, resources,
    shapes::{NatGateway, Subnet, Vpc, actions as ask},
    subnets::{self, Parts},
    transit,
};

/// A site's network in a region.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) region: String,
    pub(crate) id: String,
    pub(crate) space: Ipv4Net,
    /// Somebody else made it.
    pub(crate) adopted: bool,
}

impl Network {
    /// The network's name if it is an adopted one: region and VPC.
    pub(crate) fn adopted_name(region: &str, vpc: &str) -> String {
        format!("{region}-{vpc}")
    }
}

/// The region of a network's name, and the VPC if it is an adopted one's.
pub(crate) fn region_and_vpc(name: &str) -> (&str, Option<&str>) {
    match name.find("-vpc-") {
        Some(at) => (&name[..at], Some(&name[at + 1..])),
        None => (name, None),
    }
}

/// A site's networks in a region: those made for it, then those adopted. Of two that were made, which only a lost answer
/// can leave, the older counts.
pub(crate) async fn list(place: Place<'_>) -> Result<Vec<Network>> {
    // Made and adopted ones in one request: they have different tags, and filters of different tags must all be passed.
    let found = place.list::<Vpc>(&[Filter::new("tag-key", ["trestle:*"])]).await?;
    let marks = place.marks();
    let network = |vpc: Vpc| {
        let space = match (marks.own(&vpc), marks.adopts(&vpc)) {
            (true, _) => vpc.cidr_block,
            // The block that instances are attached from. A VPC that has lost it is not the one that was adopted.
            (false, true) => {
                mark(&vpc, "space")?.parse().ok().filter(|space| vpc.blocks().contains(space))?
            }
            (false, false) => return None,
        };
        Some(Network { region: place.region.to_owned(), adopted: !marks.own(&vpc), id: vpc.vpc_id, space })
    };
    let mut networks: Vec<Network> = found.into_iter().filter_map(network).collect();
    networks.sort_by(|a, b| (a.adopted, &a.id).cmp(&(b.adopted, &b.id)));
    Ok(networks)
}

/// Any VPC.
pub(crate) async fn vpc(place: Place<'_>, id: &str) -> Result<Option<Vpc>> {
    Ok(place.list(&[Filter::new("vpc-id", [id])]).await?.into_iter().next())
}

/// A network by its name, which is a region's or that of an adopted one.
pub(crate) async fn find(account: &Account, site: &Site, name: &str) -> Result<Option<Network>> {
    let (region, adopted) = region_and_vpc(name);
    let is_it = |network: &Network| match adopted {
        Some(id) => network.adopted && network.id == id,
        None => !network.adopted,
    };
    Ok(list(account.at(site, region)).await?.into_iter().find(is_it))
}

pub(crate) async fn need(account: &Account, site: &Site, name: &str) -> Result<Network> {
    let none = || CloudError::conflict(format!("there is no network {site}.{name}"));
    find(account, site, name).await?.ok_or_else(none)
}

/// The networks of a site in all regions.
pub(crate) async fn all(account: &Account, site: &Site) -> Result<Vec<Network>> {
    let found = account.everywhere(|region| list(account.at(site, region))).await?;
    let mut all: Vec<Network> = found.into_iter().flatten().collect();
    all.dedup_by(|second, first| !second.adopted && !first.adopted && second.region == first.region);
    all.sort_by_key(|network| network.adopted);
    Ok(all)
}

pub(crate) async fn make(place: Place<'_>, space: Ipv4Net) -> Result {
    Parts::of(space)?;
    let Place { account, site, region } = place;
    let known = account.regions().await?;
    if !known.iter().any(|one| one == region) {
        let known = known.join(", ");
        return Err(CloudError::invalid(format!("the account has no region {region}; it has {known}")));
    }
    let network = match find(account, site, region).await? {
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

pub(crate) async fn remove(place: Place<'_>) -> Result {
    let Place { site, region, .. } = place;
    if let (_, Some(id)) = region_and_vpc(region) {
        return Err(CloudError::conflict(format!("{id} is somebody else's; it can only be let go")));
    }
    for network in list(place).await?.into_iter().filter(|network| !network.adopted) {
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
pub(crate) async fn list_site(account: &Account, site: &Site) -> Result<Listing> {
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
    let networks = list(place).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_networks_tell_region_and_vpc() {
        assert_eq!(region_and_vpc("us-east-1"), ("us-east-1", None));
        assert_eq!(region_and_vpc("us-east-1-vpc-0ab"), ("us-east-1", Some("vpc-0ab")));
    }
}
