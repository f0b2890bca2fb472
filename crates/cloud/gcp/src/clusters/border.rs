//! What is around a cluster as the cloud has it: its network's space, its fence, and the note that it is being made.

use cloud_api::CloudError;
use ipnet::Ipv4Net;
use model::{PermitEntry, Segment};
use serde_json::Value;

use super::{
    fence::{fence, gaps_told, untagged_told},
    space,
};
use crate::{
    cloud::{GcpCloud, Ground, Result},
    names::{self, Mark},
    rules::{Change, Firewalls, difference},
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

impl GcpCloud {
    /// The space of a cluster's network.
    pub(super) async fn cluster_space(&self, ground: &Ground, network: &Segment) -> Result<Ipv4Net> {
        let none = || CloudError::conflict(format!("there is no network {}.{network}", ground.site));
        let subnet = self.subnet(ground, network.as_str()).await?.ok_or_else(none)?;
        space::whole(&subnet).ok_or_else(none)
    }

    fn wanted_fence(&self, ground: &Ground, name: &Segment, space: Ipv4Net) -> Firewalls {
        let mark = names::write(Mark { name: Some(name.clone()), ..ground.names.mark() });
        fence(&ground.names.cluster(name), &ground.network(), &mark, space)
    }

    pub(super) async fn around(&self, ground: &Ground, name: &Segment, space: Ipv4Net) -> Result<Around> {
        let tag = ground.names.cluster(name);
        let mut current = self.closers(ground, &format!("{tag}-")).await?;
        let is_making = current.remove(&making(&tag)).is_some();
        let wanted = self.wanted_fence(ground, name, space);
        Ok(Around { gaps: difference(&current, &wanted), told: gaps_told(&current, &wanted), is_making })
    }

    /// What is not as it should be at the border of a cluster of ours, other than its list.
    pub(crate) async fn border(&self, ground: &Ground, cluster: &Value) -> Result<Around> {
        let none =
            || CloudError::conflict(format!("the cluster {} does not say whose it is", cluster["name"]));
        let (name, region) =
            names::read(cluster).and_then(|mark| mark.name.zip(mark.region)).ok_or_else(none)?;
        let space = self.cluster_space(ground, &region).await?;
        let mut around = self.around(ground, &name, space).await?;
        around.told.extend(untagged_told(cluster, &ground.names.cluster(&name)));
        Ok(around)
    }
}
