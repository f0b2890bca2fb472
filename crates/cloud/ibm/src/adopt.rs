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
use serde_json::Value;

use crate::{
    api::{GROUP, Place, VPC, is_alive, text},
    attach::Noted,
    cloud::{Ground, IbmCloud, Result},
    clusters::check_space,
    names::is_network,
    networks::noted_peerings,
    notes,
    vpcs::{Home, Vpc, place},
};

/// Where gateways' VPCs are.
const GATEWAYS: Ipv4Net = Ipv4Net::new_assert(std::net::Ipv4Addr::new(192, 168, 128, 0), 17);

impl IbmCloud {
    /// The VPCs of a region that a site has adopted, by their notes.
    pub(crate) async fn adopted_in(&self, ground: &Ground, region: &str) -> Result<Vec<Vpc>> {
        let groups = self.api.list(Place::Region(region), &GROUP, &ground.within("security_groups")).await?;
        let name = ground.names.adopted();
        let vpc = |note: &Value| Some(Vpc::adopt(region, &note["vpc"], notes::read(note)?.parse().ok()?));
        Ok(groups.iter().filter(|group| group["name"] == name.as_str()).filter_map(vpc).collect())
    }

    /// A VPC of whomever, and its blocks.
    pub(crate) async fn existing_vpc(&self, region: &str, id: &str) -> Result<Option<(Vpc, Vec<Ipv4Net>)>> {
        let found = self.api.get(Place::Region(region), &VPC, &format!("vpcs/{id}")).await?;
        let Some(found) = found.filter(is_alive) else { return Ok(None) };
        let vpc = Vpc::read(region, &found, Home::Adopted(id.to_owned()));
        let blocks = self.prefixes(&vpc).await?;
        if is_network(text(&found, "name")) {
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

    pub(crate) async fn adopt(&self, ground: &Ground, name: &str, space: Ipv4Net) -> Result<()> {
        let (region, Home::Adopted(id)) = place(name) else {
            return Err(CloudError::invalid(format!("{name} names no VPC to adopt")));
        };
        let gone = || CloudError::not_found(format!("there is no VPC {id} in {region}"));
        let (vpc, blocks) = self.existing_vpc(region, &id).await?.ok_or_else(gone)?;
        if !blocks.contains(&space) {
            return Err(CloudError::conflict(format!("the VPC {id} has {blocks:?}, and not {space}")));
        }
        let there = self.vpc(ground, name).await?;
        if let Some(other) = there.as_ref().and_then(Vpc::adopted).filter(|other| *other != space) {
            return Err(CloudError::conflict(format!("the network {}.{name} has {other}", ground.site)));
        }
        if there.is_none() {
            let note = ground.names.adopted();
            self.note_down(ground, &vpc, &note, "an adopted network", &space.to_string()).await?;
        }
        match self.vpcs(ground).await?.gateway {
            Some(_) => self.settle_hub(ground, None).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn release(&self, ground: &Ground, name: &str) -> Result<()> {
        let Some(vpc) = self.vpc(ground, name).await?.filter(|vpc| vpc.adopted().is_some()) else {
            return Ok(());
        };
        let groups = self.groups(&vpc).await?;
        if let Some(one) = self.attached_in(ground, &vpc, &groups).await?.first() {
            return Err(CloudError::conflict(format!("the resource {} is attached from {name}", one.0)));
        }
        self.settle_hub(ground, Some(name)).await?;
        let own = groups.iter().filter(|group| group["name"] == ground.names.adopted().as_str());
        for group in own {
            self.forget(&vpc, group).await?;
        }
        Ok(())
    }

    pub(crate) async fn list_adopted(&self, ground: &Ground, vpc: &Vpc) -> Result<Listing> {
        let groups = self.groups(vpc).await?;
        let name = vpc.name();
        let name = name.parse().map_err(|err| CloudError::invalid(format!("{name}: {err}")))?;
        Ok(Listing {
            networks: vpc.adopted().map(|space| (name, space)).into_iter().collect(),
            resources: self.attached_in(ground, vpc, &groups).await?,
            peerings: noted_peerings(ground, &groups),
            ..Listing::default()
        })
    }

    /// The note of an attached instance.
    pub(crate) fn noted(&self, ground: &Ground, groups: &[Value], instance: &str) -> Option<Noted> {
        let name = ground.names.attached(instance);
        let note = groups.iter().find(|group| group["name"] == name.as_str())?;
        serde_json::from_str(&notes::read(note)?).ok()
    }
}
