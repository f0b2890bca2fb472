//! The policy engine, driven: objects from the store in, updates to its consumers out.
//!
//! ```text
//!   store ── watch objects/ ──► driver ── Event ──► Engine ── Update ──► states, consumers
//!                                ▲  ▲                 ▲
//!   clusters ── observations ────┘  │              explain, view
//!   derived objects ────────────────┘
//! ```
//!
//! Objects of Kubernetes clusters come in beside the stored ones, and so do those that other parts of the controller derive
//! (resources of clouds, as entities). Of several with one name the cluster's counts, then the stored one, then the derived one.
//!
//! One task is the engine's only writer. It takes in all that is ready, then drains, so that a burst of changes gives
//! one set of updates. Before the first complete state, of the store and of all clusters, nothing is told to consumers: an empty
//! engine must not look like an empty cluster. Not here: how objects are stored (`objects`), what they mean (`policy`).

mod names;
mod observed;
mod state;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use futures::FutureExt as _;
use life::Life;
use model::policy::{
    Object, ObjectId,
    output::{Identifier, Problem, Update},
};
use names::Names;
use observed::Observed;
use parking_lot::Mutex;
use policy::{
    Engine, Event as EngineEvent, View,
    survey::{Party, Survey, Workload},
};
use store::{
    Revision,
    follow::{Follower, Progress, Step},
};
use tokio::sync::{mpsc, oneshot, watch};

pub use observed::Observation;
pub use state::{PolicyState, States};

use crate::{
    objects::{self, Objects},
    span,
};

/// Events taken in before others have a turn.
const BATCH: usize = 16_384;
/// Updates that consumers are told at once while the first state is told: nobody listens yet, and all of them at once would be in
/// memory twice.
const PARCEL: usize = 4_096;

/// Who is told what the engine computes. Called by one task, in order.
pub trait Consumer: Send {
    fn apply(&mut self, updates: &[Update]);

    /// The first complete state has been told.
    fn synced(&mut self);
}

/// Who follows the objects themselves, beside the engine. Called by the same task, in order.
pub trait ObjectFollower: Send {
    fn apply(&mut self, object: &Object);

    fn delete(&mut self, id: &ObjectId);

    /// What was said since the last call belongs together.
    fn flush(&mut self);

    /// The first complete state has been told.
    fn synced(&mut self);
}

/// Tells the cache of the watch API what the engine computes.
pub struct WatchFeed(pub Arc<::watch::Cache>);

impl Consumer for WatchFeed {
    fn apply(&mut self, updates: &[Update]) {
        self.0.apply(updates.iter().cloned());
    }

    fn synced(&mut self) {
        self.0.set_synced();
    }
}

/// The engine of one controller.
pub struct Policy {
    engine: Mutex<Engine>,
    states: Mutex<States>,
    progress: Progress,
    /// Objects told since the state was last told anew: how far a start is.
    read: AtomicUsize,
    /// The revision of the newest change among those taken in.
    changed: AtomicU64,
    /// Consumers were told the first complete state.
    synced: AtomicBool,
    derived: mpsc::UnboundedSender<Derived>,
    named: mpsc::UnboundedSender<Named>,
    observed: mpsc::UnboundedSender<Observations>,
}

/// On the Pods that permissions name, and on no others: which Pod it is. No Pod can claim it.
pub const POD_LABEL: &str = "trestle.dev/pod";

/// The value of [`POD_LABEL`]: it tells a Pod also where nobody has said anything of its namespace. Names are longer than
/// the value of a label may be, so it is a digest.
pub fn pod_label(namespace: &str, name: &str) -> String {
    let text = format!("{namespace}/{name}");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    common::hex(&digest.as_ref()[..16])
}

/// The Pods that have [`POD_LABEL`].
struct Named {
    pods: BTreeSet<ObjectId>,
    /// Told when the engine has it.
    done: oneshot::Sender<()>,
}

/// What clusters have.
struct Observations {
    observed: Vec<Observation>,
    /// All that there is in all clusters has been told with it.
    is_whole: bool,
    /// Told when the engine and its consumers have it.
    done: oneshot::Sender<()>,
}

/// A change of derived objects.
struct Derived {
    apply: Vec<Object>,
    delete: Vec<ObjectId>,
    /// Told when the engine and its consumers have it.
    done: oneshot::Sender<()>,
}

