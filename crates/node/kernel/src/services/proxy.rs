//! The service proxy of a node, whole: one store, and the plane that carries it out.
//!
//! In: services, slices and facts, by [`Proxy::store`]; a mode, which may change while it runs. Out: [`Synced`], what was
//! done and what was refused. Holds: the store, the planes that act, and one that is on its way out.
//!
//! ```text
//!   nftables ─► ipvs       IPVS is filled, then the table goes: connections that were translated live on
//!   ipvs ─► nftables       the table is filled and takes all new connections; IPVS goes when its own are over
//! ```

mod mode;
mod planes;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{Duration, Instant},
};

use node_nft::Limits;
use node_services::{
    PortId, ServiceEndpointsPatch, ServiceName, Store,
    conntrack::Cleanup,
    ipvs::{self, ServerId},
    nftables,
};

pub use mode::{Mode, NoMode};

use super::{INTERFACE, IpvsError, IpvsProxy, NftablesProxy, Outcome, ProxyError, watch::Watch};
use crate::{
    conntrack::{Conntrack, ConntrackError},
    ipvs::Timeouts,
    link::Links,
    netlink::NetlinkError,
    nft::{ReadError, ReconcileError},
};

/// Between two full comparisons with the kernel lies at least this, and a hundred times what one takes.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_SHARE: u32 = 100;
/// IPVS has nothing that says whether somebody touched it.
const LOOK_IPVS: Duration = Duration::from_secs(30);
const DRAIN: Duration = Duration::from_secs(5);

/// What does not change while the proxy runs.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub rules: nftables::Config,
    pub ipvs: ipvs::Config,
    pub timeouts: Timeouts,
    pub limits: Limits,
}

