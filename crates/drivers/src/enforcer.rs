//! The cloud enforcer: network policies that select resources of clouds, enforced as permit lists.
//!
//! ```text
//!   orchestrator: resources ─► entities ─► policy engine ─► feed: something of a cloud has changed
//!   tags ───────────────────────┘               │                       │
//!                                               └── view of cloud/NAME ─┴─► verdicts ─► orchestrator ─► clouds
//!   realisation of policies ◄── reports ◄───────────────── standing ◄──────────────────────┘
//! ```
//!
//! Each resource is an ExternalEntity in the engine, with its address, labels, and its cloud as span key. What the engine
//! has for that key is what the cloud must enforce. Everything is worked out from the engine's whole view, so that a
//! start, a reconnect or a repeated event leads to the same lists, and lists that are right are not written.
//!
//! Holds: the entities told, the last meaning, the last reports. Not here: what policies mean for a list
//! (`orchestrator::plan`), which groups they make (`policy`).

mod entities;
mod feed;
mod reports;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use life::Life;
use model::{
    ResourceName, Segment,
    policy::{Object, ObjectId},
};
use orchestrator::{
    execute::Orchestrator,
    plan::{PolicyMeaning, PolicyView, Verdicts, verdicts},
};
use store::Revision;
use tokio::sync::{Notify, watch};

pub use feed::{Feed, Followed};

use self::reports::Told;
use crate::{policy::Policy, span::span_key, tags::Tags};

/// How long changes are gathered, so that many at once are one step.
const GATHER: Duration = Duration::from_millis(10);

/// The enforcer before it runs: who the engine's driver tells is needed before there is an engine.
#[derive(Default)]
pub struct Enforcer {
    news: Arc<Notify>,
    held: feed::Held,
    pulse: feed::Pulse,
    reached: watch::Sender<u64>,
}

impl Enforcer {
    /// The orchestrator's count of changes up to which the engine knows the resources.
    pub fn reached(&self) -> watch::Receiver<u64> {
        self.reached.subscribe()
    }

    pub fn feed(&self) -> Feed {
        Feed::new(Arc::clone(&self.news), Arc::clone(&self.held), self.pulse.clone())
    }

    /// Whether what the engine has said of clouds has come to the orchestrator.
    pub fn followed(&self) -> Followed {
        self.pulse.followed()
    }

    /// Tells the orchestrator what policies say, again and again. The first word is said before this returns, so that
    /// nothing is planned on half a state.
    pub async fn start(self, rooms: Rooms, life: &Life) {
        let mut running = Running {
            rooms,
            held: self.held,
            pulse: self.pulse,
            entities: BTreeMap::new(),
            meaning: PolicyMeaning::default(),
            generations: BTreeMap::new(),
            verdicts: Arc::default(),
            told: Told::default(),
            reached: self.reached,
        };
        running.follow_resources().await;
        running.follow_policies();
        let news = self.news;
        life.spawn("enforcer", async move { running.run(&news).await });
    }
}

/// Whom the enforcer stands between.
pub struct Rooms {
    pub orchestrator: Arc<Orchestrator>,
    pub tags: Arc<Tags>,
    pub policy: Arc<Policy>,
    /// Where realisation is reported.
    pub watch: Arc<::watch::Cache>,
}

struct Running {
    rooms: Rooms,
    held: feed::Held,
    pulse: feed::Pulse,
    /// The entities the engine has been told.
    entities: BTreeMap<ObjectId, Object>,
    meaning: PolicyMeaning,
    generations: reports::Generations,
    verdicts: Arc<BTreeMap<ResourceName, Verdicts>>,
    told: Told,
    reached: watch::Sender<u64>,
}

impl Running {
    async fn run(mut self, news: &Notify) {
        let mut changes = self.rooms.orchestrator.changes();
        let mut standing = self.rooms.orchestrator.standing();
        let mut tags = Revision(0);
        loop {
            // Neither sender goes before the controller does.
            tokio::select! {
                _ = changes.changed() => {}
                seen = self.rooms.tags.later_than(tags) => tags = seen,
                () = news.notified() => {
                    tokio::time::sleep(GATHER).await;
                    self.follow_policies();
                    continue;
                }
                _ = standing.changed() => {
                    let standing = Arc::clone(&standing.borrow_and_update());
                    self.report(&standing);
                    continue;
                }
            }
            tokio::time::sleep(GATHER).await;
            let seen = *changes.borrow_and_update();
            self.follow_resources().await;
            self.reached.send_replace(seen);
        }
    }

    /// Makes the engine's entities those of the resources there are.
    async fn follow_resources(&mut self) {
        let Ok(tags) = self.rooms.tags.snapshot() else { return };
        let now = entities::entities(self.rooms.orchestrator.placed(), &tags.graph);
        let apply: Vec<Object> = now
            .iter()
            .filter(|(id, object)| self.entities.get(id) != Some(object))
            .map(|(_, object)| object.clone())
            .collect();
        let delete: Vec<ObjectId> =
            self.entities.keys().filter(|id| !now.contains_key(id)).cloned().collect();
        if !apply.is_empty() || !delete.is_empty() {
            self.rooms.policy.derive(apply, delete).await;
            self.entities = now;
        }
    }

    /// Works out what the engine's present state means for resources.
    fn follow_policies(&mut self) {
        let beat = self.pulse.beat();
        let resources = self.rooms.orchestrator.placed();
        let clouds: BTreeSet<Segment> = resources.into_iter().map(|(name, ..)| name.cloud).collect();
        let mut view = PolicyView::default();
        for cloud in &clouds {
            let one = self.rooms.policy.view_of(&span_key(cloud));
            for (all, groups) in
                [(&mut view.applied_to, one.applied_to_groups), (&mut view.addresses, one.address_groups)]
            {
                for group in groups {
                    let members: &mut Vec<_> = all.entry(group.name).or_default();
                    // Address groups are the same everywhere; of the others each cloud has its own members.
                    members.extend(group.members);
                }
            }
            let policies = one.policies.into_iter().map(|policy| (policy.uid.clone(), Arc::new(policy)));
            view.policies.extend(policies);
        }
        self.held.lock().replace(&view);
        self.generations =
            view.policies.iter().map(|(uid, policy)| (uid.clone(), policy.generation)).collect();
        self.meaning = verdicts(&view);
        if *self.verdicts != self.meaning.verdicts {
            self.verdicts = Arc::new(self.meaning.verdicts.clone());
        }
        self.rooms.orchestrator.set_verdicts(Arc::clone(&self.verdicts));
        self.pulse.follow(beat);
        let standing = Arc::clone(&self.rooms.orchestrator.standing().borrow());
        self.report(&standing);
    }
}
