//! Services in nftables: a constant number of rules, all growth in maps, one table per family.
//!
//! ```text
//!   prerouting, output ─► firewall-check ─► dispatch ─► services: address . protocol . port ─► goto CLASS
//!                                                                                                │
//!      pick-3          dnat to endpoints[ address . protocol . port . random below 3 ] ◄─────────┤
//!      external-3      mark for masquerade, then as pick-3 ◄─────────────────────────────────────┤
//!      sticky-3        affinity[ client . address . protocol . port ], else as pick-3 ◄──────────┤
//!                      afterwards remember-60: bound for 60 s if in sticky-endpoints, else dropped and unbound
//!      local-3-1       pods: pick-3; the node: external-3; others: local-endpoints, 1 of them ◄──┘
//! ```
//!
//! A class is a chain for one way of treating packets and one number of endpoints; services share it. There are as
//! many as there are different numbers of endpoints, and they are made when first needed.
//!
//! Each port of a service changes in one transaction: a packet sees its old endpoints or its new ones. What nothing
//! leads to any more (places behind the end of a pool that shrank) goes in a later one, because a packet that is on
//! its way through the rules may still ask for it.

mod class;
pub(crate) mod elements;
pub(crate) mod layout;
mod pool;
mod refused;
mod steps;
mod work;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use node_nft::{CurrentTable, Data, Op, SetSchema, Table};

use crate::{Frontend, Operation, PortId, Protocol, Refs, ServiceEndpointsPatch, ServicePortInfo};
pub use class::Class;
use elements::{Change, Head, Shared};
pub use layout::{AFFINITY, TABLE};
use layout::{Layout, Place};
use pool::{Move, Pool};
pub use refused::{Apart, Leftover};
use steps::Steps;
pub use work::{Forget, Sweep, Unit, Work};

#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses of Pods, all nodes: who is not among them is from outside. Empty: unknown.
    pub pod_prefixes: Vec<IpNet>,
    /// Addresses out of which services get theirs: packets to one that no service has are dropped.
    pub service_prefixes: Vec<IpNet>,
    /// Masquerade all traffic to cluster addresses.
    pub masquerade_all: bool,
    /// The bit of the packet mark that carries the decision to masquerade.
    pub masquerade_mark: u32,
    /// Addresses of the node: one that may use a load balancer may do so under the balancer's own address too.
    pub node_addresses: Vec<IpAddr>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pod_prefixes: Vec::new(),
            service_prefixes: Vec::new(),
            masquerade_all: false,
            masquerade_mark: 0x4000,
            node_addresses: Vec::new(),
        }
    }
}

/// One family's table.
#[derive(Clone, Debug)]
pub struct Plane {
    layout: Layout,
    config: Config,
    ports: HashMap<PortId, Port>,
    shared: Refs<Shared>,
    classes: BTreeSet<Class>,
}

#[derive(Clone, Debug, Default)]
struct Port {
    info: Option<Arc<ServicePortInfo>>,
    cluster: Pool,
    local: Pool,
    /// Endpoints on this node: they may reach themselves through the service.
    hairpins: BTreeSet<(IpAddr, u16)>,
}

impl Plane {
    pub fn new(ipv6: bool, config: Config) -> Self {
        let layout = Layout { ipv6 };
        Self { layout, config, ports: HashMap::new(), shared: Refs::default(), classes: BTreeSet::new() }
    }

    /// The map that remembers clients, and its shape.
    pub fn affinity(&self) -> (&'static str, SetSchema) {
        (layout::AFFINITY, self.layout.schema(layout::AFFINITY))
    }

    /// Before the first patches: takes over the order of endpoints and the classes that an earlier run left in the
    /// kernel, so that what is still right need not be written again.
    pub fn adopt(&mut self, current: &CurrentTable) {
        self.classes.extend(current.chains.keys().filter_map(|name| Class::parse(name)));
    }

