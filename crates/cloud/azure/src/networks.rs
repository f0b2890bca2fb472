//! Networks: a virtual network per region, and one per cluster, each with one subnet. And what a site consists of.

use std::collections::BTreeSet;

use cloud_api::{CloudError, Listing, cluster_network};
use futures::try_join;
use ipnet::Ipv4Net;
use model::{NetworkName, PeeringName, Segment, Site};
use serde_json::{Value, json};

use crate::{
    adopt::{NETWORK, adopted_names, is_adopted},
    api::is_made,
    cloud::{AzureCloud, Ground, Result},
    clusters::{Border, check_space, halves, space_of},
    names::{NAME, is_same_id, peer_of, region_of, tag},
    peerings::is_open,
    resources::state_of,
};

/// The one subnet of a network.
pub(crate) const SUBNET: &str = "default";
pub(crate) const VNETS: &str = "Microsoft.Network/virtualNetworks";
pub(crate) const GROUPS: &str = "Microsoft.Network/networkSecurityGroups";

/// A virtual network of the site that is not the hub.
pub(crate) struct Vnet {
    pub(crate) region: Segment,
    /// What it was asked for with, and the part of that which it has addresses of.
    pub(crate) space: Ipv4Net,
    pub(crate) block: Ipv4Net,
    pub(crate) object: Value,
}

/// Elements of a list inside an object's properties.
pub(crate) fn listed<'o>(object: &'o Value, field: &str) -> impl Iterator<Item = &'o Value> {
    object["properties"][field].as_array().into_iter().flatten()
}

/// Fields of a subnet that only Azure sets.
const READ_ONLY: [&str; 7] = [
    "ipConfigurationProfiles",
    "ipConfigurations",
    "privateEndpoints",
    "provisioningState",
    "purpose",
    "resourceNavigationLinks",
    "serviceAssociationLinks",
];

/// A subnet as it is sent to be written again, as it is.
pub(crate) fn rewritten(subnet: &Value) -> Value {
    let mut properties = subnet["properties"].clone();
    if let Some(properties) = properties.as_object_mut() {
        properties.retain(|name, _| !READ_ONLY.contains(&name.as_str()));
    }
    json!({"name": subnet["name"], "properties": properties})
}

/// Where a network is.
pub(crate) fn location_of(network: &Segment) -> Segment {
    cluster_network(network).map_or_else(|| network.clone(), |(region, _)| region)
}

/// What a network is to be like.
pub(crate) struct Layout {
    pub(crate) network: Segment,
    pub(crate) location: Segment,
    /// The addresses of the virtual network and its subnet.
    pub(crate) block: Ipv4Net,
}

impl Layout {
    pub(crate) fn of(network: &Segment, space: Ipv4Net) -> Result<Self> {
        let location = location_of(network);
        let block = match cluster_network(network) {
            Some(_) => check_space(space).map(|()| halves(space).0)?,
            None => space,
        };
        Ok(Self { network: network.clone(), location, block })
    }

    fn is_cluster(&self) -> bool {
        self.network != self.location
    }
}

pub(crate) fn overlap(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b) || b.contains(&a)
}

