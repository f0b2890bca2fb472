//! The nftables table beside IPVS: whose servers are ours, who may use them, whose source is hidden.
//!
//! ```text
//!   prerouting, output   firewall: not from an allowed source ─► drop;  silent ─► drop;  hidden ─► mark
//!   forward, output      to the services' prefixes, where no service is ─► drop
//!   input                to a bound address, not to one of our servers ─► reject (ports of the host stay hidden)
//!   postrouting          marked, or to itself ─► masquerade
//! ```
//!
//! An element of `servers` is added before its server and removed after it: what is in IPVS and not in here is not
//! ours.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use node_nft::{
    Chain, ChainKind, CurrentTable, Element, Family, Hook, Key, Policy, Ranges, Reg, Reject, Rule, Set, Table,
};

use super::ServerId;
use crate::{
    EndpointInfo, Frontend, FrontendKind, PortId, Protocol, ServicePortInfo, Store,
    nftables::{
        elements::guards,
        layout::{ALLOWED_SOURCES, CLUSTER_IPS, FIREWALL, HAIRPIN, Layout, PODS, SERVICE_PREFIXES},
    },
};

pub const TABLE: &str = "trestle-ipvs";
const SERVERS: &str = "servers";
const HIDDEN: &str = "hidden";
const BOUND: &str = "bound";
/// A local policy keeps these from being answered here, and somebody answers elsewhere.
const SILENT: &str = "silent";

/// The table as the store wants it. `also` are servers that are still in the kernel though nobody wants them.
pub fn table(
    ipv6: bool,
    config: &crate::nftables::Config,
    store: &Store,
    also: &BTreeSet<ServerId>,
) -> Table {
    let layout = Layout { ipv6 };
    let mut table = scaffold(layout, config);
    let mut put = |set: &str, key: Key, element: Element| {
        if let Some(set) = table.sets.get_mut(set) {
            set.insert(key, element);
        }
    };
    let key = |id: &ServerId| Key::new().address(id.address).proto(id.protocol.number()).port(id.port);
    for id in also.iter().filter(|id| id.address.is_ipv6() == ipv6) {
        put(SERVERS, key(id), Element::member());
    }
    for (id, info, endpoints) in store.ports().filter(|(id, ..)| id.ipv6 == ipv6) {
        let endpoints: Vec<_> = endpoints.collect();
        for frontend in &info.frontends {
            of_frontend(info, frontend, &endpoints, &mut put);
        }
        of_guards(ipv6, config, info, &mut put);
        of_endpoints(id, &endpoints, &mut put);
    }
    table
}

/// Whether elements of the set are there for servers, and not for the node as a whole.
pub fn is_of_servers(set: &str) -> bool {
    ![PODS, SERVICE_PREFIXES].contains(&set)
}

/// Takes an element: its set, its key and what it is.
type Put<'a> = dyn FnMut(&str, Key, Element) + 'a;
/// An element of the table: its set, and its key.
pub type Place = (String, Box<[u8]>);

/// The servers that are not what they should be without these elements, each with one that it lacks. O(services): for when
/// something was refused.
pub fn servers_that_need(
    config: &crate::nftables::Config,
    store: &Store,
    lacking: &BTreeSet<Place>,
) -> BTreeMap<ServerId, Place> {
    let mut found = BTreeMap::new();
    for (id, info, endpoints) in store.ports() {
        let endpoints: Vec<_> = endpoints.collect();
        let lacks = |needs: &dyn Fn(&mut Put<'_>)| {
            let mut lacks = None;
            needs(&mut |set, key, _| {
                let place = (set.to_owned(), key.into_boxed());
                if lacking.contains(&place) {
                    lacks = Some(place);
                }
            });
            lacks
        };
        let server = |address, port| ServerId { address, port, protocol: id.protocol };
        for frontend in &info.frontends {
            let lack = lacks(&|mut put| {
                of_frontend(info, frontend, &endpoints, &mut put);
                of_endpoints(id, &endpoints, &mut put);
            });
            found.extend(lack.map(|place| (server(frontend.address, frontend.port), place)));
        }
        // Whoever answers at a place that is not guarded as it should be.
        let lack = lacks(&|mut put| of_guards(id.ipv6, config, info, &mut put));
        for (address, port) in info.guarded.iter().filter(|_| lack.is_some()) {
            found.extend(lack.clone().map(|place| (server(*address, *port), place)));
        }
    }
    found
}

/// What a server needs.
fn of_frontend(
    info: &ServicePortInfo,
    frontend: &Frontend,
    endpoints: &[&EndpointInfo],
    put: &mut impl FnMut(&str, Key, Element),
) {
    let (kind, address) = (frontend.kind, Key::new().address(frontend.address));
    let server = address.proto(info.protocol.number()).port(frontend.port);
    put(SERVERS, server, Element::member());
    if kind == FrontendKind::ClusterIp {
        put(CLUSTER_IPS, address, Element::member());
    }
    if kind != FrontendKind::NodePort {
        put(BOUND, address, Element::member());
    }
    if kind.is_external() && !info.external_local {
        put(HIDDEN, server, Element::member());
    }
    let stays_here = if kind.is_external() { info.external_local } else { info.internal_local };
    if stays_here && info.has_endpoints && !endpoints.iter().any(|one| one.in_local_pool) {
        put(SILENT, server, Element::member());
    }
}