    /// The whole table as it should be. With it a fresh kernel is filled, or one in an unknown state is repaired.
    pub fn table(&self) -> Table {
        let mut table = self.layout.scaffold(&self.config);
        for class in &self.classes {
            table.chain(class.name(), class.chain(self.layout, self.config.masquerade_mark));
        }
        for port in self.ports.values() {
            let Some(info) = &port.info else { continue };
            let mut put = |change: Change| {
                if let Some(set) = table.sets.get_mut(change.set) {
                    set.insert(change.key, change.element);
                }
            };
            for frontend in &info.frontends {
                let head = self.head(port, info, frontend);
                head.changes.into_iter().for_each(&mut put);
                self.places(port, info, frontend, head.pools).for_each(&mut put);
            }
            for (frontend, endpoints) in port.bindings(self.layout) {
                endpoints.into_iter().for_each(|one| put(elements::sticky(self.layout, &frontend, one)));
            }
            self.guards(Some(info)).into_iter().for_each(&mut put);
        }
        for shared in self.shared.iter() {
            let change = shared.change();
            if let Some(set) = table.sets.get_mut(change.set) {
                set.insert(change.key, change.element);
            }
        }
        table
    }

    /// Reorders the pools as the kernel has them. Call after the first patches, before [`Self::table`].
    pub fn align(&mut self, current: &CurrentTable) {
        let mut ports = std::mem::take(&mut self.ports);
        for port in ports.values_mut() {
            let Some(info) = port.info.clone() else { continue };
            let heads =
                info.frontends.iter().map(|frontend| (frontend, self.head(port, &info, frontend).pools));
            let heads: Vec<_> = heads.collect();
            let find = |wanted: &dyn Fn(elements::Pools) -> bool| {
                let (frontend, _) = heads.iter().find(|(_, pools)| wanted(*pools))?;
                Some(Place { layout: self.layout, protocol: info.protocol.number(), frontend: **frontend })
            };
            let known = |place: Place, set: &str, index| match &current
                .sets
                .get(set)?
                .elements
                .get(&*place.indexed(index))?
                .data
            {
                Data::Value(value) => self.layout.socket(value),
                Data::None | Data::Verdict(_) => None,
            };
            if let Some(place) = find(&|pools| pools.main && !pools.main_is_local) {
                port.cluster.align(|index| known(place, layout::ENDPOINTS, index));
            }
            if let Some(place) = find(&|pools| pools.local) {
                port.local.align(|index| known(place, layout::LOCAL_ENDPOINTS, index));
            } else if let Some(place) = find(&|pools| pools.main_is_local) {
                port.local.align(|index| known(place, layout::ENDPOINTS, index));
            }
        }
        self.ports = ports;
    }

    /// The work that carries out patches. O(what they change).
    pub fn apply(&mut self, patches: &[ServiceEndpointsPatch]) -> Work {
        let ipv6 = self.layout.ipv6;
        let handed_over = handed_over(patches);
        let mut work = Work::default();
        let (mut joined, mut joint) = (Steps::default(), Unit::default());
        let mut released = Vec::new();
        for patch in patches.iter().filter(|patch| patch.id.ipv6 == ipv6) {
            let (steps, unit) = self.apply_one(patch, &mut work, &mut released);
            if places(patch.service.before.as_deref())
                .chain(places(patch.service.after.as_deref()))
                .any(|place| handed_over.contains(&place))
            {
                joined = joined.join(steps);
                joint.ports.extend(unit.ports);
                joint.acquired.extend(unit.acquired);
            } else {
                work.add(steps, unit);
            }
        }
        work.add(joined, joint);
        // All users of the new state were counted before those of the old one leave: what only changes hands stays.
        work.gone = released.into_iter().filter(|shared| self.shared.release(shared)).collect();
        work
    }

