//! The worker: owns what the node holds, its endpoints and its parts, and makes the parts follow.
//!
//! In: messages of the stream, attachments, time. Out: [`State`]. One thread runs it (`worker::thread`), so nothing in
//! here is shared, and steps that come faster than the kernel takes them become one.
//!
//! ```text
//!   message ─► held ─ step ─► journal ─► due ─ settle ─► parts ─► kernel
//!   attach  ─► endpoints ─► registry file ──┘              │
//!   tick    ─► retry, mend, sync the disk ─────────────────┘
//! ```
//!
//! While it is not *known* what should be true, because the disk does not say and no controller has, parts hold: what an
//! earlier run left in the kernel stays, and what that does not know is closed.

mod disk;
mod host;
mod pods;
mod thread;

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use tracing::{error, info, warn};
use wire::trestle::v1::{ToNode, to_node};

use crate::{
    coverage::Coverage,
    endpoints::{Attachment, Endpoint, EndpointError, Endpoints, Pod},
    flows::{Named, Seen},
    held::{Held, Step, Taken, Token},
    journal::{Finding, Journal, Loaded},
    metrics::Metrics,
    part::{Changed, HostView, Outcome, Part, View},
    registry::{Registry, Unnamed},
    servers::BACKOFF,
    status::State,
};

pub use disk::{has_run, is_run, prepare};
pub use pods::Patience;
pub use thread::{Gone, Handle, HeldObject, start};

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot use the directory {path}; Pods that could be found are closed")]
    Directory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("another agent runs with the directory {path}; stop it, or give this one another --data-dir")]
    Taken { path: PathBuf },
}

#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error("the Pod is attached, but cannot be kept in {path}: it would be forgotten by a restart")]
    Keep {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Where a stream starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Counts the streams of this run.
    pub stream: u64,
    pub token: Option<Token>,
    pub digest: Vec<u64>,
}

pub struct Worker {
    node: String,
    held: Held,
    journal: Journal,
    pods: Registry,
    registry: PathBuf,
    /// Keeps other agents out of the directory.
    _lock: files::Lock,
    parts: Vec<Box<dyn Part>>,
    outcomes: Vec<Outcome>,
    /// What is held and not yet in force.
    due: Option<Step>,
    endpoints_due: bool,
    in_force: Option<Token>,
    /// Whether what is held is what should be true. Before, parts hold.
    known: bool,
    /// Whether the parts were ever told what is held.
    begun: bool,
    /// What should be on disk and is not; told until a controller has made up for it.
    lost: Vec<String>,
    /// The registry is not what it was: Pods' links are those that can be found.
    registry_lost: bool,
    coverage: Coverage,
    patience: Patience,
    survey: pods::Survey,
    stream: Stream,
    retry: Option<Instant>,
    backoff: common::Backoff,
    /// The node itself, as it was last looked at.
    host: Option<HostView>,
    metrics: Arc<Metrics>,
}

/// The stream that is open, or was last.
#[derive(Debug, Default)]
struct Stream {
    number: u64,
    synced: bool,
    waiting: Vec<String>,
    skipped: u64,
    nonsense: Option<String>,
}

