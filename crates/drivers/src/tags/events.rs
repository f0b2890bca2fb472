//! Events: what each subscriber hears, kept for a while so that a broken stream can go on.
//!
//! In: changes, in order. Out: streams, one cursor each into one shared history; a slow reader costs nothing and
//! delays nobody. Holds: the last [`KEPT`] changes that somebody heard of.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use model::Subscriber;
use parking_lot::Mutex;
use store::Revision;
use tags::Difference;
use tokio::sync::{mpsc, watch};

use super::{Tags, follow::Followed};

/// Changes kept for those who come back. A subscriber further behind resolves its tags anew.
const KEPT: usize = 10_000;

/// Who hears what of one transaction.
type HeardBy = BTreeMap<Subscriber, Vec<Arc<Difference>>>;

/// What one subscriber hears of one transaction.
#[derive(Clone, Debug)]
pub struct Heard {
    pub revision: Revision,
    pub differences: Vec<Arc<Difference>>,
}

/// The revision asked for is not in the history: too long ago, or not of this store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("changes after revision {asked} are not kept; resolve the tags again and watch from the start")]
pub struct TooOld {
    pub asked: Revision,
}

pub(super) struct Events {
    history: Arc<Mutex<History>>,
    /// The revision whose effects are known; none until the first state is.
    reached: watch::Sender<Option<Revision>>,
}

#[derive(Default)]
struct History {
    /// Everything after this revision is in `heard`. None until the first state is known.
    complete_after: Option<Revision>,
    reached: Revision,
    heard: VecDeque<(Revision, Arc<HeardBy>)>,
}

impl Events {
    pub(super) fn new() -> Self {
        Self { history: Arc::default(), reached: watch::Sender::new(None) }
    }

    pub(super) async fn watch(
        &self,
        subscriber: Subscriber,
        after: Option<Revision>,
    ) -> Result<Watching, TooOld> {
        let mut reached = self.reached.subscribe();
        // The sender lives in self, so the wait cannot fail.
        let _ = reached.wait_for(Option::is_some).await;
        let history = self.history.lock();
        let cursor = match after {
            None => history.reached,
            Some(asked) if history.keeps(asked) => asked,
            Some(asked) => return Err(TooOld { asked }),
        };
        Ok(Watching { subscriber, cursor, history: Arc::clone(&self.history), reached })
    }

    fn add(&self, revision: Revision, heard: HeardBy) {
        let mut history = self.history.lock();
        match history.complete_after {
            // The first change is the load of everything; it is where histories begin, not an event.
            None => history.complete_after = Some(revision),
            Some(_) if !heard.is_empty() => history.heard.push_back((revision, Arc::new(heard))),
            Some(_) => {}
        }
        if history.heard.len() > KEPT
            && let Some((dropped, _)) = history.heard.pop_front()
        {
            history.complete_after = Some(dropped);
        }
        history.reached = revision;
        drop(history);
        self.reached.send_replace(Some(revision));
    }
}

impl History {
    fn keeps(&self, after: Revision) -> bool {
        self.complete_after.is_some_and(|start| start <= after) && after <= self.reached
    }
}

/// Computes what each change means for its subscribers, in order, away from the runtime's threads: a change high
/// up in a large graph may take a while.
pub(super) async fn run(tags: Arc<Tags>, mut changes: mpsc::Receiver<Followed>) {
    while let Some(Followed { revision, change }) = changes.recv().await {
        let Ok(heard) = tokio::task::spawn_blocking(move || change.heard()).await else { continue };
        tags.events.add(revision, heard);
    }
}

/// A subscriber's place in the history.
pub struct Watching {
    subscriber: Subscriber,
    cursor: Revision,
    history: Arc<Mutex<History>>,
    reached: watch::Receiver<Option<Revision>>,
}

impl Watching {
    /// The revision after which events follow.
    pub fn start(&self) -> Revision {
        self.cursor
    }

    /// The next event. An error if the reader was so slow that history has gone by.
    pub async fn next(&mut self) -> Result<Heard, TooOld> {
        loop {
            if let Some(heard) = self.look()? {
                return Ok(heard);
            }
            let cursor = self.cursor;
            if self.reached.wait_for(|reached| *reached > Some(cursor)).await.is_err() {
                // The tags are gone, which happens only when the controller stops.
                std::future::pending::<()>().await;
            }
        }
    }

    fn look(&mut self) -> Result<Option<Heard>, TooOld> {
        let history = self.history.lock();
        if !history.keeps(self.cursor) {
            return Err(TooOld { asked: self.cursor });
        }
        let first = history.heard.partition_point(|(revision, _)| *revision <= self.cursor);
        for (revision, heard) in history.heard.range(first..) {
            if let Some(differences) = heard.get(&self.subscriber) {
                self.cursor = *revision;
                return Ok(Some(Heard { revision: *revision, differences: differences.clone() }));
            }
        }
        self.cursor = history.reached;
        Ok(None)
    }
}
