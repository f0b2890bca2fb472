//! Adopting a network that somebody else made, and letting it go. Into the virtual network itself come peerings only, with
//! names of ours.

use cloud_api::CloudError;
use ipnet::Ipv4Net;
use model::Segment;

use crate::{attach, gateway, hub, names::*, place::*, site::*, types::*};

/// Adopts the virtual network that a name of an inspection stands for.
pub async fn adopt(place: &Place<'_>, region: &Segment, space: Ipv4Net) -> Result {
    let _turn = place.networks_turn().await;
    // A name is a hash, so the network is looked for among those there are.
    let all: Vec<Vnet> = place.arm.list(place.subscription()).await?;
    let gone = || CloudError::not_found(format!("there is no virtual network that is called {region}"));
    let named = |vnet: &Vnet| adopted_name(&vnet.id, &vnet.location).as_ref() == Some(region);
    let id = all.into_iter().find(named).ok_or_else(gone)?.id;
    let vnet = place.settled(&id).await?.ok_or_else(gone)?;
    let blocks = vnet.properties.blocks();
    if !blocks.contains(&space) {
        return Err(CloudError::conflict(format!("{id} has {blocks:?}, and not {space}")));
    }
    check_adoptable(place, &vnet)?;
    let tags = [(VNET, id.as_str()), (SPACE, &space.to_string()), (NETWORK, region.as_str())];
    let body = Draft::new(&vnet.location, place.names.tags(&tags), GroupProperties::default());
    let wanted = Some(Adopted { region: region.clone(), vnet: id, space });
    place.ensure(&Adopted::mark(place, region), &body, |mark| Adopted::of(mark) == wanted).await?;
    match gateway::is_made(place).await? {
        true => hub::lend(place, region, &vnet).await,
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
