//! What the fake cloud consists of.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::{IpNet, Ipv4Net};
use model::{
    ConnectionSpec, ConnectionStatus, Direction, EntryName, GatewayState, NetworkName, PeeringName,
    PermitEntry, Ports, Protocol, ResourceName, ResourceState, Segment, Site, Traffic,
};

use super::{attach::Machine, faults::Dice};
use crate::{CloudError, Listing, ResourceSpec, Result, cluster_network, list_after};

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) networks: BTreeMap<NetworkName, Ipv4Net>,
    pub(super) resources: BTreeMap<ResourceName, Resource>,
    pub(super) peerings: BTreeSet<PeeringName>,
    pub(super) nats: BTreeSet<NetworkName>,
    pub(super) gateways: BTreeMap<Site, GatewayState>,
    pub(super) connections: BTreeMap<(Site, Site), ConnectionSpec>,
    /// What somebody else made, by id.
    pub(super) machines: BTreeMap<String, Machine>,
    /// Those of the networks that are somebody else's.
    pub(super) adopted: BTreeSet<NetworkName>,
    /// Gateways made so far; numbers their addresses.
    made: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) network: NetworkName,
    /// A block, if it is a cluster.
    pub(super) address: Ipv4Net,
    pub(super) description: String,
    pub(super) permit: BTreeMap<EntryName, PermitEntry>,
    /// What it is, if it was attached.
    pub(super) machine: Option<String>,
}

pub(super) fn full(site: &Site, name: &Segment) -> ResourceName {
    ResourceName { namespace: site.namespace.clone(), cloud: site.cloud.clone(), name: name.clone() }
}

pub(super) fn network(site: &Site, region: &Segment) -> NetworkName {
    NetworkName { site: site.clone(), region: region.clone() }
}

pub(super) fn state(name: &ResourceName, resource: &Resource) -> ResourceState {
    ResourceState {
        uri: format!("fake/{name}"),
        address: IpNet::V4(resource.address).into(),
        region: resource.network.region.clone(),
    }
}

