//! Services as a part of the agent: what the node holds, told to the service proxy, which keeps the kernel equal.
//!
//! In: the view, and the mode somebody asks for ([`Control`]). Out: changes for [`Proxy`], and [`ServicesState`] for those
//! who answer health checks and draw figures. Holds: the proxy, which knows what it was told.
//! Not here: which endpoints are used (`node-services`), netlink (`node-kernel`), listeners ([`health`]).

pub mod health;
mod metrics;
mod pending;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use ipnet::IpNet;
use model::service::{NodeFacts, ServiceName, Slice};
use node_kernel::{
    conntrack_settings::Conntrack,
    services::{Mode, Proxy, Settings, SyncError, Synced, host_addresses},
};
use node_services::{HealthCheck, Node, Store};
use tokio::sync::watch;
use wire::{
    service::read_service,
    trestle::v1::{ObjectKind, node_apply::Body},
};

pub use metrics::ServicesMetrics;
use pending::Pending;

use crate::{
    held::{Content, Difference, Held, Key},
    part::{Changed, Outcome, Part, View},
    pulse::Pulse,
};

const KINDS: &[ObjectKind] = &[ObjectKind::NodeFacts, ObjectKind::EndpointSlice, ObjectKind::Service];
/// The host's own addresses are looked at this often: node ports follow them.
const ADDRESSES: Duration = Duration::from_secs(5);

/// Which of the host's addresses serve node ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodePorts {
    /// Those that the controller knows the node by; all, if it knows none.
    #[default]
    Primary,
    All,
    /// Those within one of these.
    Within(Vec<IpNet>),
}

/// How services are proxied, apart from what they say.
#[derive(Clone, Debug, Default)]
pub struct ServiceSettings {
    pub mode: Mode,
    pub proxy: Settings,
    pub node_ports: NodePorts,
    /// Addresses that are left alone, whatever services claim.
    pub excluded: Vec<IpNet>,
    /// External addresses that services claim are not served.
    pub refuse_external_ips: bool,
    pub conntrack: Conntrack,
}

/// What the part says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicesState {
    pub mode: Mode,
    /// Why the mode that was asked for is not the one that runs.
    pub refused_mode: Option<String>,
    /// Wishes for another mode that were looked at.
    pub wishes: u64,
    /// IPVS waits for connections that it has.
    pub leaving: bool,
    pub checks: Vec<HealthCheck>,
    /// Where they are told; none: on every address of the host.
    pub check_addresses: Option<Vec<IpAddr>>,
    /// The kernel holds what it should.
    pub healthy: bool,
    /// When it last did; by a clock that nobody sets.
    pub updated: Option<Instant>,
    /// The node is about to go.
    pub node_leaving: bool,
}

/// A mode that somebody asks for, and how many were asked for before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wish {
    mode: Mode,
    number: u64,
}

/// What others see of services on this node, and how they ask for another mode. Cheap to clone.
#[derive(Clone)]
pub struct Services {
    wanted: watch::Sender<Wish>,
    state: watch::Receiver<Arc<ServicesState>>,
    /// Beats while the part is looked after, also if there is nothing to do.
    pulse: Pulse,
    pub metrics: Arc<ServicesMetrics>,
}

impl Services {
    pub fn state(&self) -> watch::Receiver<Arc<ServicesState>> {
        self.state.clone()
    }

    /// How services are balanced now, as kube-proxy's `/proxyMode` tells it.
    pub fn mode(&self) -> String {
        self.state.borrow().mode.to_string()
    }

    /// Whether the kernel holds what it should, or did a while ago, and somebody sees to it that it does.
    fn is_well(&self) -> bool {
        self.state.borrow().is_well(Instant::now(), self.pulse.age())
    }

    /// Goes over to another plane; the state when that is done or was refused.
    pub async fn switch(&self, mode: Mode) -> Result<Arc<ServicesState>, SwitchError> {
        let mut state = self.state.clone();
        let mut number = 0;
        self.wanted.send_modify(|wish| {
            number = wish.number + 1;
            *wish = Wish { mode, number };
        });
        let done = |state: &Arc<ServicesState>| state.wishes >= number;
        let reached = tokio::time::timeout(Duration::from_secs(60), state.wait_for(done)).await;
        match reached {
            Ok(Ok(state)) => match &state.refused_mode {
                Some(reason) => Err(SwitchError::Refused(reason.clone())),
                None => Ok(Arc::clone(&state)),
            },
            Ok(Err(_)) => Err(SwitchError::Stopping),
            Err(_) => Err(SwitchError::Late),
        }
    }
}

