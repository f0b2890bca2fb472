//! What one port of a service adds to the sets and maps.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use node_nft::{Element, Key, Op, Ranges, Verdict};

use super::{
    Class,
    layout::{
        AFFINITY_TIMEOUTS, ALLOWED_SOURCES, CLUSTER_IPS, FIREWALL, HAIRPIN, Layout, NO_ENDPOINTS, Place,
        REJECT, SERVICES, STICKY_ENDPOINTS,
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
    /// Must exist before the changes are made.
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
                put(SERVICES, place.key(), Element::verdict(Verdict::Goto(class.name())));
                if let Some(seconds) = info.affinity {
                    let remember = Class::Remember(seconds);
                    put(AFFINITY_TIMEOUTS, place.key(), Element::verdict(Verdict::Goto(remember.name())));
                    head.class.push(remember);
                }
                head.class.push(class);
                head.pools = pools;
            }
        }
        head
    }
}

fn treatment(info: &ServicePortInfo, kind: FrontendKind, any: u32, here: u32) -> Treatment {
    let sticky = info.affinity.is_some();
    let nobody = || if info.has_endpoints { Treatment::Drop } else { Treatment::Reject };
    let main = Pools { main: true, ..Pools::default() };
    match (kind.is_external(), info.internal_local, info.external_local) {
        (false, true, _) if here == 0 => nobody(),
        (false, true, _) => {
            let class = if sticky { Class::Sticky(here) } else { Class::Pick(here) };
            Treatment::Balance(class, Pools { main_is_local: true, ..main })
        }
        (true, _, true) if any == 0 && here == 0 => nobody(),
        (true, _, true) => {
            let class = if sticky { Class::LocalSticky { any, here } } else { Class::Local { any, here } };
            Treatment::Balance(class, Pools { main: any > 0, local: here > 0, main_is_local: false })
        }
        (false, false, _) | (true, _, false) if any == 0 => Treatment::Reject,
        (false, false, _) => {
            Treatment::Balance(if sticky { Class::Sticky(any) } else { Class::Pick(any) }, main)
        }
        (true, _, false) => {
            Treatment::Balance(if sticky { Class::ExternalSticky(any) } else { Class::External(any) }, main)
        }
    }
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

/// An endpoint that clients of a frontend, given by its key, may be bound to.
pub fn sticky(layout: Layout, frontend: &[u8], socket: (IpAddr, u16)) -> Change {
    let endpoint: Box<[u8]> = layout.value(socket).into();
    Change::new(layout, STICKY_ENDPOINTS, [frontend, &*endpoint].concat(), Element::member())
}

/// Elements that several ports may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shared {
    ClusterIp(IpAddr),
    Hairpin { protocol: u8, endpoint: (IpAddr, u16) },
}

impl Shared {
    pub fn change(self) -> Change {
        match self {
            Self::ClusterIp(address) => {
                let layout = Layout { ipv6: address.is_ipv6() };
                Change::new(layout, CLUSTER_IPS, Key::new().address(address), Element::member())
            }
            Self::Hairpin { protocol, endpoint: (address, port) } => {
                let layout = Layout { ipv6: address.is_ipv6() };
                let key = Key::new().address(address).address(address).proto(protocol).port(port);
                Change::new(layout, HAIRPIN, key, Element::member())
            }
        }
    }
}

pub fn shared(info: Option<&ServicePortInfo>, hairpins: &BTreeSet<(IpAddr, u16)>) -> BTreeSet<Shared> {
    let Some(info) = info else { return BTreeSet::new() };
    let protocol = info.protocol.number();
    let addresses = info.frontends.iter().filter(|one| one.kind == FrontendKind::ClusterIp);
    let addresses = addresses.map(|one| Shared::ClusterIp(one.address));
    addresses.chain(hairpins.iter().map(|&endpoint| Shared::Hairpin { protocol, endpoint })).collect()
}
