//! Networks: a VPC per region or cluster, its space divided among the zones. And what a site consists of.

use cloud_api::{CloudError, Listing};
use futures::{future::try_join_all, try_join};
use ipnet::Ipv4Net;
use model::{ResourceState, Segment};

use crate::shapes::{self, Instance, Subnet};
use crate::vpcs::{parts, place};
use crate::{
    Ground, Groups, Home, Listed as _, Result, Vpc, Vpcs, adopt, clusters, endpoints, gateway, instances,
    subnets,
};

pub(crate) async fn ensure(ground: &Ground, network: &str, space: Ipv4Net) -> Result {
    let wanted = parts(space)?;
    clusters::check_space(space)?;
    let _turn = ground.turn().await;
    let (region, home) = place(network);
    let vpcs = Vpcs::read(ground).await?;
    let there = match vpcs.network(network) {
        Some(vpc) => vpc.prefixes(&ground.api).await?,
        None => Vec::new(),
    };
    if let Some(other) = there.iter().find(|prefix| !wanted.contains(prefix)) {
        let message = format!("the network {}.{network} has {other} in its space, not {space}", ground.site);
        return Err(CloudError::conflict(message));
    }
    if there.len() < wanted.len() {
        let zones = ground.api.zones(region).await?;
        let vpc = match (vpcs.network(network), &home) {
            (Some(vpc), _) => vpc.clone(),
            (None, Home::Cluster(cluster, _)) => {
                let name = ground.names.cluster_network(cluster.as_str());
                Vpc::make(ground, region, name, home).await?
            }
            (None, _) => Vpc::make(ground, region, ground.names.network(), home).await?,
        };
        let missing = wanted.iter().enumerate().filter(|(_, part)| !there.contains(part));
        let made = missing
            .map(|(number, part)| vpc.make_prefix(ground, number, *part, &zones[number % zones.len()]));
        try_join_all(made).await?;
    }
    match vpcs.gateway {
        Some(_) => gateway::settle_hub(ground, None).await,
        None => Ok(()),
    }
}

pub(crate) async fn remove(ground: &Ground, network: &str) -> Result {
    let _turn = ground.turn().await;
    if let (_, Home::Adopted(id)) = place(network) {
        return Err(CloudError::conflict(format!("{id} is somebody else's; it can only be let go")));
    }
    let Some(vpc) = Vpc::find(ground, network).await? else { return Ok(()) };
    if let Some(user) = user_of(ground, &vpc).await? {
        return Err(CloudError::conflict(format!(
            "the network {}.{network} has the {user} in it",
            ground.site
        )));
    }
    gateway::settle_hub(ground, Some(network)).await?;
    subnets::remove_nat(ground, network).await?;
    let subnets = subnets::list(ground, &vpc).await?;
    let own = subnets.iter().filter(|subnet| ground.names.owns(&subnet.name));
    vpc.all::<Subnet>(&ground.api).remove_all(own.map(|subnet| subnet.id.as_str())).await?;
    // Groups and address prefixes go with it.
    ground.api.in_region::<shapes::Vpc>(&vpc.region).remove(&vpc.id).await
}

/// What lives in a network of ours, if anything does.
async fn user_of(ground: &Ground, vpc: &Vpc) -> Result<Option<String>> {
    if let Some(cluster) = vpc.cluster() {
        let found = clusters::find_in(ground, vpc, &ground.names.cluster(cluster)).await?;
        return Ok(found.map(|one| format!("cluster {}", one.name)));
    }
    let instances = vpc.all::<Instance>(&ground.api).list().await?;
    if let Some(instance) = instances.iter().find(|one| one.is_alive()) {
        return Ok(Some(format!("instance {}", instance.name)));
    }
    let endpoints = endpoints::list(ground, vpc).await?;
    Ok(endpoints.first().map(|endpoint| format!("endpoint gateway {}", endpoint.name)))
}

pub(crate) async fn list_site(ground: &Ground) -> Result<Listing> {
    let vpcs = Vpcs::read(ground).await?;
    let parts = try_join_all(vpcs.networks.iter().map(|vpc| list_network(ground, vpc)));
    let (parts, (gateway, connections)) = try_join!(parts, gateway::list(ground, vpcs.gateway.as_ref()))?;
    let mut listing = Listing { gateway, connections, ..Listing::default() };
    for part in parts {
        listing.networks.extend(part.networks);
        listing.resources.extend(part.resources);
        listing.peerings.extend(part.peerings);
        listing.nats.extend(part.nats);
    }
    listing.peerings.sort();
    listing.resources.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(listing)
}

async fn list_network(ground: &Ground, vpc: &Vpc) -> Result<Listing> {
    if vpc.adopted.is_some() {
        return adopt::list(ground, vpc).await;
    }
    let (space, groups, nats) =
        try_join!(vpc.space(&ground.api), Groups::read(ground, vpc), subnets::list_nat(ground, vpc))?;
    let resources = match vpc.cluster() {
        Some(cluster) => clusters::list(ground, vpc, cluster, space).await?,
        None => list_resources(&groups).await?,
    };
    let name = vpc.segment()?;
    Ok(Listing {
        networks: space.map(|space| (name.clone(), space)).into_iter().collect(),
        resources,
        peerings: groups.peerings(),
        nats: if nats.is_empty() { Vec::new() } else { vec![name] },
        ..Listing::default()
    })
}

/// The instances and endpoints of a region's network.
async fn list_resources(groups: &Groups<'_>) -> Result<Vec<(Segment, ResourceState)>> {
    let (ground, vpc) = (groups.ground, &groups.vpc);
    let instances = vpc.all::<Instance>(&ground.api);
    let (instances, endpoints) = try_join!(instances.list(), endpoints::list(ground, vpc))?;
    let resource =
        |name: &str, state: Option<ResourceState>| Some((groups.note(name)?.name.parse().ok()?, state?));
    let alive = instances.iter().filter(|one| one.is_alive() && ground.names.is_instance(&one.name));
    let machines = alive.filter_map(|one| resource(&one.name, instances::state_of(&vpc.region, one)));
    let services =
        endpoints.iter().filter_map(|one| resource(&one.name, endpoints::state_of(&vpc.region, one)));
    Ok(machines.chain(services).collect())
}
