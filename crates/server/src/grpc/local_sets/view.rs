//! What one node sees of services, in KPNG's words: computed for changed services only, and told as differences.
//!
//! In: the catalogue, a node, and the services to look at again. Out: [`OpItem`]s in KPNG's order. Holds: for each
//! service a hash of what was last said of it and of its endpoints.
//!
//! Endpoints are selected as our own planes select them, so hints, terminating endpoints and traffic policies hold for
//! backends that know none of these: `scopes` say for which traffic an endpoint is.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ::services::{Catalog, Entry};
use drivers::services::Due;
use model::service::{IngressMode, Protocol, Service, ServiceKind, ServiceName};
use node_services::{EndpointInfo, Node, Store};
use prost::Message as _;
use wire::localv1::{
    self, ClientIpAffinity, EmptyOp, Endpoint, EndpointScopes, IpFilter, IpSet, OpItem, PortMapping,
    PortName, Ref, ServiceIPs, Set, Value, op_item::Op, service::SessionAffinity,
};

/// Under this name endpoints give the port of a service that has no name for it.
const UNNAMED: &str = "unnamed";

/// One reader's state.
pub struct LocalView {
    node: String,
    said: HashMap<ServiceName, Said>,
    fresh: bool,
}

#[derive(Debug, Default)]
struct Said {
    service: u64,
    /// Its addresses from outside: who shares one with it is looked at with it.
    outside: BTreeSet<IpAddr>,
    endpoints: BTreeMap<String, u64>,
}

/// Items by their turn.
#[derive(Default)]
struct Items {
    services: Vec<OpItem>,
    endpoints: Vec<OpItem>,
    endpoints_gone: Vec<OpItem>,
    services_gone: Vec<OpItem>,
}

