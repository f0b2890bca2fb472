//! Networks: the site's VPC, closed, and a subnet per region and per cluster. And what a site consists of.

use cloud_api::{CloudError, Listing, cluster_network};
use futures::{future::try_join_all, try_join};
use ipnet::Ipv4Net;
use model::{PeeringName, Segment};
use serde_json::{Value, json};

use crate::{
    adopt::adopted_region,
    cloud::{GcpCloud, Ground, Result, is_cluster},
    clusters::space::{Ranges, whole},
    names::{self, last, network_of, path},
};

impl GcpCloud {
    /// The subnet of a network of ours.
    pub(crate) async fn subnet(&self, ground: &Ground, network: &str) -> Result<Option<Value>> {
        let place = ground.place_of(network);
        Ok(self.compute.get(&place, "subnetworks", &ground.names.subnet(network)).await?)
    }

    /// A subnet: of a region, or of a cluster, whose space is divided and whose VPC knows the way to Google's APIs.
    pub(crate) async fn make_network(
        &self,
        ground: &Ground,
        network: &Segment,
        space: Ipv4Net,
    ) -> Result<()> {
        let of_cluster = cluster_network(network).is_some();
        let ranges = if of_cluster { Some(Ranges::of(space)?) } else { None };
        let there = self.subnet(ground, network.as_str()).await?;
        match there.as_ref().map(whole) {
            Some(Some(other)) if other != space => {
                return Err(CloudError::conflict(format!(
                    "the network {}.{network} has the space {other}, not {space}",
                    ground.site
                )));
            }
            Some(_) if !of_cluster => return Ok(()),
            _ => self.make_vpc(ground).await?,
        }
        if of_cluster {
            self.make_zones(ground).await?;
        }
        if there.is_some() {
            return Ok(());
        }
        let names = &ground.names;
        let mark = names::Mark { region: Some(network.clone()), ..names.mark() };
        let mut subnet = json!({"name": names.subnet(network.as_str()), "network": ground.network()});
        let mark = match ranges {
            Some(ranges) => {
                ranges.put_in(&mut subnet);
                names::Mark { space: Some(space), ..mark }
            }
            None => {
                subnet["ipCidrRange"] = space.to_string().into();
                mark
            }
        };
        subnet["description"] = names::write(mark).into();
        if self.private_endpoints || of_cluster {
            // Google's own APIs are reached from such subnets only, by their endpoints and by private addresses alike.
            subnet["privateIpGoogleAccess"] = true.into();
        }
        Ok(self.compute.insert(&ground.place_of(network.as_str()), "subnetworks", &subnet).await?)
    }

    /// The site's own VPC, closed.
    pub(crate) async fn make_vpc(&self, ground: &Ground) -> Result<()> {
        let (compute, names) = (&self.compute, &ground.names);
        let mark = names::write(names.mark());
        if compute.get(&ground.global(), "networks", &names.network()).await?.is_none() {
            let network = json!({"name": names.network(), "description": mark, "autoCreateSubnetworks": false, "routingConfig": {"routingMode": "GLOBAL"}});
            compute.insert(&ground.global(), "networks", &network).await?;
        }
        if compute.get(&ground.global(), "firewalls", &names.deny()).await?.is_some() {
            return Ok(());
        }
        // Nothing gets in by itself; this is so that nothing gets out, before anything is there.
        let deny = json!({"name": names.deny(), "network": ground.network(), "description": mark, "direction": "EGRESS", "priority": 65534, "denied": [{"IPProtocol": "all"}], "destinationRanges": ["0.0.0.0/0"]});
        Ok(compute.insert(&ground.global(), "firewalls", &deny).await?)
    }

    pub(crate) async fn subnets(&self, ground: &Ground) -> Result<Vec<(Segment, Ipv4Net)>> {
        let prefix = format!("{}-sub-", ground.names.prefix());
        let found = self.compute.list_all(&ground.project, "subnetworks", &prefix).await?;
        let mut subnets: Vec<(Segment, Ipv4Net)> = found
            .iter()
            .filter(|subnet| ground.names.owns(subnet))
            .filter_map(|subnet| {
                let named = names::read(subnet).and_then(|mark| mark.region);
                let name = named.or_else(|| last(&subnet["region"]).parse().ok())?;
                Some((name, whole(subnet)?))
            })
            .collect();
        subnets.sort();
        Ok(subnets)
    }

    /// Those that are all that they should be: one of a cluster only with the names of Google's APIs beside it, and if the
    /// router, where there is one, says the whole of its space.
    async fn whole_subnets(
        &self,
        ground: &Ground,
        mut subnets: Vec<(Segment, Ipv4Net)>,
    ) -> Result<Vec<(Segment, Ipv4Net)>> {
        if !subnets.iter().any(|(name, _)| cluster_network(name).is_some()) {
            return Ok(subnets);
        }
        let (zones, told) = try_join!(self.has_zones(ground), self.told(ground))?;
        let is_told = |space: &Ipv4Net| told.as_ref().is_none_or(|told| told.contains(space));
        subnets.retain(|(name, space)| cluster_network(name).is_none() || zones && is_told(space));
        Ok(subnets)
    }

