//! Which endpoints of a service port this node uses.
//!
//! ```text
//!   cluster pool: ready, and allowed by topology hints;     else serving and terminating
//!   local pool:   ready, on this node (hints do not count); else serving and terminating, on this node
//! ```
//!
//! A pool is only filled if one of the service's traffic policies uses it.

use std::{collections::BTreeMap, net::IpAddr};

use crate::{EndpointInfo, Node, Protocol, Slice, SliceEndpoint};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// All endpoints that a data plane must know, in or out of the pools, by address and port.
    pub endpoints: BTreeMap<(IpAddr, u16), EndpointInfo>,
    /// There is a usable endpoint somewhere, though perhaps not for this node.
    pub has_endpoints: bool,
}

/// What the selection depends on, of one port of a service.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub port_name: &'a str,
    pub protocol: Protocol,
    pub ipv6: bool,
    /// Some traffic may go to any node.
    pub uses_cluster: bool,
    /// Some traffic must stay on this node.
    pub uses_local: bool,
}

#[derive(Clone, Copy)]
struct Candidate<'a> {
    ready: bool,
    serving: bool,
    terminating: bool,
    local: bool,
    endpoint: &'a SliceEndpoint,
}

impl Candidate<'_> {
    fn draining(&self) -> bool {
        self.serving && self.terminating
    }
}

pub fn select<'a>(wanted: Wanted<'_>, slices: impl IntoIterator<Item = &'a Slice>, node: &Node) -> Selection {
    let candidates = candidates(wanted, slices, node);
    let pools = Pools::of(wanted, &candidates, node);
    let mut selection = Selection::default();
    for (socket, one) in &candidates {
        let info = pools.endpoint(*socket, one);
        let draining = one.draining();
        selection.has_endpoints |= info.in_cluster_pool || wanted.uses_local && (one.ready || draining);
        selection.endpoints.insert(*socket, info);
    }
    selection
}

/// An endpoint with why it is used or not, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    pub endpoint: EndpointInfo,
    /// Where it runs.
    pub node: Option<String>,
    pub reason: String,
}

/// The same selection as [`select`] makes, with its reasons.
pub fn judge<'a>(
    wanted: Wanted<'_>,
    slices: impl IntoIterator<Item = &'a Slice>,
    node: &Node,
) -> Vec<Judged> {
    let candidates = candidates(wanted, slices, node);
    let pools = Pools::of(wanted, &candidates, node);
    let judged = candidates.iter().map(|(socket, one)| {
        let endpoint = pools.endpoint(*socket, one);
        Judged { endpoint, node: one.endpoint.node.clone(), reason: pools.reason(one, &endpoint) }
    });
    judged.collect()
}

/// What decides over all candidates together.
struct Pools<'a> {
    wanted: Wanted<'a>,
    topology: Topology,
    node: &'a Node,
    /// Nobody is ready: what still serves takes over.
    cluster_drains: bool,
    local_drains: bool,
}

impl<'a> Pools<'a> {
    fn of(wanted: Wanted<'a>, candidates: &BTreeMap<(IpAddr, u16), Candidate<'_>>, node: &'a Node) -> Self {
        let topology = Topology::of(candidates, node);
        let mut pools = Self { wanted, topology, node, cluster_drains: false, local_drains: false };
        pools.cluster_drains = !candidates.values().any(|one| pools.ready_for_cluster(one));
        pools.local_drains = !candidates.values().any(|one| pools.ready_here(one));
        pools
    }

    fn ready_for_cluster(&self, one: &Candidate<'_>) -> bool {
        self.wanted.uses_cluster && one.ready && self.topology.allows(one, self.node)
    }

    fn ready_here(&self, one: &Candidate<'_>) -> bool {
        self.wanted.uses_local && one.local && one.ready
    }

    fn endpoint(&self, socket: (IpAddr, u16), one: &Candidate<'_>) -> EndpointInfo {
        let drains = |all: bool, used: bool| all && used && one.draining();
        EndpointInfo {
            address: socket.0,
            port: socket.1,
            is_local: one.local,
            in_cluster_pool: self.ready_for_cluster(one)
                || drains(self.cluster_drains, self.wanted.uses_cluster),
            in_local_pool: self.ready_here(one)
                || one.local && drains(self.local_drains, self.wanted.uses_local),
            is_serving: one.serving,
        }
    }