impl LocalView {
    pub fn new(node: String) -> Self {
        Self { node, said: HashMap::new(), fresh: true }
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    /// The next set of changes, with its end; none if nothing differs. The first always comes, whatever is due.
    pub fn next(&mut self, catalog: &Catalog, due: &Due) -> Vec<OpItem> {
        let everything = self.fresh || due.nodes.contains(&self.node);
        let names: BTreeSet<ServiceName> = if everything {
            catalog.services().map(|entry| entry.name.clone()).chain(self.said.keys().cloned()).collect()
        } else {
            self.with_rivals(&due.services, catalog)
        };
        let mut items = Items::default();
        for name in names {
            match catalog.service(&name) {
                Some(entry) => self.look(&entry, catalog, &mut items),
                None => self.forget(&name, &mut items),
            }
        }
        let Items { services, endpoints, endpoints_gone, services_gone } = items;
        let mut list = [services, endpoints, endpoints_gone, services_gone].concat();
        if self.fresh {
            list.insert(0, item(Op::Reset(EmptyOp {})));
            self.fresh = false;
        }
        if !list.is_empty() {
            list.push(item(Op::Sync(EmptyOp {})));
        }
        list
    }

    /// Whoever shares an address with one of them, or did when it was last looked at, may win or lose it.
    fn with_rivals(&self, due: &BTreeSet<ServiceName>, catalog: &Catalog) -> BTreeSet<ServiceName> {
        let mut names = due.clone();
        for name in due {
            let before = self.said.get(name).into_iter().flat_map(|said| said.outside.iter().copied());
            let after = catalog.service(name).into_iter().flat_map(|entry| entry.service.outside());
            let rivals = before.chain(after).flat_map(|address| catalog.having(address));
            names.extend(rivals.map(|entry| entry.name.clone()));
        }
        names
    }

    fn look(&mut self, entry: &Entry<'_>, catalog: &Catalog, items: &mut Items) {
        let (service, endpoints) = seen(entry, &self.node, catalog);
        let said = self.said.entry(entry.name.clone()).or_default();
        said.outside = entry.service.outside().collect();
        let bytes = service.encode_to_vec();
        if said.service != hash(&bytes) {
            said.service = hash(&bytes);
            items.services.push(set(Set::ServicesSet, entry.name.to_string(), bytes));
        }
        let gone: Vec<_> =
            said.endpoints.keys().filter(|path| !endpoints.contains_key(*path)).cloned().collect();
        for path in gone {
            said.endpoints.remove(&path);
            items.endpoints_gone.push(delete(Set::EndpointsSet, path));
        }
        for (path, endpoint) in endpoints {
            let bytes = endpoint.encode_to_vec();
            if said.endpoints.insert(path.clone(), hash(&bytes)) != Some(hash(&bytes)) {
                items.endpoints.push(set(Set::EndpointsSet, path, bytes));
            }
        }
    }

    fn forget(&mut self, name: &ServiceName, items: &mut Items) {
        let Some(said) = self.said.remove(name) else { return };
        items.endpoints_gone.extend(said.endpoints.into_keys().map(|path| delete(Set::EndpointsSet, path)));
        items.services_gone.push(delete(Set::ServicesSet, name.to_string()));
    }
}

/// A service and its endpoints as one node sees them.
fn seen(entry: &Entry<'_>, node: &str, catalog: &Catalog) -> (localv1::Service, BTreeMap<String, Endpoint>) {
    let zone = catalog.node(node).and_then(|facts| facts.zone.clone());
    // Of whatever address: without any there are no node ports, and so no traffic from outside.
    let addresses = vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let mut store = Store::new(Node { name: node.to_owned(), zone, addresses, ..Node::default() });
    store.set_service(entry.name.clone(), (**entry.service).clone());
    for (key, slice) in entry.slices() {
        store.set_slice(key, (**slice).clone());
    }
    store.patches();
    let mut pools: HashMap<IpAddr, Vec<EndpointInfo>> = HashMap::new();
    for (_, _, endpoints) in store.ports() {
        for one in endpoints.filter(|one| one.in_cluster_pool || one.in_local_pool) {
            pools.entry(one.address).or_default().push(*one);
        }
    }
    let mut endpoints = BTreeMap::new();
    let mut numbers: BTreeMap<(String, Protocol), BTreeSet<u16>> = BTreeMap::new();
    for (key, slice) in entry.slices() {
        for port in &slice.ports {
            let name = port.name.clone().unwrap_or_default();
            numbers.entry((name, port.protocol)).or_default().extend(port.port);
        }
        for address in slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses) {
            let Some(infos) = pools.get(address) else { continue };
            let path = format!("{}/{:016x}", entry.name, hash(format!("{key} {address}").as_bytes()));
            let endpoint = endpoint(entry.service, *address, infos, slice);
            // One that only the node's own traffic may use has no scope in this protocol, and is not told.
            if endpoint.scopes.is_some_and(|scopes| scopes.internal || scopes.external) {
                endpoints.insert(path, endpoint);
            }
        }
    }
    (service(entry, &numbers, &lost(entry, catalog)), endpoints)
}

/// Addresses from outside that another service has with one of the same ports and comes first by name, as on nodes. This
/// protocol has addresses for all ports of a service together: one is told of one service.
fn lost(entry: &Entry<'_>, catalog: &Catalog) -> BTreeSet<IpAddr> {
    let ports = |service: &Service| -> BTreeSet<(u16, Protocol)> {
        service.ports.iter().map(|port| (port.port, port.protocol)).collect()
    };
    let own = ports(entry.service);
    let has_rival = |address: &IpAddr| {
        let mut earlier = catalog.having(*address).take_while(|one| one.name < entry.name);
        earlier.any(|one| !own.is_disjoint(&ports(one.service)))
    };
    entry.service.outside().filter(has_rival).collect()
}

fn endpoint(
    service: &Service,
    address: IpAddr,
    infos: &[EndpointInfo],
    slice: &model::service::Slice,
) -> Endpoint {
    let any =
        |local: bool| infos.iter().any(|one| if local { one.in_local_pool } else { one.in_cluster_pool });
    let mut overrides = Vec::new();
    for port in &slice.ports {
        let number = i32::from(port.port.unwrap_or_default());
        let name = port.name.clone().unwrap_or_default();
        if name.is_empty() {
            overrides.push(PortName { name: UNNAMED.to_owned(), port: number });
        }
        overrides.push(PortName { name, port: number });
    }
    Endpoint {
        hostname: String::new(),
        ips: Some(ip_set([address])),
        local: infos.iter().any(|one| one.is_local),
        port_overrides: overrides,
        scopes: Some(EndpointScopes {
            internal: any(service.internal_local),
            external: any(service.external_local),
        }),
    }
}

