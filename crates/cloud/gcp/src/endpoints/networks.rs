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

/// What a router says of its own networks: those of instances, once there are others.
fn advertised(asn: &Value, instances: &[(Segment, Ipv4Net)], has_endpoints: bool) -> Value {
    let range = |(_, space): &(Segment, Ipv4Net)| json!({"range": space.to_string()});
    match has_endpoints {
        true => {
            let ranges: Vec<Value> = instances.iter().map(range).collect();
            json!({"asn": asn, "advertiseMode": "CUSTOM", "advertisedGroups": [], "advertisedIpRanges": ranges})
        }
        false => json!({"asn": asn, "advertiseMode": "DEFAULT"}),
    }
}

/// Whether a router says what it should.
fn says(bgp: &Value, wanted: &Value) -> bool {
    let mode = |bgp: &Value| bgp["advertiseMode"].as_str().unwrap_or("DEFAULT").to_owned();
    let list = |bgp: &Value, field: &str| {
        let mut texts: Vec<String> = bgp[field]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| one.get("range").unwrap_or(one).to_string())
            .collect();
        texts.sort();
        texts
    };
    mode(bgp) == mode(wanted)
        && (mode(bgp) == "DEFAULT"
            || ["advertisedGroups", "advertisedIpRanges"]
                .iter()
                .all(|field| list(bgp, field) == list(wanted, field)))
}

impl GcpCloud {
    /// The regions that have a subnet for endpoints, with its space.
    async fn endpoint_subnets(&self, ground: &Ground) -> Result<Vec<(String, Ipv4Net)>> {
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
        let hidden = subnets.is_empty() || self.unsettled_router(ground, true).await?.is_none();
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
            self.set_router(ground, true).await?;
            let mark = names::write(names::Mark { region: Some(network.clone()), ..names.mark() });
            let subnet = json!({"name": name, "network": ground.network(), "ipCidrRange": space.to_string(), "description": mark});
            compute.insert(&place, "subnetworks", &subnet).await?;
        }
        self.set_router(ground, true).await
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

    /// What the router should say, if there is one and it says something else: its region and that.
    async fn unsettled_router(
        &self,
        ground: &Ground,
        has_endpoints: bool,
    ) -> Result<Option<(String, Value)>> {
        let Some(gateway) = self.gateway(ground).await? else { return Ok(None) };
        let (place, name) = (ground.region(&gateway.region), ground.names.router());
        let router = async { Ok(self.compute.get(&place, "routers", &name).await?) };
        let (router, subnets) = futures::try_join!(router, self.subnets(ground))?;
        let Some(router) = router else { return Ok(None) };
        let wanted = advertised(&router["bgp"]["asn"], &subnets, has_endpoints);
        Ok((!says(&router["bgp"], &wanted)).then_some((gateway.region, wanted)))
    }

    async fn set_router(&self, ground: &Ground, has_endpoints: bool) -> Result<()> {
        // The router has no version, so whoever changes it holds the turn.
        let _turn = self.turns.take(&format!("router {}", ground.site)).await;
        let Some((region, bgp)) = self.unsettled_router(ground, has_endpoints).await? else { return Ok(()) };
        let body = json!({ "bgp": bgp });
        Ok(self.compute.patch(&ground.region(&region), "routers", &ground.names.router(), &body).await?)
    }

    /// Lets the router advertise the networks of instances, and those of endpoints not.
    pub(crate) async fn settle_router(&self, ground: &Ground) -> Result<()> {
        let has_endpoints = !self.endpoint_subnets(ground).await?.is_empty();
        self.set_router(ground, has_endpoints).await
    }

    /// Within a site a network of endpoints is joined by being there; beyond it, it cannot be.
    pub(crate) async fn check_endpoint_peering(&self, ground: &Ground, spec: &PeeringSpec) -> Result<()> {
        let [a, b] = spec.name.ends();
        if a.site != b.site {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_keeps_endpoints_to_itself() {
        let nets = [("us-west1".parse().unwrap(), "10.0.0.0/16".parse().unwrap())];
        let (open, kept) = (advertised(&json!(64512), &nets, false), advertised(&json!(64512), &nets, true));
        assert!(says(&json!({"asn": 64512}), &open) && !says(&json!({"asn": 64512}), &kept));
        assert!(says(&kept, &kept) && !says(&kept, &open));
        // As Google shows it.
        assert!(says(
            &json!({"advertiseMode": "CUSTOM", "advertisedIpRanges": [{"range": "10.0.0.0/16", "description": ""}]}),
            &kept
        ));
        let mut wider = kept.clone();
        wider["advertisedGroups"] = json!(["ALL_SUBNETS"]);
        assert!(!says(&wider, &kept));
    }
}
