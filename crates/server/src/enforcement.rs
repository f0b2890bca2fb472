//! Whether what was changed is in force: for callers who wait for it, for metrics, and for who is slow.
//!
//! ```text
//!   call on record ─► Begun ─► handler: stored, computed (`noted`) ─► follow ─► settle: whom it concerns ─► book
//!   what nodes say, what the orchestrator did ─► look: who has it ──────────────────────────────────────────┘ │
//!                                                                            histograms, slowest nodes, callers ◄┘
//! ```
//!
//! In: calls that changed something; what the hub handed out between their beginning and the moment when the engine, and whoever
//! derives policies, had taken them in; acknowledgements; plans. Out: [`EnforcementState`] for one change or several. Holds: the last
//! changes and who does not have them. What came in the same moment from others is waited for too; what came before or after is not.
//!
//! A change is known to the controller that took it, and until it stops. Nodes that are connected to others are known by what these
//! tell. Not here: what a change means (`drivers`), who must be told (`transport`).

mod answer;
mod change;
mod noted;
mod slowest;

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use ::transport::{Hub, Revision, Standing};
use ::watch::Cache;
use drivers::{
    enforcer::Followed, peers::Peers, permissions::Told, policy::Policy, random, span, tags::Tags,
    transport::NODE,
};
use futures::{Stream, stream};
use life::Life;
use model::{ResourceName, policy::ObjectId};
use orchestrator::execute::Orchestrator;
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use wire::trestle::v1::{EnforcementState, SlowNode, WaitingPlace};

pub use self::{
    answer::{WAIT, answer, waits},
    change::Kind,
    noted::{Begun, about_tag, computed, stored, stored_objects, stored_resources},
};
use self::{
    change::{Book, Change, Place, Question, together},
    noted::Noted,
    slowest::Slowest,
};
use crate::{
    failure::Failure,
    metrics::{EnforcementFigures, Stage},
    serving,
};

/// In metadata and headers: which change a reply is about.
pub const HEADER: &str = "trestle-change";

/// Acknowledgements that come together are looked at together.
const GATHER: Duration = Duration::from_millis(5);
/// However quiet it is: nodes of other controllers, and reports of stock agents, are only asked.
const LOOK: Duration = Duration::from_secs(1);
/// Earlier changes named to one caller.
const MAX_EARLIER: usize = 16;
/// Places named to one caller.
const MAX_NAMED: usize = 100;

/// Who is asked.
pub struct Rooms {
    pub hub: Arc<Hub>,
    pub peers: Arc<Peers>,
    pub orchestrator: Arc<Orchestrator>,
    pub tags: Arc<Tags>,
    pub policy: Arc<Policy>,
    pub watch: Arc<Cache>,
    pub permitted: watch::Receiver<Told>,
    pub followed: Followed,
}

/// The changes of one controller.
pub struct Enforcement {
    rooms: Rooms,
    /// Tells the changes of this process from those of every other.
    epoch: String,
    book: Mutex<Book>,
    slowest: Mutex<Slowest>,
    figures: EnforcementFigures,
    /// Counts whatever may answer somebody who waits.
    moved: watch::Sender<u64>,
    life: Life,
}

/// What one place says of a change.
enum Said {
    /// When it was told and when it had it, where that is known.
    Has(Option<(Instant, Instant)>),
    Not {
        reason: String,
        failed: bool,
    },
}

impl Enforcement {
    pub fn new(rooms: Rooms, figures: EnforcementFigures, life: &Life) -> Arc<Self> {
        let enforcement = Arc::new(Self {
            rooms,
            epoch: common::hex(&random::bytes::<8>()),
            book: Mutex::default(),
            slowest: Mutex::default(),
            figures,
            moved: watch::Sender::new(0),
            life: life.clone(),
        });
        let looking = Arc::clone(&enforcement);
        life.spawn("enforcement", async move { looking.keep_looking().await });
        enforcement
    }

    /// How far a call is at its very beginning.
    pub fn begin(self: &Arc<Self>) -> Begun {
        Begun::new(Arc::clone(self), Instant::now(), self.rooms.hub.head())
    }

