//! Networks: a VPC per region or cluster, its space divided among the zones. And what a site consists of.

use cloud_api::{CloudError, Listing};
use cloud_http::Class;
use futures::{future::try_join_all, try_join};
use ipnet::Ipv4Net;
use model::{PeeringName, ResourceState, Segment, Site};
use serde_json::{Value, json};

use crate::{
    api::{GROUP, INSTANCE, PREFIX, Place, SUBNET, VPC, is_alive, text},
    cloud::{Ground, IbmCloud, Result},
    clusters, notes,
    vpcs::{Home, Vpc, place},
};

/// A network's space in four: one part for each of three zones, and one that is kept.
pub(crate) fn parts(space: Ipv4Net) -> Result<Vec<Ipv4Net>> {
    let length = space.prefix_len();
    if !(8..=24).contains(&length) {
        return Err(CloudError::invalid(format!(
            "{space} cannot be a network in IBM Cloud: a quarter of it must do for the instances of a zone, so it is between \
             /8 and /24"
        )));
    }
    Ok(space.subnets(length + 2).map_err(|err| CloudError::invalid(err.to_string()))?.collect())
}

/// The space that prefixes are the parts of, if they are all there.
pub(crate) fn whole(prefixes: &[Ipv4Net]) -> Option<Ipv4Net> {
    let mut sorted = prefixes.to_vec();
    sorted.sort();
    let first = sorted.first()?;
    let space = Ipv4Net::new(first.network(), first.prefix_len().checked_sub(2)?).ok()?;
    (parts(space).ok()? == sorted).then_some(space)
}

impl IbmCloud {
    /// The zones of a region, in order.
    pub(crate) async fn zones(&self, region: &str) -> Result<Vec<String>> {
        let (place, path) = (Place::Region(region), format!("regions/{region}/zones"));
        let answer = match self.api.send(place, "list_region_zones", http::Method::GET, &path, None).await {
            Err(failure) if failure.is(Class::NotFound) => {
                return Err(CloudError::invalid(format!("IBM Cloud has no region {region}: {failure}")));
            }
            answer => answer?,
        };
        let zones = answer["zones"].as_array().into_iter().flatten();
        let usable = zones.filter(|zone| matches!(text(zone, "status"), "available" | "impaired"));
        let mut names: Vec<String> = usable.map(|zone| text(zone, "name").to_owned()).collect();
        names.sort();
        if names.is_empty() {
            return Err(CloudError::conflict(format!(
                "the region {region} of IBM Cloud has no zone in service"
            )));
        }
        Ok(names)
    }

    pub(crate) async fn prefixes(&self, vpc: &Vpc) -> Result<Vec<Ipv4Net>> {
        let path = format!("vpcs/{}/address_prefixes", vpc.id);
        let found = self.api.list(Place::Region(&vpc.region), &PREFIX, &path).await?;
        Ok(found.iter().filter_map(|prefix| text(prefix, "cidr").parse().ok()).collect())
    }

    /// The space of a network, if it is whole.
    pub(crate) async fn space_of(&self, vpc: &Vpc) -> Result<Option<Ipv4Net>> {
        match vpc.adopted() {
            Some(space) => Ok(Some(space)),
            None => Ok(whole(&self.prefixes(vpc).await?)),
        }
    }

    pub(crate) async fn make_vpc(
        &self,
        ground: &Ground,
        region: &str,
        name: &str,
        home: Home,
    ) -> Result<Vpc> {
        let body = ground.place(json!({"name": name, "address_prefix_management": "manual"}));
        let made = self.api.make(Place::Region(region), &VPC, &ground.within("vpcs"), &body).await?;
        Ok(Vpc::read(region, &made, home))
    }

    pub(crate) async fn make_prefix(&self, vpc: &Vpc, name: &str, space: Ipv4Net, zone: &str) -> Result<()> {
        let path = format!("vpcs/{}/address_prefixes", vpc.id);
        let body = json!({"name": name, "cidr": space.to_string(), "zone": {"name": zone}});
        self.api.make(Place::Region(&vpc.region), &PREFIX, &path, &body).await.map(drop)
    }

