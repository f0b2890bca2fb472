//! Events: what each subscriber hears, kept for a while so that a broken stream can go on.
//!
//! In: changes, in order. Out: streams, one cursor each into one shared history; a slow reader costs nothing and
//! delays nobody. Holds: the last [`KEPT`] changes that somebody heard of, of [`KEPT_BYTES`] together at most; of a change that is
//! larger by itself nothing but itself, so that whoever listens hears of it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
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

/// What they may weigh: a group of 20,000 whose members come and go is some 2 MiB each time.
const KEPT_BYTES: usize = 64 << 20;

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
    heard: VecDeque<(Revision, Arc<HeardBy>, usize)>,
    /// What `heard` weighs.
    bytes: usize,
}

/// What a change weighs, about. A difference that several hear of is there once.
fn weight(heard: &HeardBy) -> usize {
    let mut seen = BTreeSet::new();
    let differences = heard.values().flatten().filter(|difference| seen.insert(Arc::as_ptr(difference)));
    let members: usize = differences.map(|difference| difference.weight()).sum();
    let pointers: usize =
        heard.iter().map(|(who, what)| size_of_val(who) + who.as_str().len() + size_of_val(&**what)).sum();
    members + pointers
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
        let weight = weight(&heard);
        let mut history = self.history.lock();
        match history.complete_after {
            // The first change is the load of everything; it is where histories begin, not an event.
            None => history.complete_after = Some(revision),
            Some(_) if !heard.is_empty() => history.keep(revision, heard, weight),
            Some(_) => {}
        }
        let dropped = history.forget();
        history.reached = revision;
        drop(history);
        // Large ones take a while to take apart, which nobody need wait for.
        drop(dropped);
        self.reached.send_replace(Some(revision));
    }
}

impl History {
    fn keep(&mut self, revision: Revision, heard: HeardBy, weight: usize) {
        self.bytes += weight;
        self.heard.push_back((revision, Arc::new(heard), weight));
    }

    /// Lets the oldest go until the rest is within bounds; the newest stays.
    fn forget(&mut self) -> Vec<Arc<HeardBy>> {
        let mut dropped = Vec::new();
        while self.heard.len() > 1 && (self.heard.len() > KEPT || self.bytes > KEPT_BYTES) {
            let Some((revision, heard, weight)) = self.heard.pop_front() else { break };
            self.bytes -= weight;
            self.complete_after = Some(revision);
            dropped.push(heard);
        }
        dropped
    }

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
        let first = history.heard.partition_point(|(revision, ..)| *revision <= self.cursor);
        for (revision, heard, _) in history.heard.range(first..) {
            if let Some(differences) = heard.get(&self.subscriber) {
                self.cursor = *revision;
                return Ok(Some(Heard { revision: *revision, differences: differences.clone() }));
            }
        }
        self.cursor = history.reached;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use model::{Member, TagName};
    use tags::{Fact, Graph, Write};

    use super::*;

    /// What the subscriber of a group hears when all its members come or go.
    fn heard(members: usize, name: &str) -> HeardBy {
        let tag: TagName = name.parse().unwrap();
        let subscriber: Subscriber = "default>linux>vm".parse().unwrap();
        let mut graph = Graph::default();
        graph.apply([
            Write::Put(Fact::Group(tag.clone())),
            Write::Put(Fact::Subscription(tag.clone(), subscriber)),
        ]);
        let member =
            |n: usize| -> Member { format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255).parse().unwrap() };
        graph.apply((0..members).map(|n| Write::Put(Fact::Membership(tag.clone(), member(n))))).heard()
    }

    #[test]
    fn of_large_changes_only_as_many_are_kept_as_the_bound_in_bytes_takes() {
        let events = Events::new();
        events.add(Revision(1), HeardBy::new());
        let large = heard(20_000, "many");
        let each = weight(&large);
        for revision in 2..1000 {
            events.add(Revision(revision), large.clone());
        }
        let history = events.history.lock();
        assert!(
            history.bytes <= KEPT_BYTES && history.bytes + each > KEPT_BYTES,
            "{} of {each}",
            history.bytes
        );
        assert_eq!(history.heard.len(), KEPT_BYTES / each);
        assert!(history.keeps(Revision(998)) && !history.keeps(Revision(2)), "the oldest go first");
    }

    #[test]
    fn a_change_larger_than_the_bound_is_heard_and_goes_with_the_next() {
        let events = Events::new();
        events.add(Revision(1), HeardBy::new());
        {
            let mut history = events.history.lock();
            history.keep(Revision(2), heard(1, "many"), KEPT_BYTES + 1);
            assert!(history.forget().is_empty());
            history.reached = Revision(2);
            assert!(history.keeps(Revision(1)));
        }
        events.add(Revision(3), heard(1, "few"));
        let history = events.history.lock();
        assert_eq!(
            (history.heard.len(), history.keeps(Revision(1)), history.keeps(Revision(2))),
            (1, false, true)
        );
    }
}
