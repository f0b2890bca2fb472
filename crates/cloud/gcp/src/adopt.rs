//! Adopted networks: VPCs that somebody else made, and that instances are attached from.
//!
//! ```text
//!   us-west1-vpc-HASH   the network's name: region, and a hash of the VPC's path
//!   t-SITE-ad-HASH      a disabled firewall of ours in that VPC that says so, and which subnet's range it is about
//!   site's VPC          has the gateway; peered with the adopted one, it exports what the gateway has learnt, and its
//!                       router advertises the range
//! ```
//!
//! Into the VPC itself come firewalls and peerings only, with names of ours.

use cloud_api::CloudError;
use ipnet::Ipv4Net;
use model::Segment;

use crate::{
    advertise, attach, gateway,
    ground::{Ground, Result, Vpc, is_cluster},
    mark::Mark,
    names::hash,
    peerings,
    shapes::{Firewall, Subnet},
};

/// A network that a site has adopted.
#[derive(Clone)]
pub(crate) struct Adopted {
    pub(crate) name: Segment,
    pub(crate) vpc: Vpc,
    pub(crate) space: Ipv4Net,
}

/// The region of an adopted network's name; none if it is a region itself, or a cluster's network.
pub(crate) fn adopted_region(name: &str) -> Option<&str> {
    let (region, _) = name.split_once("-vpc-")?;
    (!is_cluster(name)).then_some(region)
}

/// What the VPC of a subnet is called once it is adopted from there.
pub(crate) fn name_of(subnet: &Subnet) -> Result<Segment> {
    let name = format!("{}-vpc-{}", subnet.region.name(), hash(subnet.network.path(), 10));
    name.parse().map_err(|_| CloudError::unavailable(format!("the subnet {} has no region", subnet.name)))
}

fn read(ground: &Ground, marker: &Firewall) -> Option<Adopted> {
    let mark = marker.description.mark()?;
    let vpc = Vpc { ground: ground.clone(), link: ground.global().object(marker.network.name()) };
    Some(Adopted { name: mark.region?, vpc, space: mark.space? })
}

/// The networks that a site has adopted, in the order of their names.
pub(crate) async fn adopted(ground: &Ground) -> Result<Vec<Adopted>> {
    let markers = ground.owned_firewalls(&ground.names.all("ad")).await?;
    let mut found: Vec<Adopted> = markers.iter().filter_map(|marker| read(ground, marker)).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The adopted network of a name.
pub(crate) async fn find(ground: &Ground, name: &str) -> Result<Option<Adopted>> {
    let marker = ground.get(&ground.firewall(&ground.names.adopted(name))).await?;
    let marker = marker.filter(|marker| ground.owns(&marker.description));
    Ok(marker.and_then(|marker| read(ground, &marker)))
}

/// The VPC of a network, made or adopted; none if there is no such network.
pub(crate) async fn vpc_of(ground: &Ground, name: &str) -> Result<Option<Vpc>> {
    if adopted_region(name).is_some() {
        return Ok(find(ground, name).await?.map(|adopted| adopted.vpc));
    }
    Ok(ground.get(&ground.subnet(name)).await?.map(|_| ground.vpc()))
}

pub(crate) async fn adopt(ground: &Ground, name: &Segment, space: Ipv4Net) -> Result {
    let Some(region) = adopted_region(name.as_str()) else {
        return Err(CloudError::invalid(format!("{name} names no VPC to adopt")));
    };
    // The name has a hash, so the VPC is looked for among those that have subnets there.
    let mut inside: Vec<Subnet> = ground.compute().list(&ground.region(region), "").await?;
    inside.retain(|subnet| name_of(subnet).as_ref() == Ok(name));
    let Some(subnet) = inside.iter().find(|subnet| subnet.ip_cidr_range == Some(space)) else {
        let there: Vec<Ipv4Net> = inside.iter().filter_map(|subnet| subnet.ip_cidr_range).collect();
        return match inside.is_empty() {
            true => Err(CloudError::not_found(format!("there is no VPC that is called {name}"))),
            false => Err(CloudError::conflict(format!("{name} has {there:?}, and not {space}"))),
        };
    };
    let vpc = Vpc { ground: ground.clone(), link: ground.global().object(subnet.network.name()) };
    check_adopter(&vpc).await?;
    let mark = Mark { region: Some(name.clone()), space: Some(space), ..ground.names.mark() };
    vpc.note(&ground.names.adopted(name.as_str()), mark).await?;
    serve(ground, None).await
}

/// Refuses a VPC that is another site's or controller's.
pub(crate) async fn check_adopter(vpc: &Vpc) -> Result {
    let ground = &vpc.ground;
    let all = ground.firewalls("t-").await?;
    let theirs = all.iter().filter(|one| one.network == vpc.link && !ground.owns(&one.description));
    match theirs.filter_map(|one| one.description.mark()).find(|mark| mark.space.is_some()) {
        Some(mark) => Err(CloudError::conflict(format!(
            "{} is adopted already, by {} of {}; a VPC belongs to one site",
            vpc.link, mark.site, mark.owner
        ))),
        None => Ok(()),
    }
}

pub(crate) async fn release(ground: &Ground, name: &Segment) -> Result {
    let Some(adopted) = find(ground, name.as_str()).await? else { return Ok(()) };
    if let Some(one) = attach::attachments(ground).await?.into_iter().find(|one| one.network == *name) {
        return Err(CloudError::conflict(format!("the resource {} is attached from {name}", one.name)));
    }
    serve(ground, Some(name)).await?;
    peerings::unjoin(&ground.vpc(), &adopted.vpc).await?;
    ground.delete(&ground.firewall(&ground.names.adopted(name.as_str()))).await
}

/// Joins the site's gateway, if there is one, with the adopted networks, but for one that is about to go.
pub(crate) async fn serve(ground: &Ground, leaving: Option<&Segment>) -> Result {
    if gateway::find(ground).await?.is_none() {
        return Ok(());
    }
    for one in adopted(ground).await?.iter().filter(|one| Some(&one.name) != leaving) {
        peerings::join(&ground.vpc(), &one.vpc).await?;
    }
    advertise::settle_router(ground, leaving).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(host: &str) -> Subnet {
        let text = format!(
            r#"{{"name":"s","region":"{host}projects/p/regions/us-west1","network":"{host}projects/p/global/networks/n",
                "selfLink":"{host}projects/p/regions/us-west1/subnetworks/s","ipCidrRange":"10.1.0.0/20",
                "secondaryIpRanges":[{{"rangeName":"pods","ipCidrRange":"10.2.0.0/16"}},{{"rangeName":"six","ipCidrRange":"fd00::/64"}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_vpc_is_called_the_same_however_it_is_written() {
        let name = name_of(&subnet("https://www.googleapis.com/compute/v1/")).unwrap();
        assert_eq!(name, name_of(&subnet("https://compute.googleapis.com/compute/v1/")).unwrap());
        assert_eq!(adopted_region(name.as_str()), Some("us-west1"));
        assert_eq!(adopted_region("us-west1"), None);
        assert_eq!(adopted_region("us-west1-k8s-my-vpc-cluster"), None);
    }

    #[test]
    fn all_ranges_of_a_subnet_count() {
        let wanted: Vec<Ipv4Net> = ["10.1.0.0/20", "10.2.0.0/16"].map(|text| text.parse().unwrap()).into();
        assert_eq!(subnet("").ranges(), wanted);
    }
}