    /// Takes in what a call changed; its name, and those of earlier changes that made the rest of what it asked for so and are not in
    /// force everywhere. None if all is as it was and in force.
    pub fn follow(self: &Arc<Self>, begun: &Begun) -> Vec<String> {
        let earlier = self.book.lock().open_of(&begun.same());
        let changed = begun.take().map(|noted| self.enter(begun, noted));
        let named = changed.into_iter().chain(earlier.into_iter().rev().take(MAX_EARLIER));
        named.map(|number| format!("{}-{number}", self.epoch)).collect()
    }

    fn enter(self: &Arc<Self>, begun: &Begun, noted: Noted) -> u64 {
        let change = Change::new(noted.kind, begun.began, begun.after).of(&noted.objects);
        let number = self.book.lock().enter(change);
        self.figures.observe(noted.kind.as_str(), Stage::Stored, noted.stored.duration_since(begun.began));
        let (settling, stop) = (Arc::clone(self), self.life.stopping());
        let (began, after) = (begun.began, begun.after);
        self.life.spawn_once("whom a change concerns", async move {
            // Whoever it waits for may have stopped before.
            stop.run_until_cancelled(settling.settle(number, (began, after), noted)).await;
        });
        number
    }

    /// How far changes are, all together.
    pub fn state(&self, changes: &[String]) -> Result<EnforcementState, Failure> {
        let numbers = self.numbers(changes)?;
        // Another is in the book for as long as it takes to copy it: places are asked without.
        let mut known = Vec::with_capacity(numbers.len());
        {
            let book = self.book.lock();
            for (number, name) in numbers.into_iter().zip(changes) {
                known.push(book.get(number).ok_or_else(|| unknown(name))?.clone());
            }
        }
        let mut named = BTreeSet::new();
        let mut waiting = Vec::new();
        let clouds = Clouds::default();
        for (change, place) in
            known.iter().flat_map(|change| change.waiting().map(move |place| (change, place)))
        {
            if waiting.len() == MAX_NAMED {
                break;
            }
            if !named.insert(place.0.clone()) {
                continue;
            }
            let (reason, failed) = match self.ask(change, place, &clouds) {
                Said::Has(_) => ("it has it since this moment".to_owned(), false),
                Said::Not { reason, failed } => (reason, failed),
            };
            waiting.push(WaitingPlace { place: place.0.to_string(), reason, failed });
        }
        let all = together(&known, Instant::now());
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(EnforcementState {
            state: all.word.to_owned(),
            concerned: count(all.concerned),
            enforced: count(all.enforced),
            seconds: all.took.as_secs_f64(),
            waiting,
        })
    }

    /// How far changes are, now and whenever that is otherwise, until they are in force.
    pub fn watch(
        self: &Arc<Self>,
        changes: Vec<String>,
        stop: CancellationToken,
    ) -> impl Stream<Item = Result<EnforcementState, Status>> + Send + use<> {
        let watching = Watching {
            enforcement: Arc::clone(self),
            moved: self.moved.subscribe(),
            changes,
            stop,
            told: None,
            is_over: false,
        };
        stream::unfold(watching, |mut watching| async move {
            let state = watching.next().await?;
            Some((state, watching))
        })
    }

    /// Waits until changes are in force, or so long; how far they are then.
    pub async fn wait(
        self: &Arc<Self>,
        changes: Vec<String>,
        limit: Duration,
    ) -> Result<EnforcementState, Failure> {
        let mut moved = self.moved.subscribe();
        let until = Instant::now() + limit;
        loop {
            moved.mark_unchanged();
            let state = self.state(&changes)?;
            if state.state == change::ENFORCED || Instant::now() >= until {
                return Ok(state);
            }
            // The sender lives in self, so that the wait ends for a reason.
            let _ = tokio::time::timeout_at(until.min(Instant::now() + LOOK), moved.changed()).await;
        }
    }

    /// The nodes that took longest lately, slowest first.
    pub fn slowest(&self) -> Vec<SlowNode> {
        self.slowest.lock().told(Instant::now())
    }

