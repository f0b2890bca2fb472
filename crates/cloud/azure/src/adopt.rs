//! Adopted networks: virtual networks that somebody else made, and that machines are attached from.
//!
//! ```text
//!   westus2-vnet-HASH     the network's name: region and a hash of the virtual network's id
//!   t-SITE-adopt-HASH     an empty security group of ours that says which virtual network that is. It protects nothing;
//!                         a group costs nothing and can carry tags
//! ```
//!
//! Into the virtual network itself come peerings only, with names of ours.

use cloud_api::CloudError;
use cloud_http::letters;
use ipnet::Ipv4Net;
use model::{NetworkName, Segment};

use crate::{
    attach, gateway, hub,
    names::*,
    networks::{Network, overlap},
    place::*,
    types::*,
};

/// The id of an adopted virtual network, and the block that machines are attached from.
const VNET: &str = "trestle-vnet";
const SPACE: &str = "trestle-space";

/// Whether a network's name is an adopted one's. A cluster's begins with its region too, and no region has a dash.
pub fn is_adopted(region: &str) -> bool {
    region.split_once("-vnet-").is_some_and(|(region, _)| !region.contains('-'))
}

/// What a virtual network is called once it is adopted; none if its location could not be a region's name.
pub fn name_of(id: &Id<Vnet>, location: &str) -> Option<Segment> {
    let hash = letters(&id.as_str().to_ascii_lowercase(), 10);
    format!("{}-vnet-{hash}", region_of(location)?).parse().ok()
}

/// What the mark of an adopted network says.
#[derive(PartialEq)]
struct Adopted {
    region: Segment,
    vnet: Id<Vnet>,
    /// The block that machines are attached from.
    space: Ipv4Net,
}

impl Adopted {
    fn of(mark: &Group) -> Option<Self> {
        let tags = &mark.tags;
        let vnet = Id::new(tags.get(VNET)?);
        Some(Self { region: tags.parsed(NETWORK)?, vnet, space: tags.parsed(SPACE)? })
    }

    fn mark(place: &Place<'_>, region: &Segment) -> Id<Group> {
        place.id(&place.names.of("adopt", region.as_str()))
    }
}

/// Adopted networks by their ids, of all sites whose marks are among these groups.
pub fn names(place: &Place<'_>, groups: &[Group]) -> Vec<(Id<Vnet>, NetworkName)> {
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
pub async fn networks(place: &Place<'_>, groups: &[Group]) -> Result<Vec<Network>> {
    let mut found = Vec::new();
    for adopted in place.mine(groups).filter_map(Adopted::of) {
        let Adopted { region, vnet, space } = adopted;
        if let Some(vnet) = place.get(&vnet).await?.filter(|vnet| vnet.properties.blocks().contains(&space)) {
            found.push(Network { region, space, block: space, vnet });
        }
    }
    Ok(found)
}

/// Adopts the virtual network that a name of an inspection stands for.
pub async fn adopt(place: &Place<'_>, region: &Segment, space: Ipv4Net) -> Result {
    let _turn = place.networks_turn().await;
    // A name is a hash, so the network is looked for among those there are.
    let all: Vec<Vnet> = place.arm.list(place.subscription()).await?;
    let gone = || CloudError::not_found(format!("there is no virtual network that is called {region}"));
    let named = |vnet: &Vnet| name_of(&vnet.id, &vnet.location).as_ref() == Some(region);
    let id = all.into_iter().find(named).ok_or_else(gone)?.id;
    let vnet = place.settled(&id).await?.ok_or_else(gone)?;
    let blocks = vnet.properties.blocks();
    if !blocks.contains(&space) {
        return Err(CloudError::conflict(format!("{id} has {blocks:?}, and not {space}")));
    }
    check(place, &vnet)?;
    let tags = [(VNET, id.as_str()), (SPACE, &space.to_string()), (NETWORK, region.as_str())];
    let body = Draft::new(&vnet.location, place.names.tags(&tags), GroupProperties::default());
    let wanted = Some(Adopted { region: region.clone(), vnet: id, space });
    place.ensure(&Adopted::mark(place, region), &body, |mark| Adopted::of(mark) == wanted).await?;
    match gateway::is_made(place).await? {
        true => hub::lend(place, region, &vnet).await,
        false => Ok(()),
    }
}

/// Refuses what could never be joined with others.
pub fn check(place: &Place<'_>, vnet: &Vnet) -> Result {
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

pub async fn release(place: &Place<'_>, region: &Segment) -> Result {
    let _turn = place.networks_turn().await;
    let mark = Adopted::mark(place, region);
    if !is_adopted(region.as_str()) || place.owned(&mark).await?.is_none() {
        return Ok(());
    }
    let attached = attach::all(place, &place.list().await?).await?;
    if let Some((name, _)) = attached.iter().find(|(_, state)| state.region == *region) {
        return Err(CloudError::conflict(format!("the resource {name} is attached from {region}")));
    }
    hub::take_back(place, region).await?;
    place.remove(&mark).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_called_the_same_whatever_the_case_of_its_id() {
        let name = |id: &str| name_of(&Id::new(id), "West US 2").unwrap();
        let one = name("/subscriptions/s/resourceGroups/G/providers/Microsoft.Network/virtualNetworks/V");
        assert_eq!(
            one,
            name("/subscriptions/s/resourcegroups/g/providers/microsoft.network/virtualnetworks/v")
        );
        assert!(one.as_str().starts_with("westus2-vnet-") && is_adopted(one.as_str()));
        assert!(!is_adopted("westus2") && !is_adopted("westus2-k8s-a-vnet-b"));
    }
}