    /// Units for the chains that are not there yet.
    fn new_classes(&mut self, wanted: Vec<Class>) -> impl Iterator<Item = Unit> {
        let wanted = wanted.into_iter().flat_map(Class::with_needed);
        let new: Vec<_> = wanted.filter(|class| self.classes.insert(*class)).collect();
        let (layout, mark) = (self.layout, self.config.masquerade_mark);
        new.into_iter().map(move |class| {
            let name = class.name();
            let rules = class.chain(layout, mark).rules.into_iter();
            let rules = rules.map(|rule| Op::AddRule { chain: name.clone(), rule });
            let ops = [Op::AddChain { name: name.clone(), base: None }].into_iter().chain(rules).collect();
            Unit { ops, class: Some(class), ..Unit::default() }
        })
    }

    fn apply_one(
        &mut self,
        patch: &ServiceEndpointsPatch,
        work: &mut Work,
        released: &mut Vec<Shared>,
    ) -> (Steps, Unit) {
        let known = self.ports.remove(&patch.id);
        let nothing = Port::default();
        let before = known.as_ref().unwrap_or(&nothing);
        let mut after = before.clone();
        after.info.clone_from(&patch.service.after);
        let (cluster, local) = after.change_endpoints(patch);
        let mut steps = Steps::default();
        self.change_frontends(before, &after, (&cluster, &local), &mut steps);
        self.rebind(before, &after, &mut steps, &mut work.forget);
        let [was, is] = [before, &after].map(|port| self.guards(port.info.as_deref()));
        steps.replace_head(was, is);
        work.units.extend(self.new_classes(std::mem::take(&mut steps.classes)));
        let mut unit = Unit::default();
        released.extend(before.shared());
        for shared in after.shared() {
            if self.shared.acquire(shared) {
                steps.add(shared.change());
                unit.acquired.push(shared);
            }
        }
        unit.ports.push((patch.id.clone(), known));
        if patch.service.op != Operation::Delete {
            self.ports.insert(patch.id.clone(), after);
        }
        (steps, unit)
    }

    /// Frontends that stay follow the moves within the pools; those that come or go bring or take all.
    fn change_frontends(&self, before: &Port, after: &Port, moves: (&[Move], &[Move]), steps: &mut Steps) {
        let (old, new) = (by_socket(before.info.as_deref()), by_socket(after.info.as_deref()));
        let sockets: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        for socket in sockets {
            let (was, is) = (old.get(socket), new.get(socket));
            let head = |port: &Port, frontend: Option<&Frontend>| {
                let known = port.info.as_ref().zip(frontend);
                known.map(|(info, frontend)| self.head(port, info, frontend)).unwrap_or_default()
            };
            let (head_before, head_after) = (head(before, was), head(after, is));
            match is {
                Some(frontend) if was.is_some() && head_before.pools == head_after.pools => {
                    self.follow_moves(after, frontend, moves, head_after.pools, steps);
                }
                _ => {
                    let places = |port: &Port, frontend: Option<&Frontend>, pools| -> Vec<Change> {
                        let known = port.info.as_ref().zip(frontend);
                        known
                            .map(|(info, one)| self.places(port, info, one, pools).collect())
                            .unwrap_or_default()
                    };
                    let old = places(before, was, head_before.pools);
                    steps.replace_places(old, places(after, is, head_after.pools));
                }
            }
            steps.classes.extend(head_after.class);
            steps.replace_head(head_before.changes, head_after.changes);
        }
    }

    fn follow_moves(
        &self,
        after: &Port,
        frontend: &Frontend,
        moves: (&[Move], &[Move]),
        pools: elements::Pools,
        steps: &mut Steps,
    ) {
        let Some(info) = &after.info else { return };
        let place = Place { layout: self.layout, protocol: info.protocol.number(), frontend: *frontend };
        let (main, local) = moves;
        let main_moves = if pools.main_is_local { local } else { main };
        let followed =
            [(layout::ENDPOINTS, main_moves, pools.main), (layout::LOCAL_ENDPOINTS, local, pools.local)];
        for (set, moves, used) in followed {
            for one in moves.iter().filter(|_| used) {
                let change = |socket| elements::place(set, place, one.index, self.layout, socket);
                match (one.before.map(change), one.after.map(change)) {
                    (Some(old), Some(new)) => steps.replace(old, new),
                    (None, Some(new)) => steps.add(new),
                    (Some(old), None) => steps.sweep(old),
                    (None, None) => {}
                }
            }
        }
    }