    fn numbers(&self, changes: &[String]) -> Result<Vec<u64>, Failure> {
        let number = |name: &String| {
            let number = name.strip_prefix(&*self.epoch).and_then(|rest| rest.strip_prefix('-'));
            number.and_then(|number| number.parse().ok()).ok_or_else(|| unknown(name))
        };
        changes.iter().map(number).collect()
    }

    /// Finds out whom a change concerns, once everybody who works something out from it has done so.
    async fn settle(&self, number: u64, (began, after): (Instant, Revision), noted: Noted) {
        let Noted { kind, revision, computed, tags, mut resources, objects, .. } = noted;
        let policies: Vec<ObjectId> = objects.into_iter().filter(|id| id.kind.is_policy()).collect();
        let mut permitted = self.rooms.permitted.clone();
        // Without those who derive policies the controller is stopping.
        let _ = match kind {
            Kind::Tag => {
                let seen = self.rooms.tags.snapshot().map(|snapshot| snapshot.revision).unwrap_or_default();
                permitted.wait_for(|told| told.tags >= seen).await.map(drop)
            }
            Kind::Permission => {
                let changes = *self.rooms.orchestrator.changes().borrow();
                permitted.wait_for(|told| told.changes >= changes).await.map(drop)
            }
            Kind::Workload | Kind::Objects if !self.rooms.orchestrator.permissions().is_empty() => {
                resources.extend(self.rooms.orchestrator.concerned_by_workloads());
                permitted.wait_for(|told| told.objects >= Some(revision)).await.map(drop)
            }
            _ => Ok(()),
        };
        let computed = computed.unwrap_or_else(Instant::now);
        resources.extend(tags.iter().flat_map(|tag| self.rooms.orchestrator.concerned_by_tag(tag)));
        let until = self.rooms.hub.head();
        let mut places: Vec<(Place, Revision)> = Vec::new();
        match self.rooms.hub.concerned(after, until) {
            Some(concerned) => {
                places.extend(concerned.nodes.into_iter().map(|(name, needed)| (Place::Node(name), needed)));
                if let Some(needed) = concerned.everyone {
                    places.extend(self.everyone().map(|name| (Place::Node(name), needed)));
                }
            }
            // So much came meanwhile that nobody can say whom this concerned: everyone must have everything.
            None => places.extend(self.everyone().map(|name| (Place::Node(name), until))),
        }
        // What policies say of a cloud is in force when its resources have it.
        let cloud = |place: &Place| match place {
            Place::Node(name) => span::cloud_of(name).map(str::to_owned),
            Place::Resource(_) => None,
        };
        let clouds: BTreeSet<String> = places.iter().filter_map(|(place, _)| cloud(place)).collect();
        places.retain(|(place, _)| cloud(place).is_none());
        if !clouds.is_empty() {
            self.rooms.followed.clone().reach().await;
            resources.extend(clouds.iter().flat_map(|cloud| self.rooms.orchestrator.guarded(cloud)));
        }
        places.extend(resources.into_iter().map(|name| (Place::Resource(name), Revision(0))));
        self.figures.observe(kind.as_str(), Stage::Computed, computed.saturating_duration_since(began));
        self.book.lock().settle(number, places, policies, Instant::now());
        self.look_at(number);
        self.moved.send_modify(|moved| *moved += 1);
    }

    /// Every node that is or was connected, here or elsewhere.
    fn everyone(&self) -> impl Iterator<Item = Arc<str>> {
        let here = self.rooms.hub.sessions().into_iter().map(|view| view.name);
        let elsewhere = self.rooms.peers.nodes().into_iter().map(|node| Arc::from(node.name));
        here.chain(elsewhere).collect::<BTreeSet<_>>().into_iter()
    }

    async fn keep_looking(&self) {
        let mut heard = self.rooms.hub.heard();
        let mut changes = self.rooms.orchestrator.changes();
        let mut standing = self.rooms.orchestrator.standing();
        // Who is not connected here does not answer, however often it is asked.
        let mut absent = BTreeSet::new();
        loop {
            // None of the senders goes before the controller does.
            let is_quiet = tokio::select! {
                _ = heard.changed() => false,
                _ = changes.changed() => false,
                _ = standing.changed() => false,
                () = tokio::time::sleep(LOOK) => true,
            };
            tokio::time::sleep(GATHER).await;
            absent.retain(|place| !self.is_here(place));
            let places: Vec<Place> = {
                let mut book = self.book.lock();
                book.age(Instant::now(), |kind, late| self.figures.late(kind.as_str(), late));
                book.waiting().filter(|place| is_quiet || !absent.contains(*place)).cloned().collect()
            };
            if is_quiet {
                absent.clear();
            }
            absent.extend(self.look(places));
            self.figures.waiting(self.book.lock().open());
            self.moved.send_modify(|moved| *moved += 1);
        }
    }

