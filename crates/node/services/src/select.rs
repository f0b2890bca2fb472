//! Which endpoints of a service port this node uses.
//!
//! ```text
//!   cluster pool: ready, and allowed by topology hints;     else serving and terminating
//!   local pool:   ready, on this node (hints do not count); else serving and terminating, on this node
//! ```
//!
//! A pool is only filled if one of the service's traffic policies uses it.

use std::net::IpAddr;

use crate::{
    EndpointInfo, Node, Protocol,
    known::{KnownEndpoint, KnownSlice},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// All endpoints that a data plane must know, in or out of the pools; sorted by address and port.
    pub endpoints: Box<[EndpointInfo]>,
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
    port: u16,
    local: bool,
    endpoint: &'a KnownEndpoint,
}

impl Candidate<'_> {
    fn socket(&self) -> (IpAddr, u16) {
        (self.endpoint.address, self.port)
    }

    fn draining(&self) -> bool {
        self.endpoint.serving && self.endpoint.terminating
    }

    fn rank(&self) -> (bool, bool, bool, bool) {
        (!self.endpoint.terminating, self.endpoint.ready, self.endpoint.serving, self.local)
    }
}

pub fn select<'a>(
    wanted: Wanted<'_>,
    slices: impl IntoIterator<Item = &'a KnownSlice>,
    node: &Node,
) -> Selection {
    let candidates = candidates(wanted, slices, node);
    let pools = Pools::of(wanted, &candidates, node);
    let mut has_endpoints = false;
    let endpoints = candidates.iter().map(|one| {
        let info = pools.endpoint(one);
        has_endpoints |= info.in_cluster_pool || wanted.uses_local && (one.endpoint.ready || one.draining());
        info
    });
    Selection { endpoints: endpoints.collect(), has_endpoints }
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
    slices: impl IntoIterator<Item = &'a KnownSlice>,
    node: &Node,
) -> Vec<Judged> {
    let candidates = candidates(wanted, slices, node);
    let pools = Pools::of(wanted, &candidates, node);
    let judged = candidates.iter().map(|one| {
        let endpoint = pools.endpoint(one);
        let node = one.endpoint.node().map(str::to_owned);
        Judged { endpoint, node, reason: pools.reason(one, &endpoint) }
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
    fn of(wanted: Wanted<'a>, candidates: &[Candidate<'_>], node: &'a Node) -> Self {
        let topology = Topology::of(candidates, node);
        let mut pools = Self { wanted, topology, node, cluster_drains: false, local_drains: false };
        pools.cluster_drains = !candidates.iter().any(|one| pools.ready_for_cluster(one));
        pools.local_drains = !candidates.iter().any(|one| pools.ready_here(one));
        pools
    }

    fn ready_for_cluster(&self, one: &Candidate<'_>) -> bool {
        self.wanted.uses_cluster && one.endpoint.ready && self.topology.allows(one, self.node)
    }

    fn ready_here(&self, one: &Candidate<'_>) -> bool {
        self.wanted.uses_local && one.local && one.endpoint.ready
    }

    fn endpoint(&self, one: &Candidate<'_>) -> EndpointInfo {
        let drains = |all: bool, used: bool| all && used && one.draining();
        EndpointInfo {
            address: one.endpoint.address,
            port: one.port,
            is_local: one.local,
            in_cluster_pool: self.ready_for_cluster(one)
                || drains(self.cluster_drains, self.wanted.uses_cluster),
            in_local_pool: self.ready_here(one)
                || one.local && drains(self.local_drains, self.wanted.uses_local),
            is_serving: one.endpoint.serving,
        }
    }

    fn reason(&self, one: &Candidate<'_>, endpoint: &EndpointInfo) -> String {
        let used = match (endpoint.in_cluster_pool, endpoint.in_local_pool) {
            (true, true) => "for all traffic",
            (true, false) => "for traffic that may leave the node",
            (false, true) => "for traffic that must stay on the node",
            (false, false) => "not used",
        };
        let known = one.endpoint;
        let why = match one {
            _ if known.ready && known.terminating => "it is published although it terminates",
            _ if known.ready && !self.topology.allows(one, self.node) => "hints give it to others",
            _ if known.ready => match self.topology {
                Topology::Any => "it is ready",
                Topology::SameNode => "it is ready, and hints give it to this node",
                Topology::SameZone => "it is ready, and hints give it to this zone",
            },
            one if one.draining() && (endpoint.in_cluster_pool || endpoint.in_local_pool) => {
                "it terminates and still serves, and nobody is ready"
            }
            one if one.draining() => "it terminates, and others are ready",
            _ if known.terminating => "it terminates and serves no more",
            _ => "it is not ready",
        };
        let elsewhere = known.ready && !one.local && !self.wanted.uses_cluster;
        let why = if elsewhere { "it runs on another node, which the policy excludes" } else { why };
        format!("{used}: {why}")
    }
}

/// One per address and port: what does not terminate wins over what does, what is ready over what is not.
fn candidates<'a>(
    wanted: Wanted<'_>,
    slices: impl IntoIterator<Item = &'a KnownSlice>,
    node: &Node,
) -> Vec<Candidate<'a>> {
    let mut found = Vec::new();
    for slice in slices {
        let named = slice
            .ports
            .iter()
            .filter(|one| *one.name == *wanted.port_name && one.protocol == wanted.protocol);
        for port in named.map(|one| one.port) {
            let endpoints = slice.endpoints.iter().filter(|one| one.address.is_ipv6() == wanted.ipv6);
            let candidate =
                |endpoint: &'a KnownEndpoint| Candidate { port, local: endpoint.is_on(&node.name), endpoint };
            found.extend(endpoints.map(candidate));
        }
    }
    found.sort_by(|a, b| a.socket().cmp(&b.socket()).then_with(|| b.rank().cmp(&a.rank())));
    found.dedup_by_key(|one| one.socket());
    found
}

/// Hints count only if every ready endpoint has one, and one of them means us.
enum Topology {
    Any,
    SameNode,
    SameZone,
}

impl Topology {
    fn of(candidates: &[Candidate<'_>], node: &Node) -> Self {
        let ready = || candidates.iter().map(|one| one.endpoint).filter(|one| one.ready);
        let all_meant = |hints: fn(&KnownEndpoint) -> &[String], me: &str| {
            ready().all(|one| !hints(one).is_empty())
                && ready().any(|one| hints(one).iter().any(|hint| hint == me))
        };
        if all_meant(KnownEndpoint::node_hints, &node.name) {
            Self::SameNode
        } else if node.zone.as_deref().is_some_and(|zone| all_meant(KnownEndpoint::zone_hints, zone)) {
            Self::SameZone
        } else {
            Self::Any
        }
    }

    fn allows(&self, one: &Candidate<'_>, node: &Node) -> bool {
        match self {
            Self::Any => true,
            Self::SameNode => one.endpoint.node_hints().contains(&node.name),
            Self::SameZone => one.endpoint.zone_hints().iter().any(|hint| Some(hint) == node.zone.as_ref()),
        }
    }
}

#[cfg(test)]
mod tests;
