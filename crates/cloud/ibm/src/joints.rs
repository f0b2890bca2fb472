//! Transit gateways: what is attached to one reaches everything else that is. One per site, for its own networks and its
//! VPN gateway, and one per pair of sites that have peerings with each other.

use cloud_api::CloudError;
use cloud_http::{Class, Progress, wait};
use futures::future::try_join_all;
use http::Method;
use ipnet::Ipv4Net;
use serde_json::{Value, json};

use crate::{
    api::{JOINT, Place, TRANSIT_GATEWAY, is_alive, text},
    cloud::{Ground, IbmCloud, Result},
    names::Names,
    networks::noted_peerings,
    vpcs::{Vpc, Vpcs},
};

/// VPCs that IBM attaches to one transit gateway.
const MOST_NETWORKS: usize = 10;
/// Prefixes that a VPN gateway advertises besides those of its own VPC.
const MOST_ADVERTISED: usize = 10;

/// A transit gateway as it should be. With nothing attached it should not be at all.
pub(crate) struct Joint<'j> {
    pub(crate) names: &'j Names,
    /// The region it stands in.
    pub(crate) location: String,
    pub(crate) networks: Vec<Vpc>,
    /// The VPN gateway's CRN.
    pub(crate) gateway: Option<String>,
    pub(crate) ground: &'j Ground,
}

impl Joint<'_> {
    /// What is to be attached: name, kind and CRN.
    fn attached(&self) -> Vec<(String, &'static str, String)> {
        let networks = self.networks.iter().map(|vpc| (self.names.joint(&vpc.crn), "vpc", vpc.crn.clone()));
        let gateway = self.gateway.iter().map(|crn| (self.names.joint(crn), "vpn_gateway", crn.clone()));
        networks.chain(gateway).collect()
    }
}

impl IbmCloud {
    /// Makes a transit gateway what it should be: it comes with the first that is attached and goes with the last.
    pub(crate) async fn join(&self, joint: &Joint<'_>) -> Result<()> {
        if joint.networks.len() > MOST_NETWORKS {
            return Err(CloudError::conflict(format!(
                "{} would have {} networks on one transit gateway; IBM Cloud attaches {MOST_NETWORKS}. Use fewer regions",
                joint.ground.site,
                joint.networks.len()
            )));
        }
        let (name, wanted) = (joint.names.hub(), joint.attached());
        let there = self.api.find(Place::Transit, &TRANSIT_GATEWAY, "transit_gateways", &name).await?;
        let hub = match there {
            None if wanted.is_empty() => return Ok(()),
            Some(hub) if TRANSIT_GATEWAY.is_ready(&hub) => hub,
            _ => {
                let body =
                    joint.ground.place(json!({"name": name, "location": joint.location, "global": true}));
                self.api.make(Place::Transit, &TRANSIT_GATEWAY, "transit_gateways", &body).await?
            }
        };
        let path = format!("transit_gateways/{}/connections", text(&hub, "id"));
        let attached = self.api.list(Place::Transit, &JOINT, &path).await?;
        let is_wanted = |one: &Value| wanted.iter().any(|(_, _, crn)| one["network_id"] == crn.as_str());
        let extra = attached.iter().filter(|one| joint.names.owns(one) && !is_wanted(one));
        try_join_all(extra.map(|one| {
            let path = format!("{path}/{}", text(one, "id"));
            async move { self.api.remove(Place::Transit, &JOINT, &path).await }
        }))
        .await?;
        if wanted.is_empty() {
            let path = format!("transit_gateways/{}", text(&hub, "id"));
            return self.api.remove(Place::Transit, &TRANSIT_GATEWAY, &path).await;
        }
        try_join_all(wanted.iter().map(|one| self.attach(&path, &attached, one))).await?;
        Ok(())
    }

