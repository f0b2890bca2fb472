//! Peerings: networks attached to one transit gateway, and a note at the first end that remembers who asked for it.

use cloud_api::{CloudError, PeeringSpec};
use cloud_http::Turn;
use futures::{future::try_join_all, try_join};
use model::PeeringName;

use crate::gateway::settle_hub;
use crate::names::Names;
use crate::transit::Hub;
use crate::{Ground, Groups, Result, Vpc, Vpcs};

/// Both sites' turns, in an order that everybody keeps.
async fn turns_of([a, b]: &[Ground; 2]) -> Vec<Turn> {
    let mut grounds = vec![a, b];
    grounds.sort_by_key(|ground| &ground.site);
    grounds.dedup_by_key(|ground| &ground.site);
    let mut held = Vec::new();
    for ground in grounds {
        held.push(ground.turn().await);
    }
    held
}

pub(crate) async fn ensure(ends: &[Ground; 2], spec: &PeeringSpec) -> Result {
    let _turns = turns_of(ends).await;
    let [near, far] = spec.name.ends();
    let need_far = Vpc::need(&ends[1], far.region.as_str());
    let (vpc, _) = try_join!(Vpc::need(&ends[0], near.region.as_str()), need_far)?;
    let groups = Groups::read(&ends[0], &vpc).await?;
    if !groups.peerings().contains(&spec.name) {
        let note = ends[0].names.peering_note(&spec.name);
        groups.note_down(note, "a peering", &spec.name.to_string()).await?;
    }
    settle(ends).await
}

pub(crate) async fn remove(ends: &[Ground; 2], spec: &PeeringSpec) -> Result {
    let _turns = turns_of(ends).await;
    let [near, _] = spec.name.ends();
    if let Some(vpc) = Vpc::find(&ends[0], near.region.as_str()).await? {
        let groups = Groups::read(&ends[0], &vpc).await?;
        groups.forget(groups.named(&ends[0].names.peering_note(&spec.name))).await?;
    }
    settle(ends).await
}

/// Brings the transit gateway of a site, or of a pair of sites, to what the notes ask for.
async fn settle([a, b]: &[Ground; 2]) -> Result {
    if a.site == b.site {
        return settle_hub(a, None).await;
    }
    let (near, far) = try_join!(Vpcs::read(a), Vpcs::read(b))?;
    let mut peerings: Vec<PeeringName> = Vec::new();
    for (ground, vpcs) in [(a, &near), (b, &far)] {
        let groups = try_join_all(vpcs.networks.iter().map(|vpc| Groups::read(ground, vpc))).await?;
        peerings.extend(groups.iter().flat_map(Groups::peerings));
    }
    let both = |name: &&PeeringName| {
        let [one, two] = name.ends();
        [&one.site, &two.site].iter().all(|site| **site == a.site || **site == b.site) && one.site != two.site
    };
    let mut networks: Vec<Vpc> = Vec::new();
    for end in peerings.iter().filter(both).flat_map(PeeringName::ends) {
        let vpcs = if end.site == a.site { &near } else { &far };
        let none = || CloudError::conflict(format!("there is no network {end}"));
        let vpc = vpcs.network(end.region.as_str()).ok_or_else(none)?;
        if !networks.iter().any(|one| one.id == vpc.id) {
            networks.push(vpc.clone());
        }
    }
    let names = &Names::pair(&a.owner, &a.site, &b.site);
    let location = networks.first().map(|vpc| vpc.region.clone()).unwrap_or_default();
    Hub { ground: a, names, location, networks: &networks, gateway: None }.ensure().await
}