    /// Clients of a frontend may be bound to its endpoints, and to no other from the switch on. Who is bound to one that
    /// goes is to be unbound.
    fn rebind(&self, before: &Port, after: &Port, steps: &mut Steps, forget: &mut Vec<Forget>) {
        let layout = self.layout;
        let (was, is) = (before.bindings(layout), after.bindings(layout));
        let none = BTreeSet::new();
        for (frontend, endpoints) in &was {
            let gone: Vec<_> = endpoints.difference(is.get(frontend).unwrap_or(&none)).copied().collect();
            gone.iter().for_each(|socket| steps.delete(elements::sticky(layout, frontend, *socket)));
            let whose = |endpoint| Forget { frontend: frontend.clone(), endpoint };
            if is.contains_key(frontend) {
                forget.extend(gone.into_iter().map(|socket| whose(Some(layout.value(socket).into()))));
            } else {
                forget.push(whose(None));
            }
        }
        // Clients from outside must not leave the node any more, and those within may: nobody can tell whose binding is whose.
        for frontend in after.confined_since(before) {
            let Some(info) = &after.info else { continue };
            let place = Place { layout, protocol: info.protocol.number(), frontend: *frontend };
            let frontend: Box<[u8]> = place.key().into();
            let elsewhere = was
                .get(&frontend)
                .unwrap_or(&none)
                .iter()
                .filter(|one| !after.local.iter().any(|here| here == **one));
            forget.extend(elsewhere.map(|socket| Forget {
                frontend: frontend.clone(),
                endpoint: Some(layout.value(*socket).into()),
            }));
        }
        for (frontend, endpoints) in &is {
            let come = endpoints.difference(was.get(frontend).unwrap_or(&none));
            come.for_each(|socket| steps.add(elements::sticky(layout, frontend, *socket)));
        }
    }

    fn head(&self, port: &Port, info: &ServicePortInfo, frontend: &Frontend) -> Head {
        let place = Place { layout: self.layout, protocol: info.protocol.number(), frontend: *frontend };
        Head::new(place, info, port.cluster.len(), port.local.len())
    }

    fn guards(&self, info: Option<&ServicePortInfo>) -> Vec<Change> {
        elements::guards(self.layout, info, &self.config.node_addresses)
    }

    fn places<'a>(
        &'a self,
        port: &'a Port,
        info: &ServicePortInfo,
        frontend: &Frontend,
        pools: elements::Pools,
    ) -> impl Iterator<Item = Change> + 'a {
        let place = Place { layout: self.layout, protocol: info.protocol.number(), frontend: *frontend };
        let main = if pools.main_is_local { &port.local } else { &port.cluster };
        let layout = self.layout;
        let list = move |set, pool: &'a Pool, used: bool| {
            let indexed = pool.iter().zip(0_u32..).filter(move |_| used);
            indexed.map(move |(socket, index)| elements::place(set, place, index, layout, socket))
        };
        list(layout::ENDPOINTS, main, pools.main).chain(list(
            layout::LOCAL_ENDPOINTS,
            &port.local,
            pools.local,
        ))
    }
}

impl Port {
    fn shared(&self) -> BTreeSet<Shared> {
        elements::shared(self.info.as_deref(), &self.hairpins)
    }

