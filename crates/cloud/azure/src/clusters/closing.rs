//! What closes the border of a cluster before AKS makes it, and opens it when all that is in it is guarded.

use cloud_api::CloudError;
use model::Segment;

use crate::{
    border::*,
    gateway, hub,
    names::*,
    peerings,
    place::*,
    rules::{border, is_same},
    site::Layout,
    types::*,
};

/// Makes the group, closed, unless one is there that fits.
async fn close(
    ids: &Border,
    place: &Place<'_>,
    layout: &Layout,
    stage: Option<&str>,
    fits: impl Fn(&Group) -> bool + Sync,
) -> Result {
    let block = layout.block.to_string();
    let mut tags = vec![(NETWORK, layout.network.as_str()), (BLOCK, block.as_str())];
    tags.extend(stage.map(|stage| (STAGE, stage)));
    let properties = GroupProperties::of(border(layout.block));
    let body = Draft::new(layout.location.as_str(), place.names.tags(&tags), properties);
    let fits = |group: &Group| group.tags.get(BLOCK) == Some(block.as_str()) && fits(group);
    place.ensure(&ids.group, &body, fits).await.map(drop)
}

/// Makes the group of a cluster's network, and says how the subnet is put into it. If there is one, a cluster may live
/// in it, and its list stays.
pub async fn close_network(place: &Place<'_>, layout: &Layout, subnet: Subnet) -> Result<Subnet> {
    let border = Border::of(place, layout.network.as_str());
    close(&border, place, layout, None, |_| true).await?;
    Ok(border.guarded(subnet))
}

/// Closes what a new cluster is made in: the list of the last one there goes.
pub async fn close_border(place: &Place<'_>, ids: &Border, layout: &Layout) -> Result {
    let closed = border(layout.block);
    let fits = |group: &Group| {
        group.tags.get(STAGE) == Some(MAKING) && is_same(&group.properties.security_rules, &closed)
    };
    close(ids, place, layout, Some(MAKING), fits).await?;
    guard(place, ids).await?;
    let _turn = place.networks_turn().await;
    hub::take_back(place, &layout.network).await?;
    match place.get(&ids.vnet).await? {
        Some(vnet) => peerings::set_open(place, &vnet, false).await,
        None => Ok(()),
    }
}

/// Joins a cluster's network with the gateway and with those that are peered with it, now that all that is in it is
/// guarded.
pub async fn open_border(place: &Place<'_>, network: &Segment) -> Result {
    let _turn = place.networks_turn().await;
    let Some(vnet) = place.get(&place.vnet(network.as_str())).await? else { return Ok(()) };
    if !may_join(place, network).await? {
        return Ok(());
    }
    if gateway::is_made(place).await? {
        hub::lend(place, network, &vnet).await?;
    }
    peerings::set_open(place, &vnet, true).await
}

/// Writes down that a cluster came up.
pub async fn note_up(place: &Place<'_>, border: &Border) -> Result {
    // As whoever changes the permit list, which is in the same object.
    let _turn = place.turn(border.cluster.as_str()).await;
    let gone = || CloudError::not_found(format!("there is no security group {}", border.group));
    let mut group = place.settled(&border.group).await?.ok_or_else(gone)?;
    if says_up(&group) {
        return Ok(());
    }
    group.tags.set(STAGE, UP);
    let rules = group.properties.security_rules.clone();
    place.write_group(&group, rules).await
}

/// Puts a cluster's subnet into its group, if it is not in it. AKS switches the group off for private endpoints when
/// it makes the API server's.
pub async fn guard(place: &Place<'_>, border: &Border) -> Result {
    let _turn = place.networks_turn().await;
    let gone = || CloudError::not_found(format!("there is no subnet {}", border.subnet()));
    let subnet = place.settled(&border.subnet()).await?.ok_or_else(gone)?;
    match border.guards(&subnet) {
        true => Ok(()),
        false => place.put(&border.subnet(), &border.guarded(subnet.rewritten())).await.map(drop),
    }
}
