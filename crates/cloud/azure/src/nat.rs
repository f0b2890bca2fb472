//! NAT: a gateway with a public address, set on a network's subnet.

use cloud_api::CloudError;
use model::Segment;
use serde_json::json;

use crate::{
    cloud::{AzureCloud, Ground, Result},
    gateway::public_address,
    names::is_same_id,
    networks::{SUBNET, listed, subnet},
};

/// The ids of a region's NAT gateway, its address, and the subnet it is for.
fn ids(ground: &Ground, region: &str) -> [String; 3] {
    [
        ground.network_id("natGateways", &ground.names.of("nat", region)),
        ground.network_id("publicIPAddresses", &ground.names.of("natip", region)),
        format!("{}/subnets/{SUBNET}", ground.vnet(region)),
    ]
}

impl AzureCloud {
    pub(crate) async fn make_nat(&self, ground: &Ground, region: &Segment) -> Result<()> {
        let [nat, address, subnet_id] = ids(ground, region.as_str());
        let none = || CloudError::conflict(format!("there is no network {}.{region}", ground.site));
        let vnet = self.owned(ground, &ground.vnet(region.as_str())).await?.ok_or_else(none)?;
        let public = public_address(ground, region.as_str(), &[]);
        self.ensure(ground, &address, &public, |_| true).await?;
        let body = json!({
            "location": region.as_str(),
            "tags": ground.names.tags(&[]),
            "sku": {"name": "Standard"},
            "properties": {"publicIpAddresses": [{"id": address}], "idleTimeoutInMinutes": 4},
        });
        self.ensure(ground, &nat, &body, |_| true).await?;
        let has =
            listed(&vnet, "subnets").any(|one| is_same_id(&one["properties"]["natGateway"]["id"], &nat));
        if has {
            return Ok(());
        }
        let space = vnet["properties"]["addressSpace"]["addressPrefixes"][0].as_str();
        let space = space.and_then(|text| text.parse().ok()).ok_or_else(none)?;
        self.arm.put(&subnet_id, &subnet(space, Some(&nat))).await?;
        Ok(())
    }

    pub(crate) async fn remove_nat(&self, ground: &Ground, region: &Segment) -> Result<()> {
        let [nat, address, subnet_id] = ids(ground, region.as_str());
        if let Some(there) = self.arm.settled(&subnet_id).await?
            && is_same_id(&there["properties"]["natGateway"]["id"], &nat)
        {
            let space = there["properties"]["addressPrefix"].as_str().and_then(|text| text.parse().ok());
            let unreadable = || CloudError::unavailable(format!("{subnet_id} has no address prefix"));
            self.arm.put(&subnet_id, &subnet(space.ok_or_else(unreadable)?, None)).await?;
        }
        self.remove(ground, &nat).await?;
        self.remove(ground, &address).await
    }
}
