//! Peerings of VPCs. Two VPCs have at most one, whatever networks asked for it; a disabled firewall per pair of
//! networks remembers who did, and the peering goes with the last of them. A site's VPC and the ones that the site
//! adopted are also peered for the gateway, as long as there is one.

use cloud_api::{CloudError, PeeringSpec};
use cloud_http::{Class, Pace, Progress, wait};

use crate::{
    adopt::{adopted_region, vpc_of},
    endpoints::{self, Spot},
    gateway,
    ground::{Ground, Result, Vpc},
    mark::Mark,
    names,
    shapes::{Network, Peering, only},
};

/// Stands for two VPCs, in either order.
fn pair(a: &Vpc, b: &Vpc) -> String {
    let (a, b) = (a.link.path(), b.link.path());
    if a < b { names::hash(&format!("{a} {b}"), 10) } else { names::hash(&format!("{b} {a}"), 10) }
}

/// What a peering is called in the VPC `near`.
fn name_in(near: &Vpc, far: &Vpc) -> String {
    let far = if far.is_own() { far.ground.site.to_string() } else { far.link.to_string() };
    near.ground.names.of("peer", &far)
}

/// A peering to ask for. What the gateway has learnt goes from the site's VPC to those that it adopted, and nothing of
/// theirs but their subnets comes back.
fn wanted(near: &Vpc, far: &Vpc) -> Peering {
    let is_served = near.ground.site == far.ground.site;
    Peering {
        name: name_in(near, far),
        network: far.link.clone(),
        exchange_subnet_routes: true,
        export_custom_routes: is_served && near.is_own(),
        import_custom_routes: is_served && far.is_own(),
        ..Peering::default()
    }
}

/// A peering with a VPC, whoever made it.
fn peering_with<'n>(network: &'n Network, far: &Vpc) -> Option<&'n Peering> {
    network.peerings.iter().find(|peering| peering.network == far.link)
}

pub(crate) async fn make(grounds: &[Ground; 2], spec: &PeeringSpec) -> Result {
    let mut vpcs = Vec::new();
    for (ground, end) in grounds.iter().zip(spec.name.ends()) {
        if Spot::of(end.region.as_str()).is_some() {
            endpoints::networks::check_peering(ground, spec).await?;
            vpcs.push(ground.vpc());
            continue;
        }
        let found = vpc_of(ground, end.region.as_str()).await?;
        vpcs.push(found.ok_or_else(|| CloudError::conflict(format!("there is no network {end}")))?);
    }
    let [a, b] = vpcs.as_slice() else { return Ok(()) };
    if a.link == b.link {
        return Ok(());
    }
    let names = &a.ground.names;
    let mark = Mark { peering: Some(spec.name.clone()), pair: Some(pair(a, b)), ..names.mark() };
    a.note(&names.marker(&spec.name), mark).await?;
    join(a, b).await
}

/// Peers two VPCs, both sides of it.
pub(crate) async fn join(a: &Vpc, b: &Vpc) -> Result {
    let _turn = a.ground.turn(&pair(a, b)).await;
    for (near, far) in [(a, b), (b, a)] {
        peer(near, far).await?;
    }
    let what = format!("the peering of {} and {}", a.link, b.link);
    wait(a.ground.compute().clock(), Pace::QUICK, &what, || async {
        let network = a.ground.get(&a.link).await?;
        let peering = network.as_ref().and_then(|network| peering_with(network, b));
        let is_active = peering.is_some_and(|peering| peering.state == "ACTIVE");
        Ok(if is_active { Progress::Done(()) } else { Progress::Pending })
    })
    .await
}

/// One side of a peering. One that somebody else made does as well.
async fn peer(near: &Vpc, far: &Vpc) -> Result {
    let none = || CloudError::conflict(format!("there is no {}", near.link));
    let is_there = || async {
        let network = near.ground.get(&near.link).await?;
        Ok::<_, CloudError>(peering_with(&network.ok_or_else(none)?, far).is_some())
    };
    if is_there().await? {
        return Ok(());
    }
    let body = only("networkPeering", wanted(near, far));
    match near.ground.compute().act(&near.link, "addPeering", Some(&body)).await {
        // Made by an earlier try whose answer was lost.
        Err(failure) if failure.is(Class::Invalid) => match is_there().await? {
            true => Ok(()),
            false => Err(failure.into()),
        },
        outcome => Ok(outcome?),
    }
}

pub(crate) async fn remove(grounds: &[Ground; 2], spec: &PeeringSpec) -> Result {
    let mut vpcs = Vec::new();
    for (ground, end) in grounds.iter().zip(spec.name.ends()) {
        vpcs.push(match adopted_region(end.region.as_str()) {
            Some(_) => vpc_of(ground, end.region.as_str()).await?,
            None => Some(ground.vpc()),
        });
    }
    let [ground, _] = grounds;
    ground.delete(&ground.firewall(&ground.names.marker(&spec.name))).await?;
    match vpcs.as_slice() {
        [Some(a), Some(b)] if a.link != b.link => part(a, b).await,
        _ => Ok(()),
    }
}

/// Takes a peering away that nobody needs any more: no networks, and no gateway.
pub(crate) async fn part(a: &Vpc, b: &Vpc) -> Result {
    let (ground, pair) = (&a.ground, Some(pair(a, b)));
    let markers = ground.firewalls(&ground.names.all("pm")).await?;
    if markers.iter().filter_map(|marker| marker.description.mark()).any(|mark| mark.pair == pair) {
        return Ok(());
    }
    let is_served = a.ground.site == b.ground.site && (a.is_own() || b.is_own());
    if is_served && gateway::find(ground).await?.is_some() {
        return Ok(());
    }
    unjoin(a, b).await
}

/// Takes both sides of a peering away, if they are ours.
pub(crate) async fn unjoin(a: &Vpc, b: &Vpc) -> Result {
    let _turn = a.ground.turn(&pair(a, b)).await;
    for (near, far) in [(a, b), (b, a)] {
        let (network, name) = (near.ground.get(&near.link).await?, name_in(near, far));
        if !network.is_some_and(|network| network.peerings.iter().any(|peering| peering.name == name)) {
            continue;
        }
        match near.ground.compute().act(&near.link, "removePeering", Some(&only("name", name))).await {
            Err(failure) if failure.is(Class::Invalid) || failure.is(Class::NotFound) => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::for_tests;

    fn vpc(site: &str, name: Option<&str>) -> Vpc {
        let ground = for_tests(site);
        Vpc { link: name.map_or(ground.network(), |name| ground.global().object(name)), ground }
    }

    #[test]
    fn routes_of_links_go_to_adopted_networks_of_the_site_and_nowhere_else() {
        let (own, old, other) = (vpc("ns.gcp", None), vpc("ns.gcp", Some("old")), vpc("b.gcp", None));
        let flags = |near: &Vpc, far: &Vpc| {
            let wanted = wanted(near, far);
            (wanted.export_custom_routes, wanted.import_custom_routes)
        };
        assert_eq!(flags(&own, &old), (true, false));
        assert_eq!(flags(&old, &own), (false, true));
        for (near, far) in [(&own, &other), (&other, &own), (&old, &other), (&other, &old)] {
            assert_eq!(flags(near, far), (false, false));
        }
        assert_eq!(pair(&own, &old), pair(&old, &own));
    }
}