    pub(crate) async fn remove_network(&self, ground: &Ground, region: &str) -> Result<()> {
        if adopted_region(region).is_some() {
            return match self.adopted_as(ground, region).await? {
                Some(_) => Err(CloudError::conflict(format!("{region} is adopted, and somebody else's"))),
                None => Ok(()),
            };
        }
        // Refused by Google while an instance or a cluster lives in it.
        let name = ground.names.subnet(region);
        self.compute.delete(&ground.place_of(region), "subnetworks", &name).await?;
        if !is_cluster(region)
            || self.subnets(ground).await?.iter().any(|(name, _)| is_cluster(name.as_str()))
        {
            return Ok(());
        }
        self.remove_zones(ground).await
    }

    /// The site's own VPC, once it has neither networks nor a gateway.
    pub(crate) async fn remove_vpc(&self, ground: &Ground) -> Result<()> {
        let (compute, names, global) = (&self.compute, &ground.names, ground.global());
        if !self.subnets(ground).await?.is_empty()
            || self.has_endpoint_networks(ground).await?
            || !self.gateway_parts(ground).await?.is_empty()
        {
            return Ok(());
        }
        let left = compute.list(&global, "firewalls", &format!("{}-", names.prefix())).await?;
        let own = ground.network();
        let ours = left.iter().filter(|one| names.owns(one) && path(&one["network"]) == own);
        let ours: Vec<&str> = ours.filter_map(|firewall| firewall["name"].as_str()).collect();
        try_join_all(ours.iter().map(|name| compute.delete(&global, "firewalls", name))).await?;
        Ok(compute.delete(&global, "networks", &names.network()).await?)
    }

    pub(crate) async fn list_site(&self, ground: &Ground) -> Result<Listing> {
        let (compute, names) = (&self.compute, &ground.names);
        let own = async { Ok(compute.get(&ground.global(), "networks", &names.network()).await?) };
        let (own, adopted) = try_join!(own, self.adopted(ground))?;
        if own.is_none() && adopted.is_empty() {
            return Ok(Listing::default());
        }
        let attached = match adopted.is_empty() {
            true => Vec::new(),
            false => self.attached(ground).await?,
        };
        let prefix = |kind: &str| format!("{}-{kind}", names.prefix());
        let list = |collection: &'static str, prefix: String| async move {
            Ok(compute.list_all(&ground.project, collection, &prefix).await?)
        };
        let markers = async { Ok(compute.list(&ground.global(), "firewalls", &prefix("pm-")).await?) };
        let (all, closed, endpoints) =
            try_join!(self.subnets(ground), self.endpoint_networks(ground), self.endpoints(ground),)?;
        let clusters = self.clusters(ground, &all).await?;
        let mut subnets = self.whole_subnets(ground, all).await?;
        subnets.extend(closed);
        let (instances, routers, gateway, tunnels, markers) = try_join!(
            list("instances", prefix("vm-")),
            list("routers", prefix("nat-")),
            self.gateway(ground),
            list("vpnTunnels", prefix("tun-")),
            markers,
        )?;
        let mine =
            |objects: Vec<Value>| objects.into_iter().filter(|object| names.owns(object)).collect::<Vec<_>>();
        let resource = |instance: &Value| {
            let name = names::read(instance)?.name?;
            crate::resources::state_of(&ground.project, instance).map(|state| (name, state))
        };
        let mut connections: Vec<_> =
            mine(tunnels).iter().filter_map(|tunnel| names::read(tunnel)?.peer).collect();
        connections.sort();
        connections.dedup();
        // Subnets of one VPC reach each other by themselves.
        let regions: Vec<Segment> = subnets.iter().map(|(region, _)| region.clone()).collect();
        let pairs = regions
            .iter()
            .enumerate()
            .flat_map(|(place, a)| regions[place + 1..].iter().map(move |b| (a, b)));
        let inside = pairs.filter_map(|(a, b)| {
            PeeringName::new(network_of(&ground.site, a), network_of(&ground.site, b)).ok()
        });
        let across =
            mine(markers).into_iter().filter_map(|marker| names::read(&marker)?.peering).collect::<Vec<_>>();
        Ok(Listing {
            networks: subnets
                .into_iter()
                .chain(adopted.into_iter().map(|one| (one.name, one.space)))
                .collect(),
            resources: mine(instances)
                .iter()
                .filter_map(resource)
                .chain(endpoints)
                .chain(clusters)
                .chain(attached)
                .collect(),
            peerings: inside.chain(across).collect(),
            nats: mine(routers).iter().filter_map(|router| names::read(router)?.region).collect(),
            gateway: gateway.map(|gateway| gateway.state),
            connections,
        })
    }
}
