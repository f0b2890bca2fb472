//! Endpoints themselves and their permit lists.

use std::net::{IpAddr, Ipv4Addr};

use cloud_api::{CloudError, list_after, only_inbound};
use ipnet::Ipv4Net;
use model::{PermitEntry, ResourceState, Segment};

use super::{
    Spot, networks,
    policy::{difference, entries, of_endpoint},
};
use crate::{
    described::Service,
    ground::{Ground, Result},
    link::{Link, Place},
    mark::{Mark, Remark},
    rules::{Home, PRIORITY},
    shapes::{Address, ForwardingRule, Policy, Subnet, only},
};

/// Where an endpoint's objects are.
fn place(ground: &Ground, spot: &Spot) -> Place {
    match spot {
        Spot::Region(region) => ground.region(region),
        Spot::Global => ground.global(),
    }
}

/// An endpoint as the contract knows it, once it has an address. Its id is its path.
fn state_of(ground: &Ground, rule: &ForwardingRule) -> Option<ResourceState> {
    let spot = Spot::at(rule.region.as_ref());
    Some(ResourceState {
        uri: place(ground, &spot).object::<ForwardingRule>(&rule.name).to_string(),
        address: rule.address.parse().ok()?,
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

pub(crate) async fn list(ground: &Ground) -> Result<Vec<(Segment, ResourceState)>> {
    let found: Vec<ForwardingRule> = ground.owned(&ground.names.endpoints()).await?;
    let read = |rule: &ForwardingRule| Some((rule.description.mark()?.name?, state_of(ground, rule)?));
    Ok(found.iter().filter_map(read).collect())
}

pub(crate) async fn make(ground: &Ground, name: &Segment, service: &Service) -> Result<ResourceState> {
    let _turn = ground.turn(&networks::turn(ground)).await;
    let place = place(ground, &service.spot);
    let object = ground.names.endpoint(name);
    let link = place.object::<ForwardingRule>(&object);
    let mut made = ground.get(&link).await?;
    if made.is_none() {
        let space = closed_space(ground, &service.network).await?;
        clear_list(ground, &object).await?;
        let mark: Remark = Mark { name: Some(name.clone()), ..ground.names.mark() }.into();
        reserve(ground, service, place.object(&object), &mark, space).await?;
        let rule = ForwardingRule {
            name: object.clone(),
            description: mark,
            network: ground.network(),
            address: place.object::<Address>(&object).to_string(),
            target: service.target.clone(),
            // The site's other regions are as near as its own.
            allow_psc_global_access: service.spot != Spot::Global,
            ..ForwardingRule::default()
        };
        ground.compute().insert(&place, &rule).await?;
        made = ground.get(&link).await?;
    }
    let made = made.filter(|rule| ground.owns(&rule.description));
    let gone = || CloudError::unavailable(format!("the endpoint {object} was made and is not there"));
    let made = made.ok_or_else(gone)?;
    if let status @ ("REJECTED" | "CLOSED") = made.psc_connection_status.as_str() {
        return Err(CloudError::conflict(format!(
            "the connection of the endpoint {name} to {} is {status}: its producer does not accept the project {}",
            service.target, ground.project
        )));
    }
    state_of(ground, &made)
        .ok_or_else(|| CloudError::unavailable(format!("the endpoint {object} has no address yet")))
}

async fn reserve(
    ground: &Ground,
    service: &Service,
    link: Link<Address>,
    mark: &Remark,
    space: Ipv4Net,
) -> Result {
    if ground.get(&link).await?.is_some() {
        return Ok(());
    }
    let (name, place) = (link.name().to_owned(), link.place());
    let address = Address {
        name,
        description: mark.clone(),
        address_type: "INTERNAL".to_owned(),
        ..Address::default()
    };
    let address = match &service.spot {
        Spot::Region(region) => {
            let subnetwork = Some(place.object(&ground.names.endpoint_subnet(region)));
            Address { subnetwork, ..address }
        }
        Spot::Global => {
            let_in_to_google(ground).await?;
            let prefix = ground.names.endpoints();
            let there: Vec<Address> = ground.compute().list_all(&ground.project, &prefix).await?;
            let taken: Vec<IpAddr> = there.iter().filter_map(|one| one.address).collect();
            let full = || CloudError::conflict(format!("no address of {space} is free for an endpoint"));
            Address {
                address: Some(IpAddr::V4(free(space, &taken).ok_or_else(full)?)),
                purpose: "PRIVATE_SERVICE_CONNECT".to_owned(),
                network: Some(ground.network()),
                ..address
            }
        }
    };
    Ok(ground.compute().insert(&place, &address).await?)
}

/// Instances without a public address reach Google's APIs only from subnets that say so. What they reach is still what
/// their lists permit.
async fn let_in_to_google(ground: &Ground) -> Result {
    let subnets: Vec<Subnet> = ground.owned(&ground.names.all("sub")).await?;
    for subnet in subnets.iter().filter(|subnet| !subnet.private_ip_google_access) {
        let link = ground.region(subnet.region.name()).object::<Subnet>(&subnet.name);
        let body = only("privateIpGoogleAccess", true);
        ground.compute().act(&link, "setPrivateIpGoogleAccess", Some(&body)).await?;
    }
    Ok(())
}

/// What is left of an endpoint's list goes, so that another of the same name is closed.
async fn clear_list(ground: &Ground, object: &str) -> Result {
    let Some(policy) = networks::find_policy(ground).await? else { return Ok(()) };
    for rule in of_endpoint(&policy, &ground.names.list(object), None) {
        networks::remove_rule(ground, rule.priority).await?;
    }
    Ok(())
}

pub(crate) async fn remove(ground: &Ground, name: &Segment) -> Result {
    let _turn = ground.turn(&networks::turn(ground)).await;
    let object = ground.names.endpoint(name);
    clear_list(ground, &object).await?;
    for rule in ground.owned::<ForwardingRule>(&object).await? {
        let place = place(ground, &Spot::at(rule.region.as_ref()));
        ground.delete(&place.object::<ForwardingRule>(&object)).await?;
    }
    for address in ground.owned::<Address>(&object).await? {
        let place = place(ground, &Spot::at(address.region.as_ref()));
        ground.delete(&place.object::<Address>(&object)).await?;
    }
    Ok(())
}

/// An endpoint's list: the policy that it is in, if there is one, where its rules belong, and its address.
async fn find_list(ground: &Ground, uri: &str) -> Result<(Option<Policy>, Home, IpAddr)> {
    let missing = || CloudError::not_found(format!("there is no resource {uri} in {}", ground.site));
    let (spot, name) = parse(uri, &ground.project).ok_or_else(missing)?;
    let link = place(ground, &spot).object::<ForwardingRule>(&name);
    let (rule, policy) = futures::try_join!(ground.get(&link), networks::find_policy(ground))?;
    let rule = rule.filter(|rule| ground.owns(&rule.description)).ok_or_else(missing)?;
    let state = state_of(ground, &rule).ok_or_else(missing)?;
    let home = ground.home(ground.names.list(&name), ground.network(), &name, PRIORITY);
    Ok((policy, home, state.address.net().addr()))
}

pub(crate) async fn read_list(ground: &Ground, uri: &str) -> Result<Vec<PermitEntry>> {
    let (policy, home, address) = find_list(ground, uri).await?;
    Ok(entries(&policy.unwrap_or_default(), &home.prefix, address))
}

pub(crate) async fn put_list(
    ground: &Ground,
    uri: &str,
    before: &[PermitEntry],
    wanted: &[PermitEntry],
) -> Result {
    only_inbound(wanted)?;
    let _turn = ground.turn(&networks::turn(ground)).await;
    let (policy, home, address) = find_list(ground, uri).await?;
    let (is_open, policy) = (policy.is_none(), policy.unwrap_or_default());
    let list = list_after(entries(&policy, &home.prefix, address), before, wanted);
    let change = difference(&policy, &home, address, &list)?;
    if is_open && !change.add.is_empty() {
        return Err(CloudError::conflict(format!(
            "the networks of endpoints of {} are not closed; `trestle fix` closes them",
            ground.site
        )));
    }
    for rule in &change.add {
        networks::change_rule(ground, "addRule", Some(rule)).await?;
    }
    for (priority, rule) in &change.patch {
        networks::change_rule(ground, &format!("patchRule?priority={priority}"), Some(rule)).await?;
    }
    for priority in &change.remove {
        networks::remove_rule(ground, *priority).await?;
    }
    Ok(())
}

/// The space of a network of endpoints that is closed.
async fn closed_space(ground: &Ground, network: &Segment) -> Result<Ipv4Net> {
    let networks = networks::closed(ground).await?;
    let found = networks.into_iter().find(|(name, _)| name == network);
    let none = || {
        CloudError::conflict(format!("there is no network {}.{network}, or it is not closed", ground.site))
    };
    Ok(found.ok_or_else(none)?.1)
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