#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error("services are not as they should be in nftables")]
    Nftables(#[from] ProxyError),
    #[error("services are not as they should be in IPVS")]
    Ipvs(#[from] IpvsError),
    #[error("cannot look at the node's addresses")]
    Links(#[source] NetlinkError),
    #[error("cannot reach nftables to remove what an earlier mode left")]
    Nft(#[source] NetlinkError),
    #[error("cannot read what an earlier mode left in nftables")]
    Read(#[from] ReadError),
    #[error("cannot remove what an earlier mode left in nftables")]
    Remove(#[from] ReconcileError),
    #[error("stale UDP flows could not be removed; clients may be sent to endpoints that are gone")]
    Conntrack(#[from] ConntrackError),
}

/// What a call did.
#[derive(Debug, Default)]
pub struct Synced {
    pub transactions: usize,
    /// Everything was compared, not only what had changed.
    pub full: bool,
    /// Services of which something is not in force, and what. It is tried again by itself, with longer and longer
    /// pauses.
    pub refused: BTreeMap<ServiceName, String>,
    /// UDP flows that pointed to endpoints which are gone.
    pub cleaned: usize,
    /// How long it took to look for them, if that was needed.
    pub clean_took: Option<Duration>,
}

pub struct Proxy {
    settings: Settings,
    mode: Mode,
    store: Store,
    /// One per family; none if they are not started.
    nftables: Vec<NftablesProxy>,
    ipvs: Option<IpvsProxy>,
    /// IPVS on its way out, and since when.
    leaving: Option<(IpvsProxy, Instant)>,
    /// Flows of all services are to be looked at, because somebody may have missed something.
    clean_all: bool,
    refused: BTreeMap<ServiceName, String>,
    /// Opened when it is first needed.
    watch: Option<Watch>,
    comparisons: u64,
    pace: Pace,
}

/// When to look at what.
#[derive(Debug, Default)]
struct Pace {
    looked: Option<Instant>,
    took: Duration,
    drained: Option<Instant>,
}

impl Proxy {
    /// Acts in the network namespace of the calling thread. Touches nothing before the first [`Self::sync`].
    pub fn new(settings: Settings, mode: Mode, store: Store) -> Self {
        Self {
            settings,
            mode,
            store,
            nftables: Vec::new(),
            ipvs: None,
            leaving: None,
            clean_all: true,
            refused: BTreeMap::new(),
            watch: None,
            comparisons: 0,
            pace: Pace::default(),
        }
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// The host's own addresses have changed: planes start anew, and find in the kernel what they had there.
    pub fn set_host_addresses(&mut self, addresses: &BTreeSet<IpAddr>) {
        if self.settings.ipvs.host_addresses != *addresses {
            self.settings.ipvs.host_addresses.clone_from(addresses);
            self.settings.rules.node_addresses = addresses.iter().copied().collect();
            self.nftables.clear();
            self.ipvs = None;
        }
    }

    /// Whether IPVS still waits for connections of its own.
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// How often everything was compared with the kernel.
    pub fn comparisons(&self) -> u64 {
        self.comparisons
    }

    /// Makes true what the store says. O(what changed), unless the last call failed.
    pub fn sync(&mut self) -> Result<Synced, SyncError> {
        self.watched(false, Self::sync_now)
    }

    /// Commits of our own in between are no news.
    fn watched<T: Commits>(
        &mut self,
        all: bool,
        act: impl FnOnce(&mut Self) -> Result<T, SyncError>,
    ) -> Result<T, SyncError> {
        if self.mode != Mode::Nftables {
            self.watch = None;
            return act(self);
        }
        let mut watch = match self.watch.take() {
            Some(watch) => watch,
            None => Watch::open().map_err(SyncError::Nft)?,
        };
        let begun =
            if all || self.nftables.is_empty() { watch.begin_comparison() } else { watch.begin_commits() };
        begun.map_err(SyncError::Nft)?;
        let done = act(self);
        watch.end(done.as_ref().ok().map(T::commits)).map_err(SyncError::Nft)?;
        self.watch = Some(watch);
        done
    }

    fn sync_now(&mut self) -> Result<Synced, SyncError> {
        let patches = self.store.patches();
        let mut cleanup = Cleanup::after(&self.store, &patches);
        let done = self.follow(&patches);
        if done.is_err() {
            self.clean_all = true;
        }
        let mut synced = done?;
        if self.mode != Mode::None {
            if std::mem::take(&mut self.clean_all) {
                cleanup = Cleanup::of_everything(&self.store);
            }
            if !cleanup.is_empty() {
                let started = Instant::now();
                synced.cleaned = clean(&cleanup).inspect_err(|_| self.clean_all = true)?;
                synced.clean_took = Some(started.elapsed());
            }
        }
        self.comparisons += u64::from(synced.full);
        synced.refused = self.refused.clone();
        Ok(synced)
    }

    /// Compares everything with the kernel.
    pub fn reconcile(&mut self) -> Result<Synced, SyncError> {
        self.watched(true, Self::reconcile_now)
    }

    fn reconcile_now(&mut self) -> Result<Synced, SyncError> {
        let started = Instant::now();
        let mut synced = self.sync_now()?;
        if !synced.full {
            synced.full = true;
            self.comparisons += 1;
            for proxy in &mut self.nftables {
                synced.transactions += proxy.reconcile(&self.store)?.transactions;
            }
            self.note_held();
            if let Some(proxy) = &mut self.ipvs {
                let outcome = proxy.reconcile(&self.store)?;
                synced.transactions += outcome.operations;
                self.refused = refused(&self.store, &outcome);
            }
        }
        self.pace.looked = Some(Instant::now());
        self.pace.took = started.elapsed();
        synced.refused = self.refused.clone();
        Ok(synced)
    }

    /// Goes over to another plane. On error the old one stays.
    pub fn switch(&mut self, mode: Mode) -> Result<Synced, SyncError> {
        let before = std::mem::replace(&mut self.mode, mode);
        if before == mode {
            return self.sync();
        }
        let old = (std::mem::take(&mut self.nftables), self.ipvs.take());
        match self.sync() {
            Ok(synced) => {
                let (tables, servers) = old;
                if mode == Mode::Nftables {
                    self.leaving = servers.map(|proxy| (proxy, Instant::now()));
                } else if let Some(servers) = servers {
                    servers.stop()?;
                }
                for table in tables {
                    table.stop()?;
                }
                if mode == Mode::None
                    && let Some((leaving, _)) = self.leaving.take()
                {
                    leaving.stop()?;
                }
                Ok(synced)
            }
            Err(error) => {
                self.mode = before;
                // What the other had begun is not needed. The old one starts anew, for it has missed changes; it finds
                // in the kernel what it had there.
                self.remove_other()?;
                self.sync()?;
                Err(error)
            }
        }
    }

    /// Looks after what happens by itself: destinations that drain, planes that leave, what others touch. Cheap; call
    /// it every second. `None`: there was nothing to do.
    pub fn tend(&mut self, now: Instant) -> Result<Option<Synced>, SyncError> {
        if self.pace.drained.is_none_or(|at| now - at >= DRAIN) {
            self.pace.drained = Some(now);
            self.drain(now)?;
        }
        if !self.is_suspicious(now)? {
            let due =
                self.ipvs.as_ref().is_some_and(|proxy| proxy.is_due(now)) || !self.refusals().is_empty();
            return if due { self.watched(false, |proxy| proxy.retry(now)) } else { Ok(None) };
        }
        let synced = self.reconcile()?;
        Ok((synced.transactions > 0).then_some(synced))
    }

    /// Removes everything that is ours.
    pub fn stop(mut self) -> Result<(), SyncError> {
        for proxy in self.nftables.drain(..) {
            proxy.stop()?;
        }
        if let Some(proxy) = self.ipvs.take() {
            proxy.stop()?;
        }
        if let Some((proxy, _)) = self.leaving.take() {
            proxy.stop()?;
        }
        Ok(())
    }

    fn follow(&mut self, patches: &[ServiceEndpointsPatch]) -> Result<Synced, SyncError> {
        let mut synced = Synced::default();
        match self.mode {
            Mode::None => {
                self.refused.clear();
                if self.pace.looked.is_none() {
                    self.pace.looked = Some(Instant::now());
                    self.remove_other()?;
                }
            }
            Mode::Nftables if self.nftables.is_empty() => {
                synced.full = true;
                synced.transactions = self.start_nftables()?.transactions;
                self.note_held();
            }
            Mode::Nftables => {
                // Both families are told before one is complained about.
                let store = &self.store;
                let done: Vec<_> =
                    self.nftables.iter_mut().map(|proxy| proxy.update(store, patches)).collect();
                self.note_held();
                for applied in done {
                    synced.transactions += applied?.transactions;
                }
            }
            Mode::Ipvs => {
                let outcome = match &mut self.ipvs {
                    Some(proxy) => proxy.update(&self.store, patches)?,
                    None => {
                        synced.full = true;
                        self.start_ipvs()?
                    }
                };
                synced.transactions = outcome.operations;
                self.refused = refused(&self.store, &outcome);
            }
        }
        Ok(synced)
    }

    /// Tries what was refused again, when its time has come. `None`: nothing was tried.
    fn retry(&mut self, now: Instant) -> Result<Option<Synced>, SyncError> {
        let before = self.refusals();
        let mut synced = Synced::default();
        for proxy in &mut self.nftables {
            synced.transactions += proxy.retry(&self.store, now)?.transactions;
        }
        if let Some(proxy) = self.ipvs.as_mut().filter(|proxy| proxy.is_due(now)) {
            let outcome = proxy.reconcile(&self.store)?;
            synced.transactions += outcome.operations;
            self.refused = refused(&self.store, &outcome);
        } else if before == self.refusals() {
            return Ok(None);
        } else {
            self.note_held();
        }
        synced.refused = self.refused.clone();
        Ok(Some(synced))
    }

    /// What each held port has been through.
    fn refusals(&self) -> Vec<(PortId, u32)> {
        let held = self.nftables.iter().flat_map(NftablesProxy::refused);
        held.map(|(id, held)| (id.clone(), held.refusals)).collect()
    }

    fn note_held(&mut self) {
        self.refused.clear();
        for (id, held) in self.nftables.iter().flat_map(NftablesProxy::refused) {
            let text = format!("{id} is not in force: {} (refused {} times)", held.reason, held.refusals);
            self.refused.entry(service_of(id)).or_insert(text);
        }
    }

    /// Whether somebody may have changed what is ours, and it is time to look.
    fn is_suspicious(&mut self, now: Instant) -> Result<bool, SyncError> {
        let pause = self.pace.looked.map_or(Duration::MAX, |at| now.saturating_duration_since(at));
        if pause < LOOK.max(self.pace.took * LOOK_SHARE) {
            return Ok(false);
        }
        match self.mode {
            Mode::None => Ok(false),
            Mode::Nftables => {
                let untouched = self.watch.as_mut().map_or(Ok(false), Watch::is_untouched);
                Ok(!untouched.map_err(SyncError::Nft)?)
            }
            Mode::Ipvs => {
                let mut links = Links::open().map_err(SyncError::Links)?;
                let gone = links.find(INTERFACE).map_err(SyncError::Links)?.is_none();
                Ok(gone || pause >= LOOK_IPVS)
            }
        }
    }
}

/// What says how many transactions of nftables it took.
trait Commits {
    fn commits(&self) -> usize;
}

impl Commits for Synced {
    fn commits(&self) -> usize {
        self.transactions
    }
}

impl Commits for Option<Synced> {
    fn commits(&self) -> usize {
        self.as_ref().map_or(0, Commits::commits)
    }
}

/// Deletes stale flows of both families.
fn clean(cleanup: &Cleanup) -> Result<usize, ConntrackError> {
    let mut conntrack = Conntrack::open().map_err(ConntrackError::Read)?;
    Ok(conntrack.clean(false, cleanup)? + conntrack.clean(true, cleanup)?)
}

/// What was refused, by the service it belongs to.
fn refused(store: &Store, outcome: &Outcome) -> BTreeMap<ServiceName, String> {
    let mut servers: BTreeMap<ServerId, String> = BTreeMap::new();
    let mut addresses: BTreeMap<IpAddr, String> = BTreeMap::new();
    for one in &outcome.refused {
        servers.extend(one.op.server().map(|id| (*id, one.to_string())));
    }
    for id in &outcome.foreign {
        let text = format!("{}:{}/{} is somebody else's server in IPVS", id.address, id.port, id.protocol);
        servers.insert(*id, text);
    }
    for (id, why) in &outcome.unguarded {
        let text = format!("{}:{}/{} cannot be guarded: {why}", id.address, id.port, id.protocol);
        servers.insert(*id, text);
    }
    for (address, refusal) in &outcome.refused_addresses {
        addresses.insert(*address, format!("the kernel refused the address {address}: {refusal}"));
    }
    if servers.is_empty() && addresses.is_empty() {
        return BTreeMap::new();
    }
    let mut named = BTreeMap::new();
    for (id, info, _) in store.ports() {
        for frontend in &info.frontends {
            let server = ServerId { address: frontend.address, port: frontend.port, protocol: id.protocol };
            if let Some(text) = servers.get(&server).or_else(|| addresses.get(&frontend.address)) {
                named.insert(service_of(id), text.clone());
            }
        }
    }
    named
}

fn service_of(id: &PortId) -> ServiceName {
    id.service.clone()
}

/// Addresses of the host, without those of services that IPVS binds.
pub fn host_addresses() -> Result<BTreeSet<IpAddr>, SyncError> {
    let mut links = Links::open().map_err(SyncError::Links)?;
    let ours = links.find(INTERFACE).map_err(SyncError::Links)?;
    let all = links.addresses().map_err(SyncError::Links)?;
    Ok(all.into_iter().filter(|(index, _)| Some(*index) != ours).map(|(_, address)| address).collect())
}
