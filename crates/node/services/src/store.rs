//! The last known state, and what differs since the planes were last told.
//!
//! Costs O(change): only services that were touched, or that win or lose a frontend to one that was, are looked at
//! again. A value that equals the one before touches nothing, so a full state may be sent as often as one likes.

mod claims;
mod interner;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use ipnet::IpNet;

use crate::{
    EndpointInfo, EndpointPatch, Frontend, Judged, Node, Operation, PortId, Service, ServiceEndpointsPatch,
    ServiceName, ServicePatch, ServicePort, ServicePortInfo, Slice,
    known::{KnownSlice, Whereabouts},
    select::{Wanted, judge, select},
};
use claims::{Claim, Claims};
use interner::Interner;

pub use claims::Conflict;

#[derive(Clone, Debug, Default)]
pub struct Store {
    node: Node,
    services: BTreeMap<ServiceName, Entry>,
    /// Which service each slice belongs to.
    slices: HashMap<Arc<str>, ServiceName>,
    claims: Claims,
    dirty: BTreeSet<ServiceName>,
    /// Of namespaces and ports.
    names: Interner<str>,
    whereabouts: Interner<Whereabouts>,
    /// Ports that a local policy leaves unanswered on this node, although somebody answers elsewhere: from within, and
    /// from outside.
    unanswered: (usize, usize),
}

#[derive(Clone, Debug, Default)]
struct Entry {
    service: Option<Service>,
    // A tree's node is a kilobyte and most services have one slice and one port: sorted lists, without room to grow.
    slices: Vec<(Arc<str>, KnownSlice)>,
    claims: Box<[Claim]>,
    /// As the planes were last told.
    ports: Box<[(PortId, PortState)]>,
}

#[derive(Clone, Debug)]
struct PortState {
    info: Arc<ServicePortInfo>,
    /// Sorted by address and port.
    endpoints: Box<[EndpointInfo]>,
}

/// A port on which the node says whether it has endpoints of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    pub service: ServiceName,
    pub node_port: u16,
    /// Addresses of ready endpoints on this node.
    pub local_endpoints: usize,
}

impl Store {
    pub fn new(node: Node) -> Self {
        Self { node, ..Self::default() }
    }

    /// A changed node is a reason to look at every service again.
    pub fn set_node(&mut self, node: Node) -> bool {
        let changed = self.node != node;
        if changed {
            self.node = node;
            self.dirty.extend(self.services.keys().cloned());
        }
        changed
    }

    pub fn set_service(&mut self, mut name: ServiceName, mut service: Service) -> bool {
        name.namespace = self.names.share(name.namespace);
        for port in &mut service.ports {
            port.name = self.names.share(Arc::clone(&port.name));
        }
        let entry = self.services.entry(name.clone()).or_default();
        let changed = entry.service.as_ref() != Some(&service);
        if changed {
            entry.service = Some(service);
            self.dirty.insert(name);
        }
        changed
    }

    pub fn delete_service(&mut self, name: &ServiceName) -> bool {
        let gone = self.services.get_mut(name).is_some_and(|entry| entry.service.take().is_some());
        if gone {
            self.dirty.insert(name.clone());
        }
        gone
    }

    /// `key` names the slice uniquely, whichever service it belongs to at the moment.
    pub fn set_slice(&mut self, key: &str, slice: Slice) -> bool {
        if self.slices.get(key).is_some_and(|owner| *owner != slice.service) {
            self.delete_slice(key);
        }
        let place = self.services.entry(slice.service.clone());
        let owner = place.key().clone();
        let entry = place.or_default();
        let (names, whereabouts) = (&mut self.names, &mut self.whereabouts);
        let slice = KnownSlice::new(slice, |name| names.share(name), |place| whereabouts.share(place));
        match entry.slices.binary_search_by(|(known, _)| (**known).cmp(key)) {
            Ok(index) if entry.slices[index].1 == slice => return false,
            Ok(index) => entry.slices[index].1 = slice,
            Err(index) => {
                let key: Arc<str> = key.into();
                self.slices.insert(Arc::clone(&key), owner.clone());
                entry.slices.reserve_exact(1);
                entry.slices.insert(index, (key, slice));
            }
        }
        self.dirty.insert(owner);
        true
    }