    async fn attach(
        &self,
        path: &str,
        attached: &[Value],
        (name, kind, crn): &(String, &'static str, String),
    ) -> Result<()> {
        let there = attached.iter().find(|one| one["network_id"] == crn.as_str() && is_alive(one));
        if there.is_some_and(|one| JOINT.is_ready(one)) {
            return Ok(());
        }
        let body = json!({"name": name, "network_type": kind, "network_id": crn});
        self.api.make(Place::Transit, &JOINT, path, &body).await.map(drop)
    }

    /// Brings a site's own transit gateway, and what its VPN gateway advertises, to where they should be: with a gateway
    /// all networks are attached, without one those that are peered. A network on its way out is left out.
    pub(crate) async fn settle_hub(&self, ground: &Ground, without: Option<&str>) -> Result<()> {
        let vpcs = self.vpcs(ground).await?;
        let gateway = self.gateway_in(ground, vpcs.gateway.as_ref()).await?;
        let mut networks = match &gateway {
            Some(_) => vpcs.networks.clone(),
            None => self.peered(ground, &vpcs).await?,
        };
        networks.retain(|vpc| Some(vpc.name().as_str()) != without);
        let first = vpcs.gateway.as_ref().or(networks.first());
        let joint = Joint {
            names: &ground.names,
            location: first.map(|vpc| vpc.region.clone()).unwrap_or_default(),
            gateway: gateway.as_ref().map(|gateway| gateway.crn.clone()),
            networks,
            ground,
        };
        let Some(gateway) = &gateway else { return self.join(&joint).await };
        let spaces = try_join_all(joint.networks.iter().map(|vpc| self.space_of(vpc))).await?;
        let mut spaces: Vec<Ipv4Net> = spaces.into_iter().flatten().collect();
        spaces.sort();
        if spaces.len() > MOST_ADVERTISED {
            return Err(CloudError::conflict(format!(
                "{} would advertise {} networks; an IBM VPN gateway advertises {MOST_ADVERTISED}. Use fewer regions",
                ground.site,
                spaces.len()
            )));
        }
        self.join(&joint).await?;
        self.advertise(gateway, &spaces).await
    }

    /// The networks of a site that have a peering within it.
    async fn peered(&self, ground: &Ground, vpcs: &Vpcs) -> Result<Vec<Vpc>> {
        let groups = try_join_all(vpcs.networks.iter().map(|vpc| self.groups(vpc))).await?;
        let peerings: Vec<_> = groups.iter().flat_map(|groups| noted_peerings(ground, groups)).collect();
        let inside = peerings.iter().filter(|name| name.ends().iter().all(|end| end.site == ground.site));
        let regions: Vec<&str> = inside.flat_map(|name| name.ends()).map(|end| end.region.as_str()).collect();
        Ok(vpcs.networks.iter().filter(|vpc| regions.contains(&vpc.name().as_str())).cloned().collect())
    }

    async fn advertise(&self, gateway: &crate::gateway::Gateway, spaces: &[Ipv4Net]) -> Result<()> {
        let place = Place::Region(&gateway.region);
        let path = |space: &Ipv4Net| {
            let cidr = space.to_string().replace('/', "%2F");
            format!("vpn_gateways/{}/advertised_cidrs/{cidr}", gateway.id)
        };
        for space in gateway.advertised.iter().filter(|space| !spaces.contains(space)) {
            let operation = "remove_vpn_gateway_advertised_cidr";
            match self.api.send(place, operation, Method::DELETE, &path(space), None).await {
                Err(failure) if failure.is(Class::NotFound) => {}
                outcome => drop(outcome?),
            }
        }
        for space in spaces.iter().filter(|space| !gateway.advertised.contains(space)) {
            self.api.send(place, "add_vpn_gateway_advertised_cidr", Method::PUT, &path(space), None).await?;
        }
        // A gateway takes a moment over each change, during which it takes no other.
        wait(self.api.clock(), cloud_http::Pace::QUICK, "the advertised prefixes", || async {
            let path = format!("vpn_gateways/{}", gateway.id);
            let now = self.api.get(place, &crate::api::VPN_GATEWAY, &path).await?.unwrap_or_default();
            Ok(if now["lifecycle_state"] == "updating" { Progress::Pending } else { Progress::Done(()) })
        })
        .await
    }
}
