//! Networks of endpoints: a space that is closed before anything is in it, and a way in for nobody but instances.

use cloud_api::{CloudError, PeeringSpec};
use ipnet::Ipv4Net;
use model::Segment;
use serde_json::{Value, json};

use super::{
    Spot,
    policy::{closed, deny, placed, priority, rules_in},
};
use crate::{
    adopt::adopted_region,
    cloud::{GcpCloud, Ground, Result},
    names::{self, last},
};

const FIRST: &str = "BEFORE_CLASSIC_FIREWALL";

/// Whether a policy is in force for the site's VPC.
fn is_bound(ground: &Ground, policy: &Value) -> bool {
    let bound = policy["associations"].as_array().into_iter().flatten();
    let own = ground.network();
    bound.into_iter().any(|one| one["attachmentTarget"].as_str().is_some_and(|target| target.ends_with(&own)))
}

impl GcpCloud {
    /// The regions that have a subnet for endpoints, with its space.
    pub(crate) async fn endpoint_subnets(&self, ground: &Ground) -> Result<Vec<(String, Ipv4Net)>> {
        let prefix = format!("{}-eps-", ground.names.prefix());
        let found = self.compute.list_all(&ground.project, "subnetworks", &prefix).await?;
        let ours = found.iter().filter(|subnet| ground.names.owns(subnet));
        Ok(ours
            .filter_map(|one| {
                Some((last(&one["region"]).to_owned(), one["ipCidrRange"].as_str()?.parse().ok()?))
            })
            .collect())
    }

    pub(crate) async fn has_endpoint_networks(&self, ground: &Ground) -> Result<bool> {
        Ok(self.policy(ground).await?.is_some() || !self.endpoint_subnets(ground).await?.is_empty())
    }

    /// The networks of endpoints that are whole: closed, and not advertised.
    pub(crate) async fn endpoint_networks(&self, ground: &Ground) -> Result<Vec<(Segment, Ipv4Net)>> {
        let Some(policy) = self.policy(ground).await? else { return Ok(Vec::new()) };
        let vpc = self.compute.get(&ground.global(), "networks", &ground.names.network()).await?;
        let comes_first = vpc.is_some_and(|vpc| vpc["networkFirewallPolicyEnforcementOrder"] == FIRST);
        if !comes_first || !is_bound(ground, &policy) {
            return Ok(Vec::new());
        }
        let subnets = self.endpoint_subnets(ground).await?;
        let hidden = subnets.is_empty() || self.unsettled_router(ground, true, None).await?.is_none();
        let is_whole = |(name, space): &(Segment, Ipv4Net)| match Spot::of(name.as_str()) {
            Some(Spot::Region(region)) => hidden && subnets.contains(&(region, *space)),
            Some(Spot::Global) => true,
            None => false,
        };
        let mut whole: Vec<_> = rules_in(&policy).filter_map(closed).filter(is_whole).collect();
        whole.sort();
        Ok(whole)
    }

    pub(crate) async fn make_endpoint_network(
        &self,
        ground: &Ground,
        network: &Segment,
        spot: &Spot,
        space: Ipv4Net,
    ) -> Result<()> {
        if self.endpoint_networks(ground).await?.contains(&(network.clone(), space)) {
            return Ok(());
        }
        let (compute, names) = (&self.compute, &ground.names);
        let policy = self.policy(ground).await?;
        let closings = policy.iter().flat_map(rules_in).filter_map(closed);
        if let Some((_, other)) =
            closings.into_iter().find(|(name, other)| name == network && *other != space)
        {
            let message = format!("the network {}.{network} has the space {other}, not {space}", ground.site);
            return Err(CloudError::conflict(message));
        }
        self.make_vpc(ground).await?;
        self.close(ground, network, space).await?;
        let Spot::Region(region) = spot else { return Ok(()) };
        let place = ground.region(region);
        let name = names.endpoint_subnet(region);
        if compute.get(&place, "subnetworks", &name).await?.is_none() {
            self.set_router(ground, true, None).await?;
            let mark = names::write(names::Mark { region: Some(network.clone()), ..names.mark() });
            let subnet = json!({"name": name, "network": ground.network(), "ipCidrRange": space.to_string(), "description": mark});
            compute.insert(&place, "subnetworks", &subnet).await?;
        }
        self.set_router(ground, true, None).await
    }

