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

mod disk;
#[cfg(fuzzing)]
pub mod fuzzing {
    //! For fuzz targets only.
    pub use super::disk::{read_registry, write_registry};
}
mod thread;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{error, info, warn};
use wire::trestle::v1::{ToNode, to_node};

use crate::{
    backoff::Backoff,
    endpoints::{Attachment, Endpoint, EndpointError, Endpoints, Pod},
    held::{Held, Step, Taken, Token},
    journal::{Journal, JournalError, Loaded},
    metrics::Metrics,
    part::{Changed, Outcome, Part, View},
    status::State,
};

pub use thread::{Gone, Handle, HeldObject, start};

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot read the local registry {path}: mend or delete it, and attach the Pods again")]
    Registry {
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
    endpoints: Endpoints,
    registry: PathBuf,
    /// Keeps other agents out of the directory.
    _lock: files::Lock,
    parts: Vec<Box<dyn Part>>,
    outcomes: Vec<Outcome>,
    /// What is held and not yet in force.
    due: Option<Step>,
    endpoints_due: bool,
    in_force: Option<Token>,
    /// Whether the parts were ever told anything. Before, they leave the kernel alone.
    begun: bool,
    stream: Stream,
    retry: Option<Instant>,
    backoff: Backoff,
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
    /// Reads the state of an earlier run. Nothing is made true yet.
    pub fn load(
        node: &str,
        dir: &Path,
        parts: Vec<Box<dyn Part>>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, LoadError> {
        // First of all: opening the journal may cut a half-written end off, which another agent may be writing.
        let lock = disk::lock(dir)?;
        let Loaded { journal, held, dropped } = Journal::open(dir)?;
        if dropped > 0 {
            warn!(bytes = dropped, "the end of the state on disk is not whole and was dropped");
        }
        let registry = dir.join("endpoints.json");
        let endpoints = disk::read_registry(&registry)
            .map_err(|source| LoadError::Registry { path: registry.clone(), source })?;
        info!(objects = held.len(), endpoints = endpoints.len(), token = ?held.token(), "state loaded");
        let outcomes = vec![Outcome::default(); parts.len()];
        Ok(Self {
            node: node.to_owned(),
            held,
            journal,
            endpoints,
            registry,
            _lock: lock,
            parts,
            outcomes,
            due: None,
            endpoints_due: false,
            in_force: None,
            begun: false,
            stream: Stream::default(),
            retry: None,
            backoff: Backoff::default(),
            metrics,
        })
    }

    /// Makes true what an earlier run knew. An agent that knows nothing at all leaves alone whatever protection it
    /// finds in the kernel, until it does.
    pub fn begin(&mut self) {
        if self.held.token().is_some() || !self.endpoints.is_empty() {
            self.apply_all();
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
            if self.endpoints.open() {
                self.endpoints_due = true;
                if let Err(err) = self.keep_registry() {
                    // Closed again after a restart, until the controller is heard: safe, and tried again with the next.
                    warn!(error = %err, "cannot keep the local registry");
                }
            }
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
        let view = View { node: &self.node, held: &self.held, endpoints: &self.endpoints };
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
            self.retry = Some(Instant::now() + self.backoff.next(fastrand::f64()));
        }
    }

    /// Called every second or so.
    pub fn tend(&mut self, now: Instant) {
        self.journal.tend(&self.held, now);
        if self.retry.is_some_and(|at| now >= at) {
            return self.apply_all();
        }
        if !self.begun {
            return;
        }
        let view = View { node: &self.node, held: &self.held, endpoints: &self.endpoints };
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

    /// Attaches a Pod, and makes that true. Closed if no controller is here to say what is permitted.
    pub fn attach(&mut self, pod: Pod, attachment: Attachment) -> Result<Endpoint, AttachError> {
        let changed = self.endpoints.attach(pod.clone(), attachment, !self.stream.synced)?;
        let endpoint = self.endpoints.get(&pod).expect("it was attached just now").clone();
        self.after_change(changed)?;
        if changed {
            let Endpoint { pod, attachment, closed } = &endpoint;
            info!(%pod, interface = attachment.interface, addresses = ?attachment.addresses, closed, "attached");
        }
        Ok(endpoint)
    }

    /// Takes a Pod out; whether there was one to take.
    pub fn detach(&mut self, pod: &Pod, interface: Option<&str>) -> Result<bool, AttachError> {
        let changed = self.endpoints.detach(pod, interface);
        self.after_change(changed)?;
        if changed {
            info!(%pod, "detached");
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
        disk::write_registry(&self.registry, &self.endpoints)
    }

    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
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
        let failures = self.outcomes.iter().filter_map(|outcome| outcome.failure.clone());
        State {
            token: self.in_force,
            synced: self.stream.synced,
            waiting: self.stream.waiting.clone(),
            objects: self.held.len(),
            endpoints: self.endpoints.len(),
            closed: self.endpoints.iter().filter(|endpoint| endpoint.closed).count(),
            errors: errors.chain(unknown).collect(),
            failures: failures.chain(self.journal.failure().map(str::to_owned)).collect(),
            skipped: self.stream.skipped,
            nonsense: self.stream.nonsense.clone().map(|text| (self.stream.number, text)),
            journal_bytes: self.journal.length(),
        }
    }

    /// The agent stops: the disk is brought up to date, and the kernel stays as it is.
    pub fn finish(mut self) {
        self.settle();
        self.journal.tend(&self.held, Instant::now() + Duration::from_secs(3600));
    }
}

fn note(part: &str, outcome: &Outcome, metrics: &Metrics) {
    metrics.transactions.inc_by(outcome.transactions);
    if let Some(failure) = &outcome.failure {
        metrics.failures.inc();
        error!(part, error = failure, "the kernel does not hold what it should; trying again");
    }
}

#[cfg(test)]
mod tests;
