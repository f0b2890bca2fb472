//! Where a packet to a service goes from a node, and why.
//!
//! Only the services that claim the packet's address are looked at. For them everything is as on the node: the same
//! store selects endpoints, the same plane makes its tables, and the packet is played through these.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use model::service::{IngressMode, NodeFacts, Protocol, ServiceName};
use node_nft::Table;
use node_services::{
    Frontend, FrontendKind, Judged, Node, PortId, ServicePortInfo, Store,
    evaluate::{self, Answer, Fate, Memory, NotUnderstood, Probe},
    ipvs, nftables,
};

use crate::{Catalog, Entry};

#[derive(Clone, Debug)]
pub struct Query {
    pub to: (IpAddr, u16),
    pub protocol: Protocol,
    /// The node that the packet passes. `None`: one without endpoints, in no zone.
    pub node: Option<String>,
    /// Who sends it. `None`: some Pod.
    pub from: Option<IpAddr>,
    pub plane: Plane,
    /// As the node's agent was told.
    pub pod_prefixes: Vec<IpNet>,
    pub service_prefixes: Vec<IpNet>,
    /// Left alone, whatever services claim.
    pub excluded: Vec<IpNet>,
    pub masquerade_all: bool,
    pub refuse_external_ips: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    Nftables,
    Ipvs,
}

#[derive(Clone, Debug)]
pub struct Explanation {
    pub fate: Fate,
    /// The port of a service that has the address.
    pub port: Option<PortId>,
    pub frontend: Option<FrontendKind>,
    /// From top to bottom.
    pub reasons: Vec<String>,
    pub judged: Vec<Judged>,
}

pub fn explain(catalog: &Catalog, query: &Query) -> Result<Explanation, NotUnderstood> {
    let facts = query.node.as_deref().and_then(|name| catalog.node(name));
    let node = node(query, facts);
    let claimants: Vec<_> = catalog.services().filter(|entry| claims(entry, query, &node)).collect();
    let mut store = Store::new(node.clone());
    for entry in &claimants {
        store.set_service(entry.name.clone(), (**entry.service).clone());
        for (key, slice) in entry.slices() {
            store.set_slice(key, (**slice).clone());
        }
    }
    let answer = play(&mut store, query, &node)?;
    let owner = owner(&store, query);
    let mut reasons = Reasons { query, node: &node, known: facts.is_some(), list: Vec::new() };
    reasons.who();
    reasons.owner(owner.as_ref(), &claimants);
    reasons.fate(owner.as_ref(), &answer);
    let judged = owner.as_ref().map(|owner| store.judge(&owner.id)).unwrap_or_default();
    Ok(Explanation {
        fate: answer.fate,
        frontend: owner.as_ref().map(|owner| owner.frontend.kind),
        reasons: reasons.list,
        judged,
        port: owner.map(|owner| owner.id),
    })
}

fn node(query: &Query, facts: Option<&NodeFacts>) -> Node {
    let facts = facts.cloned().unwrap_or_default();
    Node {
        // A name that no node has.
        name: query.node.clone().unwrap_or_default(),
        zone: facts.zone,
        addresses: facts.addresses,
        refuse_external_ips: query.refuse_external_ips,
        excluded: query.excluded.clone(),
    }
}

/// Whether a service has anything to do with the address, on whatever port.
fn claims(entry: &Entry<'_>, query: &Query, node: &Node) -> bool {
    let (address, port) = query.to;
    let service = entry.service;
    let balancers = service.load_balancers.iter().filter(|one| one.mode == IngressMode::Vip);
    let own = service.cluster_ips.iter().chain(&service.external_ips).copied();
    own.chain(balancers.map(|one| one.address)).any(|own| own == address)
        || node.addresses.contains(&address)
            && service.ports.iter().any(|one| one.node_port == port && port != 0)
}

fn play(store: &mut Store, query: &Query, node: &Node) -> Result<Answer, NotUnderstood> {
    let patches = store.patches();
    let config = nftables::Config {
        pod_prefixes: query.pod_prefixes.clone(),
        service_prefixes: query.service_prefixes.clone(),
        masquerade_all: query.masquerade_all,
        node_addresses: node.addresses.clone(),
        ..nftables::Config::default()
    };
    let ipv6 = query.to.0.is_ipv6();
    let probe = Probe { protocol: query.protocol, from: sender(query), to: query.to };
    match query.plane {
        Plane::Nftables => {
            let mut plane = nftables::Plane::new(ipv6, config);
            plane.apply(&patches);
            let table = plane.table();
            let is_local = |address| node.addresses.contains(&address);
            evaluate::nftables(&[&table], probe, &is_local, &Memory::new())
        }
        Plane::Ipvs => {
            let host_addresses = node.addresses.iter().copied().collect();
            let mut plane = ipvs::Plane::new(ipvs::Config { host_addresses, ..ipvs::Config::default() });
            plane.apply(&patches);
            let guard: Table = ipvs::guard::table(ipv6, &config, store, &BTreeSet::new());
            let bound: BTreeSet<_> = plane.addresses().chain(node.addresses.iter().copied()).collect();
            evaluate::ipvs(plane.servers(), &[&guard], probe, &|address| bound.contains(&address))
        }
    }
}

/// A Pod if there are any; else an address that is nobody's (RFC 5737, RFC 3849).
fn sender(query: &Query) -> IpAddr {
    let ipv6 = query.to.0.is_ipv6();
    let pods = query.pod_prefixes.iter().find(|prefix| prefix.addr().is_ipv6() == ipv6);
    let nobody =
        if ipv6 { IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]) } else { IpAddr::from([192, 0, 2, 1]) };
    query.from.unwrap_or_else(|| pods.map_or(nobody, |prefix| prefix.addr()))
}

