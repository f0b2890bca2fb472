//! Adopted networks: VPCs that somebody else made, and that resources are attached from.
//!
//! ```text
//!   us-east-1-vpc-0abc    the network's name: region and VPC
//!   VPC                   gets the tag trestle:adopted-by, the only thing that is put on what is not ours
//!   its route tables      those that attached instances use get routes to our gateway and peerings
//! ```
//!
//! A VPC of ours has other tags, so nothing that deletes networks ever finds one of these.

use cloud_api::{CloudError, Listing, Result};
use cloud_http::or_gone;
use ipnet::Ipv4Net;
use model::Site;

use crate::{
    account::{Account, Place},
    attach::{self, Attached},
    attachments,
    marks::{mark, new_mark, old_mark},
    networks::{self, Network, region_and_vpc},
    routes::unroute,
    shapes::{Vpc, actions as ask},
    transit,
};

pub(crate) async fn adopt(account: &Account, site: &Site, name: &str, space: Ipv4Net) -> Result {
    let (region, Some(id)) = region_and_vpc(name) else {
        return Err(CloudError::invalid(format!("{name} names no VPC to adopt")));
    };
    let place = account.at(site, region);
    let found = networks::vpc(place, id).await?;
    let found = found.ok_or_else(|| CloudError::not_found(format!("there is no {id} in {region}")))?;
    if !found.blocks().contains(&space) {
        return Err(CloudError::conflict(format!("{id} has {:?}, and not {space}", found.blocks())));
    }
    check_adopter(place, &found)?;
    if mark(&found, "adopted-by").is_none() || mark(&found, "space") != Some(&space.to_string()) {
        let tags =
            vec![new_mark("adopted-by", place.marks().adopter()), new_mark("space", space.to_string())];
        place.tag::<Vpc>(id, tags).await?;
    }
    if let Some(hub) = transit::hub(account, site).await? {
        let network = Network { region: region.to_owned(), id: id.to_owned(), space, adopted: true };
        attachments::attach(account, site, &hub, &[network]).await?;
    }
    Ok(())
}

/// Refuses a VPC that is another site's or controller's.
pub(crate) fn check_adopter(place: Place<'_>, vpc: &Vpc) -> Result {
    let id = &vpc.vpc_id;
    if let Some(owner) = mark(vpc, "owner") {
        return Err(CloudError::conflict(format!("{id} is a network that Trestle ({owner}) made itself")));
    }
    match mark(vpc, "adopted-by") {
        Some(other) if other != place.marks().adopter() => Err(CloudError::conflict(format!(
            "{id} is adopted already, by {other}; a VPC belongs to one site"
        ))),
        _ => Ok(()),
    }
}

pub(crate) async fn release(account: &Account, site: &Site, name: &str) -> Result {
    let (region, Some(_)) = region_and_vpc(name) else { return Ok(()) };
    let Some(network) = networks::find(account, site, name).await? else { return Ok(()) };
    let place = account.at(site, region);
    if let Some(one) = attach::attached_in(place, &network).await?.first() {
        return Err(CloudError::conflict(format!("the resource {} is attached from {name}", one.name)));
    }
    let (hubs, spokes) =
        futures::try_join!(transit::list(place, transit::HUB), transit::list(place, transit::SPOKE))?;
    for transit in hubs.iter().chain(&spokes) {
        unroute(account, &network, ask::Target::Transit(&transit.id)).await?;
    }
    attachments::detach(place, &network).await?;
    place.touch::<Vpc>();
    let tag = vec![old_mark("adopted-by"), old_mark("space")];
    Ok(or_gone(place.ask(&ask::DeleteTags { resource_id: [&network.id], tag }).await)?)
}

/// A region's adopted networks, among its networks, and what is attached from them.
pub(crate) async fn list(place: Place<'_>, networks: &[Network]) -> Result<Listing> {
    let networks: Vec<&Network> = networks.iter().filter(|network| network.adopted).collect();
    if networks.is_empty() {
        return Ok(Listing::default());
    }
    let region = place.region;
    let attached = attach::attached(place).await?;
    let network = |one: &&Network| Some((Network::adopted_name(region, &one.id).parse().ok()?, one.space));
    let resource = |one: &Attached| Some((one.name.parse().ok()?, one.state(region)?));
    Ok(Listing {
        networks: networks.iter().filter_map(network).collect(),
        resources: attached.iter().filter_map(resource).collect(),
        ..Listing::default()
    })
}