/// Why services are not known to have gone over to another plane.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// In the kernel's words.
    #[error("{0}")]
    Refused(String),
    #[error("the agent is stopping")]
    Stopping,
    #[error("services have not gone over within a minute; see the log")]
    Late,
}

/// Keeps services.
pub struct ServicesPart {
    proxy: Proxy,
    settings: ServiceSettings,
    facts: NodeFacts,
    hosts: BTreeSet<IpAddr>,
    looked: Option<Instant>,
    /// Objects that make no sense.
    unreadable: BTreeMap<Key, String>,
    wanted: watch::Receiver<Wish>,
    wishes: u64,
    state: watch::Sender<Arc<ServicesState>>,
    pulse: Pulse,
    refused_mode: Option<String>,
    metrics: Arc<ServicesMetrics>,
    pending: Pending,
    /// Services of which the kernel refused something, last time.
    refused: usize,
    /// Why the kernel's connection table is not set as it should be.
    untuned: Option<String>,
    last: Outcome,
}

impl ServicesPart {
    /// Acts in the network namespace of the calling thread, from the first `apply` on.
    pub fn new(settings: ServiceSettings) -> (Self, Services) {
        let (wanted, wants) = watch::channel(Wish { mode: settings.mode, number: 0 });
        let (state, states) = watch::channel(Arc::new(ServicesState::default()));
        let metrics = Arc::new(ServicesMetrics::default());
        let pulse = Pulse::default();
        let part = Self {
            proxy: Proxy::new(settings.proxy.clone(), settings.mode, Store::default()),
            settings,
            facts: NodeFacts::default(),
            hosts: BTreeSet::new(),
            looked: None,
            unreadable: BTreeMap::new(),
            wanted: wants,
            wishes: 0,
            state,
            pulse: pulse.clone(),
            refused_mode: None,
            metrics: Arc::clone(&metrics),
            pending: Pending::new(SystemTime::now()),
            refused: 0,
            untuned: None,
            last: Outcome::default(),
        };
        (part, Services { wanted, state: states, pulse, metrics })
    }

    fn take_in(&mut self, held: &Held, changed: Changed<'_>) {
        match changed {
            Changed::All => {
                let known = self.known();
                known.iter().filter(|key| held.get(key).is_none()).for_each(|key| self.remove(key));
                if !held.objects().any(|(key, _)| key.kind == i32::from(ObjectKind::NodeFacts)) {
                    self.facts = NodeFacts::default();
                }
                let ours = held.objects().filter(|(key, _)| is_ours(key));
                let all: Vec<_> = ours.map(|(key, _)| key.clone()).collect();
                all.iter().for_each(|key| self.put(held, key));
            }
            Changed::Some { objects, .. } => {
                for (key, difference) in objects.iter().filter(|(key, _)| is_ours(key)) {
                    match difference {
                        Difference::Gone => self.remove(key),
                        Difference::Whole | Difference::Members { .. } => self.put(held, key),
                    }
                }
            }
        }
    }

    /// The services and slices of which something is known.
    fn known(&mut self) -> Vec<Key> {
        let store = self.proxy.store();
        let slices = store.slices().map(|name| Key::new(ObjectKind::EndpointSlice, name));
        let known = store.services().map(key_of).chain(slices);
        known.chain(self.unreadable.keys().cloned()).collect()
    }

