//! Endpoints themselves and their permit lists.

use std::net::{IpAddr, Ipv4Addr};

use cloud_api::{CloudError, list_after, only_inbound};
use ipnet::Ipv4Net;
use model::{PermitEntry, ResourceState, Segment};
use serde_json::{Value, json};

use super::{
    Spot,
    policy::{difference, entries, of_endpoint, priority},
};
use crate::{
    api::Place,
    cloud::{GcpCloud, Ground, Result},
    kinds::Service,
    names::{self, last},
    rules::{Home, PRIORITY},
};

/// Where an endpoint's objects are.
pub(super) fn place(ground: &Ground, spot: &Spot) -> Place {
    match spot {
        Spot::Region(region) => ground.region(region),
        Spot::Global => ground.global(),
    }
}

fn spot_of(object: &Value) -> Spot {
    match last(&object["region"]) {
        "" => Spot::Global,
        region => Spot::Region(region.to_owned()),
    }
}

/// An endpoint as the contract knows it. Its id is its path.
pub(crate) fn state_of(ground: &Ground, rule: &Value) -> Option<ResourceState> {
    let spot = spot_of(rule);
    Some(ResourceState {
        uri: place(ground, &spot).object("forwardingRules", rule["name"].as_str()?),
        address: rule["IPAddress"].as_str()?.parse().ok()?,
        region: spot.network()?,
    })
}

/// The spot and the name in an endpoint's id; none if it is no endpoint's.
pub(crate) fn parse(uri: &str, project: &str) -> Option<(Spot, String)> {
    match uri.split('/').collect::<Vec<_>>().as_slice() {
        ["projects", at, "regions", region, "forwardingRules", name] if *at == project => {
            Some((Spot::Region((*region).to_owned()), (*name).to_owned()))
        }
        ["projects", at, "global", "forwardingRules", name] if *at == project => {
            Some((Spot::Global, (*name).to_owned()))
        }
        _ => None,
    }
}

/// The first address of a space that nobody has, Google's own first ones aside.
fn free(space: Ipv4Net, taken: &[IpAddr]) -> Option<Ipv4Addr> {
    space.hosts().skip(1).find(|host| !taken.contains(&IpAddr::V4(*host)))
}

impl GcpCloud {
    /// Rules of all endpoints are in one policy, and whoever changes it holds the turn.
    pub(super) fn endpoint_turn(ground: &Ground) -> String {
        format!("endpoints {}", ground.site)
    }

    pub(crate) async fn endpoints(&self, ground: &Ground) -> Result<Vec<(Segment, ResourceState)>> {
        let prefix = ground.names.endpoints();
        let found = self.compute.list_all(&ground.project, "forwardingRules", &prefix).await?;
        let ours = found.iter().filter(|rule| ground.names.owns(rule));
        Ok(ours.filter_map(|rule| Some((names::read(rule)?.name?, state_of(ground, rule)?))).collect())
    }

    pub(crate) async fn make_endpoint(
        &self,
        ground: &Ground,
        name: &Segment,
        service: &Service,
    ) -> Result<ResourceState> {
        let _turn = self.turns.take(&Self::endpoint_turn(ground)).await;
        let (compute, place) = (&self.compute, place(ground, &service.spot));
        let object = ground.names.endpoint(name);
        let mut made = compute.get(&place, "forwardingRules", &object).await?;
        if made.is_none() {
            let space = self.closed_space(ground, &service.network).await?;
            self.clear_list(ground, &object).await?;
            let mark = names::write(names::Mark { name: Some(name.clone()), ..ground.names.mark() });
            self.reserve(ground, service, &object, &mark, space).await?;
            let mut rule = json!({
                "name": object,
                "description": mark,
                "network": ground.network(),
                "IPAddress": place.object("addresses", &object),
                "target": service.target,
            });
            if let Spot::Region(_) = service.spot {
                // The site's other regions are as near as its own.
                rule["allowPscGlobalAccess"] = true.into();
            }
            compute.insert(&place, "forwardingRules", &rule).await?;
            made = compute.get(&place, "forwardingRules", &object).await?;
        }
        let made = made.filter(|rule| ground.names.owns(rule));
        let gone = || CloudError::unavailable(format!("the endpoint {object} was made and is not there"));
        let made = made.ok_or_else(gone)?;
        if let Some(status @ ("REJECTED" | "CLOSED")) = made["pscConnectionStatus"].as_str() {
            return Err(CloudError::conflict(format!(
                "the connection of the endpoint {name} to {} is {status}: its producer does not accept the project {}",
                service.target, ground.project
            )));
        }
        state_of(ground, &made)
            .ok_or_else(|| CloudError::unavailable(format!("the endpoint {object} has no address yet")))
    }

