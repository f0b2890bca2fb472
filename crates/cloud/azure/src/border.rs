//! The border of a cluster: a virtual network whose one subnet is guarded by a security group before it exists, and that is
//! joined with no other network while AKS makes the cluster.
//!
//! Here is what it consists of, and whether it is closed; what closes and opens it is in `clusters`.

use cloud_api::{CloudError, cluster_network};
use futures::try_join;
use ipnet::Ipv4Net;
use model::Segment;

use crate::{names::*, place::*, types::*};

/// The block of a cluster's nodes and Pods, in the tags of the group that guards it.
pub const BLOCK: &str = "trestle-block";
/// In the tags of the same group, how far the cluster is that is there, or was the last one there. None was ever asked
/// for if they do not say.
pub const STAGE: &str = "trestle-cluster";
/// AKS may be at work on a cluster that is not guarded yet.
pub const MAKING: &str = "making";
/// It came up, and all that is in the subnet is guarded since.
pub const UP: &str = "up";
/// How a subnet's security group also holds for private endpoints, such as the API server's.
const GUARDED: [&str; 2] = ["NetworkSecurityGroupEnabled", "Enabled"];

/// The ids of what a cluster consists of: itself, its virtual network, and the group that guards its subnet.
pub struct Border {
    pub cluster: Id<Cluster>,
    pub vnet: Id<Vnet>,
    pub group: Id<Group>,
}

impl Border {
    pub fn of(place: &Place<'_>, network: &str) -> Self {
        Self::ending(place, &suffix(network))
    }

    /// That of a cluster by its id; none if no cluster of the site could have it.
    pub fn of_uri(place: &Place<'_>, uri: &str) -> Option<Self> {
        place.suffix_of::<Cluster>("aks", uri).map(|suffix| Self::ending(place, suffix))
    }

    fn ending(place: &Place<'_>, suffix: &str) -> Self {
        let named = |kind: &str| place.names.ending(kind, suffix);
        Self {
            cluster: place.id(&named("aks")),
            vnet: place.id(&named("net")),
            group: place.id(&named("border")),
        }
    }

    pub fn subnet(&self) -> Id<Subnet> {
        self.vnet.child(SUBNET)
    }

    /// Whether a subnet is in its group, and what is in the subnet too.
    pub fn guards(&self, subnet: &Subnet) -> bool {
        let policies = subnet.properties.private_endpoint_network_policies.as_deref();
        is_to(&subnet.properties.network_security_group, &self.group)
            && policies.is_some_and(|policies| GUARDED.contains(&policies))
    }

    /// A subnet, put into its group.
    pub fn guarded(&self, mut subnet: Subnet) -> Subnet {
        subnet.properties.network_security_group = Some(Ref::to(&self.group));
        subnet.properties.private_endpoint_network_policies = Some(GUARDED[0].to_owned());
        subnet
    }

    /// The addresses that are guarded, as the group says.
    pub fn block(&self, group: &Group) -> Result<Ipv4Net> {
        let unread = || {
            CloudError::conflict(format!(
                "{} has lost its tag {BLOCK}; set it to the subnet's prefix",
                self.group
            ))
        };
        group.tags.parsed(BLOCK).ok_or_else(unread)
    }

    /// Whether the cluster that is there, or was the last one there, came up.
    pub async fn came_up(&self, place: &Place<'_>) -> Result<bool> {
        Ok(place.get(&self.group).await?.is_some_and(|group| says_up(&group)))
    }
}

/// Whether the group around a cluster says that the cluster came up.
pub fn says_up(group: &Group) -> bool {
    group.tags.get(STAGE) == Some(UP)
}

/// Whether a network may use the gateway. A cluster's may not before the cluster is made: see `guard`.
pub async fn may_join(place: &Place<'_>, network: &Segment) -> Result<bool> {
    if cluster_network(network).is_none() {
        return Ok(true);
    }
    let border = Border::of(place, network.as_str());
    let is_there = place.get(&border.cluster).await?.is_some();
    Ok(is_there && border.came_up(place).await? && may_peer(place, network).await?)
}

/// Whether a network may be joined with others. A cluster's may not while the cluster is made; nobody is in it before.
pub async fn may_peer(place: &Place<'_>, network: &Segment) -> Result<bool> {
    if cluster_network(network).is_none() {
        return Ok(true);
    }
    let border = Border::of(place, network.as_str());
    let subnet = border.subnet();
    let (group, subnet) = try_join!(place.get(&border.group), place.get(&subnet))?;
    let is_guarded = subnet.is_some_and(|subnet| border.guards(&subnet));
    Ok(is_guarded && group.is_some_and(|group| group.tags.get(STAGE) != Some(MAKING)))
}
