//! What nodes of other controllers have: several on one etcd tell each other how far their own nodes are.
//!
//! ```text
//!   hub, policy, watch ──► Telling ─► Board ──► peers/ID/… in the store, on a lease ──► Heard ──► node list, policy list
//!                              this controller                              the others
//! ```
//!
//! In: the hub's sessions and the reports of this controller; what the others have written. Out: one claim per node that is
//! or was connected elsewhere ([`Peers::nodes`]), and what was reported elsewhere ([`Peers::reported`]). Holds: the words of
//! the others, which go with their leases. Once a second is written what differs from before, and nothing while nothing
//! changes but the lease. With the embedded store there are no others, and nothing of this runs.
//!
//! When a node elsewhere has everything: its controller says that it is caught up and which objects that controller had
//! handed out before it looked; and these are no fewer than those which what concerns the node comes from here.
//! Resources of clouds, which are not among the stored objects, are left aside.
//!
//! Not here: what people are shown of it (`server`).

mod board;
mod heard;
mod marks;
mod publisher;
mod telling;
#[cfg(test)]
mod tests;
mod words;

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use ::transport::{Hub, SessionView};
use life::Life;
use model::policy::output::Identifier;
use parking_lot::{Mutex, RwLock};
use store::{
    Store,
    follow::{Follower, Progress, Step},
};
use watch::{Cache, Millis, Outcome};

pub use words::{ErrorWord, NodeWord, is_caught_up};

use self::{
    board::Limits,
    heard::{Claim, Heard},
    marks::Marks,
    publisher::Publisher,
};
use crate::{config::StoreKind, policy::Policy, random};

/// What this controller tells of, and compares with.
#[derive(Clone)]
pub struct Rooms {
    pub policy: Arc<Policy>,
    pub hub: Arc<Hub>,
    pub watch: Arc<Cache>,
}

/// The other controllers, as far as they have nodes.
pub struct Peers {
    rooms: Rooms,
    heard: RwLock<Heard>,
    marks: Mutex<Marks>,
    shared: Option<Shared>,
}

/// A store that others may use.
struct Shared {
    store: Store,
    limits: Limits,
    /// Of this process.
    id: String,
    progress: Progress,
}

/// A node that is or was connected to another controller.
#[derive(Clone, Debug)]
pub struct NodeElsewhere {
    pub name: String,
    /// For people.
    pub controller: String,
    pub word: Arc<NodeWord>,
    /// The newest revision that concerns it, in the count of this controller's hub.
    pub newest: ::transport::Revision,
    /// It has applied all that this controller would have told it.
    pub has_all: bool,
}

impl Peers {
    /// Starts to listen, if there can be others.
    pub fn start(store: &Store, kind: &StoreKind, rooms: Rooms, life: &Life) -> Arc<Self> {
        let (marks, id) = (Mutex::default(), random::uuid());
        let heard = RwLock::new(Heard::new(id.clone()));
        let StoreKind::Etcd(etcd) = kind else {
            return Arc::new(Self { rooms, heard, marks, shared: None });
        };
        // Half is left for what the backend adds to keys and values.
        let limits = Limits { operations: etcd.max_txn_ops, bytes: etcd.max_request_bytes / 2 };
        let follower = Follower::new(store.clone(), words::prefix());
        let shared = Shared { store: store.clone(), limits, id, progress: follower.progress() };
        let peers = Arc::new(Self { rooms, heard, marks, shared: Some(shared) });
        let listening = Arc::clone(&peers);
        life.spawn("peers: follower", async move { listening.follow(follower).await });
        peers
    }

    /// Starts to tell the others, if there can be any. `name` is what people are shown.
    pub fn publish(self: &Arc<Self>, name: String, life: &Life) {
        if let Some(shared) = &self.shared {
            let publisher =
                Publisher::new(Arc::clone(self), shared.store.clone(), &shared.id, shared.limits, name);
            life.spawn_to_end("peers: publisher", publisher.run(life.stopping()));
        }
    }

    /// How far the words of the others are taken in; none if there can be no others.
    pub fn progress(&self) -> Option<Progress> {
        self.shared.as_ref().map(|shared| shared.progress.clone())
    }

    /// Every node the others know of, by name.
    pub fn nodes(&self) -> Vec<NodeElsewhere> {
        let claims = self.heard.read().claims();
        claims.into_iter().map(|(name, claim)| self.elsewhere(name, claim)).collect()
    }

    pub fn node(&self, name: &str) -> Option<NodeElsewhere> {
        let claim = self.heard.read().claim(name);
        claim.map(|claim| self.elsewhere(name.to_owned(), claim))
    }

    /// The last that a node reported of this generation to another controller.
    pub fn reported(&self, node: &str, policy: &Identifier, generation: i64) -> Option<(Millis, Outcome)> {
        self.heard.read().reported(node, policy, generation)
    }

    /// The claim is older than what it is compared with, so it is never taken for more than it says.
    fn elsewhere(&self, name: String, Claim { controller, reached, word }: Claim) -> NodeElsewhere {
        let newest = self.rooms.hub.newest_for(&name);
        let needed =
            self.marks.lock().objects_of(newest).unwrap_or_else(|| self.rooms.policy.newest_change());
        let has_all = word.is_caught_up && reached >= needed;
        NodeElsewhere { name, controller, word, newest, has_all }
    }

    fn note_mark(&self) {
        // In this order: what the hub has handed out comes from objects that were noted before.
        let head = self.rooms.hub.head();
        self.marks.lock().note(head, self.rooms.policy.newest_change());
    }

    async fn follow(&self, mut follower: Follower) {
        let own = self.shared.as_ref().map(|shared| shared.id.clone()).unwrap_or_default();
        let mut loading = None;
        loop {
            match follower.next().await {
                Step::Begin => loading = Some(Heard::new(own.clone())),
                Step::Apply(entry) => match &mut loading {
                    Some(heard) => heard.take(&entry),
                    None => self.heard.write().take(&entry),
                },
                Step::Delete { key, .. } => self.heard.write().delete(&key),
                Step::Complete { revision } => {
                    if let Some(heard) = loading.take() {
                        *self.heard.write() = heard;
                    }
                    follower.took_in(revision);
                }
            }
        }
    }
}

impl NodeElsewhere {
    /// Whether it is asked rather than the session that this controller has, or had, with the node.
    pub fn knows_better(&self, here: &SessionView) -> bool {
        !here.connected && self.word.rank() > (false, here.disconnected_at.map(words::seconds))
    }

    /// For how long it is behind, if that is long.
    pub fn lag_seconds(&self) -> i64 {
        let behind = self.word.behind_since;
        behind.map_or(0, |since| words::seconds(SystemTime::now()).saturating_sub(since).max(0))
    }

    /// What it said that it could not do, about one object.
    pub fn error(&self, kind: i32, name: &str) -> Option<&str> {
        let mut errors = self.word.errors.iter();
        let found = errors.find(|error| i32::from(error.kind) == kind && error.name == name);
        found.map(|error| error.message.as_str())
    }
}

/// Now, as reports are stamped.
pub fn millis() -> Millis {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(now.as_millis()).unwrap_or(Millis::MAX)
}
