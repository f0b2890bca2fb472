//! Peerings: an object at each of two virtual networks, up once both are there.

use cloud_api::{CloudError, CloudErrorKind, PeeringSpec};
use cloud_http::{Pace, Progress, wait};
use serde_json::{Value, json};

use crate::cloud::{AzureCloud, Ground, Result};

/// One side of a peering.
pub(crate) struct Side {
    /// Of the near virtual network, the peering's name, and of the far one.
    pub(crate) near: String,
    pub(crate) name: String,
    pub(crate) far: String,
    /// The near network has a gateway that the far one uses; or the other way round.
    pub(crate) lends_gateway: bool,
    pub(crate) uses_gateway: bool,
}

impl Side {
    fn id(&self) -> String {
        format!("{}/virtualNetworkPeerings/{}", self.near, self.name)
    }

    fn body(&self) -> Value {
        json!({"properties": {
            "remoteVirtualNetwork": {"id": self.far},
            "allowVirtualNetworkAccess": true,
            "allowForwardedTraffic": false,
            "allowGatewayTransit": self.lends_gateway,
            "useRemoteGateways": self.uses_gateway,
        }})
    }
}

impl AzureCloud {
    async fn sides(&self, spec: &PeeringSpec) -> Result<[Side; 2]> {
        let [a, b] = spec.name.ends();
        let one = self.ground(&a.site, &spec.deployments[0])?;
        let two = self.ground(&b.site, &spec.deployments[1])?;
        let vnets =
            [self.vnet_id(&one, a.region.as_str()).await?, self.vnet_id(&two, b.region.as_str()).await?];
        let side = |ground: &Ground, far, near: &str, other: &str| Side {
            near: near.to_owned(),
            name: ground.names.peering(far),
            far: other.to_owned(),
            lends_gateway: false,
            uses_gateway: false,
        };
        Ok([side(&one, b, &vnets[0], &vnets[1]), side(&two, a, &vnets[1], &vnets[0])])
    }

    pub(crate) async fn make_peering(&self, spec: &PeeringSpec) -> Result<()> {
        let sides = self.sides(spec).await?;
        for (side, network) in sides.iter().zip(spec.name.ends()) {
            let none = || CloudError::conflict(format!("there is no network {network}"));
            self.arm.get(&side.near).await?.ok_or_else(none)?;
        }
        self.peer(&sides, &spec.name.to_string()).await
    }

    /// Makes both sides of a peering, and waits until it is up.
    pub(crate) async fn peer(&self, sides: &[Side; 2], what: &str) -> Result<()> {
        let mut states = Vec::new();
        for side in sides {
            let there = self.arm.settled(&side.id()).await?.unwrap_or_default();
            let properties = &there["properties"];
            let fits = properties["allowGatewayTransit"] == side.lends_gateway
                && properties["useRemoteGateways"] == side.uses_gateway;
            states.push((fits, properties["peeringState"].as_str().unwrap_or_default().to_owned()));
        }
        if states.iter().all(|(fits, state)| *fits && state == "Connected") {
            return Ok(());
        }
        for (side, (_, state)) in sides.iter().zip(&states) {
            // One whose other side was deleted never comes up again.
            if state == "Disconnected" {
                self.arm.delete(&side.id()).await?;
            }
        }
        for (side, (fits, state)) in sides.iter().zip(&states) {
            // One that waits for its other side is as it should be.
            if !fits || !matches!(state.as_str(), "Initiated" | "Connected") {
                self.arm.put(&side.id(), &side.body()).await?;
            }
        }
        wait(self.arm.clock(), Pace::QUICK, &format!("the peering {what}"), || async {
            let there = self.arm.get(&sides[0].id()).await?.unwrap_or_default();
            let up = there["properties"]["peeringState"] == "Connected";
            Ok(if up { Progress::Done(()) } else { Progress::Pending })
        })
        .await
    }

    pub(crate) async fn remove_peering(&self, spec: &PeeringSpec) -> Result<()> {
        match self.sides(spec).await {
            Ok(sides) => self.unpeer(&sides).await,
            // A network that is let go has lost its peerings before.
            Err(err) if err.kind == CloudErrorKind::Conflict => Ok(()),
            Err(err) => Err(err),
        }
    }

    /// Deletes both sides.
    pub(crate) async fn unpeer(&self, sides: &[Side; 2]) -> Result<()> {
        for side in sides {
            if self.arm.get(&side.id()).await?.is_some() {
                self.arm.delete(&side.id()).await?;
            }
        }
        Ok(())
    }
}