    /// Asks whom a change concerns about this one.
    fn look_at(&self, number: u64) {
        let Some(change) = self.book.lock().get(number).cloned() else { return };
        let clouds = Clouds::default();
        change.waiting().for_each(|(place, needed)| self.hear(number, &change, (place, needed), &clouds));
    }

    /// Asks a place about a change, and notes it if it has it.
    fn hear(&self, number: u64, change: &Change, (place, needed): (&Place, Revision), clouds: &Clouds) {
        if let Said::Has(when) = self.ask(change, (place, needed), clouds) {
            self.observe(change, place, when);
            let since = when.map_or_else(Instant::now, |(_, applied)| applied);
            self.book.lock().had(number, vec![(place.clone(), since)]);
        }
    }

    /// Asks places about all that they have not said to have. Gives back those that are not connected here.
    fn look(&self, places: Vec<Place>) -> Vec<Place> {
        let clouds = Clouds::default();
        let mut absent = Vec::new();
        for place in places {
            let questions = self.book.lock().questions(&place);
            for Question { number, change, needed } in questions {
                self.hear(number, &change, (&place, needed), &clouds);
            }
            if !self.is_here(&place) {
                absent.push(place);
            }
        }
        absent
    }

    fn is_here(&self, place: &Place) -> bool {
        match place {
            Place::Node(name) => self.rooms.hub.is_connected(name),
            Place::Resource(_) => true,
        }
    }

    fn observe(&self, change: &Change, place: &Place, when: Option<(Instant, Instant)>) {
        let (sent, applied) = match (when, place) {
            (Some((sent, applied)), _) => (Some(sent), applied),
            (None, Place::Resource(_)) => (None, Instant::now()),
            // Another controller's: what it did when is not known here.
            (None, Place::Node(_)) => return,
        };
        // Of a node that was away, or was not there yet, it says nothing how long it was.
        let connected = match place {
            Place::Node(name) => self.rooms.hub.session(name).map(|view| view.connected_at),
            Place::Resource(_) => None,
        };
        let age = connected.and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age < change.began.elapsed()) {
            return;
        }
        if let Some(sent) = sent {
            self.figures.observe(
                change.kind.as_str(),
                Stage::Sent,
                sent.saturating_duration_since(change.began),
            );
        }
        let took = applied.saturating_duration_since(change.began);
        self.figures.observe(change.kind.as_str(), Stage::Enforced, took);
        if let Place::Node(name) = place {
            self.slowest.lock().took(name, change.kind, took, Instant::now());
        }
    }

    fn ask(&self, change: &Change, (place, needed): (&Place, Revision), clouds: &Clouds) -> Said {
        match place {
            Place::Node(name) => self.ask_node(change, name, needed),
            Place::Resource(name) => clouds.ask(&self.rooms.orchestrator, name),
        }
    }

    fn ask_node(&self, change: &Change, name: &str, needed: Revision) -> Said {
        match self.rooms.hub.standing(name, change.after, needed) {
            Some(Standing::Has(had)) => return Said::Has(Some((had.sent, had.applied))),
            Some(Standing::Failed(why)) => return not(format!("it could not: {why}"), true),
            Some(Standing::Waits) => return not(self.why_not(name, needed), false),
            None => {}
        }
        if let Some(node) = self.rooms.peers.node(name) {
            return match (node.has_all, node.word.connected) {
                (true, _) if node.word.errors.is_empty() => Said::Has(None),
                (true, _) => not(format!("it could not: {}", node.word.errors[0].message), true),
                (false, true) => {
                    not(format!("it is connected to {} and behind there", node.controller), false)
                }
                (false, false) => not("it is away".to_owned(), false),
            };
        }
        if let Some(said) = self.ask_stock_agent(change, name) {
            return said;
        }
        let gone = self.rooms.hub.session(name).and_then(|view| view.disconnected_at);
        match gone {
            Some(at) => {
                let ago = SystemTime::now().duration_since(at).unwrap_or_default().as_secs();
                not(format!("it is away since {ago} s, and hears of it when it is back"), false)
            }
            None => not("no agent has connected as it".to_owned(), false),
        }
    }

    fn why_not(&self, name: &str, needed: Revision) -> String {
        match self.rooms.hub.session(name) {
            Some(view) if view.dialect != NODE => {
                "it speaks a protocol in which nodes do not say what they have applied".to_owned()
            }
            Some(view) if view.sent >= needed => {
                format!("it was told {:.1} s ago and has not said that it has it", view.lag.as_secs_f64())
            }
            _ => "it is connected and has not been told yet".to_owned(),
        }
    }

    /// Agents on the watch API report each policy, and of nothing else.
    fn ask_stock_agent(&self, change: &Change, name: &str) -> Option<Said> {
        if self.rooms.watch.reports() == 0 {
            return None;
        }
        let mut of_it =
            change.policies().filter_map(|policy| self.rooms.policy.uid_at(policy, name)).peekable();
        of_it.peek()?;
        for policy in of_it {
            if let Err(why) = self.rooms.watch.reported(name, &policy)?.1 {
                return Some(not(format!("it could not: {why}"), true));
            }
        }
        Some(Said::Has(None))
    }
}

