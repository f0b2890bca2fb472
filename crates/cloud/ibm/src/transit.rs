//! Transit gateways: what is attached to one reaches everything else that is. One per site, for its own networks and its
//! VPN gateway, and one per pair of sites that have peerings with each other.

use cloud_api::CloudError;
use futures::future::try_join_all;

use crate::names::Names;
use crate::shapes::{Joint, JointRequest, TransitGateway, TransitRequest};
use crate::{Ground, Listed as _, Result, Vpc};

/// VPCs that IBM attaches to one transit gateway.
const MOST_NETWORKS: usize = 10;

/// A transit gateway as it should be. With nothing attached it should not be at all.
pub(crate) struct Hub<'h> {
    pub(crate) ground: &'h Ground,
    pub(crate) names: &'h Names,
    /// The region it stands in.
    pub(crate) location: String,
    pub(crate) networks: &'h [Vpc],
    /// The VPN gateway's CRN.
    pub(crate) gateway: Option<&'h str>,
}

impl Hub<'_> {
    /// What is to be attached.
    fn wanted(&self) -> Vec<JointRequest> {
        let networks = self.networks.iter().map(|vpc| ("vpc", vpc.crn.as_str()));
        let all = networks.chain(self.gateway.map(|crn| ("vpn_gateway", crn)));
        let joint = |(network_type, crn): (_, &str)| JointRequest {
            name: self.names.joint(crn),
            network_type,
            network_id: crn.to_owned(),
        };
        all.map(joint).collect()
    }

    /// Makes it so: it comes with the first that is attached and goes with the last.
    pub(crate) async fn ensure(&self) -> Result {
        if self.networks.len() > MOST_NETWORKS {
            return Err(CloudError::conflict(format!(
                "{} would have {} networks on one transit gateway; IBM Cloud attaches {MOST_NETWORKS}. Use fewer regions",
                self.ground.site,
                self.networks.len()
            )));
        }
        let (api, wanted, name) = (&self.ground.api, self.wanted(), self.names.hub());
        let hubs = api.transit::<TransitGateway>();
        let there = hubs.find(&name).await?;
        if wanted.is_empty() && !there.as_ref().is_some_and(TransitGateway::is_alive) {
            return Ok(());
        }
        let (location, resource_group) = (self.location.clone(), self.ground.group());
        let request = TransitRequest { name, location, global: true, resource_group };
        let hub = hubs.ensure(there, &request).await?;
        let joints = api.transit::<Joint>().of::<TransitGateway>(&hub.id);
        let attached = joints.list().await?;
        let is_wanted =
            |one: &Joint| wanted.iter().any(|new| one.network_id.as_ref() == Some(&new.network_id));
        let extra = attached.iter().filter(|one| self.names.owns(&one.name) && !is_wanted(one));
        joints.remove_all(extra.map(|one| one.id.as_str())).await?;
        if wanted.is_empty() {
            return hubs.remove(&hub.id).await;
        }
        let joints = &joints;
        try_join_all(wanted.iter().map(|new| async {
            let its = |one: &&Joint| one.network_id.as_ref() == Some(&new.network_id);
            match attached.iter().filter(its).any(Joint::is_ready) {
                true => Ok(()),
                false => {
                    let there = attached.iter().find(|one| one.name == new.name).cloned();
                    joints.ensure(there, new).await.map(drop)
                }
            }
        }))
        .await
        .map(drop)
    }
}

/// Takes a VPN gateway off its site's transit gateway, which must be before it goes.
pub(crate) async fn detach(ground: &Ground, crn: &str) -> Result {
    let hub = ground.api.transit::<TransitGateway>().find(&ground.names.hub()).await?;
    let Some(hub) = hub.filter(TransitGateway::is_alive) else { return Ok(()) };
    let joints = ground.api.transit::<Joint>().of::<TransitGateway>(&hub.id);
    let attached = joints.list().await?;
    let its = attached.iter().filter(|one| one.network_id.as_deref() == Some(crn));
    joints.remove_all(its.map(|one| one.id.as_str())).await
}
