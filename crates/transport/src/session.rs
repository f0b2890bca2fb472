//! Sessions: one per connected node, found by name; the newest connection of a name wins by its generation.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    core::{From, NodeIndex},
    dialect::DialectId,
    digest::Digest,
    key::{Key, Revision},
    steps::{Had, Steps},
};

/// Errors kept per node. A node with more has one problem, not hundreds.
const MAX_ERRORS: usize = 100;
/// Bytes kept of one error's text.
const MAX_ERROR_TEXT: usize = 1024;

/// Who connects, and where it stands.
#[derive(Debug)]
pub struct Opening {
    pub name: Arc<str>,
    pub dialect: DialectId,
    pub token: Option<(u64, Revision)>,
    pub digest: Option<Digest>,
    pub peer: String,
    pub version: String,
    /// What the node proved itself with, if it can be taken away while it is connected.
    pub credential: Option<String>,
    /// Closes the connection below the stream, for a peer that takes no more bytes.
    pub cut: CancellationToken,
}

/// What to do with a second connection of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicate {
    /// The newest wins; the older one ends.
    #[default]
    Newest,
    /// Azure NPM's words: a connection that exists stays, and the new one is not served.
    Existing,
}

/// A connection that is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error(
        "node {name} is connected already, and the configuration says that the existing connection stays"
    )]
    Exists { name: Arc<str> },
}

/// Why a stream ends: a gRPC status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub code: u8,
    pub message: String,
}

impl End {
    /// ABORTED.
    pub fn superseded() -> Self {
        Self { code: 10, message: "superseded by a newer connection of the same node".to_owned() }
    }

    /// UNAVAILABLE.
    pub fn stopping() -> Self {
        Self { code: 14, message: "the controller is stopping; connect again".to_owned() }
    }

    /// UNAVAILABLE.
    pub fn stalled(after: Duration) -> Self {
        Self { code: 14, message: format!("no byte was taken for {after:?}; connect again") }
    }
}

/// One connected node.
#[derive(Debug)]
pub struct Session {
    pub name: Arc<str>,
    pub generation: u64,
    pub credential: Option<String>,
    pub(crate) node: NodeIndex,
    pub(crate) dialect: DialectId,
    /// Taken by the body when it starts to stream.
    pub(crate) from: Mutex<Option<From>>,
    pub(crate) waker: AtomicWaker,
    /// Set once, by whoever ends the stream; the body reads it.
    pub(crate) end: OnceLock<End>,
    pub(crate) permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// Whether the body has nothing to send. Set by the body.
    pub(crate) idle: AtomicBool,
    cut: CancellationToken,
    closed: CancellationToken,
    peer: String,
    version: String,
    started: Instant,
    connected_at: SystemTime,
    /// Milliseconds from `started` until the last byte was taken.
    progress: AtomicU64,
    sent: AtomicU64,
    bytes: AtomicU64,
    report: Mutex<Report>,
    steps: Mutex<Steps>,
    /// Counts what nodes say, for those who wait for it.
    heard: watch::Sender<u64>,
}

#[derive(Clone, Debug, Default)]
struct Report {
    applied: Option<Revision>,
    errors: Vec<(Key, String)>,
    skipped: u64,
    /// When the oldest step was sent that is not applied.
    waiting_since: Option<Instant>,
}

/// A node as people see it.
#[derive(Clone, Debug)]
pub struct SessionView {
    pub name: Arc<str>,
    pub connected: bool,
    pub dialect: DialectId,
    pub peer: String,
    pub version: String,
    pub connected_at: SystemTime,
    pub disconnected_at: Option<SystemTime>,
    /// The newest revision that concerns the node.
    pub revision: Revision,
    pub sent: Revision,
    pub applied: Option<Revision>,
    pub lag: Duration,
    pub errors: Vec<(Key, String)>,
    pub skipped: u64,
    pub bytes_sent: u64,
    pub last_end: Option<End>,
}

impl Session {
    /// `steps`: those of the connection before, if the node goes on where it was.
    pub(crate) fn new(
        opening: Opening,
        generation: u64,
        (node, from): (NodeIndex, From),
        steps: Steps,
        heard: watch::Sender<u64>,
    ) -> Self {
        Self {
            name: opening.name,
            generation,
            credential: opening.credential,
            node,
            dialect: opening.dialect,
            from: Mutex::new(Some(from)),
            waker: AtomicWaker::new(),
            end: OnceLock::new(),
            permit: Mutex::new(None),
            idle: AtomicBool::new(false),
            cut: opening.cut,
            closed: CancellationToken::new(),
            peer: opening.peer,
            version: opening.version,
            started: Instant::now(),
            connected_at: SystemTime::now(),
            progress: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            report: Mutex::default(),
            steps: Mutex::new(steps),
            heard,
        }
    }

    /// Ends the stream with a status, as soon as its peer takes bytes.
    pub fn end(&self, end: End) {
        let _ = self.end.set(end);
        self.waker.wake();
    }

    /// Ends the connection below the stream.
    pub fn cut(&self) {
        self.cut.cancel();
    }

