//! Networks of endpoints: a space that is closed before anything is in it, and a way in for nobody but instances.

use cloud_api::{CloudError, PeeringSpec};
use ipnet::Ipv4Net;
use model::Segment;

use super::{
    Spot,
    policy::{self, deny, placed},
};
use crate::{
    adopt::adopted_region,
    advertise::{set_router, unsettled_router},
    ground::{Ground, Result},
    link::Link,
    mark::Mark,
    networks::make_vpc,
    shapes::{Address, Association, POLICIES_FIRST, Policy, Rule, Subnet, only},
};

/// Whether a policy is in force for the site's VPC.
fn is_bound(ground: &Ground, policy: &Policy) -> bool {
    policy.associations.iter().any(|one| one.attachment_target == ground.network())
}

fn closings(policy: &Policy) -> impl Iterator<Item = (Segment, Ipv4Net)> {
    policy.rules.iter().filter_map(policy::closed)
}

/// The network that a rule was made for.
fn network_of(rule: &Rule) -> Option<Segment> {
    rule.description.mark()?.region
}

/// Whoever changes the policy, which the rules of all endpoints are in, holds this.
pub(super) fn turn(ground: &Ground) -> String {
    format!("endpoints {}", ground.site)
}

pub(super) fn policy_link(ground: &Ground) -> Link<Policy> {
    ground.global().object(&ground.names.policy())
}

/// The policy that closes endpoints.
pub(super) async fn find_policy(ground: &Ground) -> Result<Option<Policy>> {
    let found = ground.get(&policy_link(ground)).await?;
    Ok(found.filter(|policy| ground.owns(&policy.description)))
}

/// Adds, patches or removes a rule: `removeRule?priority=7`.
pub(super) async fn change_rule(ground: &Ground, verb: &str, rule: Option<&Rule>) -> Result {
    Ok(ground.compute().act(&policy_link(ground), verb, rule).await?)
}

pub(super) async fn remove_rule(ground: &Ground, priority: u64) -> Result {
    change_rule(ground, &format!("removeRule?priority={priority}"), None).await
}

/// The regions that have a subnet for endpoints, with its space.
pub(crate) async fn subnets(ground: &Ground) -> Result<Vec<(String, Ipv4Net)>> {
    let found: Vec<Subnet> = ground.owned(&ground.names.all("eps")).await?;
    let read = |one: &Subnet| Some((one.region.name().to_owned(), one.ip_cidr_range?));
    Ok(found.iter().filter_map(read).collect())
}

/// Whether there is a network of endpoints, or what is left of one.
pub(crate) async fn are_there(ground: &Ground) -> Result<bool> {
    Ok(find_policy(ground).await?.is_some() || !subnets(ground).await?.is_empty())
}

/// The networks of endpoints that are whole: closed, and not advertised.
pub(crate) async fn closed(ground: &Ground) -> Result<Vec<(Segment, Ipv4Net)>> {
    let Some(policy) = find_policy(ground).await? else { return Ok(Vec::new()) };
    let vpc = ground.get(&ground.network()).await?;
    if !vpc.is_some_and(|vpc| vpc.policies_come_first()) || !is_bound(ground, &policy) {
        return Ok(Vec::new());
    }
    let subnets = subnets(ground).await?;
    let hidden = subnets.is_empty() || unsettled_router(ground, true, None).await?.is_none();
    let is_whole = |(name, space): &(Segment, Ipv4Net)| match Spot::of(name.as_str()) {
        Some(Spot::Region(region)) => hidden && subnets.contains(&(region, *space)),
        Some(Spot::Global) => true,
        None => false,
    };
    let mut whole: Vec<_> = closings(&policy).filter(is_whole).collect();
    whole.sort();
    Ok(whole)
}

