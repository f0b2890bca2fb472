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

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use model::{Subscriber, change::Change};
use store::{Revision, Store};
use tags::{Graph, Request, RequestError};
use tokio::sync::{mpsc, oneshot, watch};
use tonic::Code;

pub(crate) use convert::{mapping, set};
pub use events::{Heard, TooOld, Watching};

use crate::{failure::Failure, life::Life, metrics::Metrics, store_failure};

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
    #[error("other controllers kept changing tags meanwhile; try again")]
    Busy,
    #[error("the controller is stopping")]
    Stopping,
    #[error("tags are not loaded yet; try again in a second")]
    NotLoaded,
}

impl From<TagError> for Failure {
    fn from(error: TagError) -> Self {
        match &error {
            TagError::Refused(refused) => Failure::from_error(refusal_code(refused), &error),
            TagError::Store(err) => store_failure::transact(&error, err),
            TagError::Read(err) => store_failure::read(&error, err),
            TagError::Busy => Failure::from_error(Code::Aborted, &error),
            TagError::Stopping | TagError::NotLoaded => Failure::from_error(Code::Unavailable, &error),
        }
    }
}

fn refusal_code(refused: &RequestError) -> Code {
    match refused {
        RequestError::NotFound(_) | RequestError::MemberNotFound { .. } | RequestError::NotAMember { .. } => {
            Code::NotFound
        }
        RequestError::Kind { .. } | RequestError::Cycle { .. } => Code::FailedPrecondition,
        RequestError::EmptyLeaf { .. } => Code::InvalidArgument,
    }
}

/// The tags of one controller.
pub struct Tags {
    current: ArcSwap<Snapshot>,
    /// The revision `current` has reached; none before the first complete state.
    reached: watch::Sender<Option<Revision>>,
    requests: mpsc::Sender<Job>,
    events: events::Events,
    metrics: Arc<Metrics>,
}

/// One request and where its verdict goes.
struct Job {
    request: Request,
    verdict: oneshot::Sender<Result<Change, TagError>>,
}

impl Tags {
    /// Starts to follow and to write.
    pub fn start(store: Store, metrics: Arc<Metrics>, life: &Life) -> Arc<Self> {
        let (requests, jobs) = mpsc::channel(QUEUE);
        let (changes_tx, changes_rx) = mpsc::channel(CHANGES);
        let tags = Arc::new(Self {
            current: ArcSwap::default(),
            reached: watch::Sender::new(None),
            requests,
            events: events::Events::new(),
            metrics,
        });
        life.spawn(follow::run(Arc::clone(&tags), store.clone(), changes_tx));
        life.spawn(write::run(Arc::clone(&tags), store, jobs));
        life.spawn(events::run(Arc::clone(&tags), changes_rx));
        tags
    }

    pub fn is_synced(&self) -> bool {
        self.reached.borrow().is_some()
    }

    /// The graph as it is. Taking it costs nothing and holds nobody up.
    pub fn snapshot(&self) -> Result<Arc<Snapshot>, TagError> {
        if self.is_synced() { Ok(self.current.load_full()) } else { Err(TagError::NotLoaded) }
    }

    /// Makes a request come true, durably. What is read afterwards shows it. Says what it did.
    pub async fn request(&self, request: Request) -> Result<Change, TagError> {
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
        let mut reached = self.reached.subscribe();
        match reached.wait_for(|at| at.is_some_and(|at| at > seen)).await {
            Ok(at) => at.unwrap_or(seen),
            // The sender lives in self, so the wait cannot fail.
            Err(_) => seen,
        }
    }

    async fn reach(&self, revision: Revision) {
        let mut reached = self.reached.subscribe();
        // The sender lives in self, so the wait cannot fail.
        let _ = reached.wait_for(|at| at.is_some_and(|at| at >= revision)).await;
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
        let revision = snapshot.revision;
        self.metrics.tags.set(i64::try_from(snapshot.graph.name_count()).unwrap_or(i64::MAX));
        self.metrics.tag_revision.set(i64::try_from(revision.0).unwrap_or(i64::MAX));
        self.current.store(Arc::new(snapshot));
        self.reached.send_replace(Some(revision));
    }
}