    fn put(&mut self, held: &Held, key: &Key) {
        let Some(object) = held.get(key) else { return self.remove(key) };
        let Content::Whole(encoded) = &object.content else {
            return drop(self.unreadable.insert(key.clone(), "its content is not of its kind".to_owned()));
        };
        let read = match &encoded.body() {
            Body::Service(service) => read_service(service).map(|(name, service)| {
                let changed = self.proxy.store().set_service(name, service);
                self.note_service(changed);
            }),
            Body::Slice(slice) => Slice::try_from(slice).map(|read| {
                let changed = self.proxy.store().set_slice(&key.name, read);
                self.note_slice(changed, Some(&slice.last_change_trigger_time));
            }),
            Body::Facts(facts) => NodeFacts::try_from(facts).map(|facts| self.facts = facts),
            Body::Set(_) | Body::Policy(_) => Ok(()),
        };
        match read {
            Ok(()) => drop(self.unreadable.remove(key)),
            // What was known of it before stays in force.
            Err(error) => drop(self.unreadable.insert(key.clone(), error.to_string())),
        }
    }

    fn remove(&mut self, key: &Key) {
        self.unreadable.remove(key);
        match ObjectKind::try_from(key.kind) {
            Ok(ObjectKind::Service) => {
                if let Some((namespace, name)) = key.name.split_once('/') {
                    let gone = self.proxy.store().delete_service(&ServiceName::new(namespace, name));
                    self.note_service(gone);
                }
            }
            Ok(ObjectKind::EndpointSlice) => {
                let gone = self.proxy.store().delete_slice(&key.name);
                self.note_slice(gone, None);
            }
            Ok(ObjectKind::NodeFacts) => self.facts = NodeFacts::default(),
            _ => {}
        }
    }

    fn note_service(&mut self, changed: bool) {
        if changed {
            self.metrics.service_changes.inc();
            self.pending.service();
        }
    }

    fn note_slice(&mut self, changed: bool, triggered: Option<&str>) {
        if changed {
            self.metrics.endpoint_changes.inc();
            self.pending.slice(triggered);
        }
    }

    /// The node as its proxy must know it; looks at the host's addresses.
    fn look_at_node(&mut self, name: &str) -> Result<(), SyncError> {
        self.hosts = host_addresses()?;
        // Those come and go with every link, and are nobody's to serve.
        self.hosts.retain(|address| !address.is_loopback() && !is_link_local(*address));
        self.looked = Some(Instant::now());
        let all: Vec<_> = self.hosts.iter().copied().collect();
        let addresses = match &self.settings.node_ports {
            NodePorts::Primary if !self.facts.addresses.is_empty() => self.facts.addresses.clone(),
            NodePorts::Primary | NodePorts::All => all,
            NodePorts::Within(prefixes) => {
                all.into_iter().filter(|one| prefixes.iter().any(|prefix| prefix.contains(one))).collect()
            }
        };
        let node = Node {
            name: name.to_owned(),
            zone: self.facts.zone.clone(),
            addresses,
            refuse_external_ips: self.settings.refuse_external_ips,
            excluded: self.settings.excluded.clone(),
        };
        self.proxy.store().set_node(node);
        self.proxy.set_host_addresses(&self.hosts);
        Ok(())
    }

    /// Those that serve node ports, as far as the host has them.
    fn check_addresses(&self) -> Option<Vec<IpAddr>> {
        let served: Vec<_> = match &self.settings.node_ports {
            NodePorts::All => return None,
            NodePorts::Primary => self.facts.addresses.clone(),
            NodePorts::Within(prefixes) => {
                let hosts = self.hosts.iter().copied();
                hosts.filter(|one| prefixes.iter().any(|prefix| prefix.contains(one))).collect()
            }
        };
        let here: Vec<_> = served.into_iter().filter(|address| self.hosts.contains(address)).collect();
        // A node behind a translation has none of the addresses that it is known by.
        (!here.is_empty()).then_some(here)
    }

    fn run(&mut self, view: &View<'_>, all: bool) -> Result<Synced, SyncError> {
        self.look_at_node(view.node)?;
        if all && self.proxy.mode() != Mode::None {
            let tuned = self.settings.conntrack.ensure();
            self.untuned = tuned.err().map(|error| format!("services: {}", crate::feed::chain(&error)));
        }
        if all { self.proxy.reconcile() } else { self.proxy.sync() }
    }

