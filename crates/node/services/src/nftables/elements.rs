//! What one port of a service adds to the sets and maps.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use node_nft::{Element, Key, Op, Ranges, Verdict};

use super::{
    Class,
    class::Memory,
    layout::{
        AFFINITY_TIMEOUTS, ALLOWED_SOURCES, Anchor, Bond, CLUSTER_IPS, FIREWALL, HAIRPIN, Layout,
        NO_ENDPOINTS, Place, REJECT, SERVICES, UNBOUND,
    },
};
use crate::{FrontendKind, ServicePortInfo};

/// One element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub set: &'static str,
    pub key: Box<[u8]>,
    pub element: Element,
    ipv6: bool,
}

impl Change {
    fn new(layout: Layout, set: &'static str, key: impl Into<Box<[u8]>>, element: Element) -> Self {
        Self { set, key: key.into(), element, ipv6: layout.ipv6 }
    }

    /// Two changes with the same id are about the same element.
    pub fn id(&self) -> (&'static str, Box<[u8]>) {
        (self.set, self.key.clone())
    }

    pub fn add(self) -> Op {
        let schema = Layout { ipv6: self.ipv6 }.schema(self.set);
        Op::AddElements { set: self.set.into(), schema, elements: vec![(self.key, self.element)] }
    }

    pub fn delete(self) -> Op {
        let schema = Layout { ipv6: self.ipv6 }.schema(self.set);
        Op::DeleteElements { set: self.set.into(), schema, elements: vec![(self.key, self.element)] }
    }
}

/// Which pools a frontend needs in the maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    /// A pool under `endpoints`.
    pub main: bool,
    /// It is the local one.
    pub main_is_local: bool,
    /// The local pool under `local-endpoints`.
    pub local: bool,
}

/// What leads to a frontend's endpoints, or says that there are none.
#[derive(Clone, Debug, Default)]
pub struct Head {
    pub changes: Vec<Change>,
    /// Shared by services; must exist before the changes are made.
    pub class: Vec<Class>,
    pub pools: Pools,
}

enum Treatment {
    Reject,
    Drop,
    Balance(Class, Pools),
}

impl Head {
    pub fn new(place: Place, info: &ServicePortInfo, any: u32, here: u32) -> Self {
        let mut head = Self::default();
        let layout = place.layout;
        let mut put = |set, key: Key, element| head.changes.push(Change::new(layout, set, key, element));
        match treatment(info, place.frontend.kind, any, here) {
            Treatment::Reject => {
                put(NO_ENDPOINTS, place.key(), Element::verdict(Verdict::Goto(REJECT.into())))
            }
            Treatment::Drop => put(NO_ENDPOINTS, place.key(), Element::verdict(Verdict::Drop)),
            Treatment::Balance(class, pools) => {
                let mut leads =
                    |set, to: Class| put(set, place.key(), Element::verdict(Verdict::Goto(to.name())));
                match keepers(info, place.frontend.kind) {
                    Some(Keepers { bound, remember }) => {
                        leads(SERVICES, bound);
                        leads(UNBOUND, class);
                        leads(AFFINITY_TIMEOUTS, remember);
                    }
                    None => leads(SERVICES, class),
                }
                head.class.push(class);
                head.pools = pools;
            }
        }
        head
    }
}

fn treatment(info: &ServicePortInfo, kind: FrontendKind, any: u32, here: u32) -> Treatment {
    let nobody = || if info.has_endpoints { Treatment::Drop } else { Treatment::Reject };
    let main = Pools { main: true, ..Pools::default() };
    match (kind.is_external(), info.internal_local, info.external_local) {
        (false, true, _) if here == 0 => nobody(),
        (false, true, _) => Treatment::Balance(Class::Pick(here), Pools { main_is_local: true, ..main }),
        (true, _, true) if any == 0 && here == 0 => nobody(),
        (true, _, true) => {
            let pools = Pools { main: any > 0, local: here > 0, main_is_local: false };
            Treatment::Balance(Class::Local { any, here }, pools)
        }
        (false, false, _) | (true, _, false) if any == 0 => Treatment::Reject,
        (false, false, _) => Treatment::Balance(Class::Pick(any), main),
        (true, _, false) => Treatment::Balance(Class::External(any), main),
    }
}

/// The chains by which a port with affinity keeps its clients.
struct Keepers {
    bound: Class,
    remember: Class,
}

fn keepers(info: &ServicePortInfo, kind: FrontendKind) -> Option<Keepers> {
    let anchor = Anchor::of(info)?;
    let memory = Memory { anchor, seconds: info.affinity? };
    let (bound, remember) = match (kind.is_external(), info.internal_local, info.external_local) {
        (false, true, _) => (Class::StickyHere(anchor), Class::RememberHere(memory)),
        (true, _, true) => (Class::LocalSticky(anchor), Class::RememberLocal(memory)),
        (false, false, _) => (Class::Sticky(anchor), Class::Remember(memory)),
        (true, _, false) => (Class::ExternalSticky(anchor), Class::Remember(memory)),
    };
    Some(Keepers { bound, remember })
}