    pub(crate) async fn make_network(&self, ground: &Ground, network: &str, space: Ipv4Net) -> Result<()> {
        let wanted = parts(space)?;
        clusters::check_space(space)?;
        let (region, home) = place(network);
        let vpcs = self.vpcs(ground).await?;
        let there = match vpcs.network(network) {
            Some(vpc) => self.prefixes(vpc).await?,
            None => Vec::new(),
        };
        if let Some(other) = there.iter().find(|prefix| !wanted.contains(prefix)) {
            let message =
                format!("the network {}.{network} has {other} in its space, not {space}", ground.site);
            return Err(CloudError::conflict(message));
        }
        if there.len() < wanted.len() {
            let zones = self.zones(region).await?;
            let vpc = match (vpcs.network(network), &home) {
                (Some(vpc), _) => vpc.clone(),
                (None, Home::Cluster(cluster, _)) => {
                    let name = ground.names.cluster_network(cluster.as_str());
                    self.make_vpc(ground, region, &name, home).await?
                }
                (None, _) => self.make_vpc(ground, region, &ground.names.network(), home).await?,
            };
            let missing = wanted.iter().enumerate().filter(|(_, part)| !there.contains(part));
            try_join_all(missing.map(|(number, part)| {
                let (name, zone) = (ground.names.part(number), zones[number % zones.len()].clone());
                let vpc = &vpc;
                async move { self.make_prefix(vpc, &name, *part, &zone).await }
            }))
            .await?;
        }
        if vpcs.gateway.is_some() {
            self.settle_hub(ground, None).await?;
        }
        Ok(())
    }

    /// The subnets of a VPC.
    pub(crate) async fn subnets(&self, vpc: &Vpc) -> Result<Vec<Value>> {
        let path = format!("subnets?vpc.id={}", vpc.id);
        let found = self.api.list(Place::Region(&vpc.region), &SUBNET, &path).await?;
        Ok(found.into_iter().filter(is_alive).collect())
    }

    /// The subnet of a zone, made if it is not there.
    pub(crate) async fn subnet(&self, ground: &Ground, vpc: &Vpc, zone: &str) -> Result<String> {
        let _turn = self.turns.take(&format!("subnets {}", vpc.id)).await;
        let name = ground.names.subnet(zone);
        let there = self.subnets(vpc).await?;
        if let Some(subnet) =
            there.iter().find(|subnet| subnet["name"] == name.as_str() && SUBNET.is_ready(subnet))
        {
            return Ok(text(subnet, "id").to_owned());
        }
        let (zones, prefixes) = try_join!(self.zones(&vpc.region), self.prefixes(vpc))?;
        let number = zones.iter().position(|one| one == zone).filter(|number| *number < 3);
        let unknown = || {
            CloudError::invalid(format!(
                "Trestle's network in {} has no zone {zone}; it has {}",
                vpc.region,
                zones.iter().take(3).cloned().collect::<Vec<_>>().join(", ")
            ))
        };
        let number = number.ok_or_else(unknown)?;
        let unfinished =
            || CloudError::conflict(format!("the network {}.{} is not whole", ground.site, vpc.name()));
        let part = parts(whole(&prefixes).ok_or_else(unfinished)?)?[number];
        let mut body = ground.place(json!({
            "name": name,
            "vpc": {"id": vpc.id},
            "zone": {"name": zone},
            "ipv4_cidr_block": part.to_string(),
        }));
        if let Some(nat) = self.nat_for(ground, vpc, zone).await? {
            body["public_gateway"] = json!({"id": nat});
        }
        let path = format!("subnets?vpc.id={}", vpc.id);
        let made = self.api.make(Place::Region(&vpc.region), &SUBNET, &path, &body).await?;
        Ok(text(&made, "id").to_owned())
    }

    pub(crate) async fn instances(&self, vpc: &Vpc) -> Result<Vec<Value>> {
        let path = format!("instances?vpc.id={}", vpc.id);
        Ok(self.api.list(Place::Region(&vpc.region), &INSTANCE, &path).await?)
    }

    /// The security groups of a VPC, notes among them, each with its rules.
    pub(crate) async fn groups(&self, vpc: &Vpc) -> Result<Vec<Value>> {
        let path = format!("security_groups?vpc.id={}", vpc.id);
        Ok(self.api.list(Place::Region(&vpc.region), &GROUP, &path).await?)
    }

    pub(crate) async fn remove_network(&self, ground: &Ground, network: &str) -> Result<()> {
        if let (_, Home::Adopted(id)) = place(network) {
            return Err(CloudError::conflict(format!("{id} is somebody else's; it can only be let go")));
        }
        let Some(vpc) = self.vpc(ground, network).await? else { return Ok(()) };
        if let Some(user) = self.user_of(ground, &vpc).await? {
            return Err(CloudError::conflict(format!(
                "the network {}.{network} has the {user} in it",
                ground.site
            )));
        }
        self.settle_hub(ground, Some(network)).await?;
        self.remove_nat(ground, network).await?;
        let place = Place::Region(&vpc.region);
        let subnets = self.subnets(&vpc).await?;
        try_join_all(subnets.iter().filter(|subnet| ground.names.owns(subnet)).map(|subnet| async move {
            self.api.remove(place, &SUBNET, &format!("subnets/{}", text(subnet, "id"))).await
        }))
        .await?;
        // Groups and address prefixes go with it.
        self.api.remove(place, &VPC, &format!("vpcs/{}", vpc.id)).await
    }

