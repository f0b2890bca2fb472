//! NAT: a gateway with a public address, set on a network's subnet.

use cloud_api::{CloudError, cluster_network};
use model::Segment;
use serde_json::{Value, json};

use crate::{
    adopt::NETWORK,
    cloud::{AzureCloud, Ground, Result},
    gateway::public_address,
    names::is_same_id,
    networks::{SUBNET, location_of, rewritten},
};

/// The ids of a network's NAT gateway, its address, and the subnet it is for.
fn ids(ground: &Ground, network: &str) -> [String; 3] {
    [
        ground.network_id("natGateways", &ground.names.of("nat", network)),
        ground.network_id("publicIPAddresses", &ground.names.of("natip", network)),
        format!("{}/subnets/{SUBNET}", ground.vnet(network)),
    ]
}

/// A subnet with another NAT gateway, or none; everything else of it stays.
fn with_nat(subnet: &Value, nat: Option<&str>) -> Value {
    let mut body = rewritten(subnet);
    if let Some(properties) = body["properties"].as_object_mut() {
        match nat {
            Some(nat) => properties.insert("natGateway".to_owned(), json!({"id": nat})),
            None => properties.remove("natGateway"),
        };
    }
    body
}

impl AzureCloud {
    pub(crate) async fn make_nat(&self, ground: &Ground, network: &Segment) -> Result<()> {
        let [nat, address, subnet_id] = ids(ground, network.as_str());
        let none = || CloudError::conflict(format!("there is no network {}.{network}", ground.site));
        self.owned(ground, &ground.vnet(network.as_str())).await?.ok_or_else(none)?;
        let location = location_of(network);
        let public = public_address(ground, location.as_str(), &[]);
        self.ensure(ground, &address, &public, |_| true).await?;
        // The location alone says which network it is, but for a cluster's.
        let more = [(NETWORK, network.as_str())];
        let more = if cluster_network(network).is_some() { &more[..] } else { &[] };
        let body = json!({
            "location": location.as_str(),
            "tags": ground.names.tags(more),
            "sku": {"name": "Standard"},
            "properties": {"publicIpAddresses": [{"id": address}], "idleTimeoutInMinutes": 4},
        });
        self.ensure(ground, &nat, &body, |_| true).await?;
        // As it is now: others, AKS among them, write to it while the gateway is made.
        let subnet = self.arm.settled(&subnet_id).await?.ok_or_else(none)?;
        if is_same_id(&subnet["properties"]["natGateway"]["id"], &nat) {
            return Ok(());
        }
        self.arm.put(&subnet_id, &with_nat(&subnet, Some(&nat))).await?;
        Ok(())
    }

    pub(crate) async fn remove_nat(&self, ground: &Ground, network: &Segment) -> Result<()> {
        let [nat, address, subnet_id] = ids(ground, network.as_str());
        if let Some(there) = self.arm.settled(&subnet_id).await?
            && is_same_id(&there["properties"]["natGateway"]["id"], &nat)
        {
            self.arm.put(&subnet_id, &with_nat(&there, None)).await?;
        }
        self.remove(ground, &nat).await?;
        self.remove(ground, &address).await
    }
}
