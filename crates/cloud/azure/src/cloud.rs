//! The plugin itself: the contract's calls, each handed to the module of its object.

use std::{net::Ipv4Addr, sync::Arc};

use async_trait::async_trait;
pub(crate) use cloud_api::Result;
use cloud_api::{At, Attachment, CloudError, Listing, PeeringSpec, ResourceSpec, prelude::*};
use cloud_http::{Clock, Recorder, Turn, Turns, auth::Environment};
use ipnet::Ipv4Net;
use model::{CloudTraits, ConnectionSpec, ConnectionStatus, GatewayState, ResourceState, Segment, Site};
use serde_json::Value;

use crate::{
    api::{Arm, AzureOptions, is_made},
    names::Names,
};

/// Where gateways stand if nothing else was said: the last of the addresses that providers share (RFC 6598), which
/// Azure takes for networks and pools of private addresses do not hold.
const GATEWAY_SPACE: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(100, 127, 255, 224), 27);

/// Azure, any number of resource groups.
pub struct AzureCloud {
    pub(crate) arm: Arm,
    pub(crate) owner: String,
    pub(crate) gateway_space: Ipv4Net,
    pub(crate) gateway_sku: String,
    pub(crate) zones: Vec<String>,
    /// `/subscriptions/S/resourceGroups/G` of namespaces that name none.
    group: Option<String>,
    pub(crate) turns: Turns,
    /// Whether descriptions of clusters are taken.
    pub(crate) makes_clusters: bool,
}

/// A site, with its resource group and its names.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    pub(crate) site: Site,
    /// `/subscriptions/S/resourceGroups/G`.
    pub(crate) group: String,
    pub(crate) names: Names,
}

impl Ground {
    /// The id of an object of `Microsoft.Network`.
    pub(crate) fn network_id(&self, kind: &str, name: &str) -> String {
        format!("{}/providers/Microsoft.Network/{kind}/{name}", self.group)
    }

    pub(crate) fn machine_id(&self, name: &str) -> String {
        format!("{}/providers/Microsoft.Compute/virtualMachines/{name}", self.group)
    }

    /// The id of a region's virtual network.
    pub(crate) fn vnet(&self, region: &str) -> String {
        self.network_id("virtualNetworks", &self.names.network(region))
    }
}

impl AzureCloud {
    /// The bounds that Azure sets to plans: it takes custom BGP addresses from 169.254.21.0 to 169.254.22.255 only.
    pub fn traits() -> CloudTraits {
        CloudTraits {
            bgp_first: [169, 254, 21, 0].into(),
            bgp_last: [169, 254, 22, 252].into(),
            tunnels: 4,
            asn_reserved: vec![(65_515, 65_515), (65_517, 65_520)],
            ..CloudTraits::default()
        }
    }

    /// With the process's environment and clock.
    pub fn new(options: &AzureOptions) -> Result<Self> {
        Self::with(options, Environment::process(), None, None)
    }

    pub fn with(
        options: &AzureOptions,
        environment: Environment,
        clock: Option<Arc<dyn Clock>>,
        recorder: Option<Arc<dyn Recorder>>,
    ) -> Result<Self> {
        let subscription = options.subscription.clone().or_else(|| environment.get("AZURE_SUBSCRIPTION_ID"));
        let group = options.resource_group.clone().or_else(|| environment.get("AZURE_RESOURCE_GROUP"));
        let group = subscription.zip(group).map(|(subscription, group)| group_path(&subscription, &group));
        let gateway_space = options.gateway_space.unwrap_or(GATEWAY_SPACE);
        if gateway_space.prefix_len() > 27 {
            return Err(CloudError::invalid(format!(
                "gateways of Azure do not fit into {gateway_space}: a /27 or larger is needed"
            )));
        }
        let zones = options.zones.clone().unwrap_or_else(|| ["1", "2", "3"].map(str::to_owned).to_vec());
        Ok(Self {
            arm: Arm::new(options, environment, clock, recorder)?,
            owner: options.owner.clone().unwrap_or_else(|| "trestle".to_owned()),
            gateway_space,
            gateway_sku: options.gateway_sku.clone().unwrap_or_else(|| "VpnGw1AZ".to_owned()),
            zones,
            group: group.transpose()?,
            turns: Turns::default(),
            makes_clusters: options.kubernetes_clusters,
        })
    }

    /// Where a site is. A deployment is `/subscriptions/S/resourceGroups/G`.
    pub(crate) fn ground(&self, site: &Site, deployment: &str) -> Result<Ground> {
        let bad = || {
            CloudError::invalid(format!(
                "the namespace {} has the deployment {deployment:?} in Azure; write it as \
                 /subscriptions/SUBSCRIPTION/resourceGroups/GROUP",
                site.namespace
            ))
        };
        let none = || {
            CloudError::invalid(format!(
                "the namespace {} names no resource group of Azure, and the plugin has none; set one with \
                 `trestle namespace`, or `subscription` and `resource_group` in the configuration",
                site.namespace
            ))
        };
        let parts: Vec<&str> = deployment.trim_matches('/').split('/').collect();
        let group = match parts.as_slice() {
            [""] => self.group.clone().ok_or_else(none)?,
            [a, subscription, b, group]
                if a.eq_ignore_ascii_case("subscriptions") && b.eq_ignore_ascii_case("resourceGroups") =>
            {
                group_path(subscription, group).map_err(|_| bad())?
            }
            _ => return Err(bad()),
        };
        Ok(Ground { site: site.clone(), group, names: Names::new(&self.owner, site) })
    }

