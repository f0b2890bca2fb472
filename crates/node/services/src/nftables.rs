//! Services in nftables: a constant number of rules, all growth in maps, one table per family.
//!
//! ```text
//!   prerouting, output ─► firewall-check ─► dispatch ─► services: address . protocol . port ─► goto CLASS
//!                                                                                                │
//!      pick-3          dnat to endpoints[ address . protocol . port . random below 3 ] ◄─────────┤
//!      external-3      mark for masquerade, then as pick-3 ◄─────────────────────────────────────┤
//!      local-3-1       pods: pick-3; the node: external-3; others: local-endpoints, 1 of them ◄──┤
//!      sticky-ANCHOR   affinity[ client . ANCHOR ], else unbound: ─► goto CLASS ◄────────────────┘
//!                      afterwards remember-60-ANCHOR: bound for 60 s if in sticky-endpoints, else dropped and unbound
//! ```
//!
//! A class is a chain for one way of treating packets and one number of endpoints; services share it. There are as
//! many as there are different numbers of endpoints, and they are made when first needed. A port with affinity has some
//! chains of its own, in which its anchor stands, the place that its clients are remembered under. Whom a local policy
//! confines to this node is bound there by itself (`local-affinity`): elsewhere the same client may be bound to any endpoint.
//!
//! Each port of a service changes in one transaction: a packet sees its old endpoints or its new ones. What nothing
//! leads to any more (places behind the end of a pool that shrank) goes in a later one, because a packet that is on
//! its way through the rules may still ask for it.

mod class;
pub(crate) mod elements;
mod interface;
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
pub use interface::{Interfaces, NoInterface};
pub use layout::{AFFINITY, Bond, TABLE};
use layout::{Anchor, Layout, Place};
use pool::{Move, Pool};
pub use refused::{Apart, Leftover};
use steps::Steps;
pub use work::{Forget, Sweep, Unit, Work};

#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses of Pods: of those of this node at least, and of all nodes where they are known. Who is not among them, and
    /// comes by none of `pod_interfaces`, is from outside. If both are empty nobody can tell.
    pub pod_prefixes: Vec<IpNet>,
    /// Where packets of the node's own Pods come in.
    pub pod_interfaces: Vec<Interfaces>,
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
            pod_interfaces: Vec::new(),
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
    pub fn affinity(&self, bond: Bond) -> (&'static str, SetSchema) {
        (bond.map(), self.layout.schema(bond.map()))
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
            table.chain(class.name(), class.chain(self.layout, &self.config));
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
            for ((bond, anchor), endpoints) in port.bindings() {
                endpoints.into_iter().for_each(|one| put(elements::sticky(self.layout, bond, &anchor, one)));
            }
            self.guards(Some(info)).into_iter().for_each(&mut put);
        }
        for shared in self.shared.iter() {
            if let Shared::Chain(class) = shared {
                table.chain(class.name(), class.chain(self.layout, &self.config));
            } else if let Some(change) = shared.change()
                && let Some(set) = table.sets.get_mut(change.set)
            {
                set.insert(change.key, change.element);
            }
        }
        table
    }

    /// Adds what has its first user.
    fn bring(&self, shared: Shared, steps: &mut Steps) {
        match shared {
            Shared::Chain(class) => steps.chain(class.name(), class.chain(self.layout, &self.config)),
            Shared::ClusterIp(_) | Shared::Hairpin { .. } => {
                shared.change().into_iter().for_each(|change| steps.add(change))
            }
        }
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
        let (layout, config) = (self.layout, &self.config);
        new.into_iter().map(move |class| {
            let name = class.name();
            let rules = class.chain(layout, config).rules.into_iter();
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
                self.bring(shared, &mut steps);
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

    /// Clients may be bound to a port's endpoints, and to no other from the switch on. Who is bound to one that goes is to
    /// be unbound.
    fn rebind(&self, before: &Port, after: &Port, steps: &mut Steps, forget: &mut Vec<Forget>) {
        let layout = self.layout;
        let (was, is) = (before.bindings(), after.bindings());
        let none = BTreeSet::new();
        for (at, endpoints) in &was {
            let (bond, anchor) = at;
            let gone: Vec<_> = endpoints.difference(is.get(at).unwrap_or(&none)).copied().collect();
            gone.iter().for_each(|socket| steps.delete(elements::sticky(layout, *bond, anchor, *socket)));
            let whose = |endpoint| Forget { bond: *bond, anchor: anchor.clone(), endpoint };
            if is.contains_key(at) {
                forget.extend(gone.into_iter().map(|socket| whose(Some(layout.value(socket).into()))));
            } else {
                forget.push(whose(None));
            }
        }
        for (at, endpoints) in &is {
            let come = endpoints.difference(was.get(at).unwrap_or(&none));
            come.for_each(|socket| steps.add(elements::sticky(layout, at.0, &at.1, *socket)));
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

/// Where connections go.
type Endpoints = BTreeSet<(IpAddr, u16)>;

impl Port {
    fn shared(&self) -> BTreeSet<Shared> {
        elements::shared(self.info.as_deref(), &self.hairpins)
    }

    /// The endpoints that clients of a port with affinity may be bound to, by the key of its anchor.
    fn bindings(&self) -> BTreeMap<(Bond, Box<[u8]>), Endpoints> {
        let Some((info, anchor)) = self.info.as_ref().and_then(|info| Some((info, Anchor::of(info)?))) else {
            return BTreeMap::new();
        };
        let pool = |bond| match bond {
            Bond::Anywhere => &self.cluster,
            Bond::Here => &self.local,
        };
        let bound = |bond| ((bond, anchor.key().into()), pool(bond).iter().collect());
        elements::bonds(info).map(bound).collect()
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
