//! The sets of the controller as they are held here.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use model::policy::output::{Addresses, Member, NamedPort, Protocol};
use rustc_hash::FxHashMap;

use crate::object::WorkloadId;

/// Peers. A workload may be in it more than once, with other addresses: that is how a change of address looks while
/// it is on its way.
#[derive(Default)]
pub struct AddressSet {
    members: FxHashMap<WorkloadId, Vec<Peer>>,
    /// Numbers that members have under a name, and how many.
    named: FxHashMap<(Arc<str>, Protocol), BTreeMap<u16, usize>>,
}

#[derive(Clone, Debug)]
pub struct Peer {
    pub addresses: Addresses,
    pub ports: Box<[NamedPort]>,
}

impl AddressSet {
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.members.values().flatten()
    }

    pub fn of(&self, id: &WorkloadId) -> impl Iterator<Item = &Peer> {
        self.members.get(id).into_iter().flatten()
    }

    pub fn ids(&self) -> impl Iterator<Item = &WorkloadId> {
        self.members.keys()
    }

    pub fn named_ports(&self, name: &str, protocol: Protocol) -> Vec<u16> {
        let ports = self.named.get(&(Arc::from(name), protocol));
        ports.into_iter().flat_map(|ports| ports.keys().copied()).collect()
    }

    /// The member it replaces, and whether names now mean other numbers than before.
    pub fn put(&mut self, id: &WorkloadId, member: Member) -> (Option<Peer>, bool) {
        let (removed, mut renamed) = self.remove(id, &member.addresses);
        for port in &member.ports {
            let ports = self.named.entry((port.name.clone(), port.protocol)).or_default();
            let count = ports.entry(port.port).or_default();
            renamed |= *count == 0;
            *count += 1;
        }
        let peer = Peer { addresses: member.addresses, ports: member.ports };
        self.members.entry(id.clone()).or_default().push(peer);
        (removed, renamed)
    }

    pub fn remove(&mut self, id: &WorkloadId, addresses: &Addresses) -> (Option<Peer>, bool) {
        let Some(peers) = self.members.get_mut(id) else { return (None, false) };
        let Some(index) = peers.iter().position(|peer| peer.addresses == *addresses) else {
            return (None, false);
        };
        let peer = peers.swap_remove(index);
        if peers.is_empty() {
            self.members.remove(id);
        }
        let mut renamed = false;
        for port in &peer.ports {
            let key = (port.name.clone(), port.protocol);
            let Some(ports) = self.named.get_mut(&key) else { continue };
            if let Some(count) = ports.get_mut(&port.port) {
                *count -= 1;
                if *count == 0 {
                    ports.remove(&port.port);
                    renamed = true;
                }
            }
            if ports.is_empty() {
                self.named.remove(&key);
            }
        }
        (Some(peer), renamed)
    }
}

impl Peer {
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.as_slice().iter().copied()
    }
}

/// A node, and the workload's ports there.
type Placement = (Option<Arc<str>>, Box<[NamedPort]>);

/// The workloads that policies apply to: where each is, and its ports.
#[derive(Default)]
pub struct AppliedToSet {
    members: FxHashMap<WorkloadId, Vec<Placement>>,
}

impl AppliedToSet {
    pub fn put(&mut self, member: Member) {
        self.remove(&member);
        self.members.entry(WorkloadId::of(&member)).or_default().push((member.node, member.ports));
    }

    pub fn remove(&mut self, member: &Member) {
        let id = WorkloadId::of(member);
        if let Some(places) = self.members.get_mut(&id) {
            places.retain(|(node, _)| *node != member.node);
            if places.is_empty() {
                self.members.remove(&id);
            }
        }
    }

    pub fn contains(&self, id: &WorkloadId) -> bool {
        self.members.contains_key(id)
    }

    /// Workloads in it.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = &WorkloadId> {
        self.members.keys()
    }

    pub fn is_on(&self, id: &WorkloadId, here: &str) -> bool {
        let places = self.members.get(id).into_iter().flatten();
        places.into_iter().any(|(node, _)| node.as_deref() == Some(here))
    }

    pub fn ports(&self, id: &WorkloadId) -> impl Iterator<Item = &NamedPort> {
        self.members.get(id).into_iter().flatten().flat_map(|(_, ports)| ports.iter())
    }
}
