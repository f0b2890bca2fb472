//! Transit gateways: what is attached to one reaches everything else that is. One per site, for its own networks and its
//! VPN gateway, and one per pair of sites that have peerings with each other.

use cloud_api::CloudError;
use cloud_http::{Pace, Progress, wait};
use futures::future::try_join_all;
use http::Method;
use ipnet::{IpNet, Ipv4Net};

use crate::{
    Result,
    api::{Call, Place},
    gateway::Gateway,
    ground::Ground,
    groups::Groups,
    kinds::Listed as _,
    names::Names,
    shapes::{Joint, JointRequest, TransitGateway, TransitRequest, VpnGateway},
    vpcs::{Vpc, Vpcs},
};

/// VPCs that IBM attaches to one transit gateway.
const MOST_NETWORKS: usize = 10;
/// Prefixes that a VPN gateway advertises besides those of its own VPC.
const MOST_ADVERTISED: usize = 10;

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

/// Brings a site's own transit gateway, and what its VPN gateway advertises, to where they should be: with a gateway
/// all networks are attached, without one those that are peered. A network on its way out is left out.
pub(crate) async fn settle_hub(ground: &Ground, without: Option<&str>) -> Result {
    let vpcs = Vpcs::read(ground).await?;
    let gateway = Gateway::find_in(ground, vpcs.gateway.as_ref()).await?;
    let mut networks = match &gateway {
        Some(_) => vpcs.networks,
        None => peered(ground, vpcs.networks).await?,
    };
    networks.retain(|vpc| Some(vpc.name().as_str()) != without);
    let first = vpcs.gateway.as_ref().or(networks.first());
    let hub = Hub {
        ground,
        names: &ground.names,
        location: first.map(|vpc| vpc.region.clone()).unwrap_or_default(),
        networks: &networks,
        gateway: gateway.as_ref().map(|gateway| gateway.shown.crn.as_str()),
    };
    let Some(gateway) = &gateway else { return hub.ensure().await };
    let spaces = try_join_all(networks.iter().map(|vpc| vpc.space(&ground.api))).await?;
    let mut spaces: Vec<Ipv4Net> = spaces.into_iter().flatten().collect();
    spaces.sort();
    if spaces.len() > MOST_ADVERTISED {
        return Err(CloudError::conflict(format!(
            "{} would advertise {} networks; an IBM VPN gateway advertises {MOST_ADVERTISED}. Use fewer regions",
            ground.site,
            spaces.len()
        )));
    }
    hub.ensure().await?;
    advertise(ground, gateway, &spaces).await
}

/// Those networks of a site that have a peering within it.
async fn peered(ground: &Ground, networks: Vec<Vpc>) -> Result<Vec<Vpc>> {
    let groups = try_join_all(networks.iter().map(|vpc| Groups::read(ground, vpc))).await?;
    let peerings: Vec<_> = groups.iter().flat_map(Groups::peerings).collect();
    let inside = peerings.iter().filter(|name| name.ends().iter().all(|end| end.site == ground.site));
    let regions: Vec<&str> = inside.flat_map(|name| name.ends()).map(|end| end.region.as_str()).collect();
    Ok(networks.into_iter().filter(|vpc| regions.contains(&vpc.name().as_str())).collect())
}

async fn advertise(ground: &Ground, gateway: &Gateway, spaces: &[Ipv4Net]) -> Result {
    let call = |verb: &str, method: Method, space: &IpNet| {
        let cidr = space.to_string().replace('/', "%2F");
        let path = format!("vpn_gateways/{}/advertised_cidrs/{cidr}", gateway.shown.id);
        Call::new(Place::Region(&gateway.region), format!("{verb}_vpn_gateway_advertised_cidr"), method, path)
    };
    let spaces: Vec<IpNet> = spaces.iter().copied().map(IpNet::from).collect();
    let there = &gateway.shown.advertised_cidrs;
    for space in there.iter().filter(|space| !spaces.contains(space)) {
        ground.api.take_away(call("remove", Method::DELETE, space)).await?;
    }
    for space in spaces.iter().filter(|space| !there.contains(space)) {
        ground.api.send(call("add", Method::PUT, space)).await?;
    }
    // A gateway takes a moment over each change, during which it takes no other.
    let gateways = ground.api.in_region::<VpnGateway>(&gateway.region);
    wait(ground.api.clock(), Pace::QUICK, "the advertised prefixes", || async {
        let now = gateways.get(&gateway.shown.id).await?;
        let is_busy = now.is_some_and(|now| now.lifecycle_state == "updating");
        Ok(if is_busy { Progress::Pending } else { Progress::Done(()) })
    })
    .await
}