    fn reason(&self, one: &Candidate<'_>, endpoint: &EndpointInfo) -> String {
        let used = match (endpoint.in_cluster_pool, endpoint.in_local_pool) {
            (true, true) => "for all traffic",
            (true, false) => "for traffic that may leave the node",
            (false, true) => "for traffic that must stay on the node",
            (false, false) => "not used",
        };
        let why = match one {
            one if one.ready && one.terminating => "it is published although it terminates",
            one if one.ready && !self.topology.allows(one, self.node) => "hints give it to others",
            one if one.ready => match self.topology {
                Topology::Any => "it is ready",
                Topology::SameNode => "it is ready, and hints give it to this node",
                Topology::SameZone => "it is ready, and hints give it to this zone",
            },
            one if one.draining() && (endpoint.in_cluster_pool || endpoint.in_local_pool) => {
                "it terminates and still serves, and nobody is ready"
            }
            one if one.draining() => "it terminates, and others are ready",
            one if one.terminating => "it terminates and serves no more",
            _ => "it is not ready",
        };
        let elsewhere = one.ready && !one.local && !self.wanted.uses_cluster;
        let why = if elsewhere { "it runs on another node, which the policy excludes" } else { why };
        format!("{used}: {why}")
    }
}

/// One per address and port: what does not terminate wins over what does, what is ready over what is not.
fn candidates<'a>(
    wanted: Wanted<'_>,
    slices: impl IntoIterator<Item = &'a Slice>,
    node: &Node,
) -> BTreeMap<(IpAddr, u16), Candidate<'a>> {
    let mut found: BTreeMap<(IpAddr, u16), Candidate<'a>> = BTreeMap::new();
    for slice in slices.into_iter().filter(|slice| slice.is_ours()) {
        let named = slice.ports.iter().filter(|port| {
            port.name.as_deref() == Some(wanted.port_name) && port.protocol == wanted.protocol
        });
        let ports: Vec<u16> = named.filter_map(|port| port.port).filter(|port| *port != 0).collect();
        for endpoint in &slice.endpoints {
            let candidate = Candidate {
                ready: endpoint.ready.unwrap_or(true),
                serving: endpoint.serving.unwrap_or(true),
                terminating: endpoint.terminating.unwrap_or(false),
                local: endpoint.node.as_deref() == Some(node.name.as_str()),
                endpoint,
            };
            let addresses = endpoint.addresses.iter().filter(|address| address.is_ipv6() == wanted.ipv6);
            for (address, port) in
                addresses.flat_map(|address| ports.iter().map(move |port| (*address, *port)))
            {
                let rank = |one: &Candidate<'_>| (!one.terminating, one.ready, one.serving, one.local);
                let place = found.entry((address, port)).or_insert(candidate);
                if rank(&candidate) > rank(place) {
                    *place = candidate;
                }
            }
        }
    }
    found
}

/// Hints count only if every ready endpoint has one, and one of them means us.
enum Topology {
    Any,
    SameNode,
    SameZone,
}

impl Topology {
    fn of(candidates: &BTreeMap<(IpAddr, u16), Candidate<'_>>, node: &Node) -> Self {
        let ready = || candidates.values().filter(|one| one.ready).map(|one| one.endpoint);
        let all_meant = |hints: fn(&SliceEndpoint) -> &[String], me: &str| {
            ready().all(|one| !hints(one).is_empty())
                && ready().any(|one| hints(one).iter().any(|hint| hint == me))
        };
        if all_meant(|one| &one.node_hints, &node.name) {
            Self::SameNode
        } else if node.zone.as_deref().is_some_and(|zone| all_meant(|one| &one.zone_hints, zone)) {
            Self::SameZone
        } else {
            Self::Any
        }
    }

    fn allows(&self, one: &Candidate<'_>, node: &Node) -> bool {
        match self {
            Self::Any => true,
            Self::SameNode => one.endpoint.node_hints.contains(&node.name),
            Self::SameZone => one.endpoint.zone_hints.iter().any(|hint| Some(hint) == node.zone.as_ref()),
        }
    }
}

#[cfg(test)]
mod tests;