    async fn reserve(
        &self,
        ground: &Ground,
        service: &Service,
        object: &str,
        mark: &str,
        space: Ipv4Net,
    ) -> Result<()> {
        let (compute, place) = (&self.compute, place(ground, &service.spot));
        if compute.get(&place, "addresses", object).await?.is_some() {
            return Ok(());
        }
        let mut address = json!({"name": object, "description": mark, "addressType": "INTERNAL"});
        match &service.spot {
            Spot::Region(region) => {
                address["subnetwork"] =
                    place.object("subnetworks", &ground.names.endpoint_subnet(region)).into();
            }
            Spot::Global => {
                self.let_in_to_google(ground).await?;
                let there = compute.list_all(&ground.project, "addresses", &ground.names.endpoints()).await?;
                let taken: Vec<IpAddr> =
                    there.iter().filter_map(|one| one["address"].as_str()?.parse().ok()).collect();
                let full = || CloudError::conflict(format!("no address of {space} is free for an endpoint"));
                address["address"] = free(space, &taken).ok_or_else(full)?.to_string().into();
                address["purpose"] = "PRIVATE_SERVICE_CONNECT".into();
                address["network"] = ground.network().into();
            }
        }
        Ok(compute.insert(&place, "addresses", &address).await?)
    }

    /// Instances without a public address reach Google's APIs only from subnets that say so. What they reach is still
    /// what their lists permit.
    async fn let_in_to_google(&self, ground: &Ground) -> Result<()> {
        let prefix = format!("{}-sub-", ground.names.prefix());
        let subnets = self.compute.list_all(&ground.project, "subnetworks", &prefix).await?;
        let without = |subnet: &&Value| ground.names.owns(subnet) && subnet["privateIpGoogleAccess"] != true;
        for subnet in subnets.iter().filter(without) {
            let (place, name) = (ground.region(last(&subnet["region"])), last(&subnet["selfLink"]));
            let body = json!({"privateIpGoogleAccess": true});
            self.compute.act(&place, "subnetworks", name, "setPrivateIpGoogleAccess", &body).await?;
        }
        Ok(())
    }

    /// What is left of an endpoint's list goes, so that another of the same name is closed.
    async fn clear_list(&self, ground: &Ground, object: &str) -> Result<()> {
        let Some(policy) = self.policy(ground).await? else { return Ok(()) };
        let prefix = self.list_prefix(ground, object);
        for rule in of_endpoint(&policy, &prefix, None) {
            self.change_policy(ground, "removeRule", Some(priority(rule)), None).await?;
        }
        Ok(())
    }

    pub(crate) async fn remove_endpoint(&self, ground: &Ground, name: &Segment) -> Result<()> {
        let _turn = self.turns.take(&Self::endpoint_turn(ground)).await;
        let object = ground.names.endpoint(name);
        self.clear_list(ground, &object).await?;
        for collection in ["forwardingRules", "addresses"] {
            let found = self.compute.list_all(&ground.project, collection, &object).await?;
            for one in found.iter().filter(|one| ground.names.owns(one)) {
                self.compute.delete(&place(ground, &spot_of(one)), collection, &object).await?;
            }
        }
        Ok(())
    }

