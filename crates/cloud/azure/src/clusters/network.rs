//! The network of a cluster: a virtual network whose one subnet is guarded by a security group before it exists.
//!
//! ```text
//!   10.4.0.0/16    what the network was asked for with
//!   10.4.0.0/17      the virtual network and its subnet: nodes and Pods
//!   10.4.128.0/17    the cluster's services, which no route leads to
//! ```

use cloud_api::{CloudError, cluster_network};
use futures::try_join;
use ipnet::Ipv4Net;
use model::Segment;
use serde_json::{Value, json};

use crate::{
    adopt::NETWORK,
    cloud::{AzureCloud, Ground, Result},
    names::{is_same_id, tag},
    networks::{Layout, SUBNET, listed, overlap, rewritten},
    rules::{border, is_same},
};

/// The sizes that a cluster's network may have: AKS takes services in less than a /12, and one node needs most of a /25.
const SIZES: std::ops::RangeInclusive<u8> = 12..=24;
/// What AKS keeps for itself inside a cluster.
const RESERVED: [Ipv4Net; 4] = [
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(169, 254, 0, 0), 16),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(172, 30, 0, 0), 16),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(172, 31, 0, 0), 16),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(192, 0, 2, 0), 24),
];
/// The block of a cluster's nodes and Pods, in the tags of the group that guards it.
pub(crate) const BLOCK: &str = "trestle-block";
/// In the tags of the same group, how far the cluster is that is there, or was the last one there. None was ever asked
/// for if they do not say.
const STAGE: &str = "trestle-cluster";
/// AKS may be at work on a cluster that is not guarded yet.
const MAKING: &str = "making";
/// It came up, and all that is in the subnet is guarded since.
const UP: &str = "up";
/// How a subnet's security group also holds for private endpoints, such as the API server's.
const POLICIES: &str = "privateEndpointNetworkPolicies";
const GUARDED: [&str; 2] = ["NetworkSecurityGroupEnabled", "Enabled"];

/// The ids of what a cluster consists of: itself, its virtual network, and the group that guards its subnet.
pub(crate) struct Border {
    pub(crate) cluster: String,
    pub(crate) vnet: String,
    pub(crate) group: String,
}

impl Border {
    pub(crate) fn of(ground: &Ground, network: &str) -> Self {
        let named = |kind: &str| ground.names.of(kind, network);
        Self {
            cluster: ground.cluster_id(&named("aks")),
            vnet: ground.vnet(network),
            group: ground.network_id("networkSecurityGroups", &named("border")),
        }
    }

    /// That of a cluster by its id; none if no cluster of the site could have it.
    pub(crate) fn of_uri(ground: &Ground, uri: &str) -> Option<Self> {
        let start = ground.cluster_id(&format!("{}-aks-", ground.names.prefix()));
        let given = uri.get(..start.len()).filter(|given| given.eq_ignore_ascii_case(&start));
        let what = given.map(|_| &uri[start.len()..]).filter(|what| !what.contains('/'))?;
        let named = |kind: &str| format!("{}-{kind}-{what}", ground.names.prefix());
        Some(Self {
            cluster: uri.to_owned(),
            vnet: ground.network_id("virtualNetworks", &named("net")),
            group: ground.network_id("networkSecurityGroups", &named("border")),
        })
    }

    pub(crate) fn subnet(&self) -> String {
        format!("{}/subnets/{SUBNET}", self.vnet)
    }

    /// Whether a subnet is in its group, and what is in the subnet too.
    pub(crate) fn guards(&self, subnet: &Value) -> bool {
        let policies = subnet["properties"][POLICIES].as_str().unwrap_or_default();
        is_same_id(&subnet["properties"]["networkSecurityGroup"]["id"], &self.group)
            && GUARDED.contains(&policies)
    }

    /// A subnet, put into its group.
    fn guarded(&self, mut subnet: Value) -> Value {
        subnet["properties"]["networkSecurityGroup"] = json!({"id": self.group});
        subnet["properties"][POLICIES] = GUARDED[0].into();
        subnet
    }
}

