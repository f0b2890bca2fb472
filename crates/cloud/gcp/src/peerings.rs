//! Peerings of VPCs. Two VPCs have at most one, whatever networks asked for it; a disabled firewall per pair of
//! networks remembers who did, and the peering goes with the last of them. A site's VPC and the ones that the site
//! adopted are also peered for the gateway, as long as there is one.

use cloud_api::{CloudError, PeeringSpec};
use cloud_http::{Class, Pace, Progress, wait};
use serde_json::{Value, json};

use crate::{
    cloud::{GcpCloud, Ground, Result, Vpc},
    endpoints::Spot,
    names::{self, path},
};

/// Stands for two VPCs, in either order.
fn pair(a: &Vpc, b: &Vpc) -> String {
    let (a, b) = (a.path(), b.path());
    if a < b { names::hash(&format!("{a} {b}"), 10) } else { names::hash(&format!("{b} {a}"), 10) }
}

/// What a peering is called in the VPC `near`.
fn name_in(near: &Vpc, far: &Vpc) -> String {
    let far = if far.is_own() { far.ground.site.to_string() } else { far.path() };
    near.ground.names.of("peer", &far)
}

/// A peering to ask for. What the gateway has learnt goes from the site's VPC to those that it adopted, and nothing of
/// theirs but their subnets comes back.
fn wanted(near: &Vpc, far: &Vpc) -> Value {
    let is_served = near.ground.site == far.ground.site;
    json!({
        "name": name_in(near, far),
        "network": far.path(),
        "exchangeSubnetRoutes": true,
        "exportCustomRoutes": is_served && near.is_own(),
        "importCustomRoutes": is_served && far.is_own(),
    })
}

fn peering<'n>(network: &'n Value, name: &str) -> Option<&'n Value> {
    network["peerings"].as_array()?.iter().find(|peering| peering["name"] == name)
}

/// A peering with a VPC, whoever made it.
fn peering_with<'n>(network: &'n Value, far: &Vpc) -> Option<&'n Value> {
    network["peerings"].as_array()?.iter().find(|peering| path(&peering["network"]) == far.path())
}

impl GcpCloud {
    fn ends(&self, spec: &PeeringSpec) -> Result<[Ground; 2]> {
        let [a, b] = spec.name.ends();
        Ok([self.ground(&a.site, &spec.deployments[0])?, self.ground(&b.site, &spec.deployments[1])?])
    }

    pub(crate) async fn make_peering(&self, spec: &PeeringSpec) -> Result<()> {
        let grounds = self.ends(spec)?;
        let mut vpcs = Vec::new();
        for (ground, end) in grounds.iter().zip(spec.name.ends()) {
            if Spot::of(end.region.as_str()).is_some() {
                self.check_endpoint_peering(ground, spec).await?;
                vpcs.push(ground.vpc());
                continue;
            }
            let found = self.vpc_of(ground, end.region.as_str()).await?;
            vpcs.push(found.ok_or_else(|| CloudError::conflict(format!("there is no network {end}")))?);
        }
        let [a, b] = vpcs.as_slice() else { return Ok(()) };
        if a.path() == b.path() {
            return Ok(());
        }
        let peering = Some(spec.name.clone());
        let mark = names::Mark { peering, pair: Some(pair(a, b)), ..a.ground.names.mark() };
        self.note(a, &a.ground.names.marker(&spec.name), mark).await?;
        self.join(a, b).await
    }

    /// Peers two VPCs, both sides of it.
    pub(crate) async fn join(&self, a: &Vpc, b: &Vpc) -> Result<()> {
        let _turn = self.turns.take(&pair(a, b)).await;
        for (near, far) in [(a, b), (b, a)] {
            self.peer(near, far).await?;
        }
        let what = format!("the peering of {} and {}", a.path(), b.path());
        wait(self.compute.clock(), Pace::QUICK, &what, || async {
            let network =
                self.compute.get(&a.ground.global(), "networks", &a.name).await?.unwrap_or_default();
            let active = peering_with(&network, b).is_some_and(|peering| peering["state"] == "ACTIVE");
            Ok(if active { Progress::Done(()) } else { Progress::Pending })
        })
        .await
    }

