//! The hub: the core behind a lock, the sessions, and the two tasks that wake and watch them.
//!
//! In: publishes of [`Source`]s, openings of sessions. Out: wakes. Holds: the [`Core`], the sessions, and which
//! sources are in sync; until all are, nobody is told anything.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use life::Life;
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::Instant,
};
use tracing::{info, warn};

use crate::{
    core::{Change, Concerned, Core, From, HeldObject, NodeIndex, Plan, Touched},
    key::{Key, Revision},
    session::{Duplicate, End, Opening, Refused, Registry, Session, SessionView},
    steps::{Had, Steps},
};

/// Pause between two wakes: an idle hub reacts at once, a busy one lets changes add up.
const MIN_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// Measured cost of one write to one node, doubled: half the time is left for other work.
const PAUSE_PER_NODE: Duration = Duration::from_micros(24);
/// How often sessions are looked at.
const WATCH: Duration = Duration::from_secs(1);
/// A session that takes no byte for so long gives its place in the snapshot queue away.
const FORFEIT: Duration = Duration::from_secs(5);

/// Bounds and choices.
#[derive(Clone, Debug)]
pub struct Options {
    pub duplicate: Duplicate,
    /// A session that takes no byte for so long, although there are some, is cut.
    pub stall: Duration,
    /// Steps larger than this wait for a place among `max_large`.
    pub large: usize,
    pub max_large: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { duplicate: Duplicate::Newest, stall: Duration::from_secs(120), large: 64 << 10, max_large: 64 }
    }
}

/// Counters and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub sessions: usize,
    pub head: Revision,
    pub objects: usize,
    pub nodes: usize,
    pub losses: usize,
    pub bytes_sent: u64,
    pub frames_sent: u64,
    pub steps: u64,
    pub snapshots_made: u64,
    pub snapshots_shared: u64,
    /// Sessions that wait for a place to be sent a large step.
    pub large_waiting: u64,
    pub superseded: u64,
    pub stalled: u64,
    pub refused: u64,
    /// Age of the oldest change some node was sent and has not applied.
    pub oldest_unapplied: Duration,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub bytes: AtomicU64,
    pub frames: AtomicU64,
    pub steps: AtomicU64,
    pub large_waiting: AtomicU64,
    superseded: AtomicU64,
    stalled: AtomicU64,
    refused: AtomicU64,
}

/// What all streams share.
pub struct Hub {
    core: RwLock<Core>,
    registry: Mutex<Registry>,
    options: Options,
    pub(crate) large: Arc<Semaphore>,
    pub(crate) counters: Counters,
    /// Each source by name, and whether it is in sync.
    sources: Mutex<BTreeMap<String, bool>>,
    synced: AtomicBool,
    changed: Notify,
    heard: watch::Sender<u64>,
}

/// Whether a connected node has what a revision brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Has(Had),
    /// It has said that it could not, and why.
    Failed(String),
    /// It has not said so.
    Waits,
}

/// One producer of objects. Sources publish objects of different keys.
#[derive(Clone)]
pub struct Source {
    hub: Arc<Hub>,
    name: String,
}

impl Hub {
    /// `sources` are all that must be in sync before any node is told anything. With none, no node ever is.
    pub fn start(core: Core, sources: &[&str], options: Options, life: &Life) -> Arc<Self> {
        let hub = Arc::new(Self {
            core: RwLock::new(core),
            registry: Mutex::default(),
            large: Arc::new(Semaphore::new(options.max_large)),
            options,
            counters: Counters::default(),
            sources: Mutex::new(sources.iter().map(|name| ((*name).to_owned(), false)).collect()),
            synced: AtomicBool::new(false),
            changed: Notify::new(),
            heard: watch::Sender::new(0),
        });
        let (pacing, watching) = (Arc::clone(&hub), Arc::clone(&hub));
        life.spawn("hub: pace", async move { pacing.pace().await });
        let stop = life.stopping();
        life.spawn_to_end("hub: watch", async move {
            stop.run_until_cancelled(watching.watch()).await;
            watching.end_all(&End::stopping());
        });
        hub
    }

    /// The handle of one of the sources the hub was started with.
    pub fn source(self: &Arc<Self>, name: &str) -> Option<Source> {
        let known = self.sources.lock().contains_key(name);
        known.then(|| Source { hub: Arc::clone(self), name: name.to_owned() })
    }

    pub fn is_synced(&self) -> bool {
        self.synced.load(Relaxed)
    }

    /// The sources that are not in sync.
    pub fn unsynced(&self) -> Vec<String> {
        self.sources.lock().iter().filter(|(_, synced)| !**synced).map(|(name, _)| name.clone()).collect()
    }