    pub fn delete_slice(&mut self, key: &str) -> bool {
        let Some(owner) = self.slices.remove(key) else { return false };
        if let Some(entry) = self.services.get_mut(&owner) {
            entry.slices.retain(|(known, _)| **known != *key);
        }
        self.dirty.insert(owner);
        true
    }

    /// Takes a full state: what it does not list is gone.
    pub fn replace(
        &mut self,
        services: impl IntoIterator<Item = (ServiceName, Service)>,
        slices: impl IntoIterator<Item = (String, Slice)>,
    ) {
        let mut named = BTreeSet::new();
        for (name, service) in services {
            self.set_service(name.clone(), service);
            named.insert(name);
        }
        let mut keys = HashSet::new();
        for (key, slice) in slices {
            self.set_slice(&key, slice);
            keys.insert(key);
        }
        let gone: Vec<_> = self.services.keys().filter(|name| !named.contains(*name)).cloned().collect();
        for name in &gone {
            self.delete_service(name);
        }
        let gone: Vec<_> = self.slices.keys().filter(|key| !keys.contains(&***key)).cloned().collect();
        for key in &gone {
            self.delete_slice(key);
        }
    }

    /// The patches that lead from the state of the last call to the present one, in the order of their ids.
    pub fn patches(&mut self) -> Vec<ServiceEndpointsPatch> {
        let mut affected = std::mem::take(&mut self.dirty);
        for name in affected.clone() {
            self.settle(&name, &mut affected);
        }
        let mut patches = Vec::new();
        for name in affected {
            self.prepare(&name, &mut patches);
        }
        patches
    }

    /// Patches that lead to the present state from nothing: for a plane that starts anew. Changes that
    /// [`Self::patches`] has yet to tell are not in it.
    pub fn all_as_new(&self) -> impl Iterator<Item = ServiceEndpointsPatch> {
        let ports = self.services.values().flat_map(|entry| &entry.ports);
        ports.map(|(id, state)| patch(None, Some(state), id.clone()))
    }

    /// The services that were set.
    pub fn services(&self) -> impl Iterator<Item = &ServiceName> {
        self.services.iter().filter(|(_, entry)| entry.service.is_some()).map(|(name, _)| name)
    }

    /// The slices that were set, by their keys.
    pub fn slices(&self) -> impl Iterator<Item = &str> {
        self.slices.keys().map(|key| &**key)
    }

    /// The ports whose service and endpoints the store knows, as the planes were last told.
    pub fn ports(
        &self,
    ) -> impl Iterator<Item = (&PortId, &ServicePortInfo, impl Iterator<Item = &EndpointInfo>)> {
        let ports = self.services.values().flat_map(|entry| &entry.ports);
        ports.map(|(id, state)| (id, &*state.info, state.endpoints.iter()))
    }

    /// One of [`Self::ports`].
    pub fn port(&self, id: &PortId) -> Option<(&ServicePortInfo, impl Iterator<Item = &EndpointInfo>)> {
        let state = find(&self.services.get(&id.service)?.ports, id)?;
        Some((&*state.info, state.endpoints.iter()))
    }

    /// Why each endpoint of a port is used or not.
    pub fn judge(&self, id: &PortId) -> Vec<Judged> {
        let Some(entry) = self.services.get(&id.service) else { return Vec::new() };
        let Some(service) = &entry.service else { return Vec::new() };
        judge(entry.wanted(id, service), entry.slices.iter().map(|(_, slice)| slice), &self.node)
    }

