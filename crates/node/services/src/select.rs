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
    let topology = Topology::of(&candidates, node);
    let in_cluster = |one: &Candidate<'_>| wanted.uses_cluster && one.ready && topology.allows(one, node);
    let in_local = |one: &Candidate<'_>| wanted.uses_local && one.local && one.ready;
    let cluster_drains = !candidates.values().any(in_cluster);
    let local_drains = !candidates.values().any(in_local);
    let mut selection = Selection::default();
    for (socket, one) in &candidates {
        let draining = one.draining();
        let in_cluster_pool = in_cluster(one) || wanted.uses_cluster && cluster_drains && draining;
        let in_local_pool = in_local(one) || wanted.uses_local && local_drains && one.local && draining;
        selection.has_endpoints |= in_cluster_pool || wanted.uses_local && (one.ready || draining);
        let info = EndpointInfo {
            address: socket.0,
            port: socket.1,
            is_local: one.local,
            in_cluster_pool,
            in_local_pool,
            is_serving: one.serving,
        };
        selection.endpoints.insert(*socket, info);
    }
    selection
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