    /// Registers a connection; the older one of the same name ends.
    pub fn open(&self, opening: Opening) -> Result<Arc<Session>, Refused> {
        let mut registry = self.registry.lock();
        let generation = registry.admit(&opening.name, self.options.duplicate).inspect_err(|_| {
            self.counters.refused.fetch_add(1, Relaxed);
        })?;
        let (node, from) = {
            let mut core = self.core.write();
            let node = core.pin(&opening.name);
            (node, core.locate(node, opening.token, opening.digest.clone()))
        };
        let steps = match from {
            From::At(_) => registry.steps(&opening.name),
            From::Nothing | From::Digest(_) => Steps::default(),
        };
        let session = Session::new(opening, generation, (node, from), steps, self.heard.clone());
        let session = Arc::new(session);
        let superseded = registry.insert(&session);
        drop(registry);
        self.heard.send_modify(|heard| *heard += 1);
        if let Some(older) = superseded {
            self.counters.superseded.fetch_add(1, Relaxed);
            info!(node = &*older.name, "a newer connection takes the place of an older one");
            older.end(End::superseded());
        }
        Ok(session)
    }

    /// Takes a connection out again. Called once per session, by its body or by whoever could not hand it to one.
    pub fn close(&self, session: &Session) {
        session.permit.lock().take();
        session.note_closed();
        let newest = self.core.read().newest_for(session.node);
        self.registry.lock().remove(session, session.view(newest, Some(SystemTime::now())));
        self.core.write().unpin(session.node);
        self.heard.send_modify(|heard| *heard += 1);
    }

    /// Everyone who is or was connected, by name.
    pub fn sessions(&self) -> Vec<SessionView> {
        let (registry, core) = (self.registry.lock(), self.core.read());
        let open = registry.open().map(|session| session.view(core.newest_for(session.node), None));
        let closed = registry.closed().map(|view| closed_view(&core, view));
        let mut views: Vec<_> = open.chain(closed).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }

    /// One node that is or was connected.
    pub fn session(&self, name: &str) -> Option<SessionView> {
        let (registry, core) = (self.registry.lock(), self.core.read());
        match registry.find(name) {
            Some(session) => Some(session.view(core.newest_for(session.node), None)),
            None => registry.find_closed(name).map(|view| closed_view(&core, view)),
        }
    }

    /// The newest revision that concerns a node, connected or not.
    pub fn newest_for(&self, name: &str) -> Revision {
        self.core.read().newest_for_name(name)
    }

    /// The revision that was handed out last.
    pub fn head(&self) -> Revision {
        self.core.read().head()
    }

    /// Whether there is anything that is for this node and not for everyone.
    pub fn knows(&self, name: &str) -> bool {
        let core = self.core.read();
        core.node(name).is_some_and(|node| core.has_own(node))
    }

    pub fn is_connected(&self, name: &str) -> bool {
        self.registry.lock().find(name).is_some()
    }

    /// Changes when a node says what it has, comes or goes.
    pub fn heard(&self) -> watch::Receiver<u64> {
        self.heard.subscribe()
    }

    /// Whom what came after `after`, up to `until`, concerned; none if that is so long ago that nobody knows.
    pub fn concerned(&self, after: Revision, until: Revision) -> Option<Concerned> {
        self.core.read().concerned(after, until)
    }

    /// Whether a node has what was handed out up to `revision`, as far as it came after `after`; none if it is not connected.
    pub fn standing(&self, name: &str, after: Revision, revision: Revision) -> Option<Standing> {
        let session = Arc::clone(self.registry.lock().find(name)?);
        let Some((had, errors)) = session.had(revision) else { return Some(Standing::Waits) };
        if errors.is_empty() {
            return Some(Standing::Has(had));
        }
        let core = self.core.read();
        let is_of_it = |key: &Key| core.brought(session.node, key).is_some_and(|brought| brought > after);
        let failed = errors.into_iter().find(|(key, _)| is_of_it(key));
        Some(failed.map_or(Standing::Has(had), |(key, why)| Standing::Failed(format!("{}: {why}", key.name))))
    }

    /// Since when a node that is connected has an object as it is now; none if it does not, or has not said so.
    pub fn has_since(&self, name: &str, key: &Key) -> Option<Had> {
        let session = Arc::clone(self.registry.lock().find(name)?);
        let brought = self.core.read().brought(session.node, key)?;
        session.had(brought).map(|(had, _)| had)
    }