    /// One side of a peering. One that somebody else made does as well.
    async fn peer(&self, near: &Vpc, far: &Vpc) -> Result<()> {
        let place = near.ground.global();
        let none = || CloudError::conflict(format!("there is no {}", near.path()));
        let read = || async {
            let network = self.compute.get(&place, "networks", &near.name).await?;
            Ok::<_, CloudError>(peering_with(&network.ok_or_else(none)?, far).is_some())
        };
        if read().await? {
            return Ok(());
        }
        let body = json!({"networkPeering": wanted(near, far)});
        match self.compute.act(&place, "networks", &near.name, "addPeering", &body).await {
            // Made by an earlier try whose answer was lost.
            Err(failure) if failure.is(Class::Invalid) => match read().await? {
                true => Ok(()),
                false => Err(failure.into()),
            },
            outcome => Ok(outcome?),
        }
    }

    pub(crate) async fn remove_peering(&self, spec: &PeeringSpec) -> Result<()> {
        let grounds = self.ends(spec)?;
        let mut vpcs = Vec::new();
        for (ground, end) in grounds.iter().zip(spec.name.ends()) {
            let adopted = crate::adopt::adopted_region(end.region.as_str()).is_some();
            let vpc = match adopted {
                true => self.vpc_of(ground, end.region.as_str()).await?,
                false => Some(ground.vpc()),
            };
            vpcs.push(vpc);
        }
        let [ground, _] = &grounds;
        self.compute.delete(&ground.global(), "firewalls", &ground.names.marker(&spec.name)).await?;
        match vpcs.as_slice() {
            [Some(a), Some(b)] if a.path() != b.path() => self.part(a, b).await,
            _ => Ok(()),
        }
    }

    /// Takes a peering away that nobody needs any more: no networks, and no gateway.
    pub(crate) async fn part(&self, a: &Vpc, b: &Vpc) -> Result<()> {
        let ground = &a.ground;
        let prefix = format!("{}-pm-", ground.names.prefix());
        let markers = self.compute.list(&ground.global(), "firewalls", &prefix).await?;
        let pair = pair(a, b);
        if markers.iter().filter_map(names::read).any(|mark| mark.pair.as_ref() == Some(&pair)) {
            return Ok(());
        }
        let is_served = a.ground.site == b.ground.site && (a.is_own() || b.is_own());
        if is_served && self.gateway(ground).await?.is_some() {
            return Ok(());
        }
        self.unjoin(a, b).await
    }

    /// Takes both sides of a peering away, if they are ours.
    pub(crate) async fn unjoin(&self, a: &Vpc, b: &Vpc) -> Result<()> {
        let _turn = self.turns.take(&pair(a, b)).await;
        for (near, far) in [(a, b), (b, a)] {
            let (place, name) = (near.ground.global(), name_in(near, far));
            let network = self.compute.get(&place, "networks", &near.name).await?.unwrap_or_default();
            if peering(&network, &name).is_none() {
                continue;
            }
            let body = json!({"name": name});
            match self.compute.act(&place, "networks", &near.name, "removePeering", &body).await {
                Err(failure) if failure.is(Class::Invalid) || failure.is(Class::NotFound) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;

    fn vpc(site: &str, name: Option<&str>) -> Vpc {
        let site: model::Site = site.parse().unwrap();
        let ground = Ground { names: Names::new("o", &site), site, project: "p".to_owned() };
        Vpc { name: name.map_or(ground.names.network(), str::to_owned), ground }
    }

    #[test]
    fn routes_of_links_go_to_adopted_networks_of_the_site_and_nowhere_else() {
        let (own, old, other) = (vpc("ns.gcp", None), vpc("ns.gcp", Some("old")), vpc("b.gcp", None));
        let flags = |near: &Vpc, far: &Vpc| {
            let wanted = wanted(near, far);
            (wanted["exportCustomRoutes"] == true, wanted["importCustomRoutes"] == true)
        };
        assert_eq!(flags(&own, &old), (true, false));
        assert_eq!(flags(&old, &own), (false, true));
        for (near, far) in [(&own, &other), (&other, &own), (&old, &other), (&other, &old)] {
            assert_eq!(flags(near, far), (false, false));
        }
        assert_eq!(pair(&own, &old), pair(&old, &own));
    }
}
