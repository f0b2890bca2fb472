//! Networks: a site's VPCs, those that were made for it and those that were adopted. How they are found.

use cloud_api::{CloudError, Result};
use ipnet::Ipv4Net;
use model::Site;

use crate::{
    account::{Account, Place},
    marks::{Filter, mark},
    shapes::Vpc,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_networks_tell_region_and_vpc() {
        assert_eq!(region_and_vpc("us-east-1"), ("us-east-1", None));
        assert_eq!(region_and_vpc("us-east-1-vpc-0ab"), ("us-east-1", Some("vpc-0ab")));
    }
}
