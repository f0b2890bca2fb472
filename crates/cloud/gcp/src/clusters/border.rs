//! What is around a cluster as the cloud has it: its network's space, its fence, and the note that it is being made.

use cloud_api::CloudError;
use ipnet::Ipv4Net;
use model::{PermitEntry, Segment};

use super::fence::{fence, gaps_told, untagged_told};
use crate::{
    attach::closers,
    ground::{Ground, Result},
    mark::Mark,
    rules::{Change, difference},
    shapes::Cluster,
};

/// What is around a cluster.
pub(crate) struct Around {
    /// What its fence lacks.
    pub(crate) gaps: Change,
    /// What is wrong, as entries that nobody asked for.
    pub(crate) told: Vec<PermitEntry>,
    pub(super) is_making: bool,
}

/// The name of the note that says that a cluster is being made.
pub(super) fn making(tag: &str) -> String {
    format!("{tag}-making")
}

/// What a cluster of ours is called, and the network it is in.
pub(super) fn named(cluster: &Cluster) -> Option<(Segment, Segment)> {
    let mark = cluster.description.mark()?;
    mark.name.zip(mark.region)
}

/// The space of a cluster's network.
pub(super) async fn space_of(ground: &Ground, network: &Segment) -> Result<Ipv4Net> {
    let subnet = ground.get(&ground.subnet(network.as_str())).await?;
    let none = || CloudError::conflict(format!("there is no network {}.{network}", ground.site));
    subnet.and_then(|subnet| subnet.whole()).ok_or_else(none)
}

pub(super) async fn around(ground: &Ground, name: &Segment, space: Ipv4Net) -> Result<Around> {
    let tag = ground.names.cluster(name);
    let mut current = closers(ground, &format!("{tag}-")).await?;
    let is_making = current.remove(&making(&tag)).is_some();
    let mark = Mark { name: Some(name.clone()), ..ground.names.mark() };
    let wanted = fence(&tag, &ground.network(), &mark.into(), space);
    Ok(Around { gaps: difference(&current, &wanted), told: gaps_told(&current, &wanted), is_making })
}

/// What is not as it should be at the border of a cluster of ours, other than its list.
pub(crate) async fn border(ground: &Ground, cluster: &Cluster) -> Result<Around> {
    let none = || CloudError::conflict(format!("the cluster {} does not say whose it is", cluster.name));
    let (name, region) = named(cluster).ok_or_else(none)?;
    let space = space_of(ground, &region).await?;
    let mut around = around(ground, &name, space).await?;
    around.told.extend(untagged_told(cluster, &ground.names.cluster(&name)));
    Ok(around)
}
