//! Adopted networks: VPCs that somebody else made, and that instances are attached from.
//!
//! ```text
//!   us-south-vpc-r006-…   the network's name: region and VPC
//!   t-SITE-adopted        a note in the VPC: a security group without targets that says which block is used
//! ```
//!
//! A VPC has a block per zone; instances are attached from the block, and so from the zone, of the first one.

use cloud_api::{CloudError, Listing};
use ipnet::Ipv4Net;

use crate::{
    Result,
    api::Api,
    attach::attached_in,
    clusters::check_space,
    ground::Ground,
    groups::Groups,
    kinds::Listed as _,
    names::is_network,
    notes,
    shapes::{self, SecurityGroup},
    transit::settle_hub,
    vpcs::{Home, Vpc, Vpcs, place},
};

/// Where gateways' VPCs are.
const GATEWAYS: Ipv4Net = Ipv4Net::new_assert(std::net::Ipv4Addr::new(192, 168, 128, 0), 17);

/// The VPCs of a region that a site has adopted, by their notes.
pub(crate) async fn adopted_in(ground: &Ground, region: &str) -> Result<Vec<Vpc>> {
    let (groups, name) = (ground.within::<SecurityGroup>(region).list().await?, ground.names.adopted());
    let notes = groups.iter().filter(|group| group.name == name);
    let noted = notes.filter_map(|note| Some((&note.vpc, notes::read(note)?.parse().ok()?)));
    let vpc = |(vpc, block): (&shapes::Reference, Ipv4Net)| {
        let (id, crn) = (vpc.id.clone(), vpc.crn()?.to_owned());
        let home = Home::Adopted(id.clone());
        Ok(Vpc { region: region.to_owned(), id, crn, home, adopted: Some(block) })
    };
    noted.map(vpc).collect()
}

/// A VPC of whomever, and its blocks.
pub(crate) async fn existing_vpc(api: &Api, region: &str, id: &str) -> Result<Option<(Vpc, Vec<Ipv4Net>)>> {
    let found = api.in_region::<shapes::Vpc>(region).get(id).await?;
    let Some(found) = found.filter(shapes::Vpc::is_alive) else { return Ok(None) };
    let is_made = is_network(&found.name);
    let vpc = Vpc::new(region, found, Home::Adopted(id.to_owned()));
    let blocks = vpc.prefixes(api).await?;
    if is_made {
        return Err(CloudError::conflict(format!("{} is a network that Trestle made itself", vpc.id)));
    }
    blocks.iter().try_for_each(|block| check_space(*block))?;
    let overlap =
        |block: &&Ipv4Net| block.contains(&GATEWAYS.network()) || GATEWAYS.contains(&block.network());
    match blocks.iter().find(overlap) {
        Some(block) => Err(CloudError::conflict(format!(
            "the VPC {} has {block}, which overlaps {GATEWAYS}, where gateways stand",
            vpc.id
        ))),
        None => Ok(Some((vpc, blocks))),
    }
}

pub(crate) async fn adopt(ground: &Ground, name: &str, space: Ipv4Net) -> Result {
    let _turn = ground.turn().await;
    let (region, Home::Adopted(id)) = place(name) else {
        return Err(CloudError::invalid(format!("{name} names no VPC to adopt")));
    };
    let gone = || CloudError::not_found(format!("there is no VPC {id} in {region}"));
    let (vpc, blocks) = existing_vpc(&ground.api, region, &id).await?.ok_or_else(gone)?;
    if !blocks.contains(&space) {
        return Err(CloudError::conflict(format!("the VPC {id} has {blocks:?}, and not {space}")));
    }
    match Vpc::find(ground, name).await?.and_then(|vpc| vpc.adopted) {
        Some(other) if other != space => {
            return Err(CloudError::conflict(format!("the network {}.{name} has {other}", ground.site)));
        }
        Some(_) => {}
        None => {
            let (groups, note) = (Groups { ground, vpc, all: Vec::new() }, ground.names.adopted());
            groups.note_down(note, "an adopted network", &space.to_string()).await?;
        }
    }
    match Vpcs::read(ground).await?.gateway {
        Some(_) => settle_hub(ground, None).await,
        None => Ok(()),
    }
}

pub(crate) async fn release(ground: &Ground, name: &str) -> Result {
    let _turn = ground.turn().await;
    let found = Vpc::find(ground, name).await?.filter(|vpc| vpc.adopted.is_some());
    let Some(vpc) = found else { return Ok(()) };
    let groups = Groups::read(ground, &vpc).await?;
    if let Some(one) = attached_in(&groups)?.first() {
        return Err(CloudError::conflict(format!("the resource {} is attached from {name}", one.0)));
    }
    settle_hub(ground, Some(name)).await?;
    groups.forget(groups.named(&ground.names.adopted())).await
}

pub(crate) async fn list(ground: &Ground, vpc: &Vpc) -> Result<Listing> {
    let groups = Groups::read(ground, vpc).await?;
    let name = vpc.segment()?;
    Ok(Listing {
        networks: vpc.adopted.map(|space| (name, space)).into_iter().collect(),
        resources: attached_in(&groups)?,
        peerings: groups.peerings(),
        ..Listing::default()
    })
}