/// Whether the group around a cluster says that the cluster came up.
pub(super) fn says_up(group: &Value) -> bool {
    tag(group, STAGE) == Some(UP)
}

/// Refuses spaces that AKS could not use.
pub(crate) fn check_space(space: Ipv4Net) -> Result<()> {
    if !SIZES.contains(&space.prefix_len()) {
        return Err(CloudError::invalid(format!(
            "{space} cannot be the network of a managed cluster in Azure: it is between a /{} and a /{}",
            SIZES.start(),
            SIZES.end()
        )));
    }
    match RESERVED.into_iter().find(|kept| overlap(space, *kept)) {
        Some(kept) => Err(CloudError::invalid(format!(
            "{space} cannot be the network of a managed cluster in Azure, which keeps {kept} for itself"
        ))),
        None => Ok(()),
    }
}

/// The lower half of a space, for nodes and Pods, and the upper, for services. Spaces have halves: see `check_space`.
pub(crate) fn halves(space: Ipv4Net) -> (Ipv4Net, Ipv4Net) {
    let mut both = space.subnets((space.prefix_len() + 1).min(32)).into_iter().flatten();
    let mut next = || both.next().unwrap_or(space);
    (next(), next())
}

/// The space that a cluster's network was asked for with, by the block that its virtual network has.
pub(crate) fn space_of(block: Ipv4Net) -> Option<Ipv4Net> {
    block.supernet()
}

impl AzureCloud {
    /// Makes the group that guards a cluster's subnet, closed, unless one is there that fits.
    async fn close(
        &self,
        ground: &Ground,
        layout: &Layout,
        ids: &Border,
        stage: Option<&str>,
        fits: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        let block = layout.block.to_string();
        let mut tags = vec![(NETWORK, layout.network.as_str()), (BLOCK, block.as_str())];
        tags.extend(stage.map(|stage| (STAGE, stage)));
        let body = json!({
            "location": layout.location.as_str(),
            "tags": ground.names.tags(&tags),
            "properties": {"securityRules": border(layout.block)},
        });
        let fits = |group: &Value| tag(group, BLOCK) == Some(block.as_str()) && fits(group);
        self.ensure(ground, &ids.group, &body, fits).await.map(drop)
    }

    /// Makes the group of a cluster's network, and says how the subnet is put into it. If there is one, a cluster may live
    /// in it, and its list stays.
    pub(crate) async fn close_network(
        &self,
        ground: &Ground,
        layout: &Layout,
        subnet: Value,
    ) -> Result<Value> {
        let ids = Border::of(ground, layout.network.as_str());
        self.close(ground, layout, &ids, None, |_| true).await?;
        Ok(ids.guarded(subnet))
    }

    /// Closes what a new cluster is made in: the list of the last one there goes.
    pub(crate) async fn close_border(&self, ground: &Ground, layout: &Layout) -> Result<()> {
        let (ids, closed) = (Border::of(ground, layout.network.as_str()), border(layout.block));
        let fits = |group: &Value| {
            let rules = group["properties"]["securityRules"].as_array();
            tag(group, STAGE) == Some(MAKING) && rules.is_some_and(|rules| is_same(rules, &closed))
        };
        self.close(ground, layout, &ids, Some(MAKING), fits).await?;
        self.guard(ground, &ids).await?;
        let _turn = self.networks_turn(&ground.site).await;
        self.leave_hub(ground, &layout.network).await?;
        match self.arm.get(&ids.vnet).await? {
            Some(vnet) => self.set_peerings(ground, &vnet, false).await,
            None => Ok(()),
        }
    }

    /// Joins a cluster's network with the gateway and with those that are peered with it, now that all that is in it is
    /// guarded.
    pub(crate) async fn open_border(&self, ground: &Ground, network: &Segment) -> Result<()> {
        let _turn = self.networks_turn(&ground.site).await;
        let ids = Border::of(ground, network.as_str());
        let Some(vnet) = self.arm.get(&ids.vnet).await? else { return Ok(()) };
        if !self.may_join(ground, network).await? {
            return Ok(());
        }
        if self.has_gateway(ground).await? {
            self.join_hub(ground, network, &vnet).await?;
        }
        self.set_peerings(ground, &vnet, true).await
    }