    /// Services that do not get a frontend, because another has it.
    pub fn conflicts(&self) -> impl Iterator<Item = Conflict> + '_ {
        self.claims.conflicts()
    }

    /// Ports that a local policy leaves unanswered on this node, although somebody answers elsewhere: from within, and
    /// from outside.
    pub fn unanswered(&self) -> (usize, usize) {
        self.unanswered
    }

    pub fn health_checks(&self) -> Vec<HealthCheck> {
        let checked = self.services.iter().filter_map(|(name, entry)| {
            let service =
                entry.service.as_ref().filter(|service| service.is_ours() && service.external_local)?;
            (service.health_check_node_port != 0).then_some((name, entry, service.health_check_node_port))
        });
        checked
            .map(|(name, entry, node_port)| HealthCheck {
                service: name.clone(),
                node_port,
                local_endpoints: entry.ready_here(&self.node.name),
            })
            .collect()
    }

    /// Updates the claims of a service; whoever wins or loses a frontend by it is affected too.
    fn settle(&mut self, name: &ServiceName, affected: &mut BTreeSet<ServiceName>) {
        let Some(entry) = self.services.get_mut(name) else { return };
        let wanted: Box<[Claim]> =
            entry.service.iter().flat_map(|service| claims::wanted(name, service, &self.node)).collect();
        if entry.claims != wanted {
            affected.extend(self.claims.exchange(&entry.claims, &wanted));
            entry.claims = wanted;
        }
    }

    fn prepare(&mut self, name: &ServiceName, patches: &mut Vec<ServiceEndpointsPatch>) {
        let Some(entry) = self.services.get(name) else { return };
        let after = self.compute(name, entry);
        let Some(entry) = self.services.get_mut(name) else { return };
        let before = std::mem::replace(&mut entry.ports, after);
        for (_, port) in &before {
            self.unanswered.0 -= usize::from(port.is_unanswered(false));
            self.unanswered.1 -= usize::from(port.is_unanswered(true));
        }
        for (_, port) in &entry.ports {
            self.unanswered.0 += usize::from(port.is_unanswered(false));
            self.unanswered.1 += usize::from(port.is_unanswered(true));
        }
        let ids: BTreeSet<_> = before.iter().chain(&entry.ports).map(|(id, _)| id.clone()).collect();
        for id in ids {
            let patch = patch(find(&before, &id), find(&entry.ports, &id), id);
            patches.extend((!patch.is_empty()).then_some(patch));
        }
        if entry.service.is_none() && entry.slices.is_empty() {
            self.services.remove(name);
        }
    }

    fn compute(&self, name: &ServiceName, entry: &Entry) -> Box<[(PortId, PortState)]> {
        let mut ports = BTreeMap::new();
        let Some(service) = entry.service.as_ref().filter(|service| service.is_ours()) else {
            return Box::default();
        };
        for ipv6 in [false, true] {
            if !service.cluster_ips.iter().any(|address| address.is_ipv6() == ipv6) {
                continue;
            }
            for port in &service.ports {
                let id = port_id(name, port, ipv6);
                ports.insert(id.clone(), self.compute_port(id, service, entry));
            }
        }
        ports.into_iter().collect()
    }

    fn compute_port(&self, id: PortId, service: &Service, entry: &Entry) -> PortState {
        let mine = entry.claims.iter().filter(|claim| claim.owner == id && self.claims.is_won(claim));
        let mut frontends: Vec<_> = mine
            .map(|claim| Frontend { address: claim.address, port: claim.port, kind: claim.kind })
            .collect();
        frontends.sort_unstable();
        frontends.shrink_to_fit();
        let guards = entry.claims.iter().filter(|claim| claim.owner == id && self.claims.is_guard(claim));
        let mut guarded: Vec<_> = guards.map(|claim| (claim.address, claim.port)).collect();
        guarded.sort_unstable();
        let wanted = entry.wanted(&id, service);
        let selection = select(wanted, entry.slices.iter().map(|(_, slice)| slice), &self.node);
        let info = ServicePortInfo {
            protocol: id.protocol,
            frontends,
            source_ranges: source_ranges(service, id.ipv6),
            guarded,
            affinity: service.affinity,
            internal_local: service.internal_local,
            external_local: service.external_local,
            scheduler: service.scheduler.as_deref().map(Into::into),
            has_endpoints: selection.has_endpoints,
        };
        PortState { info: Arc::new(info), endpoints: selection.endpoints }
    }
}

