//! Peerings between sites. Two VPCs have at most one, whatever networks asked for it; a disabled firewall per pair of
//! networks remembers who did, and the peering goes with the last of them.

use cloud_api::{CloudError, PeeringSpec};
use cloud_http::{Class, Pace, Progress, wait};
use serde_json::{Value, json};

use crate::{
    cloud::{GcpCloud, Ground, Result},
    endpoints::Spot,
    names,
};

impl GcpCloud {
    fn ends(&self, spec: &PeeringSpec) -> Result<[Ground; 2]> {
        let [a, b] = spec.name.ends();
        Ok([self.ground(&a.site, &spec.deployments[0])?, self.ground(&b.site, &spec.deployments[1])?])
    }

    /// Peerings of two VPCs take turns with others of the same two.
    fn pair(a: &Ground, b: &Ground) -> String {
        format!("peering {} {}", a.site, b.site)
    }

    pub(crate) async fn make_peering(&self, spec: &PeeringSpec) -> Result<()> {
        let grounds = self.ends(spec)?;
        for (ground, end) in grounds.iter().zip(spec.name.ends()) {
            if Spot::of(end.region.as_str()).is_some() {
                self.check_endpoint_peering(ground, spec).await?;
                continue;
            }
            let name = ground.names.subnet(end.region.as_str());
            let subnet = self.compute.get(&ground.region(end.region.as_str()), "subnetworks", &name).await?;
            subnet.ok_or_else(|| CloudError::conflict(format!("there is no network {end}")))?;
        }
        let [a, b] = &grounds;
        if a.site == b.site {
            return Ok(());
        }
        let _turn = self.turns.take(&Self::pair(a, b)).await;
        let mark =
            names::Mark { peering: Some(spec.name.clone()), peer: Some(b.site.clone()), ..a.names.mark() };
        let marker = json!({"name": a.names.marker(&spec.name), "network": a.network(), "description": names::write(mark), "direction": "INGRESS", "priority": 65535, "disabled": true, "denied": [{"IPProtocol": "all"}], "sourceRanges": ["0.0.0.0/0"]});
        self.compute.insert(&a.global(), "firewalls", &marker).await?;
        for (near, far) in [(a, b), (b, a)] {
            self.peer(near, far).await?;
        }
        wait(self.compute.clock(), Pace::QUICK, &format!("the peering {}", spec.name), || async {
            let network =
                self.compute.get(&a.global(), "networks", &a.names.network()).await?.unwrap_or_default();
            let active =
                peering(&network, &a.names.peer(&b.site)).is_some_and(|peering| peering["state"] == "ACTIVE");
            Ok(if active { Progress::Done(()) } else { Progress::Pending })
        })
        .await
    }

    /// One side of a peering.
    async fn peer(&self, near: &Ground, far: &Ground) -> Result<()> {
        let name = near.names.peer(&far.site);
        let none = || CloudError::conflict(format!("{} has no network", near.site));
        let network =
            self.compute.get(&near.global(), "networks", &near.names.network()).await?.ok_or_else(none)?;
        if peering(&network, &name).is_some() {
            return Ok(());
        }
        let wanted =
            json!({"networkPeering": {"name": name, "network": far.network(), "exchangeSubnetRoutes": true}});
        let added =
            self.compute.act(&near.global(), "networks", &near.names.network(), "addPeering", &wanted).await;
        match added {
            // Made by an earlier try whose answer was lost.
            Err(failure) if failure.is(Class::Invalid) => {
                let network = self
                    .compute
                    .get(&near.global(), "networks", &near.names.network())
                    .await?
                    .ok_or_else(none)?;
                peering(&network, &name).map(drop).ok_or_else(|| failure.into())
            }
            outcome => Ok(outcome?),
        }
    }

    pub(crate) async fn remove_peering(&self, spec: &PeeringSpec) -> Result<()> {
        let [a, b] = &self.ends(spec)?;
        if a.site == b.site {
            return Ok(());
        }
        let _turn = self.turns.take(&Self::pair(a, b)).await;
        self.compute.delete(&a.global(), "firewalls", &a.names.marker(&spec.name)).await?;
        let markers =
            self.compute.list(&a.global(), "firewalls", &format!("{}-pm-", a.names.prefix())).await?;
        let wanted = markers.iter().filter_map(names::read).any(|mark| mark.peer.as_ref() == Some(&b.site));
        if wanted {
            return Ok(());
        }
        for (near, far) in [(a, b), (b, a)] {
            let name = near.names.peer(&far.site);
            let network = self
                .compute
                .get(&near.global(), "networks", &near.names.network())
                .await?
                .unwrap_or_default();
            if peering(&network, &name).is_some() {
                let body = json!({"name": name});
                match self
                    .compute
                    .act(&near.global(), "networks", &near.names.network(), "removePeering", &body)
                    .await
                {
                    Err(failure) if failure.is(Class::Invalid) || failure.is(Class::NotFound) => {}
                    outcome => outcome?,
                }
            }
        }
        Ok(())
    }
}

fn peering<'n>(network: &'n Value, name: &str) -> Option<&'n Value> {
    network["peerings"].as_array()?.iter().find(|peering| peering["name"] == name)
}