pub(super) fn overlaps(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

impl State {
    pub(super) fn is_empty(&self) -> bool {
        self.networks.is_empty()
            && self.resources.is_empty()
            && self.peerings.is_empty()
            && self.nats.is_empty()
            && self.gateways.is_empty()
            && self.connections.is_empty()
    }

    pub(super) fn list(&self, site: &Site) -> Listing {
        let of = |name: &NetworkName| name.site == *site;
        Listing {
            networks: self
                .networks
                .iter()
                .filter(|(name, _)| of(name))
                .map(|(n, s)| (n.region.clone(), *s))
                .collect(),
            resources: self
                .resources
                .iter()
                .filter(|(name, _)| Site::of(name) == *site)
                .map(|(name, resource)| (name.name.clone(), state(name, resource)))
                .collect(),
            peerings: self
                .peerings
                .iter()
                .filter(|peering| peering.ends().into_iter().any(of))
                .cloned()
                .collect(),
            nats: self.nats.iter().filter(|name| of(name)).map(|name| name.region.clone()).collect(),
            gateway: self.gateways.get(site).cloned(),
            connections: self
                .connections
                .keys()
                .filter(|(at, _)| at == site)
                .map(|(_, peer)| peer.clone())
                .collect(),
        }
    }

    pub(super) fn resource(&self, name: &ResourceName) -> Option<(ResourceState, Vec<PermitEntry>)> {
        self.resources.get(name).map(|found| (state(name, found), found.permit.values().cloned().collect()))
    }

    pub(super) fn ensure_network(&mut self, site: &Site, region: &Segment, space: Ipv4Net) -> Result {
        let name = network(site, region);
        match self.networks.get(&name) {
            Some(there) if *there == space => return Ok(()),
            Some(there) => return Err(CloudError::conflict(format!("network {name} is there with {there}"))),
            None => {}
        }
        if self.networks.values().any(|other| overlaps(*other, space)) {
            return Err(CloudError::conflict(format!("{space} overlaps another network")));
        }
        self.networks.insert(name, space);
        Ok(())
    }

    pub(super) fn delete_network(&mut self, site: &Site, region: &Segment) -> Result {
        let name = network(site, region);
        self.is_free(&name)?;
        if self.adopted.contains(&name) {
            return Err(CloudError::conflict(format!("network {name} is somebody else's")));
        }
        self.networks.remove(&name);
        Ok(())
    }

    /// Refuses if anything needs a network.
    pub(super) fn is_free(&self, name: &NetworkName) -> Result {
        let in_use = self.resources.values().any(|resource| resource.network == *name)
            || self.nats.contains(name)
            || self.peerings.iter().any(|peering| peering.ends().contains(&name));
        if in_use { Err(CloudError::conflict(format!("network {name} is in use"))) } else { Ok(()) }
    }

    pub(super) fn create_resource(&mut self, site: &Site, spec: &ResourceSpec) -> Result<ResourceState> {
        let name = full(site, &spec.name);
        if let Some(there) = self.resources.get(&name) {
            return match there.description == spec.description {
                true => Ok(state(&name, there)),
                false => {
                    Err(CloudError::conflict(format!("resource {name} is there with another description")))
                }
            };
        }
        let network = network(site, &spec.region);
        let space = self.networks.get(&network);
        let space = space.ok_or_else(|| CloudError::conflict(format!("there is no network {network}")))?;
        let address = match cluster_network(&spec.region) {
            // A cluster has its network for itself.
            Some(_) => *space,
            None => {
                let used: BTreeSet<Ipv4Net> =
                    self.resources.values().map(|resource| resource.address).collect();
                let address = space.hosts().map(Ipv4Net::from).find(|ip| !used.contains(ip));
                address.ok_or_else(|| CloudError::conflict(format!("network {network} is full")))?
            }
        };
        let description = spec.description.clone();
        let resource = Resource { network, address, description, permit: BTreeMap::new(), machine: None };
        let made = state(&name, &resource);
        self.resources.insert(name, resource);
        Ok(made)
    }

    pub(super) fn delete_resource(&mut self, site: &Site, name: &Segment) -> Result {
        self.resources.remove(&full(site, name));
        Ok(())
    }

    fn find(&self, site: &Site, uri: &str) -> Result<ResourceName> {
        let name: Option<ResourceName> = uri.strip_prefix("fake/").and_then(|name| name.parse().ok());
        // A URI of another namespace is nothing this site knows.
        let name = name.filter(|name| Site::of(name) == *site && self.resources.contains_key(name));
        name.ok_or_else(|| CloudError::not_found(format!("there is no resource {uri} in {site}")))
    }

    pub(super) fn permit(&self, site: &Site, uri: &str) -> Result<&BTreeMap<EntryName, PermitEntry>> {
        let name = self.find(site, uri)?;
        Ok(&self.resources[&name].permit)
    }

    fn permit_mut(&mut self, site: &Site, uri: &str) -> Result<&mut BTreeMap<EntryName, PermitEntry>> {
        let name = self.find(site, uri)?;
        let gone = || CloudError::not_found(format!("there is no resource {uri}"));
        self.resources.get_mut(&name).map(|resource| &mut resource.permit).ok_or_else(gone)
    }

    /// All of it, or half of what would come and half of what would go.
    pub(super) fn put_list(
        &mut self,
        site: &Site,
        uri: &str,
        before: &[PermitEntry],
        wanted: &[PermitEntry],
        half: bool,
    ) -> Result {
        let permit = self.permit_mut(site, uri)?;
        let there = permit.clone();
        let list: BTreeMap<_, _> = list_after(there.values().cloned(), before, wanted)
            .into_iter()
            .map(|entry| (entry.name.clone(), entry))
            .collect();
        let done = |count: usize| if half { count / 2 } else { count };
        let come: Vec<_> = list.iter().filter(|(name, entry)| there.get(*name) != Some(*entry)).collect();
        let go: Vec<_> = there.keys().filter(|name| !list.contains_key(*name)).collect();
        for (name, entry) in &come[..done(come.len())] {
            permit.insert((*name).clone(), (*entry).clone());
        }
        for name in &go[..done(go.len())] {
            permit.remove(*name);
        }
        Ok(())
    }

    pub(super) fn ensure_peering(&mut self, name: &PeeringName) -> Result {
        if let Some(missing) = name.ends().into_iter().find(|end| !self.networks.contains_key(*end)) {
            return Err(CloudError::conflict(format!("there is no network {missing}")));
        }
        self.peerings.insert(name.clone());
        Ok(())
    }

    pub(super) fn delete_peering(&mut self, name: &PeeringName) -> Result {
        self.peerings.remove(name);
        Ok(())
    }

    pub(super) fn ensure_nat(&mut self, site: &Site, region: &Segment) -> Result {
        let name = network(site, region);
        if !self.networks.contains_key(&name) {
            return Err(CloudError::conflict(format!("there is no network {name}")));
        }
        self.nats.insert(name);
        Ok(())
    }

    pub(super) fn delete_nat(&mut self, site: &Site, region: &Segment) -> Result {
        self.nats.remove(&network(site, region));
        Ok(())
    }

    pub(super) fn create_gateway(&mut self, site: &Site, asn: u32, cloud: &Segment) -> GatewayState {
        if let Some(there) = self.gateways.get(site) {
            return there.clone();
        }
        self.made = self.made.wrapping_add(1);
        let third = cloud.as_str().bytes().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
        let address = |tunnel| IpAddr::from([203, third, self.made, tunnel]);
        let gateway = GatewayState { asn, addresses: vec![address(1), address(2)] };
        self.gateways.insert(site.clone(), gateway.clone());
        gateway
    }

    pub(super) fn gateway(&self, site: &Site) -> Result<&GatewayState> {
        self.gateways.get(site).ok_or_else(|| CloudError::conflict(format!("site {site} has no gateway")))
    }

    pub(super) fn delete_gateway(&mut self, site: &Site) -> Result {
        if self.connections.keys().any(|(at, _)| at == site) {
            return Err(CloudError::conflict(format!("the gateway of {site} has connections")));
        }
        self.gateways.remove(site);
        Ok(())
    }

    pub(super) fn connect(&mut self, site: &Site, spec: &ConnectionSpec) -> Result {
        self.gateway(site)?;
        self.connections.insert((site.clone(), spec.peer.clone()), spec.clone());
        Ok(())
    }

    pub(super) fn disconnect(&mut self, site: &Site, peer: &Site) -> Result {
        self.connections.remove(&(site.clone(), peer.clone()));
        Ok(())
    }

    pub(super) fn connection_status(&self, site: &Site, peer: &Site) -> Result<ConnectionStatus> {
        let spec = self.connections.get(&(site.clone(), peer.clone()));
        let spec =
            spec.ok_or_else(|| CloudError::not_found(format!("{site} has no connection to {peer}")))?;
        let tunnels = u32::try_from(spec.local_bgp.len()).unwrap_or(u32::MAX);
        Ok(ConnectionStatus {
            tunnels_up: tunnels,
            tunnels,
            bgp_established: tunnels,
            routes: spec.peer_spaces.clone(),
            bytes_in: 0,
            bytes_out: 0,
        })
    }

    /// Takes an entry away, opens a resource to everybody, or removes a peering or a NAT.
    pub(super) fn drift(&mut self, dice: &mut Dice) -> Option<String> {
        let count = u32::try_from(self.resources.len()).unwrap_or(u32::MAX);
        let (name, resource) = self.resources.iter_mut().nth(dice.below(count) as usize)?;
        match dice.below(4) {
            0 => {
                let (entry, _) = resource.permit.pop_first()?;
                Some(format!("{name} lost {entry}"))
            }
            1 => {
                let traffic = Traffic::new(Direction::Inbound, Protocol::Any, Ports::Any, Ports::Any).ok()?;
                let all = ["0.0.0.0/0".parse().ok()?].into();
                let entry = PermitEntry::new(EntryName::reported("oops"), traffic, all, BTreeSet::new())?;
                resource.permit.insert(entry.name.clone(), entry);
                Some(format!("{name} was opened to everybody"))
            }
            2 => self.peerings.pop_first().map(|peering| format!("{peering} is gone")),
            _ => self
                .connections
                .pop_first()
                .map(|((at, peer), _)| format!("{at} lost its connection to {peer}")),
        }
    }
}
