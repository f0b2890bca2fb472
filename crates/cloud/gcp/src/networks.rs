//! Networks: the site's VPC, closed, and a subnet per region and per cluster.

use cloud_api::{CloudError, cluster_network};
use ipnet::Ipv4Net;
use model::Segment;

use crate::{
    adopt::{self, adopted_region},
    clusters::space::Ranges,
    dns, endpoints, gateway,
    ground::{Ground, Result, is_cluster},
    mark::Mark,
    shapes::{Firewall, Flow, Network, Routing, Subnet, Traffic},
};

/// A subnet: of a region, or of a cluster, whose space is divided and whose VPC knows the way to Google's APIs. These are
/// reached from subnets that say so only, by their endpoints and by private addresses alike.
pub(crate) async fn make(ground: &Ground, network: &Segment, space: Ipv4Net, has_endpoints: bool) -> Result {
    let of_cluster = cluster_network(network).is_some();
    let ranges = if of_cluster { Some(Ranges::of(space)?) } else { None };
    let link = ground.subnet(network.as_str());
    let there = ground.get(&link).await?;
    match there.as_ref().map(Subnet::whole) {
        Some(Some(other)) if other != space => {
            return Err(CloudError::conflict(format!(
                "the network {}.{network} has the space {other}, not {space}",
                ground.site
            )));
        }
        Some(_) if !of_cluster => return Ok(()),
        _ => make_vpc(ground).await?,
    }
    if of_cluster {
        dns::make_zones(ground).await?;
    }
    if there.is_some() {
        return Ok(());
    }
    let mark = Mark { region: Some(network.clone()), ..ground.names.mark() };
    let subnet = Subnet {
        name: link.name().to_owned(),
        network: ground.network(),
        private_ip_google_access: has_endpoints || of_cluster,
        ..Subnet::default()
    };
    let subnet = match ranges {
        Some(ranges) => Subnet {
            description: Mark { space: Some(space), ..mark }.into(),
            ip_cidr_range: Some(ranges.nodes),
            secondary_ip_ranges: ranges.secondary(),
            ..subnet
        },
        None => Subnet { description: mark.into(), ip_cidr_range: Some(space), ..subnet },
    };
    Ok(ground.compute().insert(&link.place(), &subnet).await?)
}

/// The site's own VPC, closed.
pub(crate) async fn make_vpc(ground: &Ground) -> Result {
    let (global, names) = (ground.global(), &ground.names);
    let network = Network {
        name: names.network(),
        description: names.mark().into(),
        routing_config: Routing { routing_mode: "GLOBAL".to_owned() },
        ..Network::default()
    };
    ground.ensure(&global, &network).await?;
    // Nothing gets in by itself; this is so that nothing gets out, before anything is there.
    let deny = Firewall {
        name: names.deny(),
        network: ground.network(),
        description: names.mark().into(),
        priority: 65_534,
        denied: vec![Traffic::all()],
        ..Firewall::towards(Flow::Egress, vec!["0.0.0.0/0".to_owned()])
    };
    ground.ensure(&global, &deny).await.map(drop)
}

/// The site's own networks but for those of endpoints, by name.
pub(crate) async fn subnets(ground: &Ground) -> Result<Vec<(Segment, Ipv4Net)>> {
    let found: Vec<Subnet> = ground.owned(&ground.names.all("sub")).await?;
    let read = |subnet: &Subnet| {
        let named = subnet.description.mark().and_then(|mark| mark.region);
        Some((named.or_else(|| subnet.region.name().parse().ok())?, subnet.whole()?))
    };
    let mut subnets: Vec<_> = found.iter().filter_map(read).collect();
    subnets.sort();
    Ok(subnets)
}

pub(crate) async fn remove(ground: &Ground, region: &str) -> Result {
    if adopted_region(region).is_some() {
        return match adopt::find(ground, region).await? {
            Some(_) => Err(CloudError::conflict(format!("{region} is adopted, and somebody else's"))),
            None => Ok(()),
        };
    }
    // Refused by Google while an instance or a cluster lives in it.
    ground.delete(&ground.subnet(region)).await?;
    if !is_cluster(region) || subnets(ground).await?.iter().any(|(name, _)| is_cluster(name.as_str())) {
        return Ok(());
    }
    dns::remove_zones(ground).await
}

/// The site's own VPC, once it has neither networks nor a gateway.
pub(crate) async fn remove_vpc(ground: &Ground) -> Result {
    if !subnets(ground).await?.is_empty()
        || endpoints::networks::are_there(ground).await?
        || !gateway::is_gone(ground).await?
    {
        return Ok(());
    }
    let own = ground.network();
    let mut left = ground.owned_firewalls(&format!("{}-", ground.names.prefix())).await?;
    left.retain(|one| one.network == own);
    ground.delete_firewalls(left.iter().map(|one| one.name.as_str())).await?;
    ground.delete(&own).await
}