    pub(crate) fn at(&self, at: &At) -> Result<Ground> {
        self.ground(&at.site, &at.deployment)
    }

    /// Calls that change a site's networks, or who is joined with its gateway.
    pub(crate) async fn networks_turn(&self, site: &Site) -> Turn {
        self.turns.take(&format!("networks {site}")).await
    }

    /// Calls that change a site's gateway, which may take an hour.
    pub(crate) async fn gateway_turn(&self, site: &Site) -> Turn {
        self.turns.take(&format!("gateway {site}")).await
    }

    /// Makes an object unless it is there, made, and fits. One of that name that is somebody else's is left alone.
    pub(crate) async fn ensure(
        &self,
        ground: &Ground,
        id: &str,
        body: &Value,
        fits: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        if let Some(there) = self.owned(ground, id).await?
            && is_made(&there)
            && fits(&there)
        {
            return Ok(there);
        }
        Ok(self.arm.put(id, body).await?)
    }

    /// An object that nobody works on; refused if it is not the site's.
    pub(crate) async fn owned(&self, ground: &Ground, id: &str) -> Result<Option<Value>> {
        let Some(there) = self.arm.settled(id).await? else { return Ok(None) };
        match ground.names.owns(&there) {
            true => Ok(Some(there)),
            false => Err(CloudError::conflict(format!("{id} is there and was not made for {}", ground.site))),
        }
    }

    /// Deletes an object if it is the site's, when nobody works on it any more: an earlier controller may have.
    pub(crate) async fn remove(&self, ground: &Ground, id: &str) -> Result<()> {
        match self.arm.settled(id).await? {
            Some(there) if ground.names.owns(&there) => Ok(self.arm.delete(id).await?),
            _ => Ok(()),
        }
    }
}

fn group_path(subscription: &str, group: &str) -> Result<String> {
    let legal = |text: &str| {
        !text.is_empty() && text.chars().all(|letter| letter.is_alphanumeric() || "-_.()".contains(letter))
    };
    match legal(subscription) && legal(group) {
        true => Ok(format!("/subscriptions/{subscription}/resourceGroups/{group}")),
        false => Err(CloudError::invalid(format!(
            "{subscription:?} and {group:?} cannot be a subscription and a resource group of Azure"
        ))),
    }
}

#[async_trait]
impl Cloud for AzureCloud {
    async fn describe(&self) -> Result<CloudTraits> {
        Ok(Self::traits())
    }

    async fn list(&self, at: &At) -> Result<Listing> {
        self.list_site(&self.at(at)?).await
    }
}

#[async_trait]
impl Networks for AzureCloud {
    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result<()> {
        let _turn = self.networks_turn(&at.site).await;
        self.make_network(&self.at(at)?, region, space).await
    }

    async fn delete_network(&self, at: &At, region: &Segment) -> Result<()> {
        let _turn = self.networks_turn(&at.site).await;
        self.remove_network(&self.at(at)?, region).await
    }

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result<()> {
        self.make_peering(spec).await
    }

    async fn delete_peering(&self, spec: &PeeringSpec) -> Result<()> {
        self.remove_peering(spec).await
    }

    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result<()> {
        let _turn = self.networks_turn(&at.site).await;
        self.make_nat(&self.at(at)?, region).await
    }

    async fn delete_nat(&self, at: &At, region: &Segment) -> Result<()> {
        let _turn = self.networks_turn(&at.site).await;
        self.remove_nat(&self.at(at)?, region).await
    }
}

#[async_trait]
impl Resources for AzureCloud {
    async fn inspect_resource(&self, _: &At, name: &Segment, description: &str) -> Result<Segment> {
        self.described(description)?.network(name)
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        self.make_resource(&self.at(at)?, spec).await
    }

    async fn delete_resource(&self, at: &At, name: &Segment) -> Result<()> {
        self.remove_resource(&self.at(at)?, name).await
    }
}

#[async_trait]
impl Attachments for AzureCloud {
    async fn inspect_attachment(&self, at: &At, id: &str) -> Result<Attachment> {
        self.inspect_machine(&self.at(at)?, id).await
    }

    async fn adopt_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result<()> {
        let _turn = self.networks_turn(&at.site).await;
        self.adopt_by_name(&self.at(at)?, region, space).await
    }

    async fn release_network(&self, at: &At, region: &Segment) -> Result<()> {
        let _turn = self.networks_turn(&at.site).await;
        self.release(&self.at(at)?, region).await
    }

    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState> {
        self.attach_machine(&self.at(at)?, name, id).await
    }
}

#[async_trait]
impl Links for AzureCloud {
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState> {
        let _turn = self.gateway_turn(&at.site).await;
        self.make_gateway(&self.at(at)?, asn).await
    }

    async fn delete_gateway(&self, at: &At) -> Result<()> {
        let _turn = self.gateway_turn(&at.site).await;
        self.remove_gateway(&self.at(at)?).await
    }

    async fn create_bgp_sessions(&self, at: &At, spec: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        let _turn = self.gateway_turn(&at.site).await;
        self.offer_sessions(&self.at(at)?, spec).await.map(|_| Vec::new())
    }

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result<()> {
        let _turn = self.gateway_turn(&at.site).await;
        self.connect(&self.at(at)?, spec).await
    }

    async fn delete_connections(&self, at: &At, peer: &Site) -> Result<()> {
        let _turn = self.gateway_turn(&at.site).await;
        self.disconnect(&self.at(at)?, peer).await
    }

    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus> {
        self.status(&self.at(at)?, peer).await
    }
}
