//! The IPVS plane of both families, kept equal to the kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Instant,
};

use node_services::{
    Operation, Protocol, ServiceEndpointsPatch, Store,
    ipvs::{Config, Op, Plane, ServerId},
    nftables,
};

use super::{Tables, guard::Guard, quarantine::Pause};
use crate::{
    ipvs::{Ipvs, IpvsOpenError, Refused, Timeouts},
    link::Links,
    netlink::{NetlinkError, Refusal},
    nft::{Nft, ReadError, ReconcileError},
    sysctl::{self, SysctlError},
};

/// Holds the addresses of services.
pub const INTERFACE: &str = "trestle-ipvs0";

#[derive(Debug, thiserror::Error)]
pub enum IpvsError {
    #[error(transparent)]
    Open(#[from] IpvsOpenError),
    #[error("cannot make interface {INTERFACE} for the addresses of services (module dummy)")]
    Interface(#[source] NetlinkError),
    #[error("cannot prepare the kernel for IPVS")]
    Settings(#[from] SysctlError),
    #[error("cannot read or change what IPVS holds")]
    Netlink(#[from] NetlinkError),
    #[error(transparent)]
    Guard(#[from] ReconcileError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Translated connections must be tracked to be masqueraded; those of a destination that is gone must not linger.
const SETTINGS: &[(&str, &str)] = &[
    ("net/ipv4/vs/conntrack", "1"),
    ("net/ipv4/vs/expire_nodest_conn", "1"),
    ("net/ipv4/vs/expire_quiescent_template", "1"),
    ("net/ipv4/ip_forward", "1"),
];
/// Do not answer for the addresses of services on the node's own networks.
const STRICT_ARP: &[(&str, &str)] =
    &[("net/ipv4/conf/all/arp_ignore", "1"), ("net/ipv4/conf/all/arp_announce", "2")];

/// What an update did.
#[derive(Debug, Default)]
pub struct Outcome {
    pub operations: usize,
    /// Objects that the kernel refused and that are not there; a comparison tries them again ([`IpvsProxy::is_due`]).
    /// The others were carried out.
    pub refused: Vec<Refused>,
    pub refused_addresses: Vec<(IpAddr, Refusal)>,
    /// Servers that we want and that somebody else has made: left as they are.
    pub foreign: Vec<ServerId>,
    /// Servers that nftables does not let us guard, and why: not made, or left as they are. Tried again likewise.
    pub unguarded: BTreeMap<ServerId, String>,
}

/// Owns the servers that the guard table lists, the guard tables, and interface [`INTERFACE`].
pub struct IpvsProxy<N = Nft> {
    ipvs: Ipvs,
    links: Links,
    guard: Guard<N>,
    interface: u32,
    plane: Plane,
    config: Config,
    foreign: BTreeSet<ServerId>,
    /// The kernel may differ from the plane: the next update compares all.
    unsure: bool,
    /// What the kernel refused, and is not yet tried again.
    refused: Refusals,
}

/// Refused objects, and when all is compared because of them.
#[derive(Debug, Default)]
struct Refusals {
    objects: Vec<Refused>,
    addresses: Vec<(IpAddr, Refusal)>,
    unguarded: BTreeMap<ServerId, String>,
    pause: Pause,
}

impl IpvsProxy {
    /// Takes over what an earlier run left, and repairs it. Writes nothing if nothing differs.
    pub fn start(
        config: Config,
        rules: nftables::Config,
        store: &Store,
    ) -> Result<(Self, Outcome), IpvsError> {
        Self::start_with(config, rules, Timeouts::default(), store)
    }

    /// The same, with the kernel's timeouts for connections through IPVS.
    pub fn start_with(
        config: Config,
        rules: nftables::Config,
        timeouts: Timeouts,
        store: &Store,
    ) -> Result<(Self, Outcome), IpvsError> {
        Self::start_on(Nft::open()?, config, rules, timeouts, store)
    }
}

impl<N: Tables> IpvsProxy<N> {
    /// As [`IpvsProxy::start_with`], on tables that are there already.
    pub fn start_on(
        nft: N,
        mut config: Config,
        rules: nftables::Config,
        timeouts: Timeouts,
        store: &Store,
    ) -> Result<(Self, Outcome), IpvsError> {
        let mut ipvs = Ipvs::open()?;
        if timeouts != Timeouts::default() {
            ipvs.set_timeouts(timeouts)?;
        }
        sysctl::ensure(SETTINGS)?;
        if config.strict_arp {
            sysctl::ensure(STRICT_ARP)?;
        }
        let mut links = Links::open()?;
        let interface = links.ensure_dummy(INTERFACE).map_err(IpvsError::Interface)?;
        let elsewhere = links.addresses()?.into_iter().filter(|(index, _)| *index != interface);
        config.host_addresses.extend(elsewhere.map(|(_, address)| address));
        let (plane, foreign, refused) = (Plane::default(), BTreeSet::new(), Refusals::default());
        let guard = Guard::new(nft, rules);
        let mut proxy = Self { ipvs, links, guard, interface, plane, config, foreign, unsure: true, refused };
        let outcome = proxy.renew(store)?;
        Ok((proxy, outcome))
    }

    /// Compares the kernel with a store whose patches were not told.
    pub fn renew(&mut self, store: &Store) -> Result<Outcome, IpvsError> {
        self.plane = Plane::new(self.config.clone());
        self.plane.apply(&store.all_as_new().collect::<Vec<_>>());
        self.reconcile(store)
    }

    /// Connections through servers of ours, over or not.
    pub fn connections(&mut self) -> Result<u64, IpvsError> {
        let mut sum = 0;
        let ids: Vec<_> =
            self.plane.servers().keys().filter(|id| !self.foreign.contains(id)).copied().collect();
        for id in ids {
            sum += self.ipvs.destinations(&id)?.values().map(|(_, count)| count).sum::<u64>();
        }
        Ok(sum)
    }

    /// Carries out patches, which must be the store's latest.
    pub fn update(&mut self, store: &Store, patches: &[ServiceEndpointsPatch]) -> Result<Outcome, IpvsError> {
        let ops = self.plane.apply(patches);
        // Endpoints elsewhere do not show in the guard.
        let guarded = patches.iter().any(|patch| {
            patch.service.op != Operation::NoOp || patch.endpoints.iter().any(|one| one.endpoint.is_local)
        });
        // What the guard lacked may be taken now: then more is to be done than the patches say.
        if self.unsure || guarded && !self.refused.unguarded.is_empty() {
            return self.reconcile(store);
        }
        self.unsure = true;
        let mut unguarded = self.refused.unguarded.clone();
        if guarded {
            let going =
                ops.iter().filter_map(|op| if let Op::RemoveServer(id) = op { Some(*id) } else { None });
            unguarded = self.guard.follow(store, &going.collect(), &self.foreign)?;
        }
        let mut outcome = self.execute(&ops, unguarded)?;
        if guarded {
            outcome.unguarded.extend(self.guard.follow(store, &BTreeSet::new(), &self.foreign)?);
        }
        self.unsure = false;
        Ok(self.refused.join(outcome))
    }

    /// Compares the kernel with what it should hold, and repairs it.
    pub fn reconcile(&mut self, store: &Store) -> Result<Outcome, IpvsError> {
        self.unsure = true;
        self.interface = self.links.ensure_dummy(INTERFACE).map_err(IpvsError::Interface)?;
        let owned = self.guard.owned()?;
        let present = self.ipvs.servers()?;
        let wanted = self.plane.servers();
        self.foreign =
            present.keys().filter(|id| wanted.contains_key(id) && !owned.contains(id)).copied().collect();
        let current = self.ipvs.read(|id| owned.contains(id))?;
        let addresses = self.links.addresses()?;
        let bound = addresses.into_iter().filter(|(index, _)| *index == self.interface);
        let bound: BTreeSet<_> = bound.map(|(_, address)| address).collect();
        let ops = self.plane.reconcile(&current, &bound);
        let going: BTreeSet<_> = current.keys().copied().collect();
        let unguarded = self.guard.follow(store, &going, &self.foreign)?;
        let mut outcome = self.execute(&ops, unguarded)?;
        outcome.unguarded.extend(self.guard.follow(store, &BTreeSet::new(), &self.foreign)?);
        self.unsure = false;
        Ok(self.refused.replace(outcome))
    }

    /// Whether it is time to compare all, because something was refused.
    pub fn is_due(&self, now: Instant) -> bool {
        self.refused.pause.is_over(now)
    }

    /// Removes destinations whose last connection is over. Call it from time to time while [`Self::is_draining`].
    pub fn drain(&mut self) -> Result<usize, IpvsError> {
        let servers: BTreeSet<_> = self.plane.draining().map(|(id, _)| *id).collect();
        let mut connections = BTreeMap::new();
        for id in servers {
            for (socket, (_, count)) in self.ipvs.destinations(&id)? {
                connections.insert((id, socket), count);
            }
        }
        let ops = self.plane.drained(|id, socket| connections.get(&(*id, *socket)).copied());
        self.execute(&ops, BTreeMap::new())?;
        Ok(ops.len())
    }

    pub fn is_draining(&self) -> bool {
        self.plane.draining().next().is_some()
    }

    /// Removes all that is ours.
    pub fn stop(mut self) -> Result<(), IpvsError> {
        let ids = self.plane.servers().keys().filter(|id| !self.foreign.contains(id));
        let ops: Vec<_> = ids.map(|id| Op::RemoveServer(*id)).collect();
        self.ipvs.execute(&ops)?;
        self.links.delete(self.interface)?;
        self.guard.stop()?;
        Ok(())
    }

    fn execute(
        &mut self,
        ops: &[Op],
        unguarded: BTreeMap<ServerId, String>,
    ) -> Result<Outcome, NetlinkError> {
        let may = |op: &&Op| match op {
            Op::RemoveServer(id) => !self.foreign.contains(id),
            // Without its guard an address would lead to ports of the host.
            Op::Bind(address) => {
                let first = ServerId { address: *address, port: 0, protocol: Protocol::Tcp };
                let mut there =
                    self.plane.servers().range(first..).take_while(|(id, _)| id.address == *address);
                unguarded.is_empty() || there.any(|(id, _)| !unguarded.contains_key(id))
            }
            op => op.server().is_none_or(|id| !self.foreign.contains(id) && !unguarded.contains_key(id)),
        };
        let ours: Vec<_> = ops.iter().filter(may).cloned().collect();
        // Each list keeps its order; what is bound comes after what is made and before what is broken.
        let split =
            ours.iter().position(|op| matches!(op, Op::Bind(_) | Op::Unbind(_))).unwrap_or(ours.len());
        let bind: Vec<_> =
            ours.iter().filter_map(|op| if let Op::Bind(one) = op { Some(*one) } else { None }).collect();
        let unbind: Vec<_> =
            ours.iter().filter_map(|op| if let Op::Unbind(one) = op { Some(*one) } else { None }).collect();
        let mut refused = self.ipvs.execute(&ours[..split])?;
        let mut refused_addresses = self.links.change(self.interface, true, &bind)?;
        refused.extend(self.ipvs.execute(&ours[split..])?);
        refused_addresses.extend(self.links.change(self.interface, false, &unbind)?);
        let foreign = self.foreign.iter().copied().collect();
        Ok(Outcome { operations: ours.len(), refused, refused_addresses, foreign, unguarded })
    }
}

impl Refusals {
    /// After an update: what was refused before is still not there.
    fn join(&mut self, outcome: Outcome) -> Outcome {
        let new = outcome.unguarded.keys().any(|id| !self.unguarded.contains_key(id));
        if !outcome.refused.is_empty() || !outcome.refused_addresses.is_empty() || new {
            self.pause.shorten(Instant::now());
        }
        self.objects.extend(outcome.refused);
        self.addresses.extend(outcome.refused_addresses);
        self.unguarded = outcome.unguarded;
        self.outcome_of(outcome.operations, outcome.foreign)
    }

    /// After a comparison of all.
    fn replace(&mut self, outcome: Outcome) -> Outcome {
        if outcome.refused.is_empty() && outcome.refused_addresses.is_empty() && outcome.unguarded.is_empty()
        {
            self.pause = Pause::default();
        } else {
            self.pause.lengthen(Instant::now());
        }
        (self.objects, self.addresses) = (outcome.refused, outcome.refused_addresses);
        self.unguarded = outcome.unguarded;
        self.outcome_of(outcome.operations, outcome.foreign)
    }

    fn outcome_of(&self, operations: usize, foreign: Vec<ServerId>) -> Outcome {
        let (refused, refused_addresses) = (self.objects.clone(), self.addresses.clone());
        let unguarded = self.unguarded.clone();
        Outcome { operations, refused, refused_addresses, foreign, unguarded }
    }
}
