//! Tags as a service: requests in, facts in the store, and the graph that follows them.
//!
//! ```text
//!   callers ─ Request ─► writer ─ one transaction per batch ─► store
//!      ▲                  │ judges each on top of the last        │ watch
//!      └──── replies ─────┘                                       ▼
//!   readers ◄─ snapshot ─ current graph ◄────────────────────  follower ─ Change ─► events ─► watchers
//! ```
//!
//! In: requests, and every committed transaction below `tags/`, also of other controllers. Out: snapshots of the
//! graph, and for each subscriber its effective changes, once. Holds: the graph at one revision.
//!
//! Every transaction replaces `tags/guard` and requires it unchanged, so that writers anywhere take turns: no two
//! of them can each add half of a cycle. The guard is a transaction's last write and thus its end in the watch.

mod change;
mod convert;
mod events;
mod follow;
mod keys;
mod write;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use life::Life;
use model::{Host, Subscriber, TagName, change::Change};
use store::{
    Revision, Store,
    follow::{Follower, Progress},
};
use tags::{Graph, Request, RequestError};
use tokio::sync::{mpsc, oneshot};

pub use convert::{mapping, set};
pub use events::{Heard, TooOld, Watching};

/// Requests that may wait for the writer. More than a thousand waiting means seconds of delay; callers beyond
/// that wait for a place, bounded by their own deadline.
const QUEUE: usize = 1024;
/// Changes whose effect is still to be computed. When full, the follower waits, and with it the writers.
const CHANGES: usize = 1024;

/// The graph as of one revision.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub graph: Graph,
    /// The last transaction in it.
    pub revision: Revision,
    /// The transaction that last replaced the guard; 0 if there is none.
    guard: Revision,
}

/// Why a request did not come true.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TagError {
    #[error(transparent)]
    Refused(#[from] RequestError),
    #[error("cannot write tags to the store")]
    Store(#[source] store::TransactError),
    #[error("cannot read tags from the store")]
    Read(#[source] store::ReadError),
    #[error(
        "{tag} is the tag of host {host}, which the controller keeps; it goes with `trestle host remove {host}`"
    )]
    Kept { tag: TagName, host: TagName },
    #[error("other controllers kept changing tags meanwhile; try again")]
    Busy,
    #[error(
        "the tag {tag} belongs to the resource of that name and goes with it; name it in a group instead"
    )]
    Owned { tag: TagName },
    #[error("the controller is stopping")]
    Stopping,
    #[error("tags are not loaded yet; try again in a second")]
    NotLoaded,
}

/// The tags of one controller.
pub struct Tags {
    current: ArcSwap<Snapshot>,
    progress: Progress,
    requests: mpsc::Sender<Job>,
    events: events::Events,
    /// Requests that wait for the writer.
    queued: AtomicUsize,
    /// Which tags are not the users' to change.
    owned: OnceLock<Owned>,
}

type Owned = Box<dyn Fn(&TagName) -> bool + Send + Sync>;

/// Figures of the tags.
#[derive(Clone, Copy, Debug)]
pub struct TagStats {
    pub tags: usize,
    /// The revision the graph has reached.
    pub revision: Revision,
    /// Requests that wait for the writer.
    pub queued: usize,
}

/// One request and where its verdict goes.
struct Job {
    request: Request,
    verdict: oneshot::Sender<Result<Change, TagError>>,
}

impl Tags {
    /// Starts to follow and to write.
    pub fn start(store: Store, life: &Life) -> Arc<Self> {
        let (requests, jobs) = mpsc::channel(QUEUE);
        let (changes_tx, changes_rx) = mpsc::channel(CHANGES);
        let follower = Follower::new(store.clone(), keys::prefix());
        let tags = Arc::new(Self {
            progress: follower.progress(),
            current: ArcSwap::default(),
            requests,
            events: events::Events::new(),
            queued: AtomicUsize::new(0),
            owned: OnceLock::new(),
        });
        life.spawn("tags: follower", follow::run(Arc::clone(&tags), follower, changes_tx));
        life.spawn("tags: writer", write::run(Arc::clone(&tags), store, jobs));
        life.spawn("tags: events", events::run(Arc::clone(&tags), changes_rx));
        tags
    }