    /// An endpoint's list: its policy, where its rules belong, and its address.
    async fn endpoint_list(&self, ground: &Ground, uri: &str) -> Result<(Value, Home, IpAddr)> {
        let missing = || CloudError::not_found(format!("there is no resource {uri} in {}", ground.site));
        let (spot, name) = parse(uri, &ground.project).ok_or_else(missing)?;
        let place = place(ground, &spot);
        let rule = async { Ok(self.compute.get(&place, "forwardingRules", &name).await?) };
        let (rule, policy) = futures::try_join!(rule, self.policy(ground))?;
        let rule = rule.filter(|rule| ground.names.owns(rule)).ok_or_else(missing)?;
        let state = state_of(ground, &rule).ok_or_else(missing)?;
        let home = Home {
            owner: self.owner.clone(),
            site: ground.site.to_string(),
            prefix: self.list_prefix(ground, &name),
            network: ground.network(),
            tag: name,
            priority: PRIORITY,
        };
        Ok((policy.unwrap_or_default(), home, state.address.net().addr()))
    }

    pub(crate) async fn read_endpoint_list(&self, ground: &Ground, uri: &str) -> Result<Vec<PermitEntry>> {
        let (policy, home, address) = self.endpoint_list(ground, uri).await?;
        Ok(entries(&policy, &home.prefix, address))
    }

    pub(crate) async fn put_endpoint_list(
        &self,
        ground: &Ground,
        uri: &str,
        before: &[PermitEntry],
        wanted: &[PermitEntry],
    ) -> Result {
        only_inbound(wanted)?;
        let _turn = self.turns.take(&Self::endpoint_turn(ground)).await;
        let (policy, home, address) = self.endpoint_list(ground, uri).await?;
        let list = list_after(entries(&policy, &home.prefix, address), before, wanted);
        let change = difference(&policy, &home, address, &list)?;
        if policy.is_null() && !change.add.is_empty() {
            return Err(CloudError::conflict(format!(
                "the networks of endpoints of {} are not closed; `trestle fix` closes them",
                ground.site
            )));
        }
        for rule in &change.add {
            self.change_policy(ground, "addRule", None, Some(rule)).await?;
        }
        for (priority, rule) in &change.patch {
            self.change_policy(ground, "patchRule", Some(*priority), Some(rule)).await?;
        }
        for priority in &change.remove {
            self.change_policy(ground, "removeRule", Some(*priority), None).await?;
        }
        Ok(())
    }

    /// The space of a network of endpoints that is closed.
    async fn closed_space(&self, ground: &Ground, network: &Segment) -> Result<Ipv4Net> {
        let networks = self.endpoint_networks(ground).await?;
        let found = networks.into_iter().find(|(name, _)| name == network);
        let none = || {
            CloudError::conflict(format!(
                "there is no network {}.{network}, or it is not closed",
                ground.site
            ))
        };
        Ok(found.ok_or_else(none)?.1)
    }

    pub(super) async fn change_policy(
        &self,
        ground: &Ground,
        verb: &str,
        priority: Option<u64>,
        body: Option<&Value>,
    ) -> Result<()> {
        let which = priority.map(|number| format!("priority={number}")).unwrap_or_default();
        Ok(self.compute.adjust(&ground.global(), &ground.names.policy(), verb, &which, body).await?)
    }

    pub(super) async fn policy(&self, ground: &Ground) -> Result<Option<Value>> {
        let found = self.compute.get(&ground.global(), "firewallPolicies", &ground.names.policy()).await?;
        Ok(found.filter(|policy| ground.names.owns(policy)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_where_an_endpoint_is() {
        let regional = "projects/p/regions/us-west1/forwardingRules/t1";
        assert_eq!(parse(regional, "p"), Some((Spot::Region("us-west1".to_owned()), "t1".to_owned())));
        assert_eq!(parse("projects/p/global/forwardingRules/t1", "p"), Some((Spot::Global, "t1".to_owned())));
        for other in ["projects/q/global/forwardingRules/t1", "projects/p/zones/z/instances/t1", ""] {
            assert_eq!(parse(other, "p"), None, "{other}");
        }
    }

    #[test]
    fn addresses_are_given_once() {
        let space: Ipv4Net = "10.0.0.0/29".parse().unwrap();
        let mut taken = Vec::new();
        while let Some(next) = free(space, &taken) {
            assert!(space.contains(&next) && taken.len() < 8);
            taken.push(IpAddr::V4(next));
        }
        assert_eq!(taken.len(), 5);
    }
}
