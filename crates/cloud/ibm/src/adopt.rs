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

use crate::attach::{attached_in, existing_vpc};
use crate::gateway::settle_hub;
use crate::vpcs::place;
use crate::{Ground, Groups, Home, Result, Vpc, Vpcs};

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