    /// For each frontend of a sticky port, by its key, the endpoints that clients may be bound to.
    fn bindings(&self, layout: Layout) -> BTreeMap<Box<[u8]>, BTreeSet<(IpAddr, u16)>> {
        let Some(info) = self.info.as_ref().filter(|info| info.affinity.is_some()) else {
            return BTreeMap::new();
        };
        let place =
            |frontend: &Frontend| Place { layout, protocol: info.protocol.number(), frontend: *frontend };
        let endpoints = |frontend: &Frontend| -> BTreeSet<(IpAddr, u16)> {
            match (frontend.kind.is_external(), info.internal_local, info.external_local) {
                (false, true, _) => self.local.iter().collect(),
                // Pods and the node still go anywhere.
                (true, _, true) => self.cluster.iter().chain(self.local.iter()).collect(),
                (false, false, _) | (true, _, false) => self.cluster.iter().collect(),
            }
        };
        info.frontends.iter().map(|one| (place(one).key().into(), endpoints(one))).collect()
    }

    /// Frontends that clients from outside could leave the node by, and can no more.
    fn confined_since(&self, before: &Self) -> impl Iterator<Item = &Frontend> {
        let confines = |port: &Self| port.info.as_ref().is_some_and(|info| info.external_local);
        let is_new = confines(self) && !confines(before);
        let frontends = self.info.iter().flat_map(|info| &info.frontends);
        frontends.filter(move |one| is_new && one.kind.is_external())
    }

    /// Returns how places within the two pools change.
    fn change_endpoints(&mut self, patch: &ServiceEndpointsPatch) -> (Vec<Move>, Vec<Move>) {
        let (mut cluster, mut local) = (Vec::new(), Vec::new());
        for one in &patch.endpoints {
            let (endpoint, socket) = (one.endpoint, one.endpoint.socket());
            let stays = one.op != Operation::Delete;
            cluster.push((socket, stays && endpoint.in_cluster_pool));
            local.push((socket, stays && endpoint.in_local_pool));
            if stays && endpoint.is_local {
                self.hairpins.insert(socket);
            } else {
                self.hairpins.remove(&socket);
            }
        }
        (self.cluster.change(&cluster), self.local.change(&local))
    }
}

impl Work {
    fn add(&mut self, steps: Steps, unit: Unit) {
        let ports = unit.ports().cloned().collect();
        let (switch, later) = steps.into_ops();
        self.units.extend((!switch.is_empty()).then_some(Unit { ops: switch, ..unit }));
        self.sweeps.extend((!later.is_empty()).then_some(Sweep { ops: later, ports }));
    }
}

fn by_socket(info: Option<&ServicePortInfo>) -> BTreeMap<(IpAddr, u16), Frontend> {
    let frontends = info.into_iter().flat_map(|info| &info.frontends);
    frontends.map(|frontend| ((frontend.address, frontend.port), *frontend)).collect()
}

/// Where a port answers or guards.
fn places(info: Option<&ServicePortInfo>) -> impl Iterator<Item = (IpAddr, u16, Protocol)> + '_ {
    info.into_iter().flat_map(|info| {
        let answers = info.frontends.iter().map(|one| (one.address, one.port));
        let sockets = answers.chain(info.guarded.iter().copied());
        sockets.map(|(address, port)| (address, port, info.protocol))
    })
}

/// Places that one patch gives up and another takes. One may have answered where another guarded, so several can give one up.
fn handed_over(patches: &[ServiceEndpointsPatch]) -> HashSet<(IpAddr, u16, Protocol)> {
    let mut given_up: HashMap<_, Vec<_>> = HashMap::new();
    for patch in patches {
        for place in places(patch.service.before.as_deref()) {
            given_up.entry(place).or_default().push(&patch.id);
        }
    }
    let taken = patches
        .iter()
        .flat_map(|patch| places(patch.service.after.as_deref()).map(move |place| (place, &patch.id)));
    taken
        .filter(|(place, id)| {
            given_up.get(place).is_some_and(|owners| owners.iter().any(|owner| owner != id))
        })
        .map(|(place, _)| place)
        .collect()
}

#[cfg(test)]
mod tests;