impl AzureCloud {
    pub(crate) async fn make_network(&self, ground: &Ground, region: &Segment, space: Ipv4Net) -> Result<()> {
        if space.prefix_len() > 29 {
            return Err(CloudError::invalid(format!(
                "{space} cannot be a network in Azure, which keeps five addresses of each: a /29 is the smallest"
            )));
        }
        if overlap(space, self.gateway_space) {
            return Err(CloudError::conflict(format!(
                "{space} overlaps {}, where gateways stand; set gateway_space of the cloud to another",
                self.gateway_space
            )));
        }
        let layout = Layout::of(region, space)?;
        let id = ground.vnet(region.as_str());
        let vnet = match self.owned(ground, &id).await? {
            Some(there) if is_made(&there) => {
                let have = vnet_of(ground, &there).map(|vnet| vnet.space);
                if have != Some(space) {
                    let have = have.map(|space| space.to_string()).unwrap_or_default();
                    return Err(CloudError::conflict(format!(
                        "the network {}.{region} has the space {have}, not {space}",
                        ground.site,
                    )));
                }
                there
            }
            // Not there, or its making failed. One that is there has its subnet, and is never written again: that
            // would take away what others put in.
            _ => {
                let block = layout.block.to_string();
                let mut subnet = json!({"name": SUBNET, "properties": {"addressPrefix": block, "defaultOutboundAccess": false}});
                let mut tags = ground.names.tags(&[]);
                if layout.is_cluster() {
                    tags[NETWORK] = region.as_str().into();
                    subnet = self.close_network(ground, &layout, subnet).await?;
                }
                let body = json!({
                    "location": layout.location.as_str(),
                    "tags": tags,
                    "properties": {"addressSpace": {"addressPrefixes": [block]}, "subnets": [subnet]},
                });
                self.arm.put(&id, &body).await?
            }
        };
        // Whichever came first: a network uses the site's gateway.
        match self.has_gateway(ground).await? && self.may_join(ground, region).await? {
            true => self.join_hub(ground, region, &vnet).await,
            false => Ok(()),
        }
    }

    /// The site's networks, those made and those adopted, without the hub.
    pub(crate) async fn vnets(&self, ground: &Ground) -> Result<Vec<Vnet>> {
        let (vnets, groups) =
            try_join!(self.arm.list(&ground.group, VNETS), self.arm.list(&ground.group, GROUPS))?;
        let mut all = vnets_of(ground, &vnets);
        all.extend(self.adopted_vnets(ground, &groups).await?);
        Ok(all)
    }

    pub(crate) async fn remove_network(&self, ground: &Ground, region: &Segment) -> Result<()> {
        if is_adopted(region.as_str()) {
            let message =
                format!("the network {}.{region} is somebody else's; it can only be let go", ground.site);
            return Err(CloudError::conflict(message));
        }
        if cluster_network(region).is_some() {
            self.check_empty(ground, region).await?;
        }
        let id = ground.vnet(region.as_str());
        let Some(vnet) = self.owned(ground, &id).await? else {
            self.leave_hub(ground, region).await?;
            return self.remove_border(ground, region).await;
        };
        // Before it is taken off the gateway, not after.
        let used = listed(&vnet, "subnets").any(|subnet| listed(subnet, "ipConfigurations").next().is_some());
        if used {
            return Err(CloudError::conflict(format!(
                "resources live in the network {}.{region}",
                ground.site
            )));
        }
        self.leave_hub(ground, region).await?;
        self.arm.delete(&id).await?;
        self.remove_border(ground, region).await
    }

