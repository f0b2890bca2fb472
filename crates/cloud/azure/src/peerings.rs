//! Peerings: an object at each of two virtual networks, up once both are there. Those of a cluster's network let nothing
//! through while the cluster is made.

use std::collections::BTreeSet;

use cloud_api::{CloudError, CloudErrorKind, PeeringSpec};
use cloud_http::{Pace, Progress, Turn, wait};
use model::Site;
use serde_json::{Value, json};

use crate::{
    cloud::{AzureCloud, Ground, Result},
    names::is_same_id,
    networks::{listed, network_of},
};

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

    fn body(&self, lets_through: bool) -> Value {
        json!({"properties": {
            "remoteVirtualNetwork": {"id": self.far},
            "allowVirtualNetworkAccess": lets_through,
            "allowForwardedTraffic": false,
            "allowGatewayTransit": self.lends_gateway,
            "useRemoteGateways": self.uses_gateway,
        }})
    }
}

/// Whether a peering is up, and lets traffic through.
pub(crate) fn is_open(peering: &Value) -> bool {
    is_up(peering) && lets_through(peering)
}

fn is_up(peering: &Value) -> bool {
    peering["properties"]["peeringState"] == "Connected"
}

fn lets_through(peering: &Value) -> bool {
    peering["properties"]["allowVirtualNetworkAccess"] != false
}

impl Ground {
    /// Whether a peering at one of the site's networks is one that was asked for.
    pub(crate) fn is_asked_for(&self, peering: &Value) -> bool {
        let prefix = format!("{}-peer-", self.names.prefix());
        peering["name"].as_str().is_some_and(|name| name.starts_with(&prefix))
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

    /// The turns of the networks at both ends, always in the same order.
    async fn turns_of(&self, spec: &PeeringSpec) -> Vec<Turn> {
        let sites: BTreeSet<&Site> = spec.name.ends().into_iter().map(|end| &end.site).collect();
        let mut turns = Vec::new();
        for site in sites {
            turns.push(self.networks_turn(site).await);
        }
        turns
    }

    pub(crate) async fn make_peering(&self, spec: &PeeringSpec) -> Result<()> {
        let _turns = self.turns_of(spec).await;
        let sides = self.sides(spec).await?;
        for ((side, network), deployment) in sides.iter().zip(spec.name.ends()).zip(&spec.deployments) {
            let none = || CloudError::conflict(format!("there is no network {network}"));
            self.arm.get(&side.near).await?.ok_or_else(none)?;
            let ground = self.ground(&network.site, deployment)?;
            if !self.may_peer(&ground, &network.region).await? {
                return Err(CloudError::unavailable(format!(
                    "the network {network} is joined with no other until its cluster is made and guarded; look at the \
                     cluster, and at the security group of its subnet"
                )));
            }
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
                && properties["useRemoteGateways"] == side.uses_gateway
                && lets_through(&there);
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
                self.arm.put(&side.id(), &side.body(true)).await?;
            }
        }
        wait(self.arm.clock(), Pace::QUICK, &format!("the peering {what}"), || async {
            let there = self.arm.get(&sides[0].id()).await?.unwrap_or_default();
            let up = there["properties"]["peeringState"] == "Connected";
            Ok(if up { Progress::Done(()) } else { Progress::Pending })
        })
        .await
    }

    /// Lets traffic through the peerings that a network was asked to have, or holds it back, at both sides. The hub's is
    /// not among them.
    pub(crate) async fn set_peerings(&self, ground: &Ground, vnet: &Value, open: bool) -> Result<()> {
        let id = vnet["id"].as_str().unwrap_or_default();
        for near in
            listed(vnet, "virtualNetworkPeerings").filter(|one| ground.is_asked_for(one) && is_up(one))
        {
            let far_id = near["properties"]["remoteVirtualNetwork"]["id"].as_str().unwrap_or_default();
            let Some(far) = self.arm.get(far_id).await? else { continue };
            // The other may be a cluster's too, and have its own reason.
            if open && !self.other_may_peer(ground, &far).await? {
                continue;
            }
            let back = listed(&far, "virtualNetworkPeerings")
                .find(|one| is_same_id(&one["properties"]["remoteVirtualNetwork"]["id"], id));
            for (here, there, one) in [(id, far_id, Some(near)), (far_id, id, back)] {
                let Some(name) =
                    one.filter(|one| lets_through(one) != open).and_then(|one| one["name"].as_str())
                else {
                    continue;
                };
                let (near, name, far) = (here.to_owned(), name.to_owned(), there.to_owned());
                let side = Side { near, name, far, lends_gateway: false, uses_gateway: false };
                self.arm.put(&side.id(), &side.body(open)).await?;
            }
        }
        Ok(())
    }

    /// Whether a network of whatever site of this owner may be joined with others. Those of somebody else always may.
    async fn other_may_peer(&self, ground: &Ground, vnet: &Value) -> Result<bool> {
        let group = vnet["id"].as_str().and_then(|id| id.split("/providers/").next());
        match (ground.names.owns_site(vnet), network_of(vnet), group) {
            (Some(site), Some(network), Some(group)) => {
                self.may_peer(&self.ground(&site, group)?, &network).await
            }
            _ => Ok(true),
        }
    }

    pub(crate) async fn remove_peering(&self, spec: &PeeringSpec) -> Result<()> {
        let _turns = self.turns_of(spec).await;
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