    /// Waits until the stream is gone, for whoever reads its other half.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    pub(crate) fn note_closed(&self) {
        self.closed.cancel();
    }

    /// The node says what it has applied and what it could not.
    pub fn report(&self, applied: Revision, errors: impl IntoIterator<Item = (Key, String)>, skipped: u64) {
        let mut report = self.report.lock();
        report.applied = Some(applied);
        report.skipped = skipped;
        report.errors = errors.into_iter().take(MAX_ERRORS).map(|(key, text)| (key, shorten(text))).collect();
        if applied.0 >= self.sent.load(Relaxed) {
            report.waiting_since = None;
        }
        drop(report);
        self.steps.lock().applied(applied, Instant::now());
        self.heard.send_modify(|heard| *heard += 1);
    }

    /// Since when the node has what a revision brought, and what it could not of that; none while it has not said so.
    pub(crate) fn had(&self, revision: Revision) -> Option<(Had, Vec<(Key, String)>)> {
        let had = self.steps.lock().had(revision)?;
        Some((had, self.report.lock().errors.clone()))
    }

    pub(crate) fn steps(&self) -> Steps {
        self.steps.lock().clone()
    }

    pub(crate) fn note_step(&self, to: Revision) {
        self.sent.store(to.0, Relaxed);
        self.steps.lock().sent(to, Instant::now());
        self.report.lock().waiting_since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn note_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.progress.store(self.started.elapsed().as_millis() as u64, Relaxed);
        self.idle.store(false, Relaxed);
    }

    /// How long the peer has taken no byte although there are some.
    pub(crate) fn stalled_for(&self) -> Duration {
        if self.idle.load(Relaxed) {
            return Duration::ZERO;
        }
        self.started.elapsed().saturating_sub(Duration::from_millis(self.progress.load(Relaxed)))
    }

    pub(crate) fn view(&self, newest: Revision, disconnected_at: Option<SystemTime>) -> SessionView {
        let report = self.report.lock().clone();
        SessionView {
            name: Arc::clone(&self.name),
            connected: disconnected_at.is_none(),
            dialect: self.dialect,
            peer: self.peer.clone(),
            version: self.version.clone(),
            connected_at: self.connected_at,
            disconnected_at,
            revision: newest,
            sent: Revision(self.sent.load(Relaxed)),
            applied: report.applied,
            lag: report.waiting_since.map_or(Duration::ZERO, |since| since.elapsed()),
            errors: report.errors,
            skipped: report.skipped,
            bytes_sent: self.bytes.load(Relaxed),
            last_end: self.end.get().cloned(),
        }
    }
}

fn shorten(mut text: String) -> String {
    if text.len() > MAX_ERROR_TEXT {
        let end = (0..=MAX_ERROR_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// What is remembered of a session that ended.
#[derive(Debug)]
pub(crate) struct Closed {
    pub view: SessionView,
    pub steps: Steps,
}

/// Sessions by name, with what is remembered of those that ended.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    generation: u64,
    open: HashMap<Arc<str>, Arc<Session>>,
    by_node: HashMap<NodeIndex, Arc<Session>>,
    closed: HashMap<Arc<str>, Closed>,
    /// Superseded, and perhaps still sending.
    ending: Vec<Weak<Session>>,
}

impl Registry {
    /// The generation for a new session of `name`, or why there is none.
    pub fn admit(&mut self, name: &Arc<str>, duplicate: Duplicate) -> Result<u64, Refused> {
        if duplicate == Duplicate::Existing && self.open.contains_key(name) {
            return Err(Refused::Exists { name: Arc::clone(name) });
        }
        self.generation += 1;
        Ok(self.generation)
    }

    /// Adds a session; gives back the one it takes the place of.
    pub fn insert(&mut self, session: &Arc<Session>) -> Option<Arc<Session>> {
        self.closed.remove(&session.name);
        self.by_node.insert(session.node, Arc::clone(session));
        let older = self.open.insert(Arc::clone(&session.name), Arc::clone(session))?;
        self.ending.push(Arc::downgrade(&older));
        Some(older)
    }

    /// All sessions whose body may still exist.
    pub fn alive(&mut self) -> Vec<Arc<Session>> {
        self.ending.retain(|session| session.strong_count() > 0);
        self.open.values().cloned().chain(self.ending.iter().filter_map(Weak::upgrade)).collect()
    }

    /// Takes a session out, unless a newer one has its place already.
    pub fn remove(&mut self, session: &Session, view: SessionView) {
        if self.open.get(&session.name).is_some_and(|open| open.generation == session.generation) {
            self.open.remove(&session.name);
            self.by_node.remove(&session.node);
            let closed = Closed { view, steps: session.steps() };
            self.closed.insert(Arc::clone(&session.name), closed);
        }
    }

    pub fn by_node(&self, node: NodeIndex) -> Option<&Arc<Session>> {
        self.by_node.get(&node)
    }

    pub fn find(&self, name: &str) -> Option<&Arc<Session>> {
        self.open.get(name)
    }

    pub fn closed(&self) -> impl Iterator<Item = &SessionView> {
        self.closed.values().map(|closed| &closed.view)
    }

    pub fn find_closed(&self, name: &str) -> Option<&SessionView> {
        self.closed.get(name).map(|closed| &closed.view)
    }

    /// What the last connection of a node had been told, for one that goes on from there.
    pub fn steps(&self, name: &str) -> Steps {
        let open = self.open.get(name).map(|session| session.steps());
        let steps = open.or_else(|| self.closed.get(name).map(|closed| closed.steps.clone()));
        steps.unwrap_or_default().resumed()
    }

    pub fn open(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.open.values()
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }
}