    /// What lives in a network of ours, if anything does.
    async fn user_of(&self, ground: &Ground, vpc: &Vpc) -> Result<Option<String>> {
        if let Some(cluster) = vpc.cluster() {
            let found = self.find_cluster(ground, &ground.names.cluster(cluster)).await?;
            let found = found.filter(|one| clusters::is_alive(one) && clusters::is_in(one, vpc));
            return Ok(found.map(|one| format!("cluster {}", text(&one, "name"))));
        }
        if let Some(instance) = self.instances(vpc).await?.iter().find(|one| is_alive(one)) {
            return Ok(Some(format!("instance {}", text(instance, "name"))));
        }
        let endpoints = self.endpoints(ground, vpc).await?;
        Ok(endpoints.first().map(|endpoint| format!("endpoint gateway {}", text(endpoint, "name"))))
    }

    pub(crate) async fn list_site(&self, ground: &Ground) -> Result<Listing> {
        let vpcs = self.vpcs(ground).await?;
        let parts = try_join_all(vpcs.networks.iter().map(|vpc| self.list_network(ground, vpc)));
        let (parts, (gateway, connections)) =
            try_join!(parts, self.list_gateway(ground, vpcs.gateway.as_ref()))?;
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

    async fn list_network(&self, ground: &Ground, vpc: &Vpc) -> Result<Listing> {
        if vpc.adopted().is_some() {
            return self.list_adopted(ground, vpc).await;
        }
        let (space, groups, nats) = try_join!(self.space_of(vpc), self.groups(vpc), self.nats(ground, vpc))?;
        let resources = match vpc.cluster() {
            Some(cluster) => self.list_cluster(ground, vpc, cluster, space).await?,
            None => self.list_resources(ground, vpc, &groups).await?,
        };
        let name = vpc.name();
        let name: Segment =
            name.parse().map_err(|_| CloudError::invalid(format!("{name} is no network's name")))?;
        Ok(Listing {
            networks: space.map(|space| (name.clone(), space)).into_iter().collect(),
            resources,
            peerings: noted_peerings(ground, &groups),
            nats: if nats.is_empty() { Vec::new() } else { vec![name] },
            ..Listing::default()
        })
    }

    /// The instances and endpoints of a region's network.
    async fn list_resources(
        &self,
        ground: &Ground,
        vpc: &Vpc,
        groups: &[Value],
    ) -> Result<Vec<(Segment, ResourceState)>> {
        let (instances, endpoints) = try_join!(self.instances(vpc), self.endpoints(ground, vpc))?;
        let resource = |object: &Value, state: Option<ResourceState>| {
            let name = crate::resources::note_of(ground, groups, text(object, "name"))?.name;
            Some((name.parse().ok()?, state?))
        };
        let alive =
            instances.iter().filter(|one| is_alive(one) && ground.names.is_instance(text(one, "name")));
        let machines = alive.filter_map(|one| resource(one, crate::resources::state_of(&vpc.region, one)));
        let services =
            endpoints.iter().filter_map(|one| resource(one, crate::endpoints::state_of(&vpc.region, one)));
        Ok(machines.chain(services).collect())
    }
}

/// The peerings that a VPC's notes tell of.
pub(crate) fn noted_peerings(ground: &Ground, groups: &[Value]) -> Vec<PeeringName> {
    let notes = groups.iter().filter(|group| ground.names.is_peering_note(text(group, "name")));
    notes.filter_map(|group| notes::read(group)?.parse().ok()).collect()
}

/// The peers of a site's links, by the notes in its gateway's VPC.
pub(crate) fn noted_links(ground: &Ground, groups: &[Value]) -> Vec<Site> {
    let notes = groups.iter().filter(|group| ground.names.is_link_note(text(group, "name")));
    let mut peers: Vec<Site> = notes.filter_map(|group| notes::read(group)?.parse().ok()).collect();
    peers.sort();
    peers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_divided_and_put_together_again() {
        let space: Ipv4Net = "10.4.0.0/16".parse().unwrap();
        let mut four = parts(space).unwrap();
        assert_eq!(four[3], "10.4.192.0/18".parse().unwrap());
        four.rotate_left(1);
        assert_eq!(whole(&four), Some(space));
        assert_eq!(whole(&four[..3]), None);
        assert_eq!(whole(&[]), None);
        assert_eq!(whole(&["0.0.0.0/1".parse().unwrap()]), None);
        assert!(parts("10.0.0.0/25".parse().unwrap()).is_err());
    }
}