fn not(reason: String, failed: bool) -> Said {
    Said::Not { reason, failed }
}

fn unknown(name: &str) -> Failure {
    let name: String = name.chars().take(64).collect();
    let text = format!(
        "this controller does not know of the change {name:?}: it was made at another, or before a restart, or thousands of changes ago"
    );
    Failure::new(Code::NotFound, text)
}

/// What the orchestrator has still to do, asked for once.
#[derive(Default)]
struct Clouds(OnceCell<Option<BTreeMap<ResourceName, Option<String>>>>);

impl Clouds {
    fn ask(&self, orchestrator: &Orchestrator, name: &ResourceName) -> Said {
        let waiting = self.0.get_or_init(|| orchestrator.waiting().ok());
        match waiting.as_ref().map(|waiting| waiting.get(name)) {
            None => not("the clouds are still being read".to_owned(), false),
            Some(None) => Said::Has(None),
            Some(Some(None)) => {
                not("its cloud does not have it yet; see `trestle job list`".to_owned(), false)
            }
            // Clouds are tried again by themselves.
            Some(Some(Some(trouble))) => not(trouble.clone(), false),
        }
    }
}

/// Somebody who follows changes.
struct Watching {
    enforcement: Arc<Enforcement>,
    moved: watch::Receiver<u64>,
    changes: Vec<String>,
    /// The controller may not speak any more.
    stop: CancellationToken,
    /// What was said last, but for the time.
    told: Option<EnforcementState>,
    is_over: bool,
}

impl Watching {
    async fn next(&mut self) -> Option<Result<EnforcementState, Status>> {
        if self.is_over {
            return None;
        }
        loop {
            self.moved.mark_unchanged();
            let looked = Instant::now();
            let state = match self.enforcement.state(&self.changes) {
                Ok(state) => state,
                Err(failure) => {
                    self.is_over = true;
                    return Some(Err(failure.into()));
                }
            };
            let timeless = EnforcementState { seconds: 0.0, ..state.clone() };
            if self.told.as_ref() != Some(&timeless) {
                self.is_over = state.state == change::ENFORCED;
                self.told = Some(timeless);
                return Some(Ok(state));
            }
            let pause = looked.elapsed() * 4;
            let later = async {
                // The sender is held with the receiver. Whoever asks for very much is told less often.
                let _ = self.moved.changed().await;
                tokio::time::sleep(pause).await;
            };
            if self.stop.run_until_cancelled(later).await.is_none() {
                self.is_over = true;
                return Some(Err(serving::ended()));
            }
        }
    }
}