    fn outcome(&mut self, done: Result<Synced, SyncError>, took: Duration) -> Outcome {
        let mut outcome = match done {
            Ok(synced) => {
                self.metrics.note(&synced, took);
                self.metrics.in_force(&mut self.pending);
                self.metrics.refused(self.refused, synced.refused.len());
                self.refused = synced.refused.len();
                Outcome {
                    errors: synced.refused.iter().map(|(name, text)| (key_of(name), text.clone())).collect(),
                    transactions: synced.transactions as u64,
                    ..Outcome::default()
                }
            }
            Err(error) => {
                self.metrics.sync_failures.inc();
                Outcome {
                    errors: self.last.errors.clone(),
                    failure: Some(format!("services: {}", crate::feed::chain(&error))),
                    ..Outcome::default()
                }
            }
        };
        for conflict in self.proxy.store().conflicts() {
            outcome.errors.entry(key_of(&conflict.loser)).or_insert_with(|| conflict.to_string());
        }
        outcome.errors.extend(self.unreadable.clone());
        outcome.problem.clone_from(&self.untuned);
        self.publish(outcome.failure.is_none());
        self.last = outcome.clone();
        outcome
    }

    fn publish(&mut self, healthy: bool) {
        let (internal, external) = self.proxy.store().unanswered();
        self.metrics.unanswered(internal, external);
        let before = self.state.borrow().updated;
        let state = ServicesState {
            mode: self.proxy.mode(),
            refused_mode: self.refused_mode.clone(),
            wishes: self.wishes,
            leaving: self.proxy.is_leaving(),
            checks: self.proxy.store().health_checks(),
            check_addresses: self.check_addresses(),
            healthy,
            updated: if healthy { Some(Instant::now()) } else { before },
            node_leaving: self.facts.leaving,
        };
        self.state.send_replace(Arc::new(state));
    }

    /// Somebody wants another plane. If it cannot be, the one that runs stays.
    fn switch(&mut self, wanted: Mode) -> Outcome {
        let started = Instant::now();
        let done = self.proxy.switch(wanted);
        self.refused_mode = done.as_ref().err().map(|error| crate::feed::chain(error));
        if self.refused_mode.is_some() && self.proxy.mode() != wanted {
            // Not a failure of what runs.
            let again = self.proxy.sync();
            return self.outcome(again, started.elapsed());
        }
        self.outcome(done, started.elapsed())
    }
}

impl Part for ServicesPart {
    fn name(&self) -> &'static str {
        "services"
    }

    fn kinds(&self) -> &'static [ObjectKind] {
        KINDS
    }

    fn apply(&mut self, view: &View<'_>, changed: Changed<'_>) -> Outcome {
        self.pulse.beat();
        let started = Instant::now();
        self.take_in(view.held, changed);
        self.metrics.queue(&self.pending);
        let done = self.run(view, matches!(changed, Changed::All));
        self.outcome(done, started.elapsed())
    }

    fn mend(&mut self, view: &View<'_>) -> Option<Outcome> {
        self.pulse.beat();
        let wish = *self.wanted.borrow_and_update();
        if wish.number != self.wishes {
            self.wishes = wish.number;
            return Some(self.switch(wish.mode));
        }
        let (started, was_leaving) = (Instant::now(), self.proxy.is_leaving());
        if self.looked.is_none_or(|at| at.elapsed() >= ADDRESSES) {
            let before = self.hosts.clone();
            let looked = self.look_at_node(view.node);
            if looked.is_err() || before != self.hosts {
                let done = looked.and_then(|()| self.proxy.sync());
                return Some(self.outcome(done, started.elapsed()));
            }
        }
        match self.proxy.tend(Instant::now()) {
            Ok(None) => {
                if was_leaving != self.proxy.is_leaving() {
                    self.publish(true);
                }
                None
            }
            Ok(Some(synced)) => {
                let compared = synced.full;
                let mut outcome = self.outcome(Ok(synced), started.elapsed());
                if !compared {
                    // Something that was refused was tried again: nobody touched what is ours.
                    outcome.transactions = 0;
                }
                Some(outcome)
            }
            Err(error) => Some(self.outcome(Err(error), started.elapsed())),
        }
    }
}

fn is_ours(key: &Key) -> bool {
    KINDS.iter().any(|kind| *kind as i32 == key.kind)
}

fn key_of(service: &ServiceName) -> Key {
    Key::new(ObjectKind::Service, &service.to_string())
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests;