    /// What a node is meant to hold; none if nothing was ever said of it.
    pub fn held(&self, name: &str) -> Option<Vec<HeldObject>> {
        let core = self.core.read();
        core.node(name).map(|node| core.held(node))
    }

    /// Ends the sessions for which `why` gives a reason, and their connections.
    pub fn end_where(&self, why: impl Fn(&Session) -> Option<End>) {
        let sessions: Vec<_> = self.registry.lock().open().cloned().collect();
        for session in sessions {
            if let Some(end) = why(&session) {
                session.end(end);
                session.cut();
            }
        }
    }

    pub fn stats(&self) -> Stats {
        let (sessions, oldest) = {
            let registry = self.registry.lock();
            let lags = registry.open().map(|session| session.view(Revision(0), None).lag);
            (registry.len(), lags.max().unwrap_or_default())
        };
        let core = self.core.read();
        let (size, (made, shared)) = (core.size(), core.snapshot_counts());
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        Stats {
            sessions,
            head: core.head(),
            objects: size.objects,
            nodes: size.nodes,
            losses: size.losses,
            bytes_sent: get(&self.counters.bytes),
            frames_sent: get(&self.counters.frames),
            steps: get(&self.counters.steps),
            snapshots_made: made,
            snapshots_shared: shared,
            large_waiting: get(&self.counters.large_waiting),
            superseded: get(&self.counters.superseded),
            stalled: get(&self.counters.stalled),
            refused: get(&self.counters.refused),
            oldest_unapplied: oldest,
        }
    }

    pub(crate) fn is_large(&self, plan: &Plan) -> bool {
        plan.bytes > self.options.large
    }

    pub(crate) fn core(&self) -> parking_lot::RwLockReadGuard<'_, Core> {
        self.core.read()
    }

    /// Wakes those who were touched, then pauses, the longer the more there were.
    async fn pace(&self) {
        loop {
            self.changed.notified().await;
            let touched = self.core.write().take_touched();
            let woken = if self.is_synced() { self.wake(&touched) } else { 0 };
            let pause = PAUSE_PER_NODE.saturating_mul(u32::try_from(woken).unwrap_or(u32::MAX));
            tokio::time::sleep(pause.clamp(MIN_PAUSE, MAX_PAUSE)).await;
        }
    }

    fn wake(&self, touched: &Touched) -> usize {
        let sessions: Vec<Arc<Session>> = {
            let registry = self.registry.lock();
            match touched.everyone {
                true => registry.open().cloned().collect(),
                false => touched
                    .nodes
                    .iter()
                    .filter_map(|node: &NodeIndex| registry.by_node(*node))
                    .cloned()
                    .collect(),
            }
        };
        sessions.iter().for_each(|session| session.waker.wake());
        sessions.len()
    }

    /// Cuts those who take no byte although there are some.
    async fn watch(&self) {
        let mut tick = tokio::time::interval_at(Instant::now() + WATCH, WATCH);
        loop {
            tick.tick().await;
            let sessions = self.registry.lock().alive();
            for session in sessions {
                let stalled = session.stalled_for();
                if stalled >= FORFEIT {
                    session.permit.lock().take();
                }
                if stalled >= self.options.stall && self.is_synced() {
                    self.counters.stalled.fetch_add(1, Relaxed);
                    warn!(node = &*session.name, "a node takes no bytes and is cut");
                    session.end(End::stalled(self.options.stall));
                    session.cut();
                }
            }
        }
    }

    fn end_all(&self, end: &End) {
        let sessions: Vec<_> = self.registry.lock().open().cloned().collect();
        sessions.iter().for_each(|session| session.end(end.clone()));
    }
}

/// A node that left, and what concerns it now: it did not hear of what was said since.
fn closed_view(core: &Core, view: &SessionView) -> SessionView {
    SessionView { revision: core.newest_for_name(&view.name), ..view.clone() }
}

impl Source {
    /// Hands out a batch as one step, to the nodes it concerns.
    pub fn publish(&self, changes: impl IntoIterator<Item = Change>) -> Revision {
        let revision = self.hub.core.write().publish(changes);
        self.hub.changed.notify_one();
        revision
    }

    /// Says that everything the source has was published at least once. Nodes are told nothing before.
    pub fn synced(&self) {
        let mut sources = self.hub.sources.lock();
        let was = sources.insert(self.name.clone(), true);
        let all = sources.values().all(|synced| *synced);
        drop(sources);
        if was == Some(false) && all {
            self.hub.synced.store(true, Relaxed);
            info!("all sources are in sync; nodes are served");
            self.hub.wake(&Touched { everyone: true, nodes: Vec::new() });
        }
    }
}