impl PortState {
    fn is_unanswered(&self, external: bool) -> bool {
        let local = if external { self.info.external_local } else { self.info.internal_local };
        local
            && self.info.has_endpoints
            && self.info.frontends.iter().any(|frontend| frontend.kind.is_external() == external)
            && !self.endpoints.iter().any(|endpoint| endpoint.in_local_pool)
    }
}

impl Entry {
    fn wanted<'a>(&self, id: &'a PortId, service: &Service) -> Wanted<'a> {
        let external = self.claims.iter().any(|claim| claim.owner == *id && claim.kind.is_external());
        Wanted {
            port_name: &id.port_name,
            protocol: id.protocol,
            ipv6: id.ipv6,
            uses_cluster: !service.internal_local || external,
            uses_local: service.internal_local || service.external_local && external,
        }
    }

    fn ready_here(&self, node: &str) -> usize {
        let endpoints = self.slices.iter().flat_map(|(_, slice)| &slice.endpoints);
        let ready = endpoints.filter(|one| one.ready && one.is_on(node));
        ready.map(|one| one.address).collect::<BTreeSet<_>>().len()
    }
}

fn find<'a>(ports: &'a [(PortId, PortState)], id: &PortId) -> Option<&'a PortState> {
    ports.binary_search_by(|(known, _)| known.cmp(id)).ok().map(|index| &ports[index].1)
}

fn port_id(name: &ServiceName, port: &ServicePort, ipv6: bool) -> PortId {
    PortId { service: name.clone(), port_name: port.name.clone(), protocol: port.protocol, ipv6 }
}

/// A range that holds the whole family restricts nobody.
fn source_ranges(service: &Service, ipv6: bool) -> Vec<IpNet> {
    let mut ranges: Vec<_> = service
        .source_ranges
        .iter()
        .map(IpNet::trunc)
        .filter(|range| range.addr().is_ipv6() == ipv6)
        .collect();
    if ranges.iter().any(|range| range.prefix_len() == 0) {
        return Vec::new();
    }
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

fn patch(before: Option<&PortState>, after: Option<&PortState>, id: PortId) -> ServiceEndpointsPatch {
    let old = before.map_or(&[][..], |state| &state.endpoints);
    let new = after.map_or(&[][..], |state| &state.endpoints);
    let info = |state: Option<&PortState>| state.map(|state| state.info.clone());
    let service = ServicePatch::between(info(before), info(after));
    if old.is_empty() {
        let create = |endpoint: &EndpointInfo| EndpointPatch { op: Operation::Create, endpoint: *endpoint };
        return ServiceEndpointsPatch { id, service, endpoints: new.iter().map(create).collect() };
    }
    let known = |list: &[EndpointInfo], endpoint: &EndpointInfo| {
        let place = list.binary_search_by_key(&endpoint.socket(), |one| one.socket());
        place.ok().map(|index| list[index])
    };
    let changed = new.iter().filter_map(|endpoint| match known(old, endpoint) {
        None => Some(EndpointPatch { op: Operation::Create, endpoint: *endpoint }),
        Some(same) if same == *endpoint => None,
        Some(_) => Some(EndpointPatch { op: Operation::Update, endpoint: *endpoint }),
    });
    let mut endpoints: Vec<_> = changed.collect();
    let gone = old.iter().filter(|endpoint| known(new, endpoint).is_none());
    endpoints.extend(gone.map(|endpoint| EndpointPatch { op: Operation::Delete, endpoint: *endpoint }));
    endpoints.sort_unstable_by_key(|patch| patch.endpoint.socket());
    ServiceEndpointsPatch { id, service, endpoints }
}

#[cfg(test)]
mod tests;
