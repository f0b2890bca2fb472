//! The border of a cluster: a virtual network whose one subnet is guarded by a security group before it exists, and that is
//! joined with no other network while AKS makes the cluster.

use cloud_api::{CloudError, cluster_network};
use futures::try_join;
use ipnet::Ipv4Net;
use model::Segment;

use crate::{
    gateway, hub, lists,
    names::*,
    networks::Layout,
    peerings,
    place::*,
    rules::{border, is_same},
    types::*,
};

/// The block of a cluster's nodes and Pods, in the tags of the group that guards it.
const BLOCK: &str = "trestle-block";
/// In the tags of the same group, how far the cluster is that is there, or was the last one there. None was ever asked
/// for if they do not say.
const STAGE: &str = "trestle-cluster";
/// AKS may be at work on a cluster that is not guarded yet.
const MAKING: &str = "making";
/// It came up, and all that is in the subnet is guarded since.
const UP: &str = "up";
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
    fn guarded(&self, mut subnet: Subnet) -> Subnet {
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

    /// Makes the group, closed, unless one is there that fits.
    async fn close(
        &self,
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
        place.ensure(&self.group, &body, fits).await.map(drop)
    }
}

/// Whether the group around a cluster says that the cluster came up.
pub fn says_up(group: &Group) -> bool {
    group.tags.get(STAGE) == Some(UP)
}

/// Makes the group of a cluster's network, and says how the subnet is put into it. If there is one, a cluster may live
/// in it, and its list stays.
pub async fn close_network(place: &Place<'_>, layout: &Layout, subnet: Subnet) -> Result<Subnet> {
    let border = Border::of(place, layout.network.as_str());
    border.close(place, layout, None, |_| true).await?;
    Ok(border.guarded(subnet))
}

/// Closes what a new cluster is made in: the list of the last one there goes.
pub async fn close_border(place: &Place<'_>, ids: &Border, layout: &Layout) -> Result {
    let closed = border(layout.block);
    let fits = |group: &Group| {
        group.tags.get(STAGE) == Some(MAKING) && is_same(&group.properties.security_rules, &closed)
    };
    ids.close(place, layout, Some(MAKING), fits).await?;
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
    lists::write(place, &group, rules).await
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
