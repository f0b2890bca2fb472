//! NAT: a public gateway in each zone that has a subnet, set on that subnet.

use cloud_http::Class;
use futures::future::try_join_all;
use http::Method;
use serde_json::{Value, json};

use crate::{
    api::{PUBLIC_GATEWAY, Place, is_alive, text},
    cloud::{Ground, IbmCloud, Result},
    vpcs::Vpc,
};

impl IbmCloud {
    /// Our public gateways of a VPC.
    pub(crate) async fn nats(&self, ground: &Ground, vpc: &Vpc) -> Result<Vec<Value>> {
        let path = ground.within("public_gateways");
        let found = self.api.list(Place::Region(&vpc.region), &PUBLIC_GATEWAY, &path).await?;
        let ours =
            |nat: &Value| nat["vpc"]["id"] == vpc.id.as_str() && ground.names.owns(nat) && is_alive(nat);
        Ok(found.into_iter().filter(ours).collect())
    }

    async fn make_nat_in(&self, ground: &Ground, vpc: &Vpc, there: &[Value], zone: &str) -> Result<String> {
        let name = ground.names.nat(&vpc.corner(zone));
        if let Some(nat) =
            there.iter().find(|nat| nat["name"] == name.as_str() && PUBLIC_GATEWAY.is_ready(nat))
        {
            return Ok(text(nat, "id").to_owned());
        }
        let body = ground.place(json!({"name": name, "vpc": {"id": vpc.id}, "zone": {"name": zone}}));
        let path = ground.within("public_gateways");
        let made = self.api.make(Place::Region(&vpc.region), &PUBLIC_GATEWAY, &path, &body).await?;
        Ok(text(&made, "id").to_owned())
    }

    /// The gateway that a new subnet of a zone is to have: one if the network has NAT.
    pub(crate) async fn nat_for(&self, ground: &Ground, vpc: &Vpc, zone: &str) -> Result<Option<String>> {
        let there = self.nats(ground, vpc).await?;
        if there.is_empty() {
            return Ok(None);
        }
        self.make_nat_in(ground, vpc, &there, zone).await.map(Some)
    }

    pub(crate) async fn make_nat(&self, ground: &Ground, network: &str) -> Result<()> {
        let vpc = self.need_vpc(ground, network).await?;
        let _turn = self.turns.take(&format!("subnets {}", vpc.id)).await;
        let (there, subnets) = futures::try_join!(self.nats(ground, &vpc), self.subnets(&vpc))?;
        let mut zones: Vec<String> =
            subnets.iter().map(|subnet| text(&subnet["zone"], "name").to_owned()).collect();
        if zones.is_empty() {
            // The first subnet finds out from it that there is NAT.
            zones.extend(self.zones(&vpc.region).await?.into_iter().take(1));
        }
        zones.sort();
        zones.dedup();
        let place = Place::Region(&vpc.region);
        try_join_all(zones.iter().map(|zone| {
            let (vpc, there, subnets) = (&vpc, &there, &subnets);
            async move {
                let nat = self.make_nat_in(ground, vpc, there, zone).await?;
                let own = subnets.iter().filter(|subnet| text(&subnet["zone"], "name") == zone.as_str());
                for subnet in own.filter(|subnet| subnet["public_gateway"]["id"] != nat.as_str()) {
                    let path = format!("subnets/{}/public_gateway", text(subnet, "id"));
                    let body = json!({"id": nat});
                    self.api
                        .send(place, "set_subnet_public_gateway", Method::PUT, &path, Some(&body))
                        .await?;
                }
                Ok::<_, cloud_api::CloudError>(())
            }
        }))
        .await?;
        Ok(())
    }

    pub(crate) async fn remove_nat(&self, ground: &Ground, network: &str) -> Result<()> {
        let Some(vpc) = self.vpc(ground, network).await? else { return Ok(()) };
        let _turn = self.turns.take(&format!("subnets {}", vpc.id)).await;
        let there = self.nats(ground, &vpc).await?;
        if there.is_empty() {
            return Ok(());
        }
        let place = Place::Region(&vpc.region);
        let subnets = self.subnets(&vpc).await?;
        for subnet in subnets.iter().filter(|subnet| !subnet["public_gateway"].is_null()) {
            let path = format!("subnets/{}/public_gateway", text(subnet, "id"));
            match self.api.send(place, "unset_subnet_public_gateway", Method::DELETE, &path, None).await {
                Err(failure) if failure.is(Class::NotFound) => {}
                outcome => drop(outcome?),
            }
        }
        try_join_all(there.iter().map(|nat| async move {
            self.api.remove(place, &PUBLIC_GATEWAY, &format!("public_gateways/{}", text(nat, "id"))).await
        }))
        .await?;
        Ok(())
    }
}