/// What clients of a port with affinity may be bound to, as far as they can come to need it.
pub fn bonds(info: &ServicePortInfo) -> impl Iterator<Item = Bond> {
    let needs = |bond: Bond| {
        info.frontends.iter().any(|one| match (one.kind.is_external(), bond) {
            (false, Bond::Anywhere) => !info.internal_local,
            (false, Bond::Here) => info.internal_local,
            // Pods and the node go anywhere, whatever the policy.
            (true, Bond::Anywhere) => true,
            (true, Bond::Here) => info.external_local,
        })
    };
    Bond::ALL.into_iter().filter(move |bond| info.affinity.is_some() && needs(*bond))
}

/// A node that may use the balancer may also do so under the balancer's own address: that is the source which the
/// kernel picks for packets of the node to an address that the node itself holds.
pub fn allowed_sources(ipv6: bool, info: &ServicePortInfo, node: &[IpAddr]) -> Vec<(IpAddr, IpAddr)> {
    let node_may = node.iter().any(|address| info.source_ranges.iter().any(|range| range.contains(address)));
    let balancers = info.guarded.iter().filter(move |_| node_may).map(|(address, _)| (*address).into());
    let prefixes: Vec<IpNet> = info.source_ranges.iter().copied().chain(balancers).collect();
    Ranges::new(ipv6, prefixes).iter().collect()
}

/// What keeps all but the allowed sources from what a port guards.
pub fn guards(layout: Layout, info: Option<&ServicePortInfo>, node: &[IpAddr]) -> Vec<Change> {
    let Some(info) = info.filter(|info| !info.guarded.is_empty()) else { return Vec::new() };
    let allowed = allowed_sources(layout.ipv6, info, node);
    let mut changes = Vec::with_capacity(info.guarded.len() * (1 + allowed.len()));
    for (address, port) in &info.guarded {
        let key = Key::new().address(*address).proto(info.protocol.number()).port(*port);
        changes.push(Change::new(layout, FIREWALL, key, Element::member()));
        changes.extend(allowed.iter().map(|(first, last)| {
            let member = Element::member().until(key.address(*last));
            Change::new(layout, ALLOWED_SOURCES, key.address(*first), member)
        }));
    }
    changes
}

/// One endpoint in its place.
pub fn place(set: &'static str, place: Place, index: u32, layout: Layout, socket: (IpAddr, u16)) -> Change {
    Change::new(layout, set, place.indexed(index), Element::value(layout.value(socket)))
}

/// An endpoint that clients of a port, given by the key of its anchor, may be bound to.
pub fn sticky(layout: Layout, bond: Bond, anchor: &[u8], socket: (IpAddr, u16)) -> Change {
    let endpoint: Box<[u8]> = layout.value(socket).into();
    Change::new(layout, bond.endpoints(), [anchor, &*endpoint].concat(), Element::member())
}

/// What several ports may need, or one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shared {
    ClusterIp(IpAddr),
    Hairpin {
        protocol: u8,
        endpoint: (IpAddr, u16),
    },
    /// A chain by which a port keeps its clients.
    Chain(Class),
}

impl Shared {
    pub fn delete(self) -> Op {
        match self {
            Self::Chain(class) => Op::DeleteChain { name: class.name() },
            Self::ClusterIp(_) | Self::Hairpin { .. } => {
                self.change().expect("what is no chain is an element").delete()
            }
        }
    }

    /// The element, if it is one.
    pub fn change(self) -> Option<Change> {
        let change = match self {
            Self::Chain(_) => return None,
            Self::ClusterIp(address) => {
                let layout = Layout { ipv6: address.is_ipv6() };
                Change::new(layout, CLUSTER_IPS, Key::new().address(address), Element::member())
            }
            Self::Hairpin { protocol, endpoint: (address, port) } => {
                let layout = Layout { ipv6: address.is_ipv6() };
                let key = Key::new().address(address).address(address).proto(protocol).port(port);
                Change::new(layout, HAIRPIN, key, Element::member())
            }
        };
        Some(change)
    }
}

pub fn shared(info: Option<&ServicePortInfo>, hairpins: &BTreeSet<(IpAddr, u16)>) -> BTreeSet<Shared> {
    let Some(info) = info else { return BTreeSet::new() };
    let protocol = info.protocol.number();
    let addresses = info.frontends.iter().filter(|one| one.kind == FrontendKind::ClusterIp);
    let addresses = addresses.map(|one| Shared::ClusterIp(one.address));
    let hairpins = hairpins.iter().map(|&endpoint| Shared::Hairpin { protocol, endpoint });
    let keepers = info.frontends.iter().filter_map(|one| keepers(info, one.kind));
    let chains = keepers.flat_map(|Keepers { bound, remember }| [bound, remember]);
    let chains = chains.flat_map(Class::with_needed).map(Shared::Chain);
    addresses.chain(hairpins).chain(chains).collect()
}