    /// Deletes the group that a cluster's subnet was in.
    async fn remove_border(&self, ground: &Ground, region: &Segment) -> Result<()> {
        match cluster_network(region) {
            Some(_) => self.remove(ground, &Border::of(ground, region.as_str()).group).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn list_site(&self, ground: &Ground) -> Result<Listing> {
        let list = |kind: &'static str| async move { Ok(self.arm.list(&ground.group, kind).await?) };
        // Everything stands in a network or, gateways, in the hub: without them there is nothing.
        let (vnets, groups) = try_join!(list(VNETS), list(GROUPS))?;
        let adopted = self.adopted_vnets(ground, &groups).await?;
        if adopted.is_empty() && !vnets.iter().any(|vnet| ground.names.owns(vnet)) {
            return Ok(Listing::default());
        }
        let attached = self.attached(ground, &groups).await?;
        let (machines, interfaces, nats, gateway, connections) = try_join!(
            list("Microsoft.Compute/virtualMachines"),
            list("Microsoft.Network/networkInterfaces"),
            list("Microsoft.Network/natGateways"),
            self.gateway(ground),
            list("Microsoft.Network/connections"),
        )?;
        let mut networks = vnets_of(ground, &vnets);
        let clusters = self.clusters(ground, &networks, &groups).await?;
        networks.extend(adopted);
        let names = adopted_names(ground, &groups);
        let mine = |objects: &[Value]| -> Vec<Value> {
            objects.iter().filter(|object| ground.names.owns(object) && is_made(object)).cloned().collect()
        };
        let resource = |machine: &Value| {
            let wanted = machine["properties"]["networkProfile"]["networkInterfaces"][0]["id"].as_str()?;
            let interface = interfaces.iter().find(|one| is_same_id(&one["id"], wanted))?;
            Some((tag(machine, NAME)?.parse().ok()?, state_of(ground, machine, interface)?))
        };
        let peers: BTreeSet<Site> = mine(&connections).iter().filter_map(peer_of).collect();
        let subnet_has_nat = |nat: &Value| {
            let id = nat["id"].as_str().unwrap_or_default();
            let subnets = networks.iter().flat_map(|vnet| listed(&vnet.object, "subnets"));
            subnets.into_iter().any(|subnet| is_same_id(&subnet["properties"]["natGateway"]["id"], id))
        };
        Ok(Listing {
            resources: mine(&machines)
                .iter()
                .filter_map(resource)
                .chain(attached.into_iter().map(|one| (one.name, one.state)))
                .chain(clusters)
                .collect(),
            peerings: self.peerings_of(ground, &networks, &vnets, &names).await?,
            nats: mine(&nats).iter().filter(|nat| subnet_has_nat(nat)).filter_map(network_of).collect(),
            networks: networks.iter().map(|vnet| (vnet.region.clone(), vnet.space)).collect(),
            gateway: gateway.map(|gateway| gateway.state),
            connections: peers.into_iter().collect(),
        })
    }

    /// Peerings that were asked for and are open, by the networks they join. A network of another resource group is
    /// asked for its name.
    async fn peerings_of(
        &self,
        ground: &Ground,
        networks: &[Vnet],
        known: &[Value],
        adopted: &[(String, NetworkName)],
    ) -> Result<Vec<PeeringName>> {
        let mut found = BTreeSet::new();
        for vnet in networks {
            let ours = listed(&vnet.object, "virtualNetworkPeerings")
                .filter(|peering| ground.is_asked_for(peering) && is_open(peering));
            for peering in ours {
                let Some(id) = peering["properties"]["remoteVirtualNetwork"]["id"].as_str() else { continue };
                let near = NetworkName { site: ground.site.clone(), region: vnet.region.clone() };
                if let Some((_, far)) = adopted.iter().find(|(other, _)| other.eq_ignore_ascii_case(id)) {
                    found.extend(PeeringName::new(near, far.clone()).ok());
                    continue;
                }
                let far = match known.iter().find(|vnet| is_same_id(&vnet["id"], id)) {
                    Some(far) => Some(far.clone()),
                    None => self.arm.get(id).await?,
                };
                let far = far.and_then(|far| {
                    Some(NetworkName { site: ground.names.owns_site(&far)?, region: network_of(&far)? })
                });
                found.extend(far.and_then(|far| PeeringName::new(near, far).ok()));
            }
        }
        Ok(found.into_iter().collect())
    }
}

/// The network that an object of ours is, or is for: a tag says so, or it is the one of its location.
pub(crate) fn network_of(object: &Value) -> Option<Segment> {
    match tag(object, NETWORK) {
        Some(network) => network.parse().ok(),
        None => region_of(object["location"].as_str()?),
    }
}

/// A virtual network as one of the site's, if it is and is made.
pub(crate) fn vnet_of(ground: &Ground, object: &Value) -> Option<Vnet> {
    let prefix = format!("{}-net-", ground.names.prefix());
    let ours = object["name"].as_str()?.starts_with(&prefix) && ground.names.owns(object);
    let block: Ipv4Net = object["properties"]["addressSpace"]["addressPrefixes"][0].as_str()?.parse().ok()?;
    let region = network_of(object)?;
    let space = if cluster_network(&region).is_some() { space_of(block)? } else { block };
    (ours && is_made(object)).then(|| Vnet { region, space, block, object: object.clone() })
}

fn vnets_of(ground: &Ground, objects: &[Value]) -> Vec<Vnet> {
    let mut vnets: Vec<Vnet> = objects.iter().filter_map(|object| vnet_of(ground, object)).collect();
    vnets.sort_by(|a, b| a.region.cmp(&b.region));
    vnets
}