    /// Keeps everybody from a space, by a policy that comes before the firewalls.
    async fn close(&self, ground: &Ground, network: &Segment, space: Ipv4Net) -> Result<()> {
        let _turn = self.turns.take(&Self::endpoint_turn(ground)).await;
        let (compute, names, global) = (&self.compute, &ground.names, ground.global());
        let mark = names::write(names.mark());
        if self.policy(ground).await?.is_none() {
            let policy = json!({"name": names.policy(), "description": mark});
            compute.insert(&global, "firewallPolicies", &policy).await?;
        }
        let gone =
            || CloudError::unavailable(format!("the policy {} was made and is not there", names.policy()));
        let policy = self.policy(ground).await?.ok_or_else(gone)?;
        if !rules_in(&policy).filter_map(closed).any(|one| one == (network.clone(), space)) {
            let mark = names::Mark { region: Some(network.clone()), ..names.mark() };
            let rule = placed(&policy, deny(mark, space));
            self.change_policy(ground, "addRule", None, Some(&rule)).await?;
        }
        if !is_bound(ground, &policy) {
            let body = json!({"name": names.policy(), "attachmentTarget": ground.network()});
            self.change_policy(ground, "addAssociation", None, Some(&body)).await?;
        }
        let vpc = compute.get(&global, "networks", &names.network()).await?.unwrap_or_default();
        if vpc["networkFirewallPolicyEnforcementOrder"] != FIRST {
            let body = json!({"networkFirewallPolicyEnforcementOrder": FIRST});
            compute.patch(&global, "networks", &names.network(), &body).await?;
        }
        Ok(())
    }

    /// Opens the space last, when nothing is in it any more.
    pub(crate) async fn remove_endpoint_network(
        &self,
        ground: &Ground,
        network: &Segment,
        spot: &Spot,
    ) -> Result<()> {
        let _turn = self.turns.take(&Self::endpoint_turn(ground)).await;
        let (compute, names) = (&self.compute, &ground.names);
        let inside = compute.list_all(&ground.project, "addresses", &names.endpoints()).await?;
        let region = if let Spot::Region(region) = spot { region.as_str() } else { "" };
        let inside = inside.iter().find(|one| names.owns(one) && last(&one["region"]) == region);
        if let Some(address) = inside {
            return Err(CloudError::conflict(format!(
                "the network {}.{network} has the endpoint {} in it",
                ground.site,
                address["name"].as_str().unwrap_or_default()
            )));
        }
        if let Spot::Region(region) = spot {
            compute.delete(&ground.region(region), "subnetworks", &names.endpoint_subnet(region)).await?;
        }
        let Some(policy) = self.policy(ground).await? else { return Ok(()) };
        let of_it = |rule: &&Value| names::read(rule).and_then(|mark| mark.region).as_ref() == Some(network);
        for rule in rules_in(&policy).filter(of_it) {
            self.change_policy(ground, "removeRule", Some(priority(rule)), None).await?;
        }
        let others = rules_in(&policy).any(|rule| {
            names::read(rule).and_then(|mark| mark.region).is_some_and(|other| other != *network)
        });
        if others {
            return Ok(());
        }
        if is_bound(ground, &policy) {
            let which = format!("name={}", names.policy());
            compute.adjust(&ground.global(), &names.policy(), "removeAssociation", &which, None).await?;
        }
        Ok(compute.delete(&ground.global(), "firewallPolicies", &names.policy()).await?)
    }

    /// Within a site a network of endpoints is joined by being there; beyond it, it cannot be.
    pub(crate) async fn check_endpoint_peering(&self, ground: &Ground, spec: &PeeringSpec) -> Result<()> {
        let [a, b] = spec.name.ends();
        if a.site != b.site || [a, b].iter().any(|end| adopted_region(end.region.as_str()).is_some()) {
            return Err(CloudError::unsupported(format!(
                "the private endpoints of {} cannot be reached from another VPC: Google does not carry that; make an endpoint in \
                 the namespace that needs it",
                ground.site
            )));
        }
        let networks = self.endpoint_networks(ground).await?;
        let is_there =
            |name: &Segment| Spot::of(name.as_str()).is_none() || networks.iter().any(|(one, _)| one == name);
        match [a, b].into_iter().find(|end| !is_there(&end.region)) {
            Some(end) => Err(CloudError::conflict(format!("there is no network {end}"))),
            None => Ok(()),
        }
    }
}
