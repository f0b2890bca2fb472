//! The hub: a virtual network that holds nothing but the site's gateway, and lends it to the site's networks. It stands
//! apart from them, so that any of them can come and go.

use model::Segment;
use serde_json::{Value, json};

use crate::{
    cloud::{AzureCloud, Ground, Result},
    networks::listed,
    peerings::Side,
};

impl Ground {
    pub(crate) fn hub(&self) -> String {
        self.network_id("virtualNetworks", &self.names.hub())
    }
}

/// The hub's side comes first: a network can use a gateway only if it is lent.
fn sides(ground: &Ground, region: &str, vnet: String) -> [Side; 2] {
    let hub = ground.hub();
    let lends = Side {
        near: hub.clone(),
        name: ground.names.of("lend", region),
        far: vnet.clone(),
        lends_gateway: true,
        uses_gateway: false,
    };
    let uses =
        Side { near: vnet, name: ground.names.hub(), far: hub, lends_gateway: false, uses_gateway: true };
    [lends, uses]
}

impl AzureCloud {
    /// The hub, made if it is not there.
    pub(crate) async fn make_hub(&self, ground: &Ground, region: &str) -> Result<Value> {
        let space = self.gateway_space.to_string();
        let body = json!({
            "location": region,
            "tags": ground.names.tags(&[]),
            "properties": {
                "addressSpace": {"addressPrefixes": [space]},
                // The name by which Azure knows where gateways go.
                "subnets": [{"name": "GatewaySubnet", "properties": {"addressPrefix": space}}],
            },
        });
        self.ensure(ground, &ground.hub(), &body, |_| true).await
    }

    /// Lets a network use the gateway.
    pub(crate) async fn join_hub(&self, ground: &Ground, region: &Segment, vnet: &Value) -> Result<()> {
        let name = ground.names.hub();
        let joined = listed(vnet, "virtualNetworkPeerings")
            .any(|peering| peering["name"] == name && peering["properties"]["peeringState"] == "Connected");
        if joined {
            return Ok(());
        }
        let what = format!("of {}.{region} with its gateway", ground.site);
        let id = self.vnet_id(ground, region.as_str()).await?;
        self.peer(&sides(ground, region.as_str(), id), &what).await
    }

    /// Takes a network off the gateway.
    pub(crate) async fn leave_hub(&self, ground: &Ground, region: &Segment) -> Result<()> {
        let id = self.vnet_id(ground, region.as_str()).await?;
        let [lends, uses] = sides(ground, region.as_str(), id);
        self.unpeer(&[uses, lends]).await
    }
}