    /// Whether a network may use the gateway. A cluster's may not before the cluster is made: see `guard`.
    pub(crate) async fn may_join(&self, ground: &Ground, network: &Segment) -> Result<bool> {
        if cluster_network(network).is_none() {
            return Ok(true);
        }
        let ids = Border::of(ground, network.as_str());
        let is_there = self.arm.get(&ids.cluster).await?.is_some();
        Ok(is_there && self.came_up(&ids).await? && self.may_peer(ground, network).await?)
    }

    /// Whether a network may be joined with others. A cluster's may not while the cluster is made; nobody is in it before.
    pub(crate) async fn may_peer(&self, ground: &Ground, network: &Segment) -> Result<bool> {
        if cluster_network(network).is_none() {
            return Ok(true);
        }
        let ids = Border::of(ground, network.as_str());
        let subnet = ids.subnet();
        let (group, subnet) = try_join!(self.arm.get(&ids.group), self.arm.get(&subnet))?;
        let is_guarded = subnet.is_some_and(|subnet| ids.guards(&subnet));
        Ok(is_guarded && group.is_some_and(|group| tag(&group, STAGE) != Some(MAKING)))
    }

    /// Whether the cluster that is there, or was the last one there, came up.
    pub(crate) async fn came_up(&self, ids: &Border) -> Result<bool> {
        Ok(self.arm.get(&ids.group).await?.is_some_and(|group| says_up(&group)))
    }

    /// Writes down that a cluster came up.
    pub(crate) async fn note_up(&self, ids: &Border) -> Result<()> {
        // As whoever changes the permit list, which is in the same object.
        let _turn = self.turns.take(&ids.cluster).await;
        let gone = || CloudError::not_found(format!("there is no security group {}", ids.group));
        let mut group = self.arm.settled(&ids.group).await?.ok_or_else(gone)?;
        if says_up(&group) {
            return Ok(());
        }
        group["tags"][STAGE] = UP.into();
        let rules: Vec<Value> = listed(&group, "securityRules").cloned().collect();
        self.write_group(&ids.group, &group, &rules).await
    }

    /// Puts a cluster's subnet into its group, if it is not in it. AKS switches the group off for private endpoints when
    /// it makes the API server's.
    pub(crate) async fn guard(&self, ground: &Ground, ids: &Border) -> Result<()> {
        let _turn = self.networks_turn(&ground.site).await;
        let gone = || CloudError::not_found(format!("there is no subnet {}", ids.subnet()));
        let subnet = self.arm.settled(&ids.subnet()).await?.ok_or_else(gone)?;
        if ids.guards(&subnet) {
            return Ok(());
        }
        self.arm.put(&ids.subnet(), &ids.guarded(rewritten(&subnet))).await?;
        Ok(())
    }

    /// Refuses to take away the network that a cluster is in, or is about to be in.
    pub(crate) async fn check_empty(&self, ground: &Ground, network: &Segment) -> Result<()> {
        match self.arm.get(&Border::of(ground, network.as_str()).cluster).await? {
            Some(cluster) => Err(CloudError::conflict(format!(
                "the cluster {} lives in the network {}.{network}",
                cluster["name"].as_str().unwrap_or_default(),
                ground.site
            ))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_space_has_two_halves_and_is_known_by_the_lower() {
        let space: Ipv4Net = "10.4.0.0/16".parse().unwrap();
        let (block, services) = halves(space);
        assert_eq!((block.to_string(), services.to_string()), ("10.4.0.0/17".into(), "10.4.128.0/17".into()));
        assert_eq!(space_of(block), Some(space));
        assert!(check_space(space).is_ok());
        for bad in ["10.0.0.0/8", "10.0.0.0/25", "172.30.0.0/16", "172.16.0.0/12"] {
            assert!(check_space(bad.parse().unwrap()).is_err(), "{bad}");
        }
    }
}