/// What keeps all but the allowed sources from what a port guards.
fn of_guards(
    ipv6: bool,
    config: &crate::nftables::Config,
    info: &ServicePortInfo,
    put: &mut impl FnMut(&str, Key, Element),
) {
    for change in guards(Layout { ipv6 }, Some(info), &config.node_addresses) {
        put(change.set, Key::new().bytes(&change.key), change.element);
    }
}

/// What endpoints on this node need, to reach themselves through the service.
fn of_endpoints(id: &PortId, endpoints: &[&EndpointInfo], put: &mut impl FnMut(&str, Key, Element)) {
    for one in endpoints.iter().filter(|one| one.is_local) {
        let itself = Key::new().address(one.address).address(one.address);
        put(HAIRPIN, itself.proto(id.protocol.number()).port(one.port), Element::member());
    }
}

/// Takes servers out of the list of those that are ours.
pub fn disown(table: &mut Table, foreign: &BTreeSet<ServerId>) {
    let elements = table.sets.get_mut(SERVERS).and_then(|set| set.elements.as_mut());
    if let Some(elements) = elements {
        elements.retain(|key, _| server_id(key).is_none_or(|id| !foreign.contains(&id)));
    }
}

/// The servers that an earlier run has entered as its own.
pub fn owned(current: &CurrentTable) -> BTreeSet<ServerId> {
    let keys = current.sets.get(SERVERS).into_iter().flat_map(|set| set.elements.keys());
    keys.filter_map(|key| server_id(key)).collect()
}

fn server_id(key: &[u8]) -> Option<ServerId> {
    let (rest, port) = key.split_last_chunk::<4>()?;
    let (address, protocol) = rest.split_last_chunk::<4>()?;
    let address = match address.len() {
        4 => IpAddr::from(*address.first_chunk::<4>()?),
        _ => IpAddr::from(*address.first_chunk::<16>()?),
    };
    let known = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    let protocol = known.into_iter().find(|one| one.number() == protocol[0])?;
    Some(ServerId { address, port: u16::from_be_bytes([port[0], port[1]]), protocol })
}

fn scaffold(layout: Layout, config: &crate::nftables::Config) -> Table {
    let family = if layout.ipv6 { Family::Ip6 } else { Family::Ip };
    let mut table = Table::new(family, TABLE);
    for name in [ALLOWED_SOURCES, CLUSTER_IPS, FIREWALL, HAIRPIN] {
        table.set(name, Set::new(layout.schema(name)));
    }
    table
        .set(SERVERS, Set::new(layout.schema(FIREWALL)))
        .set(HIDDEN, Set::new(layout.schema(FIREWALL)))
        .set(SILENT, Set::new(layout.schema(FIREWALL)))
        .set(BOUND, Set::new(layout.schema(CLUSTER_IPS)));
    for (name, prefixes) in [(PODS, &config.pod_prefixes), (SERVICE_PREFIXES, &config.service_prefixes)] {
        let mut set = Set::new(layout.schema(name));
        for (first, last) in Ranges::new(layout.ipv6, prefixes.iter().copied()).iter() {
            set.insert(Key::new().address(first), Element::member().until(Key::new().address(last)));
        }
        table.set(name, set);
    }
    chains(&mut table, layout, config);
    table
}

fn chains(table: &mut Table, layout: Layout, config: &crate::nftables::Config) {
    let filter = |hook, priority| Chain::base(ChainKind::Filter, hook, priority, Policy::Accept);
    let (ipv6, mark) = (layout.ipv6, config.masquerade_mark);
    let hide = |rule: Rule| rule.set_mark(!mark, mark);
    let early = |hook| {
        let chain = filter(hook, -110).rule(layout.not_allowed().discard());
        let elsewhere = layout.destination(Rule::new("endpoints only elsewhere"), 0);
        let chain = chain.rule(elsewhere.in_set(Reg(0), SILENT).discard());
        let chain =
            chain.rule(hide(layout.destination(Rule::new("hide the source"), 0).in_set(Reg(0), HIDDEN)));
        let to_cluster = Rule::new("to a cluster address").ip_daddr(ipv6, Reg(0)).in_set(Reg(0), CLUSTER_IPS);
        if config.masquerade_all {
            return chain.rule(hide(to_cluster));
        }
        match layout.not_from_pods(config, to_cluster) {
            Some(from_outside) => chain.rule(hide(from_outside)),
            None => chain,
        }
    };
    let no_server =
        Rule::new("not a port of a service").ct_new().ip_daddr(ipv6, Reg(0)).in_set(Reg(0), BOUND);
    let no_server = layout.destination(no_server, 0).not_in_set(Reg(0), SERVERS);
    let nobody =
        Rule::new("no such service").ct_new().ip_daddr(ipv6, Reg(0)).in_set(Reg(0), SERVICE_PREFIXES);
    let nobody = nobody.not_in_set(Reg(0), BOUND).discard();
    let itself = layout.to_itself(Rule::new("to itself through a service")).masquerade();
    let hidden = Rule::new("sources to hide").mark_has(mark).set_mark(!0, mark).masquerade();
    let nat = Chain::base(ChainKind::Nat, Hook::Postrouting, 100, Policy::Accept);
    table
        .chain("early-prerouting", early(Hook::Prerouting))
        .chain("early-output", early(Hook::Output))
        .chain("filter-forward", filter(Hook::Forward, 0).rule(nobody.clone()))
        .chain("filter-output", filter(Hook::Output, 0).rule(nobody))
        .chain("filter-input", filter(Hook::Input, 0).rule(no_server.reject(Reject::PortUnreachable)))
        .chain("nat-postrouting", nat.rule(hidden).rule(itself));
}
