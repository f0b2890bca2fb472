//! Networks: a virtual network per region, and one per cluster, each with one subnet.

use cloud_api::{CloudError, cluster_network};
use futures::try_join;
use ipnet::Ipv4Net;
use model::Segment;

use crate::{
    adopt::{self, is_adopted},
    clusters::{self, Border, check_space, halves, space_of},
    gateway, hub,
    kinds::Object as _,
    names::*,
    place::*,
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
        all.extend(adopt::networks(place, &groups).await?);
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

    fn subnet(&self) -> Subnet {
        let properties = SubnetProperties {
            address_prefix: Some(self.block.to_string()),
            default_outbound_access: Some(false),
            ..SubnetProperties::default()
        };
        Child::new(SUBNET, properties)
    }

    async fn make(&self, place: &Place<'_>) -> Result<Vnet> {
        let (mut subnet, mut tags) = (self.subnet(), place.names.tags(&[]));
        if self.network != self.location {
            tags.set(NETWORK, self.network.as_str());
            subnet = clusters::close_network(place, self, subnet).await?;
        }
        let body = Draft::new(self.location.as_str(), tags, VnetProperties::of(self.block, subnet));
        place.put(&place.vnet(self.network.as_str()), &body).await
    }
}

pub fn overlap(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b) || b.contains(&a)
}

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
        _ => layout.make(place).await?,
    };
    // Whichever came first: a network uses the site's gateway.
    match gateway::is_made(place).await? && clusters::may_join(place, region).await? {
        true => hub::lend(place, region, &vnet).await,
        false => Ok(()),
    }
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