impl Worker {
    /// Reads the state of an earlier run. Nothing is made true yet, unless the directory is of no use: then Pods are
    /// closed, as far as they can be found.
    pub fn load(
        node: &str,
        dir: &Path,
        mut parts: Vec<Box<dyn Part>>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, LoadError> {
        // First of all: opening the journal may cut a half-written end off, which another agent may be writing.
        let lock = disk::lock(dir).inspect_err(|error| {
            if let LoadError::Directory { .. } = error {
                pods::close_all(node, &mut parts);
            }
        })?;
        let Loaded { journal, held, dropped, finding, is_old } = Journal::open(dir);
        if dropped > 0 {
            warn!(bytes = dropped, "the end of the state on disk is not whole and was dropped");
        }
        let registry = dir.join(disk::REGISTRY);
        let (mut pods, registry_finding) =
            disk::read_registry(&registry, finding == Finding::Whole && !is_old);
        pods.endpoints.date(pods::now());
        let lost = disk::lost(&finding, &registry_finding, &pods);
        lost.iter().for_each(|text| error!("{text}"));
        info!(objects = held.len(), endpoints = pods.endpoints.len(), token = ?held.token(), "state loaded");
        let outcomes = vec![Outcome::default(); parts.len()];
        Ok(Self {
            node: node.to_owned(),
            coverage: Coverage::of(node, &held),
            held,
            journal,
            pods,
            registry,
            _lock: lock,
            parts,
            outcomes,
            due: None,
            endpoints_due: false,
            in_force: None,
            known: finding == Finding::Whole && !matches!(registry_finding, Finding::Damaged(_)),
            begun: false,
            lost,
            registry_lost: registry_finding != Finding::Whole,
            patience: Patience::default(),
            survey: pods::Survey::default(),
            stream: Stream::default(),
            retry: None,
            backoff: BACKOFF,
            host: None,
            metrics,
        })
    }

    /// For how long a Pod waits before that is told, and what then.
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Somebody has prepared the directory, so that an agent which never knew anything finds a registry too. If there is none that can
    /// be read, it is not known whether the node itself was guarded: it is closed, like Pods.
    pub fn expect_registry(&mut self) {
        if !self.registry_lost {
            return;
        }
        if self.lost.is_empty() {
            self.lost.push(disk::nothing_left(&self.registry));
            error!("{}", self.lost[0]);
        }
        self.known = false;
        (self.pods.host.input, self.pods.host.output) = (true, true);
    }

    /// Makes true what an earlier run knew, or holds.
    pub fn begin(&mut self) {
        match self.known {
            true => self.apply_all(),
            false => self.hold(),
        }
        self.look_around(Instant::now());
        self.look_at_host();
        // From now on a registry that is not there is one that was lost.
        if !self.registry.exists()
            && let Err(err) = self.keep_registry()
        {
            warn!(error = %err, "cannot keep the local registry");
        }
    }

    /// A stream is about to begin.
    pub fn open(&mut self) -> Opening {
        self.held.begin();
        self.stream = Stream { number: self.stream.number + 1, ..Stream::default() };
        let is_known = self.held.token().is_some() || !self.held.is_empty();
        let digest = if is_known { self.held.digest().as_slice().to_vec() } else { Vec::new() };
        Opening { stream: self.stream.number, token: self.held.token(), digest }
    }

    /// The stream has ended. What is in force stays.
    pub fn lost(&mut self) {
        self.stream.synced = false;
        self.stream.waiting.clear();
    }

    pub fn take(&mut self, message: ToNode) {
        if self.stream.nonsense.is_some() {
            return;
        }
        if let Some(to_node::Message::Flush(flush)) = &message.message {
            self.metrics.received_revision.set(i64::try_from(flush.revision).unwrap_or(i64::MAX));
        }
        match self.held.take(message) {
            Ok(Taken::Pending) => {}
            Ok(Taken::Wait(sources)) => {
                info!(?sources, "the controller waits for its sources");
                self.stream.waiting = sources;
            }
            Ok(Taken::Skipped) => self.stream.skipped += 1,
            Ok(Taken::Step(step, messages)) => {
                self.journal.append(&messages, &self.held);
                self.take_step(step);
            }
            Err(nonsense) => {
                error!(error = %nonsense, "the controller's stream makes no sense; comparing all on the next one");
                self.held.distrust();
                self.stream.nonsense = Some(nonsense.to_string());
            }
        }
    }

    fn take_step(&mut self, step: Step) {
        if step.synced {
            self.stream.waiting.clear();
            self.stream.synced = true;
            if !self.known {
                self.learn();
            }
        }
        if step.synced || step.changed.keys().any(|key| pods::tells_of_pods(&self.held, key)) {
            self.coverage = Coverage::of(&self.node, &self.held);
            self.judge();
        }
        match &mut self.due {
            Some(due) => due.join(step),
            None => self.due = Some(step),
        }
    }

    /// Whether something is held that is not in force.
    pub fn is_due(&self) -> bool {
        self.due.is_some() || self.endpoints_due
    }

    /// Makes true what is due.
    pub fn settle(&mut self) {
        if !self.is_due() {
            return;
        }
        if !self.known {
            self.endpoints_due = false;
            return self.hold();
        }
        if self.retry.is_some() || !self.begun {
            // Some part is not, or may not be, where it should be: only a comparison of all helps it.
            return self.apply_all();
        }
        let step = self.due.take().unwrap_or_default();
        let endpoints = std::mem::take(&mut self.endpoints_due);
        self.apply(Changed::Some { objects: &step.changed, endpoints });
    }

    fn apply_all(&mut self) {
        (self.due, self.endpoints_due) = (None, false);
        self.apply(Changed::All);
    }

    fn apply(&mut self, changed: Changed<'_>) {
        self.begun = true;
        let started = Instant::now();
        let view = view(&self.node, &self.held, &self.pods);
        for (part, outcome) in self.parts.iter_mut().zip(&mut self.outcomes) {
            *outcome = part.apply(&view, changed);
            note(part.name(), outcome, &self.metrics);
        }
        self.in_force = self.held.token();
        self.metrics.steps.inc();
        self.metrics.step_seconds.observe(started.elapsed().as_secs_f64());
        self.plan_retry();
        if self.retry.is_none() {
            self.metrics.note_applied();
        }
    }

    fn plan_retry(&mut self) {
        if self.outcomes.iter().all(|outcome| outcome.failure.is_none()) {
            self.backoff.reset();
            self.retry = None;
        } else {
            self.retry = Some(Instant::now() + self.backoff.spread(fastrand::f64()));
        }
    }

    /// Called every second or so.
    pub fn tend(&mut self, now: Instant) {
        self.journal.tend(&self.held, now);
        self.look_around(now);
        self.look_at_host();
        if self.patience.then_open {
            self.judge();
        }
        if self.retry.is_some_and(|at| now >= at) && self.known {
            return self.apply_all();
        }
        self.mend();
    }

    /// Mends what others have changed in the kernel.
    pub fn mend(&mut self) {
        if !self.known {
            if self.retry.is_none_or(|at| Instant::now() >= at) {
                self.hold();
            }
            return;
        }
        let view = view(&self.node, &self.held, &self.pods);
        for (part, outcome) in self.parts.iter_mut().zip(&mut self.outcomes) {
            // A part that has failed is not what its table says; it is tried again whole.
            let mended = outcome.failure.is_none().then(|| part.mend(&view)).flatten();
            if let Some(mended) = mended {
                if mended.transactions > 0 {
                    warn!(part = part.name(), "somebody changed our state in the kernel; it is mended");
                    self.metrics.mended.inc();
                }
                *outcome = mended;
                note(part.name(), outcome, &self.metrics);
            }
        }
        if self.retry.is_none() {
            self.plan_retry();
        }
    }

    /// Attaches a Pod, and makes that true. Closed unless a controller is here, and covers it.
    pub fn attach(&mut self, pod: Pod, attachment: Attachment) -> Result<Endpoint, AttachError> {
        let interface = attachment.interface.clone();
        let mut changed = self.pods.endpoints.attach(pod.clone(), attachment, pods::now())?;
        changed |= self.pods.unnamed.remove(&interface).is_some();
        if changed {
            self.judge();
        }
        let endpoint = self.pods.endpoints.get(&pod).expect("it was attached just now").clone();
        self.after_change(changed)?;
        if changed {
            let Endpoint { pod, attachment, closed, .. } = &endpoint;
            info!(%pod, interface = attachment.interface, addresses = ?attachment.addresses, closed, "attached");
        }
        Ok(endpoint)
    }

    /// Takes a Pod out; whether there was one to take.
    pub fn detach(&mut self, pod: &Pod, interface: Option<&str>) -> Result<bool, AttachError> {
        let changed = self.pods.endpoints.detach(pod, interface);
        self.after_change(changed)?;
        if changed {
            info!(%pod, "detached");
        }
        Ok(changed)
    }

    /// Attaches Pods that were here before, of those that nobody has attached and a controller covers: what runs is not cut by being found.
    pub fn found(&mut self, found: Vec<(Pod, Attachment)>) {
        if !self.stream.synced {
            return;
        }
        let mut changed = false;
        for (pod, attachment) in found {
            let endpoint = Endpoint { pod, attachment, closed: true, since: 0, found: true };
            let is_known = self.pods.endpoints.get(&endpoint.pod).is_some();
            if is_known || !self.coverage.covers(&endpoint) {
                continue;
            }
            let Endpoint { pod, attachment, .. } = endpoint;
            let interface = attachment.interface.clone();
            match self.pods.endpoints.find(pod.clone(), attachment, pods::now()) {
                Ok(_) => {
                    info!(%pod, interface, "found by what the container runtime says");
                    self.pods.unnamed.remove(&interface);
                    changed = true;
                }
                Err(error) => warn!(%pod, %error, "cannot be attached"),
            }
        }
        if changed {
            self.judge();
            self.endpoints_due = true;
            self.settle();
            self.keep_or_warn();
        }
    }

    /// Takes out what was attached for a container; whether there was something to take.
    pub fn detach_container(&mut self, id: &str, interface: Option<&str>) -> Result<bool, AttachError> {
        let changed = self.pods.endpoints.detach_container(id, interface);
        self.after_change(changed)?;
        if changed {
            info!(container = id, "detached");
        }
        Ok(changed)
    }

    fn after_change(&mut self, changed: bool) -> Result<(), AttachError> {
        if changed {
            self.endpoints_due = true;
            self.settle();
            self.keep_registry()
                .map_err(|source| AttachError::Keep { path: self.registry.clone(), source })?;
        }
        Ok(())
    }

    fn keep_registry(&self) -> io::Result<()> {
        disk::write_registry(&self.registry, &self.pods)
    }

    pub fn endpoints(&self) -> &Endpoints {
        &self.pods.endpoints
    }

    /// Names connections that were seen, with the rules that decide if those are wanted.
    pub fn name_flows(&mut self, seen: Vec<Seen>, rules: bool) -> Vec<Named> {
        let part = self.parts.iter_mut().find(|part| part.knows_flows());
        part.map(|part| part.name_flows(seen, rules)).unwrap_or_default()
    }

    /// Rings when somebody may have touched what is ours.
    pub fn alarm(&self) -> Option<OwnedFd> {
        self.parts.iter().find_map(|part| part.alarm())
    }

    pub fn held(&self) -> &Held {
        &self.held
    }

    pub fn state(&self) -> State {
        let known: Vec<i32> =
            self.parts.iter().flat_map(|part| part.kinds()).map(|kind| *kind as i32).collect();
        let unknown = self.held.objects().map(|(key, _)| key).filter(|key| !known.contains(&key.kind));
        let unknown =
            unknown.map(|key| (key.clone(), "this agent does not know objects of this kind".to_owned()));
        let errors = self.outcomes.iter().flat_map(|outcome| outcome.errors.clone());
        let failures =
            self.outcomes.iter().flat_map(|outcome| outcome.failure.iter().chain(&outcome.problem).cloned());
        State {
            token: self.in_force,
            synced: self.stream.synced,
            waiting: self.stream.waiting.clone(),
            objects: self.held.len(),
            endpoints: self.pods.endpoints.len(),
            closed: self.pods.endpoints.iter().filter(|endpoint| endpoint.closed).count(),
            holding: !self.known,
            lost: self.lost.clone(),
            pods: self.pod_problems(),
            errors: errors.chain(unknown).collect(),
            failures: failures.chain(self.journal.failure().map(str::to_owned)).collect(),
            skipped: self.stream.skipped,
            nonsense: self.stream.nonsense.clone().map(|text| (self.stream.number, text)),
            journal_bytes: self.journal.length(),
            host: self.host.clone(),
        }
    }

    /// The agent stops: the disk is brought up to date, and the kernel stays as it is.
    pub fn finish(mut self) {
        self.settle();
        self.journal.finish(&self.held);
    }
}

fn view<'a>(node: &'a str, held: &'a Held, pods: &'a Registry) -> View<'a> {
    View { node, held, endpoints: &pods.endpoints, unnamed: &pods.unnamed, host: &pods.host }
}

fn note(part: &str, outcome: &Outcome, metrics: &Metrics) {
    metrics.transactions.inc_by(outcome.transactions);
    metrics.note_lock(outcome.longest);
    if let Some(failure) = &outcome.failure {
        metrics.failures.inc();
        error!(part, error = failure, "the kernel does not hold what it should; trying again");
    }
}

#[cfg(test)]
mod tests;