pub(crate) async fn make(ground: &Ground, network: &Segment, spot: &Spot, space: Ipv4Net) -> Result {
    if closed(ground).await?.contains(&(network.clone(), space)) {
        return Ok(());
    }
    let policy = find_policy(ground).await?;
    let mut closings = policy.iter().flat_map(closings);
    if let Some((_, other)) = closings.find(|(name, other)| name == network && *other != space) {
        let message = format!("the network {}.{network} has the space {other}, not {space}", ground.site);
        return Err(CloudError::conflict(message));
    }
    make_vpc(ground).await?;
    close(ground, network, space).await?;
    let Spot::Region(region) = spot else { return Ok(()) };
    let link = ground.region(region).object::<Subnet>(&ground.names.endpoint_subnet(region));
    if ground.get(&link).await?.is_none() {
        set_router(ground, true, None).await?;
        let subnet = Subnet {
            name: link.name().to_owned(),
            network: ground.network(),
            ip_cidr_range: Some(space),
            description: Mark { region: Some(network.clone()), ..ground.names.mark() }.into(),
            ..Subnet::default()
        };
        ground.compute().insert(&link.place(), &subnet).await?;
    }
    set_router(ground, true, None).await
}

/// Keeps everybody from a space, by a policy that comes before the firewalls.
async fn close(ground: &Ground, network: &Segment, space: Ipv4Net) -> Result {
    let _turn = ground.turn(&turn(ground)).await;
    let (compute, names) = (ground.compute(), &ground.names);
    let policy = Policy { name: names.policy(), description: names.mark().into(), ..Policy::default() };
    let policy = ground.ensure(&ground.global(), &policy).await?;
    if !closings(&policy).any(|one| one == (network.clone(), space)) {
        let mark = Mark { region: Some(network.clone()), ..names.mark() };
        change_rule(ground, "addRule", Some(&placed(&policy, deny(mark, space)))).await?;
    }
    if !is_bound(ground, &policy) {
        let body = Association { name: names.policy(), attachment_target: ground.network() };
        compute.act(&policy_link(ground), "addAssociation", Some(&body)).await?;
    }
    let vpc = ground.get(&ground.network()).await?;
    if !vpc.is_some_and(|vpc| vpc.policies_come_first()) {
        let body = only("networkFirewallPolicyEnforcementOrder", POLICIES_FIRST);
        compute.patch(&ground.network(), &body).await?;
    }
    Ok(())
}

/// Opens the space last, when nothing is in it any more.
pub(crate) async fn remove(ground: &Ground, network: &Segment, spot: &Spot) -> Result {
    let _turn = ground.turn(&turn(ground)).await;
    let names = &ground.names;
    let inside: Vec<Address> = ground.owned(&names.endpoints()).await?;
    if let Some(address) = inside.iter().find(|one| Spot::at(one.region.as_ref()) == *spot) {
        return Err(CloudError::conflict(format!(
            "the network {}.{network} has the endpoint {} in it",
            ground.site, address.name
        )));
    }
    if let Spot::Region(region) = spot {
        ground.delete(&ground.region(region).object::<Subnet>(&names.endpoint_subnet(region))).await?;
    }
    let Some(policy) = find_policy(ground).await? else { return Ok(()) };
    for rule in policy.rules.iter().filter(|rule| network_of(rule).as_ref() == Some(network)) {
        remove_rule(ground, rule.priority).await?;
    }
    if policy.rules.iter().any(|rule| network_of(rule).is_some_and(|other| other != *network)) {
        return Ok(());
    }
    let link = policy_link(ground);
    if is_bound(ground, &policy) {
        let verb = format!("removeAssociation?name={}", names.policy());
        ground.compute().act(&link, &verb, None::<&Association>).await?;
    }
    ground.delete(&link).await
}

/// Within a site a network of endpoints is joined by being there; beyond it, it cannot be.
pub(crate) async fn check_peering(ground: &Ground, spec: &PeeringSpec) -> Result {
    let [a, b] = spec.name.ends();
    if a.site != b.site || [a, b].iter().any(|end| adopted_region(end.region.as_str()).is_some()) {
        return Err(CloudError::unsupported(format!(
            "the private endpoints of {} cannot be reached from another VPC: Google does not carry that; make an endpoint in \
             the namespace that needs it",
            ground.site
        )));
    }
    let networks = closed(ground).await?;
    let is_there =
        |name: &Segment| Spot::of(name.as_str()).is_none() || networks.iter().any(|(one, _)| one == name);
    match [a, b].into_iter().find(|end| !is_there(&end.region)) {
        Some(end) => Err(CloudError::conflict(format!("there is no network {end}"))),
        None => Ok(()),
    }
}