impl Policy {
    /// With `clusters`, consumers wait for what those have too ([`Self::observe`]).
    pub fn start(
        objects: &Objects,
        clusters: bool,
        consumers: Vec<Box<dyn Consumer>>,
        followers: Vec<Box<dyn ObjectFollower>>,
        life: &Life,
    ) -> Arc<Self> {
        let (derived, derivations) = mpsc::unbounded_channel();
        let (named, namings) = mpsc::unbounded_channel();
        let (observed, observations) = mpsc::unbounded_channel();
        let stored = objects.clone();
        let objects = objects.follow();
        let policy = Arc::new(Self {
            engine: Mutex::new(Engine::new()),
            states: Mutex::default(),
            progress: objects.progress(),
            read: AtomicUsize::new(0),
            changed: AtomicU64::new(0),
            synced: AtomicBool::new(false),
            derived,
            named,
            observed,
        });
        let driver = Driver {
            policy: Arc::clone(&policy),
            objects,
            consumers,
            followers,
            known: Names::default(),
            listed: None,
            derived: BTreeMap::new(),
            derivations,
            stored,
            named: BTreeSet::new(),
            namings,
            observed: Observed::default(),
            observations,
            awaited: Awaited { store: true, clusters },
        };
        life.spawn("policy: engine", driver.run());
        policy
    }

    /// Consumers have been told everything once.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Relaxed)
    }

    /// How far the engine follows the store.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// The newest change of objects that consumers have, or are about to have. Unlike what [`Self::progress`] has reached,
    /// which may be any revision at which the whole state was read, it is one that every follower of the objects reaches.
    pub fn newest_change(&self) -> Revision {
        Revision(self.changed.load(Relaxed))
    }

    /// Waits until a change of objects is in the engine and with its consumers.
    pub async fn reach(&self, revision: Revision) {
        self.progress.reach(revision).await;
    }

    /// Puts and takes away objects that are not stored. Returns when the engine and its consumers have them.
    pub async fn derive(&self, apply: Vec<Object>, delete: Vec<ObjectId>) {
        let (done, is_done) = oneshot::channel();
        // Without a driver the controller is stopping, and nobody waits for anything.
        if self.derived.send(Derived { apply, delete, done }).is_ok() {
            let _ = is_done.await;
        }
    }

    /// Takes in what clusters have, in this order; `is_whole`: all that all of them have has been told with it. Returns when the engine
    /// and its consumers have it.
    pub async fn observe(&self, observed: Vec<Observation>, is_whole: bool) {
        let (done, is_done) = oneshot::channel();
        // Without a driver the controller is stopping, and nobody waits for anything.
        if self.observed.send(Observations { observed, is_whole, done }).is_ok() {
            let _ = is_done.await;
        }
    }

    /// Makes exactly these Pods known to the engine by their names, as [`POD_LABEL`]. The same again changes nothing.
    pub async fn name_pods(&self, pods: BTreeSet<ObjectId>) {
        let (done, is_done) = oneshot::channel();
        // Without a driver the controller is stopping, and nobody waits for anything.
        if self.named.send(Named { pods, done }).is_ok() {
            let _ = is_done.await;
        }
    }

    /// What one span key should have.
    pub fn view_of(&self, key: &str) -> View {
        self.engine.lock().view_of_node(key)
    }

    /// Takes what is needed to answer who reaches whom among these ends. Changes wait meanwhile, but not for the answer.
    pub fn survey(&self, parties: &[Party]) -> Survey {
        self.ask(|engine| engine.survey(parties))
    }

    /// Asks the engine something it has no word for here. Short: changes wait meanwhile.
    pub fn ask<T>(&self, question: impl FnOnce(&Engine) -> T) -> T {
        question(&self.engine.lock())
    }

    /// Changes when the engine has taken in a change of objects.
    pub fn changes(&self) -> watch::Receiver<Option<Revision>> {
        self.progress.changes()
    }

    /// Every workload, in no order. Resources of clouds are not among them: they speak for themselves.
    pub fn workloads(&self) -> Vec<Workload> {
        let is_resource =
            |workload: &Workload| workload.member.node.as_ref().is_some_and(|key| span::is_cloud(key));
        self.ask(|engine| engine.workloads().filter(|workload| !is_resource(workload)).collect())
    }

    /// How many objects were read since the state was last told anew.
    pub fn objects_read(&self) -> usize {
        self.read.load(Relaxed)
    }

    /// What is told of objects that cannot be read, sorted by object, and of names that two have.
    pub fn unreadable(&self) -> Vec<String> {
        self.states.lock().unreadables()
    }

    /// Policies that cannot be enforced as they are written, and why, sorted.
    pub fn faulty(&self) -> Vec<(ObjectId, Vec<Problem>)> {
        self.states.lock().faulty()
    }

    /// One policy with its state, and its name to nodes: none as long as no place needs it.
    pub fn get(&self, id: &ObjectId) -> Option<(PolicyState, Option<Identifier>)> {
        self.states.lock().get(id)
    }

    /// The name that a policy has to a node, if it is to be enforced there.
    pub fn uid_at(&self, id: &ObjectId, node: &str) -> Option<Identifier> {
        self.states.lock().uid_at(id, node)
    }

    /// Each policy as it is named, with what is another one whenever it changes.
    pub fn versions(&self) -> Vec<(String, String)> {
        self.states.lock().versions()
    }

    /// All policies with their state, sorted.
    pub fn list(&self) -> Vec<(ObjectId, PolicyState)> {
        self.states.lock().list()
    }
}

