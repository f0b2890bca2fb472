//! Networks: a virtual network per region, and one per cluster, each with one subnet.

use cloud_api::{CloudError, cluster_network};
use ipnet::Ipv4Net;
use model::Segment;

use crate::{border::*, clusters, gateway, hub, names::*, place::*, site::*, space::overlap, types::*};

pub async fn make(place: &Place<'_>, region: &Segment, space: Ipv4Net) -> Result {
    let _turn = place.networks_turn().await;
    let gateway_space = place.settings.gateway_space;
    if space.prefix_len() > 29 {
        return Err(CloudError::invalid(format!(
            "{space} cannot be a network in Azure, which keeps five addresses of each: a /29 is the smallest"
        )));
    }
    if overlap(space, gateway_space) {
        return Err(CloudError::conflict(format!(
            "{space} overlaps {gateway_space}, where gateways stand; set gateway_space of the cloud to another"
        )));
    }
    let layout = Layout::of(region, space)?;
    let vnet = match place.owned(&place.vnet(region.as_str())).await? {
        Some(there) if there.is_made() => {
            let have = Network::of(place, &there).map(|network| network.space);
            if have != Some(space) {
                let have = have.map(|space| space.to_string()).unwrap_or_default();
                return Err(CloudError::conflict(format!(
                    "the network {}.{region} has the space {have}, not {space}",
                    place.site,
                )));
            }
            there
        }
        // Not there, or its making failed. One that is there has its subnet, and is never written again: that
        // would take away what others put in.
        _ => make_vnet(place, &layout).await?,
    };
    // Whichever came first: a network uses the site's gateway.
    match gateway::is_made(place).await? && may_join(place, region).await? {
        true => hub::lend(place, region, &vnet).await,
        false => Ok(()),
    }
}

async fn make_vnet(place: &Place<'_>, layout: &Layout) -> Result<Vnet> {
    let (mut subnet, mut tags) = (layout.subnet(), place.names.tags(&[]));
    if layout.network != layout.location {
        tags.set(NETWORK, layout.network.as_str());
        subnet = clusters::close_network(place, layout, subnet).await?;
    }
    let body = Draft::new(layout.location.as_str(), tags, VnetProperties::of(layout.block, subnet));
    place.put(&place.vnet(layout.network.as_str()), &body).await
}

pub async fn remove(place: &Place<'_>, region: &Segment) -> Result {
    let _turn = place.networks_turn().await;
    if is_adopted(region.as_str()) {
        let message =
            format!("the network {}.{region} is somebody else's; it can only be let go", place.site);
        return Err(CloudError::conflict(message));
    }
    if cluster_network(region).is_some() {
        clusters::check_empty(place, region).await?;
    }
    let id = place.vnet(region.as_str());
    let vnet = place.owned(&id).await?;
    // Before it is taken off the gateway, not after.
    let mut subnets = vnet.iter().flat_map(|vnet| &vnet.properties.subnets);
    if subnets.any(|subnet| !subnet.properties.ip_configurations.is_empty()) {
        return Err(CloudError::conflict(format!("resources live in the network {}.{region}", place.site)));
    }
    hub::take_back(place, region).await?;
    if vnet.is_some() {
        place.delete(&id).await?;
    }
    match cluster_network(region) {
        Some(_) => place.remove(&Border::of(place, region.as_str()).group).await,
        None => Ok(()),
    }
}
