//! The networks that a site has: those made for it, and those adopted, which somebody else made and which machines are
//! attached from.
//!
//! ```text
//!   westus2               the network's name: its region
//!   westus2-k8s-NAME      that of a cluster
//!   westus2-vnet-HASH     an adopted one's: region and a hash of the virtual network's id
//!   t-SITE-adopt-HASH     an empty security group of ours that says which virtual network that is. It protects nothing;
//!                         a group costs nothing and can carry tags
//! ```
//!
//! Not here: what makes and adopts them (`networks`, `adopt`).

use cloud_api::{CloudError, cluster_network};
use cloud_http::letters;
use futures::try_join;
use ipnet::Ipv4Net;
use model::{NetworkName, Segment};

use crate::{
    names::*,
    place::*,
    space::{check_space, halves, overlap, space_of},
    types::*,
};

/// A network of the site: a virtual network that is not the hub.
pub struct Network {
    pub region: Segment,
    /// What it was asked for with, and the part of that which it has addresses of.
    pub space: Ipv4Net,
    pub block: Ipv4Net,
    pub vnet: Vnet,
}

impl Network {
    /// A virtual network as one of those made for the site, if it is and is made.
    pub fn of(place: &Place<'_>, vnet: &Vnet) -> Option<Self> {
        let prefix = format!("{}-net-", place.names.prefix());
        let is_ours = vnet.name.starts_with(&prefix) && place.owns(vnet) && vnet.is_made();
        let block: Ipv4Net = vnet.properties.address_space.address_prefixes.first()?.parse().ok()?;
        let region = network_of(vnet)?;
        let space = if cluster_network(&region).is_some() { space_of(block)? } else { block };
        is_ours.then(|| Self { region, space, block, vnet: vnet.clone() })
    }

    /// Those made for the site.
    pub fn made(place: &Place<'_>, vnets: &[Vnet]) -> Vec<Self> {
        let mut networks: Vec<Self> = vnets.iter().filter_map(|vnet| Self::of(place, vnet)).collect();
        networks.sort_by(|a, b| a.region.cmp(&b.region));
        networks
    }

    /// Those made for the site and those adopted, without the hub.
    pub async fn all(place: &Place<'_>) -> Result<Vec<Self>> {
        let (vnets, groups) = try_join!(place.list(), place.list())?;
        let mut all = Self::made(place, &vnets);
        all.extend(adopted_networks(place, &groups).await?);
        Ok(all)
    }
}

/// What a network is to be like.
pub struct Layout {
    pub network: Segment,
    pub location: Segment,
    /// The addresses of the virtual network and its subnet.
    pub block: Ipv4Net,
}

impl Layout {
    pub fn of(network: &Segment, space: Ipv4Net) -> Result<Self> {
        let location = location_of(network);
        let block = match cluster_network(network) {
            Some(_) => check_space(space).map(|()| halves(space).0)?,
            None => space,
        };
        Ok(Self { network: network.clone(), location, block })
    }

    pub fn subnet(&self) -> Subnet {
        let properties = SubnetProperties {
            address_prefix: Some(self.block.to_string()),
            default_outbound_access: Some(false),
            ..SubnetProperties::default()
        };
        Child::new(SUBNET, properties)
    }
}

/// The id of an adopted virtual network, and the block that machines are attached from.
pub const VNET: &str = "trestle-vnet";
pub const SPACE: &str = "trestle-space";

/// Whether a network's name is an adopted one's. A cluster's begins with its region too, and no region has a dash.
pub fn is_adopted(region: &str) -> bool {
    region.split_once("-vnet-").is_some_and(|(region, _)| !region.contains('-'))
}

/// What a virtual network is called once it is adopted; none if its location could not be a region's name.
pub fn adopted_name(id: &Id<Vnet>, location: &str) -> Option<Segment> {
    let hash = letters(&id.as_str().to_ascii_lowercase(), 10);
    format!("{}-vnet-{hash}", region_of(location)?).parse().ok()
}

/// What the mark of an adopted network says.
#[derive(PartialEq)]
pub struct Adopted {
    pub region: Segment,
    pub vnet: Id<Vnet>,
    /// The block that machines are attached from.
    pub space: Ipv4Net,
}

impl Adopted {
    pub fn of(mark: &Group) -> Option<Self> {
        let tags = &mark.tags;
        let vnet = Id::new(tags.get(VNET)?);
        Some(Self { region: tags.parsed(NETWORK)?, vnet, space: tags.parsed(SPACE)? })
    }

    pub fn mark(place: &Place<'_>, region: &Segment) -> Id<Group> {
        place.id(&place.names.of("adopt", region.as_str()))
    }
}

/// Adopted networks by their ids, of all sites whose marks are among these groups.
pub fn adopted_names(place: &Place<'_>, groups: &[Group]) -> Vec<(Id<Vnet>, NetworkName)> {
    let name = |mark: &Group| {
        let Adopted { region, vnet, .. } = Adopted::of(mark)?;
        Some((vnet, NetworkName { site: place.names.owns_site(&mark.tags)?, region }))
    };
    groups.iter().filter_map(name).collect()
}

/// The id of a network's virtual network, made or adopted.
pub async fn vnet_id(place: &Place<'_>, region: &Segment) -> Result<Id<Vnet>> {
    if !is_adopted(region.as_str()) {
        return Ok(place.vnet(region.as_str()));
    }
    let mark = place.owned(&Adopted::mark(place, region)).await?;
    let adopted = mark.as_ref().and_then(Adopted::of);
    adopted.map(|adopted| adopted.vnet).ok_or_else(|| place.no_network(region))
}

/// The networks that a site has adopted, by their marks among its groups. One that is gone is not there.
pub async fn adopted_networks(place: &Place<'_>, groups: &[Group]) -> Result<Vec<Network>> {
    let mut found = Vec::new();
    for adopted in place.mine(groups).filter_map(Adopted::of) {
        let Adopted { region, vnet, space } = adopted;
        if let Some(vnet) = place.get(&vnet).await?.filter(|vnet| vnet.properties.blocks().contains(&space)) {
            found.push(Network { region, space, block: space, vnet });
        }
    }
    Ok(found)
}

/// Refuses what could never be joined with others.
pub fn check_adoptable(place: &Place<'_>, vnet: &Vnet) -> Result {
    let (id, gateway_space) = (&vnet.id, place.settings.gateway_space);
    if let Some(owner) = vnet.tags.get(OWNER) {
        return Err(CloudError::conflict(format!("{id} is a network that Trestle ({owner}) made itself")));
    }
    if let Some(block) = vnet.properties.blocks().into_iter().find(|block| overlap(*block, gateway_space)) {
        return Err(CloudError::conflict(format!(
            "{id} has {block}, which overlaps {gateway_space}, where gateways stand; set gateway_space of the cloud to \
             another"
        )));
    }
    match id.as_str().len() > LONGEST_TAG {
        true => Err(CloudError::conflict(format!("{id} is too long an id for a tag of Azure"))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_called_the_same_whatever_the_case_of_its_id() {
        let name = |id: &str| adopted_name(&Id::new(id), "West US 2").unwrap();
        let one = name("/subscriptions/s/resourceGroups/G/providers/Microsoft.Network/virtualNetworks/V");
        assert_eq!(
            one,
            name("/subscriptions/s/resourcegroups/g/providers/microsoft.network/virtualnetworks/v")
        );
        assert!(one.as_str().starts_with("westus2-vnet-") && is_adopted(one.as_str()));
        assert!(!is_adopted("westus2") && !is_adopted("westus2-k8s-a-vnet-b"));
    }
}