fn service(
    entry: &Entry<'_>,
    numbers: &BTreeMap<(String, Protocol), BTreeSet<u16>>,
    lost: &BTreeSet<IpAddr>,
) -> localv1::Service {
    let service: &Service = entry.service;
    let kind = match service.kind {
        ServiceKind::ClusterIp => "ClusterIP",
        ServiceKind::NodePort => "NodePort",
        ServiceKind::LoadBalancer => "LoadBalancer",
        ServiceKind::ExternalName => "ExternalName",
    };
    let balancers = service.load_balancers.iter().filter(|one| one.mode == IngressMode::Vip);
    let balancers: Vec<_> =
        balancers.map(|one| one.address).filter(|address| !lost.contains(address)).collect();
    let external = service.external_ips.iter().copied().filter(|address| !lost.contains(address));
    let ports = service.ports.iter().map(|port| {
        let known = numbers.get(&(port.name.to_string(), port.protocol));
        let one = known.filter(|known| known.len() == 1).and_then(BTreeSet::first);
        PortMapping {
            name: port.name.to_string(),
            protocol: match port.protocol {
                Protocol::Tcp => localv1::Protocol::Tcp.into(),
                Protocol::Udp => localv1::Protocol::Udp.into(),
                Protocol::Sctp => localv1::Protocol::Sctp.into(),
            },
            port: port.port.into(),
            node_port: port.node_port.into(),
            // 0 where it differs between endpoints: then they are asked.
            target_port: one.copied().unwrap_or_default().into(),
            target_port_name: if port.name.is_empty() { UNNAMED.to_owned() } else { String::new() },
        }
    });
    localv1::Service {
        namespace: entry.name.namespace.to_string(),
        name: entry.name.name.to_string(),
        r#type: kind.to_owned(),
        ips: Some(ServiceIPs {
            cluster_ips: Some(ip_set(service.cluster_ips.iter().copied())),
            external_ips: Some(ip_set(external)),
            headless: false,
            load_balancer_ips: Some(ip_set(balancers.iter().copied())),
        }),
        map_ip: false,
        ports: ports.collect(),
        external_traffic_to_local: service.external_local,
        labels: Default::default(),
        annotations: Default::default(),
        ip_filters: filters(service, &balancers),
        session_affinity: service.affinity.map(|seconds| {
            let timeout_seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
            SessionAffinity::ClientIp(ClientIpAffinity { timeout_seconds })
        }),
        internal_traffic_to_local: service.internal_local,
        health_check_node_port: service.health_check_node_port.into(),
    }
}

/// One per family: a range says nothing about addresses of the other.
fn filters(service: &Service, balancers: &[IpAddr]) -> Vec<IpFilter> {
    let families = [false, true].into_iter().filter_map(|ipv6| {
        let ranges = service.source_ranges.iter().filter(|range| range.addr().is_ipv6() == ipv6);
        let ranges: Vec<_> = ranges.map(ToString::to_string).collect();
        let targets = ip_set(balancers.iter().copied().filter(|address| address.is_ipv6() == ipv6));
        let nothing = ranges.is_empty() || targets.v4.is_empty() && targets.v6.is_empty();
        (!nothing).then_some(IpFilter { target_ips: Some(targets), source_ranges: ranges })
    });
    families.collect()
}

fn ip_set(addresses: impl IntoIterator<Item = IpAddr>) -> IpSet {
    let sorted: BTreeSet<_> = addresses.into_iter().collect();
    let of = |ipv6| sorted.iter().filter(|one| one.is_ipv6() == ipv6).map(ToString::to_string).collect();
    IpSet { v4: of(false), v6: of(true) }
}

fn set(set: Set, path: String, bytes: Vec<u8>) -> OpItem {
    item(Op::Set(Value { r#ref: Some(Ref { set: set.into(), path }), bytes }))
}

fn delete(set: Set, path: String) -> OpItem {
    item(Op::Delete(Ref { set: set.into(), path }))
}

fn item(op: Op) -> OpItem {
    OpItem { op: Some(op) }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
