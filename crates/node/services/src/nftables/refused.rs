//! Ports that the kernel refuses: the plane goes back to what the kernel has, so that the others can go on.
//!
//! A refused port stays as it is in the kernel, and patches for it are kept from the plane. Whoever tries it again asks
//! for the patch that leads from there to what is wanted ([`Plane::toward`]). If a comparison of all finds it, nobody
//! knows what the kernel has of it: it is withdrawn, and what the kernel has is left until it can be replaced.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    ops::Bound::{Included, Unbounded},
    sync::Arc,
};

use node_nft::{CurrentTable, Element, Op};

use super::{
    Plane, Port, Unit, Work,
    elements::Shared,
    layout::{self, Layout, Place},
    steps::Steps,
};
use crate::{
    EndpointInfo, EndpointPatch, Operation, PortId, ServiceEndpointsPatch, ServicePatch, ServicePortInfo,
};

impl Plane {
    /// The kernel refused a unit. Returns operations for what the unit would have brought and others rely on.
    pub fn revert(&mut self, unit: &Unit) -> Vec<Op> {
        if let Some(class) = &unit.class {
            self.classes.remove(class);
        }
        for (id, before) in &unit.ports {
            let after = self.ports.remove(id);
            self.replace(id, before.clone(), after);
        }
        let mut steps = Steps::default();
        let orphans = unit.acquired.iter().filter(|shared| self.shared.contains(shared));
        orphans.for_each(|shared| self.bring(*shared, &mut steps));
        steps.into_ops().0
    }

    /// Takes a port out of which nobody knows what the kernel has.
    pub fn withdraw(&mut self, id: &PortId) {
        let known = self.ports.remove(id);
        self.replace(id, None, known);
    }

    fn replace(&mut self, id: &PortId, new: Option<Port>, old: Option<Port>) {
        for shared in new.iter().flat_map(Port::shared) {
            self.shared.acquire(shared);
        }
        for shared in old.iter().flat_map(Port::shared) {
            self.shared.release(&shared);
        }
        self.ports.extend(new.map(|port| (id.clone(), port)));
    }

    /// Operations for what nobody shares any more. Call it when refused units were reverted.
    pub fn unshared(&self, work: &Work) -> Vec<Vec<Op>> {
        let gone: BTreeSet<Shared> =
            work.gone.iter().filter(|one| !self.shared.contains(one)).copied().collect();
        gone.into_iter().map(|shared| vec![shared.delete()]).collect()
    }

    /// The patch that leads from what the plane has of a port to what is wanted of it.
    pub fn toward<'a>(
        &self,
        id: &PortId,
        wanted: Option<(&ServicePortInfo, impl Iterator<Item = &'a EndpointInfo>)>,
    ) -> ServiceEndpointsPatch {
        let known = self.ports.get(id);
        let before = known.and_then(|port| port.info.clone());
        let (after, endpoints) = match wanted {
            Some((info, endpoints)) => (Some(Arc::new(info.clone())), endpoints.copied().collect()),
            None => (None, Vec::new()),
        };
        let mut gone: BTreeSet<(IpAddr, u16)> = known.iter().flat_map(|port| port.sockets()).collect();
        for endpoint in &endpoints {
            gone.remove(&endpoint.socket());
        }
        let come =
            endpoints.iter().map(|endpoint| EndpointPatch { op: Operation::Create, endpoint: *endpoint });
        let gone = gone.into_iter().map(|(address, port)| {
            let (is_local, in_cluster_pool, in_local_pool, is_serving) = (false, false, false, false);
            let endpoint =
                EndpointInfo { address, port, is_local, in_cluster_pool, in_local_pool, is_serving };
            EndpointPatch { op: Operation::Delete, endpoint }
        });
        let endpoints = come.chain(gone).collect();
        ServiceEndpointsPatch { id: id.clone(), service: ServicePatch::between(before, after), endpoints }
    }

    /// Operations that may be done one by one, by the port they belong to; and those that may not. O(ports): for when
    /// something was refused.
    pub fn apart(&self, ops: &[Op]) -> Apart {
        let owners = self.owners();
        let mut apart = Apart::default();
        for op in ops {
            let (Op::AddElements { set, schema, elements } | Op::DeleteElements { set, schema, elements }) =
                op
            else {
                apart.frame.push(op.clone());
                continue;
            };
            for (key, element) in elements {
                let owner = owners.of(set, key, self.layout);
                let (set, schema, elements) =
                    (set.clone(), schema.clone(), vec![(key.clone(), element.clone())]);
                let op = match op {
                    Op::AddElements { .. } => Op::AddElements { set, schema, elements },
                    _ => Op::DeleteElements { set, schema, elements },
                };
                match owner {
                    Some(id) => apart.ports.entry(id.clone()).or_default().push(op),
                    None => apart.nobodys.push(op),
                }
            }
        }
        apart
    }

