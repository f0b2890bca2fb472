//! Adopted networks: virtual networks that somebody else made, and that machines are attached from.
//!
//! ```text
//!   westus2-vnet-HASH     the network's name: region and a hash of the virtual network's id
//!   t-SITE-adopt-HASH     an empty security group of ours that says which virtual network that is. It protects nothing;
//!                         a group costs nothing and can carry tags
//! ```
//!
//! Into the virtual network itself come peerings only, with names of ours.

use cloud_api::CloudError;
use cloud_http::letters;
use ipnet::Ipv4Net;
use model::{NetworkName, Segment};
use serde_json::{Value, json};

use crate::{
    api::is_made,
    cloud::{AzureCloud, Ground, Result},
    names::{region_of, tag},
    networks::{GROUPS, Vnet, overlap},
};

/// The id of an adopted virtual network, the block that machines are attached from, and the network's name.
const VNET: &str = "trestle-vnet";
const SPACE: &str = "trestle-space";
pub(crate) const NETWORK: &str = "trestle-network";
/// What Azure keeps in a tag.
pub(crate) const LONGEST_TAG: usize = 256;

/// Whether a network's name is an adopted one's. A cluster's begins with its region too, and no region has a dash.
pub(crate) fn is_adopted(region: &str) -> bool {
    region.split_once("-vnet-").is_some_and(|(region, _)| !region.contains('-'))
}

/// What a virtual network is called once it is adopted.
pub(crate) fn name_of(vnet: &Value) -> Result<Segment> {
    let id = vnet["id"].as_str().unwrap_or_default();
    let region = vnet["location"].as_str().and_then(region_of);
    let name = region.map(|region| format!("{region}-vnet-{}", letters(&id.to_ascii_lowercase(), 10)));
    let bad = || CloudError::unavailable(format!("the virtual network {id} has no location"));
    name.and_then(|name| name.parse().ok()).ok_or_else(bad)
}

/// The address blocks of a virtual network.
pub(crate) fn blocks(vnet: &Value) -> Vec<Ipv4Net> {
    let prefixes = vnet["properties"]["addressSpace"]["addressPrefixes"].as_array().into_iter().flatten();
    prefixes.filter_map(|text| text.as_str()?.parse().ok()).collect()
}

/// What a marker says: the network's name, its id, and the block that machines are attached from.
fn adopted(marker: &Value) -> Option<(Segment, &str, Ipv4Net)> {
    Some((tag(marker, NETWORK)?.parse().ok()?, tag(marker, VNET)?, tag(marker, SPACE)?.parse().ok()?))
}

/// Adopted networks by their ids, of all sites whose markers are among these groups.
pub(crate) fn adopted_names(ground: &Ground, groups: &[Value]) -> Vec<(String, NetworkName)> {
    let name = |marker: &Value| {
        let (region, id, _) = adopted(marker)?;
        Some((id.to_owned(), NetworkName { site: ground.names.owns_site(marker)?, region }))
    };
    groups.iter().filter_map(name).collect()
}

impl AzureCloud {
    fn marker(&self, ground: &Ground, region: &str) -> String {
        ground.network_id("networkSecurityGroups", &ground.names.of("adopt", region))
    }

    /// The id of a network's virtual network, made or adopted.
    pub(crate) async fn vnet_id(&self, ground: &Ground, region: &str) -> Result<String> {
        if !is_adopted(region) {
            return Ok(ground.vnet(region));
        }
        let marker = self.owned(ground, &self.marker(ground, region)).await?;
        let id = marker.as_ref().and_then(|marker| adopted(marker)).map(|(_, id, _)| id.to_owned());
        id.ok_or_else(|| CloudError::conflict(format!("there is no network {}.{region}", ground.site)))
    }

    /// The networks that a site has adopted, by their markers among its groups. One that is gone is not there.
    pub(crate) async fn adopted_vnets(&self, ground: &Ground, groups: &[Value]) -> Result<Vec<Vnet>> {
        let mut found = Vec::new();
        for marker in groups.iter().filter(|group| ground.names.owns(group) && is_made(group)) {
            let Some((region, id, space)) = adopted(marker) else { continue };
            if let Some(object) = self.arm.get(id).await?.filter(|vnet| blocks(vnet).contains(&space)) {
                found.push(Vnet { region, space, block: space, object });
            }
        }
        Ok(found)
    }

    pub(crate) async fn adopt(&self, ground: &Ground, id: &str, space: Ipv4Net) -> Result<()> {
        let gone = || CloudError::not_found(format!("there is no virtual network {id}"));
        let vnet = self.arm.settled(id).await?.ok_or_else(gone)?;
        let region = name_of(&vnet)?;
        if !blocks(&vnet).contains(&space) {
            return Err(CloudError::conflict(format!("{id} has {:?}, and not {space}", blocks(&vnet))));
        }
        self.check_adoptable(&vnet)?;
        let tags = [(VNET, id), (SPACE, &space.to_string()), (NETWORK, region.as_str())];
        let body = json!({"location": vnet["location"], "tags": ground.names.tags(&tags), "properties": {}});
        let fits = |marker: &Value| adopted(marker) == Some((region.clone(), id, space));
        self.ensure(ground, &self.marker(ground, region.as_str()), &body, fits).await?;
        match self.has_gateway(ground).await? {
            true => self.join_hub(ground, &region, &vnet).await,
            false => Ok(()),
        }
    }

    /// Refuses what could never be joined with others.
    pub(crate) fn check_adoptable(&self, vnet: &Value) -> Result<()> {
        let id = vnet["id"].as_str().unwrap_or_default();
        if let Some(owner) = tag(vnet, "trestle-owner") {
            return Err(CloudError::conflict(format!(
                "{id} is a network that Trestle ({owner}) made itself"
            )));
        }
        if let Some(block) = blocks(vnet).into_iter().find(|block| overlap(*block, self.gateway_space)) {
            return Err(CloudError::conflict(format!(
                "{id} has {block}, which overlaps {}, where gateways stand; set gateway_space of the cloud to another",
                self.gateway_space
            )));
        }
        match id.len() > LONGEST_TAG {
            true => Err(CloudError::conflict(format!("{id} is too long an id for a tag of Azure"))),
            false => Ok(()),
        }
    }

    pub(crate) async fn release(&self, ground: &Ground, region: &Segment) -> Result<()> {
        let marker = self.marker(ground, region.as_str());
        if !is_adopted(region.as_str()) || self.owned(ground, &marker).await?.is_none() {
            return Ok(());
        }
        let groups = self.arm.list(&ground.group, GROUPS).await?;
        let attached = self.attached(ground, &groups).await?;
        if let Some(one) = attached.iter().find(|one| one.state.region == *region) {
            return Err(CloudError::conflict(format!("the resource {} is attached from {region}", one.name)));
        }
        self.leave_hub(ground, region).await?;
        self.remove(ground, &marker).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_called_the_same_whatever_the_case_of_its_id() {
        let name = |id: &str| name_of(&json!({"id": id, "location": "West US 2"})).unwrap();
        let one = name("/subscriptions/s/resourceGroups/G/providers/Microsoft.Network/virtualNetworks/V");
        assert_eq!(
            one,
            name("/subscriptions/s/resourcegroups/g/providers/microsoft.network/virtualnetworks/v")
        );
        assert!(one.as_str().starts_with("westus2-vnet-") && is_adopted(one.as_str()));
        assert!(!is_adopted("westus2") && !is_adopted("westus2-k8s-a-vnet-b"));
    }
}
