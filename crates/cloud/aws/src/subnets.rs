//! Subnets: one for resources in each zone that has any, and a public one for NAT.
//!
//! ```text
//!   ├── resources ───────────────┼── resources-2 ──┼─ resources-3 ─┼ -4 ┼ public ┤
//!   half                          a quarter         an eighth       a sixteenth each
//! ```
//!
//! The largest is for the first zone that is used, which without a user's wish is the region's first.

use cloud_api::{CloudError, Result};
use ipnet::Ipv4Net;

use crate::{
    account::Place,
    attach, attachments,
    marks::{Filter, mark},
    networks::Network,
    shapes::{Subnet, Zone, actions as ask},
    transit,
};

/// The subnets of resources, by size.
const ROLES: [&str; 4] = ["resources", "resources-2", "resources-3", "resources-4"];

/// The parts of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// In the order of their roles.
    zones: [Ipv4Net; 4],
    public: Ipv4Net,
}

impl Parts {
    pub(crate) fn of(space: Ipv4Net) -> Result<Self> {
        let length = space.prefix_len();
        if !(16..=24).contains(&length) {
            return Err(CloudError::invalid(format!(
                "{space} cannot be a network in AWS: a VPC is a /16 or smaller, and below /24 its subnets would be too small"
            )));
        }
        let halves = |space: Ipv4Net| {
            let none = || CloudError::invalid(format!("{space} cannot be divided"));
            let mut halves = space.subnets(space.prefix_len() + 1).map_err(|_| none())?;
            halves.next().zip(halves.next()).ok_or_else(none)
        };
        let (half, rest) = halves(space)?;
        let (quarter, rest) = halves(rest)?;
        let (eighth, rest) = halves(rest)?;
        let (sixteenth, public) = halves(rest)?;
        Ok(Self { zones: [half, quarter, eighth, sixteenth], public })
    }
}

async fn list(place: Place<'_>, network: &Network, roles: &[&str]) -> Result<Vec<Subnet>> {
    let mut filters = place.marks().filters(&[]);
    filters.push(Filter::new("tag:trestle:role", roles.iter().copied()));
    filters.push(Filter::new("vpc-id", [&network.id]));
    Ok(place.list(&filters).await?)
}

/// Subnets of whomever.
pub(crate) async fn by_id<'i>(
    place: Place<'_>,
    ids: impl IntoIterator<Item = &'i str>,
) -> Result<Vec<Subnet>> {
    Ok(place.list(&[Filter::new("subnet-id", ids)]).await?)
}

/// The subnets that resources are in; of an adopted network, those of attached instances.
pub(crate) async fn of_resources(place: Place<'_>, network: &Network) -> Result<Vec<Subnet>> {
    if !network.adopted {
        return list(place, network, &ROLES).await;
    }
    let attached = attach::attached_in(place, network).await?;
    let mut ids: Vec<&str> = attached.iter().filter_map(|one| one.subnet()).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() { Ok(Vec::new()) } else { by_id(place, ids).await }
}

pub(crate) async fn find_public(place: Place<'_>, network: &Network) -> Result<Option<Subnet>> {
    Ok(list(place, network, &["public"]).await?.into_iter().next())
}

/// The subnet that NAT stands in, made if it is not there.
pub(crate) async fn public(place: Place<'_>, network: &Network) -> Result<Subnet> {
    match find_public(place, network).await? {
        Some(there) => Ok(there),
        None => make(place, network, "public", Parts::of(network.space)?.public, None).await,
    }
}

/// The subnet for resources of a zone, or of any if none is named; made if it is not there.
pub(crate) async fn of_zone(place: Place<'_>, network: &Network, zone: Option<&str>) -> Result<String> {
    let Place { account, site, .. } = place;
    let _turn = account.turns.take(&format!("subnets/{}", network.id)).await;
    let found = list(place, network, &ROLES).await?;
    let suits = |subnet: &&Subnet| match zone {
        Some(zone) => subnet.availability_zone == zone,
        None => mark(*subnet, "role") == Some(ROLES[0]),
    };
    let there = found.iter().find(suits);
    let id = match there {
        Some(subnet) => subnet.subnet_id.clone(),
        None => {
            let is_free = |role: &str| !found.iter().any(|subnet| mark(subnet, "role") == Some(role));
            let spaces = Parts::of(network.space)?.zones;
            let free = ROLES.into_iter().zip(spaces).find(|(role, _)| is_free(role));
            let full = || {
                let used: Vec<&str> = found.iter().map(|subnet| subnet.availability_zone.as_str()).collect();
                CloudError::conflict(format!(
                    "the network {site}.{} has no room for the zone {}: it is in {}; use one of these",
                    network.region,
                    zone.unwrap_or_default(),
                    used.join(", ")
                ))
            };
            let (role, space) = free.ok_or_else(full)?;
            make(place, network, role, space, zone).await?.subnet_id
        }
    };
    // A gateway serves the zones in which it is attached. Also when it was found: a crash may have come between.
    if zone.is_some()
        && there.and_then(|subnet| mark(subnet, "role")) != Some(ROLES[0])
        && let Some(hub) = transit::hub(account, site).await?
    {
        attachments::attach(account, site, &hub, std::slice::from_ref(network)).await?;
    }
    Ok(id)
}

async fn make(
    place: Place<'_>,
    network: &Network,
    role: &str,
    space: Ipv4Net,
    zone: Option<&str>,
) -> Result<Subnet> {
    let zones = place.list::<Zone>(&[]).await?;
    let available = zones.iter().filter(|zone| zone.zone_state == "available");
    let available: Vec<&str> = available.map(|zone| zone.zone_name.as_str()).collect();
    if let Some(zone) = zone.filter(|zone| !available.contains(zone)) {
        return Err(CloudError::invalid(format!(
            "{} has no zone {zone}; available are {}",
            network.region,
            available.join(", ")
        )));
    }
    let wanted = ask::CreateSubnet {
        vpc_id: &network.id,
        cidr_block: space,
        availability_zone: zone.or(available.first().copied()),
        tag_specification: place.tags::<Subnet>(role, &[("role", role)])?,
    };
    Ok(place.make(&wanted).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_divided_and_too_small_ones_are_refused() {
        let of = |text: &str| Parts::of(text.parse().unwrap());
        let large = of("10.4.0.0/16").unwrap();
        let zones = ["10.4.0.0/17", "10.4.128.0/18", "10.4.192.0/19", "10.4.224.0/20"];
        assert_eq!(large.zones, zones.map(|text| text.parse().unwrap()));
        assert_eq!(large.public, "10.4.240.0/20".parse().unwrap());
        assert_eq!(of("10.4.1.0/24").unwrap().public, "10.4.1.240/28".parse().unwrap());
        assert!(of("10.0.0.0/15").is_err() && of("10.0.0.0/25").is_err());
    }
}