    /// What the kernel has where a port is found. The port may be one that the plane does not know.
    pub fn leftovers(&self, info: &ServicePortInfo, current: &CurrentTable) -> Vec<(&'static str, Leftover)> {
        let mut found = Vec::new();
        for frontend in &info.frontends {
            let place = Place { layout: self.layout, protocol: info.protocol.number(), frontend: *frontend };
            let key: Box<[u8]> = place.key().into();
            for set in BY_PLACE {
                let elements = current.sets.get(*set).map(|set| &set.elements);
                let from = elements
                    .into_iter()
                    .flat_map(|elements| elements.range::<[u8], _>((Included(&*key), Unbounded)));
                let mine = from.take_while(|(found, _)| found.starts_with(&key));
                found.extend(mine.map(|(key, element)| (*set, (key.clone(), element.clone()))));
            }
        }
        found
    }

    /// Makes a unit that brings a port also remove what an earlier state of it has left, and take over the chains.
    pub fn replace_leftovers(
        &self,
        unit: &mut Unit,
        leftovers: Vec<(&'static str, Leftover)>,
        current: &CurrentTable,
    ) {
        for op in &mut unit.ops {
            if let Op::AddChain { name, base: None } = op
                && current.chains.contains_key(name)
            {
                *op = Op::FlushChain { name: std::mem::take(name) };
            }
        }
        let delete = leftovers.into_iter().map(|(set, element)| Op::DeleteElements {
            set: set.to_owned(),
            schema: self.layout.schema(set),
            elements: vec![element],
        });
        unit.ops.splice(0..0, delete);
    }

    fn owners(&self) -> Owners<'_> {
        let mut owners = Owners::default();
        for (id, port) in &self.ports {
            let Some(info) = &port.info else { continue };
            for frontend in &info.frontends {
                let place =
                    Place { layout: self.layout, protocol: info.protocol.number(), frontend: *frontend };
                owners.by_place.insert(place.key().into(), id);
            }
            let elements = port.shared().into_iter().filter_map(Shared::change);
            owners.by_element.extend(elements.map(|change| (change.id(), id)));
        }
        owners
    }
}

/// Whose an element is: by the frontend that its key begins with, or by the element itself.
#[derive(Default)]
struct Owners<'a> {
    by_place: HashMap<Box<[u8]>, &'a PortId>,
    by_element: HashMap<(&'static str, Box<[u8]>), &'a PortId>,
}

impl<'a> Owners<'a> {
    fn of(&self, set: &str, key: &[u8], layout: Layout) -> Option<&'a PortId> {
        if BY_PLACE.contains(&set) {
            return self.by_place.get(key.get(..layout.place_len())?).copied();
        }
        let set = [layout::CLUSTER_IPS, layout::HAIRPIN].into_iter().find(|known| *known == set)?;
        self.by_element.get(&(set, key.into())).copied()
    }
}

/// An element as the kernel has it.
pub type Leftover = (Box<[u8]>, Element);

/// A transaction, taken apart.
#[derive(Clone, Debug, Default)]
pub struct Apart {
    /// Tables, chains, rules and sets: all or nothing.
    pub frame: Vec<Op>,
    pub ports: BTreeMap<PortId, Vec<Op>>,
    /// Elements that no port has to do with.
    pub nobodys: Vec<Op>,
}

/// Sets whose keys begin with address, protocol and port of a frontend.
const BY_PLACE: &[&str] = &[
    layout::SERVICES,
    layout::NO_ENDPOINTS,
    layout::ENDPOINTS,
    layout::LOCAL_ENDPOINTS,
    layout::FIREWALL,
    layout::ALLOWED_SOURCES,
    layout::AFFINITY_TIMEOUTS,
    layout::UNBOUND,
    layout::STICKY_ENDPOINTS,
    layout::LOCAL_STICKY_ENDPOINTS,
];

impl Port {
    /// Endpoints that it has anything of.
    fn sockets(&self) -> impl Iterator<Item = (IpAddr, u16)> + '_ {
        self.cluster.iter().chain(self.local.iter()).chain(self.hairpins.iter().copied())
    }
}