struct Driver {
    policy: Arc<Policy>,
    objects: Follower,
    consumers: Vec<Box<dyn Consumer>>,
    followers: Vec<Box<dyn ObjectFollower>>,
    /// What the engine holds, to find out what is gone when the state is told anew.
    known: Names,
    /// What the state that is being told holds; none between states.
    listed: Option<Names>,
    derived: BTreeMap<ObjectId, Object>,
    derivations: mpsc::UnboundedReceiver<Derived>,
    stored: Objects,
    /// The Pods that are known to the engine by their names too.
    named: BTreeSet<ObjectId>,
    namings: mpsc::UnboundedReceiver<Named>,
    /// What clusters have.
    observed: Observed,
    observations: mpsc::UnboundedReceiver<Observations>,
    awaited: Awaited,
}

/// What consumers still wait for.
struct Awaited {
    store: bool,
    clusters: bool,
}

impl Driver {
    async fn run(mut self) {
        loop {
            let step = tokio::select! {
                step = self.objects.next() => step,
                Some(derived) = self.derivations.recv() => {
                    self.take_derived(derived).await;
                    continue;
                }
                Some(observations) = self.observations.recv() => {
                    self.observe(observations).await;
                    continue;
                }
                Some(Named { pods, done }) = self.namings.recv() => {
                    self.name(pods).await;
                    // Whoever asked may have gone.
                    let _ = done.send(());
                    continue;
                }
            };
            let mut reached = self.take(step);
            // Whatever else is ready belongs to the same set of updates.
            for _ in 0..BATCH {
                let Some(step) = self.objects.next().now_or_never() else { break };
                reached = self.take(step).or(reached);
            }
            // The first state is worked out once, when all of it is there: until then nobody is told anything.
            if reached.is_some() || self.policy.is_synced() {
                self.drain().await;
            }
            if let Some(revision) = reached {
                self.finish_step(revision);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Takes in one step; the revision the engine has then reached, if that is a whole state.
    fn take(&mut self, step: Step) -> Option<Revision> {
        match step {
            Step::Begin => {
                // Of nothing nothing can be gone.
                self.listed = (!self.known.is_empty()).then(Names::default);
                self.policy.read.store(0, Relaxed);
            }
            Step::Apply(entry) => {
                self.policy.read.fetch_add(1, Relaxed);
                self.policy.changed.fetch_max(entry.modified.0, Relaxed);
                match objects::read_object(&entry)? {
                    Ok(object) => self.apply(&object.id(), Some(&object), None),
                    Err(told) => self.apply(&told.id, told.stand_in.as_ref(), Some(told.told())),
                }
            }
            Step::Delete { key, revision } => {
                self.policy.changed.fetch_max(revision.0, Relaxed);
                if let Some(id) = objects::read_key(&key) {
                    self.delete(&id);
                }
            }
            Step::Complete { revision } => {
                if let Some(listed) = self.listed.take() {
                    let gone = self.known.without(&listed);
                    gone.iter().for_each(|id| self.delete(id));
                }
                return Some(revision);
            }
        }
        None
    }

    /// Takes in a stored object, or what stands in for one that cannot be read, with what is told of it.
    fn apply(&mut self, id: &ObjectId, object: Option<&Object>, unreadable: Option<String>) {
        if self.observed.contains(id) {
            self.policy.states.lock().twice(id, true);
        } else {
            match object {
                Some(object) => self.put(id, object),
                None => self.remove(id),
            }
            self.policy.states.lock().unreadable(id, unreadable);
        }
        self.known.insert(id);
        if let Some(listed) = &mut self.listed {
            listed.insert(id);
        }
    }

    fn delete(&mut self, id: &ObjectId) {
        self.known.remove(id);
        if self.observed.contains(id) {
            self.policy.states.lock().twice(id, false);
        } else {
            self.remove(id);
        }
    }

    fn put(&mut self, id: &ObjectId, object: &Object) {
        let named = self.named(id, object);
        self.policy.engine.lock().handle_event(EngineEvent::Apply(named.as_ref().unwrap_or(object)));
        self.followers.iter_mut().for_each(|follower| follower.apply(object));
        self.policy.states.lock().seen(id, object.metadata().generation);
    }

    /// Back to what is derived under the name, if anything is.
    fn remove(&mut self, id: &ObjectId) {
        let derived = self.derived.get(id);
        let event = derived.map_or(EngineEvent::Delete(id), EngineEvent::Apply);
        self.policy.engine.lock().handle_event(event);
        self.followers.iter_mut().for_each(|follower| follower.delete(id));
        self.policy.states.lock().gone(id);
        if let Some(object) = derived {
            self.policy.states.lock().seen(id, object.metadata().generation);
        }
    }

    /// A Pod as the engine is told of it, where that is not as it is stored: with its name as a label if a permission names
    /// it, and without if it only claims that.
    fn named(&self, id: &ObjectId, object: &Object) -> Option<Object> {
        let Object::Pod(pod) = object else { return None };
        let is_named = self.named.contains(id);
        if !is_named && !pod.metadata.labels.contains_key(POD_LABEL) {
            return None;
        }
        let mut pod = pod.clone();
        let labels = std::mem::take(&mut pod.metadata.labels).into_iter();
        let own = is_named.then(|| (POD_LABEL.to_owned(), pod_label(&id.namespace, &id.name)));
        pod.metadata.labels = labels.filter(|(key, _)| key != POD_LABEL).chain(own).collect();
        Some(Object::Pod(pod))
    }

    async fn name(&mut self, pods: BTreeSet<ObjectId>) {
        let changed: Vec<ObjectId> = self.named.symmetric_difference(&pods).cloned().collect();
        self.named = pods;
        for id in changed {
            if let Some(object) = self.observed.get(&id) {
                let named = self.named(&id, &object);
                self.policy.engine.lock().handle_event(EngineEvent::Apply(named.as_ref().unwrap_or(&object)));
                continue;
            }
            if !self.known.contains(&id) {
                continue;
            }
            // The store may be ahead of what was followed, which then comes again; if it does not answer, or has it no more,
            // the next word on the Pod is told as it shall be.
            if let Ok(stored) = self.stored.get(&id).await {
                let object = stored.document.object();
                let named = self.named(&id, object);
                self.policy.engine.lock().handle_event(EngineEvent::Apply(named.as_ref().unwrap_or(object)));
            }
        }
        self.drain().await;
    }

    async fn take_derived(&mut self, Derived { apply, delete, done }: Derived) {
        for object in apply {
            let id = object.id();
            if !self.is_taken(&id) {
                self.policy.engine.lock().handle_event(EngineEvent::Apply(&object));
                self.policy.states.lock().seen(&id, object.metadata().generation);
            }
            self.derived.insert(id, object);
        }
        for id in delete {
            if self.derived.remove(&id).is_some() && !self.is_taken(&id) {
                self.policy.engine.lock().handle_event(EngineEvent::Delete(&id));
                self.policy.states.lock().gone(&id);
            }
        }
        self.drain().await;
        // Whoever asked may have gone.
        let _ = done.send(());
    }

    /// Whether a stored object or one of a cluster has the name.
    fn is_taken(&self, id: &ObjectId) -> bool {
        self.known.contains(id) || self.observed.contains(id)
    }

    /// What consumers hear of one drain is one step, but for the first state. Followers come last: what they tell of an object is told when all that applies to it has been.
    async fn drain(&mut self) {
        let most = if self.policy.is_synced() { usize::MAX } else { PARCEL };
        let mut updates: Vec<Update> = Vec::new();
        loop {
            updates.clear();
            {
                let mut engine = self.policy.engine.lock();
                updates.extend(std::iter::from_fn(|| engine.poll_update()).take(most));
            }
            if updates.is_empty() {
                break;
            }
            self.policy.states.lock().apply(&updates);
            self.consumers.iter_mut().for_each(|consumer| consumer.apply(&updates));
            if updates.len() < most {
                break;
            }
            tokio::task::yield_now().await;
        }
        self.followers.iter_mut().for_each(|follower| follower.flush());
    }

    fn finish_step(&mut self, revision: Revision) {
        self.awaited.store = false;
        self.tell_synced();
        self.objects.took_in(revision);
    }

    /// The first complete state has been told, if it has been.
    fn tell_synced(&mut self) {
        if self.awaited.store || self.awaited.clusters || self.policy.is_synced() {
            return;
        }
        self.consumers.iter_mut().for_each(|consumer| consumer.synced());
        self.followers.iter_mut().for_each(|follower| follower.synced());
        self.policy.synced.store(true, Relaxed);
    }
}
