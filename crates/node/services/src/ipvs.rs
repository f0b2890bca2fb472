//! Services in IPVS: virtual servers, their destinations, and the addresses that attract packets.
//!
//! ```text
//!   patches ──► wanted servers ──► operations, in the order that never takes away what packets still need:
//!
//!     guard elements ► servers ► destinations ► addresses ► drain or remove destinations ► servers ► addresses ► guard
//!     └──────────────── make ───────────────────────────┘   └──────────────────── break ─────────────────────────────┘
//! ```
//!
//! IPVS has no transactions and no marks of ownership: the [`guard`] table lists the servers that are ours.
//! IPVS cannot tell clients apart: under a local policy Pods, too, are only sent to endpoints on this node.

pub mod guard;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::{
    Frontend, FrontendKind, Operation, PortId, Protocol, Refs, ServiceEndpointsPatch, ServicePortInfo,
};

/// A virtual server is known by where it listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId {
    pub address: IpAddr,
    pub port: u16,
    pub protocol: Protocol,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub scheduler: String,
    /// Seconds for which a client keeps its destination.
    pub affinity: Option<u32>,
}

pub type Socket = (IpAddr, u16);

/// A server with its destinations and their weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerState {
    pub server: Server,
    pub destinations: BTreeMap<Socket, u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    AddServer(ServerId, Server),
    /// Connections stay.
    UpdateServer(ServerId, Server),
    RemoveServer(ServerId),
    AddDestination(ServerId, Socket),
    /// Takes new connections again, or none: weight 1 or 0.
    SetWeight(ServerId, Socket, u32),
    RemoveDestination(ServerId, Socket),
    Bind(IpAddr),
    Unbind(IpAddr),
}

impl Op {
    /// The server that the operation is about; `None` for addresses.
    pub fn server(&self) -> Option<&ServerId> {
        match self {
            Self::AddServer(id, _) | Self::UpdateServer(id, _) | Self::RemoveServer(id) => Some(id),
            Self::AddDestination(id, _) | Self::SetWeight(id, ..) | Self::RemoveDestination(id, _) => {
                Some(id)
            }
            Self::Bind(_) | Self::Unbind(_) => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    pub scheduler: String,
    /// Addresses that other interfaces hold already: they attract packets as they are.
    pub host_addresses: BTreeSet<IpAddr>,
    /// Do not answer on the node's networks for addresses of services.
    pub strict_arp: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { scheduler: "rr".into(), host_addresses: BTreeSet::new(), strict_arp: false }
    }
}

/// Both families.
#[derive(Clone, Debug, Default)]
pub struct Plane {
    config: Config,
    servers: BTreeMap<ServerId, ServerState>,
    bound: Refs<IpAddr>,
    ports: BTreeMap<PortId, Port>,
    /// Destinations at weight 0 whose connections are waited for.
    draining: BTreeSet<(ServerId, Socket)>,
}

#[derive(Clone, Debug, Default)]
struct Port {
    cluster: BTreeSet<Socket>,
    local: BTreeSet<Socket>,
}

impl Plane {
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// What IPVS should hold, without what is draining.
    pub fn servers(&self) -> &BTreeMap<ServerId, ServerState> {
        &self.servers
    }

    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.bound.iter().copied()
    }

    pub fn draining(&self) -> impl Iterator<Item = &(ServerId, Socket)> {
        self.draining.iter()
    }

    /// The operations that carry out patches. O(what they change).
    pub fn apply(&mut self, patches: &[ServiceEndpointsPatch]) -> Vec<Op> {
        let mut wanted: BTreeMap<ServerId, Option<ServerState>> = BTreeMap::new();
        let (mut come, mut gone) = (Vec::new(), Vec::new());
        for patch in patches {
            let mut port = self.ports.remove(&patch.id).unwrap_or_default();
            port.change(patch);
            if let Some(info) = &patch.service.before {
                for frontend in &info.frontends {
                    wanted.entry(server_id(info, frontend)).or_insert(None);
                }
                gone.extend(self.binds(info));
            }
            if let Some(info) = &patch.service.after {
                for frontend in &info.frontends {
                    wanted.insert(server_id(info, frontend), Some(self.state(info, frontend, &port)));
                }
                come.extend(self.binds(info));
                self.ports.insert(patch.id.clone(), port);
            }
        }
        let mut steps = Steps::default();
        come.into_iter()
            .filter(|one| self.bound.acquire(*one))
            .for_each(|one| steps.bind.push(Op::Bind(one)));
        gone.into_iter()
            .filter(|one| self.bound.release(one))
            .for_each(|one| steps.unbind.push(Op::Unbind(one)));
        for (id, after) in wanted {
            let before = match &after {
                Some(state) => self.servers.insert(id, state.clone()),
                None => self.servers.remove(&id),
            };
            steps.compare(id, before.as_ref(), after.as_ref(), &mut self.draining);
        }
        steps.finish()
    }