    pub fn is_synced(&self) -> bool {
        self.progress.reached().is_some()
    }

    /// The graph as it is. Taking it costs nothing and holds nobody up.
    pub fn snapshot(&self) -> Result<Arc<Snapshot>, TagError> {
        if self.is_synced() { Ok(self.current.load_full()) } else { Err(TagError::NotLoaded) }
    }

    /// How far the graph follows the store.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    pub fn stats(&self) -> TagStats {
        let snapshot = self.current.load();
        TagStats {
            tags: snapshot.graph.name_count(),
            revision: snapshot.revision,
            queued: self.queued.load(Ordering::Relaxed),
        }
    }

    /// From now on tags that somebody owns are changed by their owner only.
    pub fn set_owner(&self, owns: impl Fn(&TagName) -> bool + Send + Sync + 'static) {
        // Whoever came first stays: there is one orchestrator.
        let _ = self.owned.set(Box::new(owns));
    }

    /// A user's request: makes it come true, durably. What is read afterwards shows it. Says what it did.
    pub async fn request(&self, request: Request) -> Result<Change, TagError> {
        if let Some(tag) = changed(&request) {
            if let Some(host) = Host::of_tag(tag) {
                return Err(TagError::Kept { tag: tag.clone(), host });
            }
            if self.owned.get().is_some_and(|owns| owns(tag)) {
                return Err(TagError::Owned { tag: tag.clone() });
            }
        }
        self.request_as_owner(request).await
    }

    /// The same, of whoever owns the tag: the orchestrator those of resources, the keeper of hosts theirs.
    pub async fn request_as_owner(&self, request: Request) -> Result<Change, TagError> {
        if !self.is_synced() {
            return Err(TagError::NotLoaded);
        }
        let (verdict, answer) = oneshot::channel();
        self.requests.send(Job { request, verdict }).await.map_err(|_| TagError::Stopping)?;
        answer.await.map_err(|_| TagError::Stopping)?
    }

    /// The effective changes of one subscriber from now on, or after a revision.
    pub async fn watch(&self, subscriber: Subscriber, after: Option<Revision>) -> Result<Watching, TooOld> {
        self.events.watch(subscriber, after).await
    }

    /// Waits until the graph is at a later revision than this one, and says at which.
    pub async fn later_than(&self, seen: Revision) -> Revision {
        let mut reached = self.progress.changes();
        match reached.wait_for(|at| at.is_some_and(|at| at > seen)).await {
            Ok(at) => at.unwrap_or(seen),
            // The sender lives in self, so the wait cannot fail.
            Err(_) => seen,
        }
    }

    async fn reach(&self, revision: Revision) {
        self.progress.reach(revision).await;
    }

    /// Waits until a snapshot that turned out to be old is not the current one any more.
    async fn leave(&self, old: &Snapshot, guard: Option<Revision>) {
        match guard {
            Some(guard) if guard > old.revision => self.reach(guard).await,
            // The guard is gone, or was there before: the news is on its way or has just come.
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }

    fn publish(&self, snapshot: Snapshot) {
        self.current.store(Arc::new(snapshot));
    }
}

/// The tag that a request would change. Whoever likes may hear of it.
fn changed(request: &Request) -> Option<&TagName> {
    match request {
        Request::SetLeaf { tag, .. }
        | Request::SetGroup { tag, .. }
        | Request::DeleteMembers { tag, .. }
        | Request::DeleteTag { tag } => Some(tag),
        Request::Subscribe { .. } | Request::Unsubscribe { .. } => None,
    }
}