struct Owner {
    id: PortId,
    info: ServicePortInfo,
    frontend: Frontend,
}

fn owner(store: &Store, query: &Query) -> Option<Owner> {
    store.ports().filter(|(id, ..)| id.protocol == query.protocol).find_map(|(id, info, _)| {
        let mut frontends = info.frontends.iter();
        let frontend = frontends.find(|one| (one.address, one.port) == query.to)?;
        Some(Owner { id: id.clone(), info: info.clone(), frontend: *frontend })
    })
}

/// Sentences, from top to bottom.
struct Reasons<'a> {
    query: &'a Query,
    node: &'a Node,
    /// There is a Node object of the node.
    known: bool,
    list: Vec<String>,
}

impl Reasons<'_> {
    fn say(&mut self, text: impl Into<String>) {
        self.list.push(text.into());
    }

    fn who(&mut self) {
        let (query, node) = (self.query, self.node);
        let from = sender(query);
        let kind = if query.pod_prefixes.iter().any(|prefix| prefix.contains(&from)) {
            "a Pod"
        } else if node.addresses.contains(&from) {
            "the node itself"
        } else {
            "a client that is no Pod"
        };
        let place = match (&query.node, &node.zone) {
            (None, _) => "a node without endpoints, in no zone".to_owned(),
            (Some(name), None) if self.known => format!("node {name}, in no zone"),
            (Some(name), None) => format!("node {name}, of which no Node object tells zone and addresses"),
            (Some(name), Some(zone)) => format!("node {name} in zone {zone}"),
        };
        self.say(format!("{from} is {kind}; the packet passes {place}"));
    }

    fn owner(&mut self, owner: Option<&Owner>, claimants: &[Entry<'_>]) {
        let (address, port) = self.query.to;
        let Some(owner) = owner else {
            if self.query.excluded.iter().any(|prefix| prefix.contains(&address)) {
                return self.say(format!("{address} is left alone here, whatever services claim"));
            }
            let is_external = |entry: &Entry<'_>| entry.service.external_ips.contains(&address);
            if self.query.refuse_external_ips && claimants.iter().any(is_external) {
                return self.say(format!(
                    "{address} is an external address of a service, and those are not served here"
                ));
            }
            let others: Vec<_> = claimants.iter().map(|entry| entry.name.to_string()).collect();
            let is_of_services = self.query.service_prefixes.iter().any(|prefix| prefix.contains(&address));
            return match others.is_empty() {
                true if is_of_services => {
                    self.say(format!("no service has {address}, out of which services get theirs"))
                }
                true => self.say(format!("no service has {address}, nor {port} as its node port here")),
                false => {
                    let protocol = self.query.protocol;
                    self.say(format!(
                        "{address} belongs to {}, which has no port {port}/{protocol}",
                        others.join(", ")
                    ));
                }
            };
        };
        let kind = frontend_name(owner.frontend.kind);
        let port_name =
            if owner.id.port_name.is_empty() { port.to_string() } else { owner.id.port_name.to_string() };
        self.say(format!("{address}:{port} is a {kind} of {}, port {port_name}", owner.id.service));
        let losers: Vec<&ServiceName> = claimants
            .iter()
            .filter(|entry| *entry.name != owner.id.service && has_place(entry, self.query))
            .map(|entry| entry.name)
            .collect();
        for loser in losers {
            self.say(format!("{loser} claims the same address and port, and comes later by name"));
        }
    }

    fn fate(&mut self, owner: Option<&Owner>, answer: &Answer) {
        if let Some(Owner { info, frontend, .. }) = owner {
            let local = if frontend.kind.is_external() { info.external_local } else { info.internal_local };
            if local {
                let policy = if frontend.kind.is_external() { "external" } else { "internal" };
                self.say(format!("its {policy} traffic policy is Local: only endpoints on the node"));
            }
            if info.guarded.contains(&(frontend.address, frontend.port)) {
                let ranges: Vec<_> = info.source_ranges.iter().map(ToString::to_string).collect();
                self.say(format!("only {} may use the load balancer", ranges.join(", ")));
            }
            if let Some(seconds) = info.affinity {
                self.say(format!("a client keeps its endpoint for {seconds} s"));
            }
        }
        let text = match &answer.fate {
            Fate::Balanced(endpoints) => {
                let hidden = endpoints.values().filter(|hidden| **hidden).count();
                let source = match hidden {
                    0 => "the endpoint sees the client's address",
                    all if all == endpoints.len() => "the endpoint sees the node's address",
                    _ => "the endpoint sees the node's address if it is the client itself",
                };
                format!("it goes to one of {}; {source}", endpoints.len())
            }
            Fate::Rejected => "nobody answers: the client is told so at once".to_owned(),
            Fate::Dropped => match owner {
                Some(owner)
                    if owner.info.has_endpoints
                        && !answer.steps.iter().any(|step| step.contains("allowed source")) =>
                {
                    "endpoints are only on other nodes: it is dropped in silence".to_owned()
                }
                _ => "it is dropped in silence".to_owned(),
            },
            Fate::Passed => "the service proxy leaves it alone".to_owned(),
        };
        self.say(text);
    }
}

fn has_place(entry: &Entry<'_>, query: &Query) -> bool {
    let ports = entry.service.ports.iter().filter(|port| port.protocol == query.protocol);
    ports.into_iter().any(|port| port.port == query.to.1 || port.node_port == query.to.1)
}

pub fn frontend_name(kind: FrontendKind) -> &'static str {
    match kind {
        FrontendKind::ClusterIp => "cluster address",
        FrontendKind::ExternalIp => "external address",
        FrontendKind::LoadBalancer => "load balancer",
        FrontendKind::NodePort => "node port",
    }
}

#[cfg(test)]
mod tests;