    /// The operations that lead from what the kernel holds to what it should: after a start, or to repair.
    /// `current` must only hold servers that are ours.
    pub fn reconcile(
        &mut self,
        current: &BTreeMap<ServerId, ServerState>,
        bound: &BTreeSet<IpAddr>,
    ) -> Vec<Op> {
        let mut steps = Steps::default();
        let ids: BTreeSet<_> = current.keys().chain(self.servers.keys()).copied().collect();
        for id in ids {
            steps.compare(id, current.get(&id), self.servers.get(&id), &mut self.draining);
        }
        steps.bind.extend(self.bound.iter().filter(|one| !bound.contains(one)).map(|one| Op::Bind(*one)));
        steps.unbind.extend(bound.iter().filter(|one| !self.bound.contains(one)).map(|one| Op::Unbind(*one)));
        steps.finish()
    }

    /// What can go now that the connections of draining destinations are known.
    pub fn drained(&mut self, connections: impl Fn(&ServerId, &Socket) -> Option<u64>) -> Vec<Op> {
        let mut ops = Vec::new();
        self.draining.retain(|(id, socket)| match connections(id, socket) {
            Some(0) => {
                ops.push(Op::RemoveDestination(*id, *socket));
                false
            }
            Some(_) => true,
            None => false,
        });
        ops
    }

    /// Addresses of the node's own interfaces are never ours to bind.
    fn binds(&self, info: &ServicePortInfo) -> BTreeSet<IpAddr> {
        let candidates = info.frontends.iter().filter(|one| one.kind != FrontendKind::NodePort);
        candidates
            .map(|one| one.address)
            .filter(|address| !self.config.host_addresses.contains(address))
            .collect()
    }

    fn state(&self, info: &ServicePortInfo, frontend: &Frontend, port: &Port) -> ServerState {
        let scheduler = info.scheduler.as_deref().unwrap_or(&self.config.scheduler).to_owned();
        let stays_here = if frontend.kind.is_external() { info.external_local } else { info.internal_local };
        let pool = if stays_here { &port.local } else { &port.cluster };
        let destinations = pool.iter().map(|socket| (*socket, 1)).collect();
        ServerState { server: Server { scheduler, affinity: info.affinity }, destinations }
    }
}

impl Port {
    fn change(&mut self, patch: &ServiceEndpointsPatch) {
        for one in &patch.endpoints {
            let (endpoint, socket, stays) =
                (one.endpoint, one.endpoint.socket(), one.op != Operation::Delete);
            for (pool, within) in
                [(&mut self.cluster, endpoint.in_cluster_pool), (&mut self.local, endpoint.in_local_pool)]
            {
                if stays && within {
                    pool.insert(socket);
                } else {
                    pool.remove(&socket);
                }
            }
        }
    }
}

fn server_id(info: &ServicePortInfo, frontend: &Frontend) -> ServerId {
    ServerId { address: frontend.address, port: frontend.port, protocol: info.protocol }
}

/// Operations by their turn.
#[derive(Default)]
struct Steps {
    servers: Vec<Op>,
    destinations: Vec<Op>,
    bind: Vec<Op>,
    retire: Vec<Op>,
    remove: Vec<Op>,
    unbind: Vec<Op>,
}

impl Steps {
    fn compare(
        &mut self,
        id: ServerId,
        before: Option<&ServerState>,
        after: Option<&ServerState>,
        draining: &mut BTreeSet<(ServerId, Socket)>,
    ) {
        let Some(after) = after else {
            draining.retain(|(owner, _)| *owner != id);
            self.remove.extend(before.map(|_| Op::RemoveServer(id)));
            return;
        };
        match before {
            None => self.servers.push(Op::AddServer(id, after.server.clone())),
            Some(before) if before.server != after.server => {
                self.servers.push(Op::UpdateServer(id, after.server.clone()));
            }
            Some(_) => {}
        }
        let none = BTreeMap::new();
        let known = before.map_or(&none, |state| &state.destinations);
        for (socket, weight) in &after.destinations {
            let was_draining = draining.remove(&(id, *socket));
            match known.get(socket) {
                Some(same) if same == weight && !was_draining => {}
                Some(_) => self.destinations.push(Op::SetWeight(id, *socket, *weight)),
                None if was_draining => self.destinations.push(Op::SetWeight(id, *socket, *weight)),
                None => self.destinations.push(Op::AddDestination(id, *socket)),
            }
        }
        for (socket, weight) in known.iter().filter(|(socket, _)| !after.destinations.contains_key(*socket)) {
            if id.protocol == Protocol::Tcp {
                // Its connections go on; it goes when they are over.
                draining.insert((id, *socket));
                if *weight != 0 {
                    self.retire.push(Op::SetWeight(id, *socket, 0));
                }
            } else {
                self.retire.push(Op::RemoveDestination(id, *socket));
            }
        }
    }

    fn finish(self) -> Vec<Op> {
        let Self { servers, destinations, bind, retire, remove, unbind } = self;
        [servers, destinations, bind, retire, remove, unbind].concat()
    }
}

#[cfg(test)]
mod tests;
