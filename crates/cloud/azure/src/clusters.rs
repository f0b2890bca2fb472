//! Managed Kubernetes clusters (AKS): private, each in a virtual network of its own, whose subnet is in a security group
//! that is closed before the cluster exists. The group's rules are the cluster's permit list, and a few more that let its
//! inside work.
//!
//! AKS makes nodes, a load balancer and more in a resource group of its own, and takes them away with the cluster.

mod closing;
mod description;

use cloud_api::{CloudError, ResourceSpec, cluster_network};
use model::{ResourceState, Segment};

use closing::{close_border, note_up};
pub use closing::{close_network, guard, open_border};
pub use description::ClusterDescription;

use crate::{border::*, names::*, place::*, site::*, space::halves, types::*};

/// Whether a cluster is there. AKS works on clusters by itself, to upgrade and to scale them, and may fail: one that came up
/// before runs on.
fn is_there(cluster: &Cluster, came_up: bool) -> bool {
    match cluster.properties.provisioning_state {
        State::Creating | State::Deleting => false,
        State::Failed | State::Canceled => came_up,
        State::Succeeded | State::Working => true,
    }
}

/// A cluster as the contract knows it.
fn state_of(place: &Place<'_>, cluster: &Cluster, network: &Network) -> ResourceState {
    ResourceState {
        uri: place.id::<Cluster>(&cluster.name).to_string(),
        address: ipnet::IpNet::from(network.block).into(),
        region: network.region.clone(),
    }
}

pub async fn make(
    place: &Place<'_>,
    spec: &ResourceSpec,
    description: ClusterDescription,
) -> Result<ResourceState> {
    let border = Border::of(place, spec.region.as_str());
    let name = border.cluster.name();
    description.check_group(&place.group, name)?;
    let vnet = place.owned(&border.vnet).await?;
    let network = vnet.and_then(|vnet| Network::of(place, &vnet));
    let network = network.ok_or_else(|| place.no_network(&spec.region))?;
    description.check_room(network.block)?;
    let there = place.owned(&border.cluster).await?;
    let came_up = border.came_up(place).await?;
    let cluster = match there {
        // What AKS could not do to one that ran is its owners' to mend: it has changed since it was described.
        Some(cluster) if came_up || cluster.is_made() => cluster,
        there => {
            // One that is there and whose making failed may have nodes, and has its list.
            match there {
                None => close_border(place, &border, &Layout::of(&spec.region, network.space)?).await?,
                Some(_) => guard(place, &border).await?,
            }
            let tags = place.names.tags(&[(NAME, spec.name.as_str()), (NETWORK, spec.region.as_str())]);
            let body = description.body(name, tags, &border.subnet(), halves(network.space).1);
            place.put(&border.cluster, &body).await?
        }
    };
    guard(place, &border).await?;
    note_up(place, &border).await?;
    open_border(place, &spec.region).await?;
    Ok(state_of(place, &cluster, &network))
}

/// The clusters of a site, by the networks that it has for them and the groups that guard these.
pub async fn all(
    place: &Place<'_>,
    networks: &[Network],
    groups: &[Group],
) -> Result<Vec<(Segment, ResourceState)>> {
    // Who has none needs no permission to look.
    if !networks.iter().any(|network| cluster_network(&network.region).is_some()) {
        return Ok(Vec::new());
    }
    let came_up = |cluster: &Cluster| {
        let network = cluster.tags.get(NETWORK);
        groups.iter().any(|group| place.owns(group) && group.tags.get(NETWORK) == network && says_up(group))
    };
    let is_listed = |cluster: &&Cluster| place.owns(cluster) && is_there(cluster, came_up(cluster));
    let resource = |cluster: &Cluster| {
        let region: Segment = cluster.tags.parsed(NETWORK)?;
        let network = networks.iter().find(|network| network.region == region)?;
        Some((cluster.tags.parsed(NAME)?, state_of(place, cluster, network)))
    };
    let all: Vec<Cluster> = place.list().await?;
    Ok(all.iter().filter(is_listed).filter_map(resource).collect())
}

/// Deletes the clusters of a name, by the groups that guard their networks: a name may have been in another region.
pub async fn remove(place: &Place<'_>, name: &Segment, groups: &[Group]) -> Result {
    for group in groups.iter().filter(|group| place.owns(group)) {
        let network: Option<Segment> = group.tags.parsed(NETWORK);
        let is_its = |network: &Segment| cluster_network(network).is_some_and(|(_, own)| own == *name);
        if let Some(network) = network.filter(is_its) {
            place.remove(&Border::of(place, network.as_str()).cluster).await?;
        }
    }
    Ok(())
}

/// Refuses to take away the network that a cluster is in, or is about to be in.
pub async fn check_empty(place: &Place<'_>, network: &Segment) -> Result {
    match place.get(&Border::of(place, network.as_str()).cluster).await? {
        Some(cluster) => Err(CloudError::conflict(format!(
            "the cluster {} lives in the network {}.{network}",
            cluster.name, place.site
        ))),
        None => Ok(()),
    }
}
