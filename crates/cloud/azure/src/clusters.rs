//! Managed Kubernetes clusters (AKS): private, each in a virtual network of its own, whose subnet is in a security group
//! that is closed before the cluster exists. The group's rules are the cluster's permit list, and a few more that let its
//! inside work.
//!
//! AKS makes nodes, a load balancer and more in a resource group of its own, and takes them away with the cluster.

mod description;
mod network;

use cloud_api::{CloudError, ResourceSpec, cluster_network};
use model::{ResourceState, Segment};
use serde_json::Value;

pub(crate) use description::ClusterDescription;
use network::says_up;
pub(crate) use network::{BLOCK, Border, check_space, halves, space_of};

use crate::{
    adopt::NETWORK,
    api::is_made,
    cloud::{AzureCloud, Ground, Result},
    names::{NAME, tag},
    networks::{Layout, Vnet, vnet_of},
};

const CLUSTERS: &str = "Microsoft.ContainerService/managedClusters";
/// States in which a cluster is not there, or no longer. AKS works on clusters by itself, to upgrade and to scale them.
const NOT_THERE: [&str; 2] = ["Creating", "Deleting"];
/// What AKS says of a cluster that it could not make, and of one that runs and that it could not change.
const FAILED: [&str; 2] = ["Failed", "Canceled"];

impl Ground {
    pub(crate) fn cluster_id(&self, name: &str) -> String {
        format!("{}/providers/{CLUSTERS}/{name}", self.group)
    }
}

fn is_there(cluster: &Value, came_up: bool) -> bool {
    let state = cluster["properties"]["provisioningState"].as_str().unwrap_or_default();
    !NOT_THERE.contains(&state) && (came_up || !FAILED.contains(&state))
}

/// A cluster as the contract knows it.
fn state_of(ground: &Ground, cluster: &Value, vnet: &Vnet) -> Option<ResourceState> {
    Some(ResourceState {
        uri: ground.cluster_id(cluster["name"].as_str()?),
        address: ipnet::IpNet::from(vnet.block).into(),
        region: vnet.region.clone(),
    })
}

impl AzureCloud {
    pub(crate) async fn make_cluster(
        &self,
        ground: &Ground,
        spec: &ResourceSpec,
        description: ClusterDescription,
    ) -> Result<ResourceState> {
        let (network, ids) = (&spec.region, Border::of(ground, spec.region.as_str()));
        let name = ids.cluster.rsplit('/').next().unwrap_or_default().to_owned();
        description.check_group(&ground.group, &name)?;
        let none = || CloudError::conflict(format!("there is no network {}.{network}", ground.site));
        let vnet = self.owned(ground, &ids.vnet).await?.and_then(|vnet| vnet_of(ground, &vnet));
        let vnet = vnet.ok_or_else(none)?;
        description.check_room(vnet.block)?;
        let there = self.owned(ground, &ids.cluster).await?;
        let came_up = self.came_up(&ids).await?;
        let cluster = match there {
            // What AKS could not do to one that ran is its owners' to mend: it has changed since it was described.
            Some(cluster) if came_up || is_made(&cluster) => cluster,
            there => {
                // One that is there and whose making failed may have nodes, and has its list.
                match there {
                    None => self.close_border(ground, &Layout::of(network, vnet.space)?).await?,
                    Some(_) => self.guard(ground, &ids).await?,
                }
                let tags = ground.names.tags(&[(NAME, spec.name.as_str()), (NETWORK, network.as_str())]);
                let body = description.body(&name, &tags, &ids.subnet(), halves(vnet.space).1);
                self.arm.put(&ids.cluster, &body).await?
            }
        };
        self.guard(ground, &ids).await?;
        self.note_up(&ids).await?;
        self.open_border(ground, network).await?;
        let unreadable =
            || CloudError::unavailable(format!("the cluster {}.{} has no name yet", ground.site, spec.name));
        state_of(ground, &cluster, &vnet).ok_or_else(unreadable)
    }

    /// The clusters of a site, by the networks that it has for them and the groups that guard these.
    pub(crate) async fn clusters(
        &self,
        ground: &Ground,
        vnets: &[Vnet],
        groups: &[Value],
    ) -> Result<Vec<(Segment, ResourceState)>> {
        // Who has none needs no permission to look.
        if !vnets.iter().any(|vnet| cluster_network(&vnet.region).is_some()) {
            return Ok(Vec::new());
        }
        let came_up = |cluster: &Value| {
            let network = tag(cluster, NETWORK);
            groups
                .iter()
                .any(|group| ground.names.owns(group) && tag(group, NETWORK) == network && says_up(group))
        };
        let there = |cluster: &&Value| ground.names.owns(cluster) && is_there(cluster, came_up(cluster));
        let resource = |cluster: &Value| {
            let network = tag(cluster, NETWORK)?;
            let vnet = vnets.iter().find(|vnet| vnet.region.as_str() == network)?;
            Some((tag(cluster, NAME)?.parse().ok()?, state_of(ground, cluster, vnet)?))
        };
        let all = self.arm.list(&ground.group, CLUSTERS).await?;
        Ok(all.iter().filter(there).filter_map(resource).collect())
    }

    /// Deletes the clusters of a name, by the groups that guard their networks: a name may have been in another region.
    pub(crate) async fn remove_clusters(
        &self,
        ground: &Ground,
        name: &Segment,
        groups: &[Value],
    ) -> Result<()> {
        for group in groups.iter().filter(|group| ground.names.owns(group)) {
            let network: Option<Segment> = tag(group, NETWORK).and_then(|text| text.parse().ok());
            let of_it =
                network.filter(|network| cluster_network(network).is_some_and(|(_, own)| own == *name));
            if let Some(network) = of_it {
                self.remove(ground, &Border::of(ground, network.as_str()).cluster).await?;
            }
        }
        Ok(())
    }
}
