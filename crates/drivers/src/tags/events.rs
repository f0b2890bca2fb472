//! Events: what each subscriber hears, kept for a while so that a broken stream can go on.
//!
//! In: changes, in order. Out: streams, one cursor each into one shared history; a slow reader costs nothing and
//! delays nobody. Holds: the newest changes that somebody heard of, within [`KEPT`]; of a change that is
//! larger by itself nothing but itself, so that whoever listens hears of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{Bounds, History};
use model::Subscriber;
use parking_lot::Mutex;
use store::Revision;
use tags::Difference;
use tokio::sync::{mpsc, watch};

use super::{Tags, follow::Followed};

/// What is kept for those who come back: a group of 20,000 whose members come and go is some 2 MiB each time. A subscriber
/// further behind resolves its tags anew.
const KEPT: Bounds = Bounds { changes: 10_000, bytes: 64 << 20, newest_stays: true };

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
    /// None until the first state is known.
    history: Arc<Mutex<Option<History<Arc<HeardBy>>>>>,
    /// The revision whose effects are known; none until the first state is.
    reached: watch::Sender<Option<Revision>>,
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
            None => history.as_ref().map_or(0, History::head),
            Some(asked) if keeps(&history, asked.0) => asked.0,
            Some(asked) => return Err(TooOld { asked }),
        };
        Ok(Watching { subscriber, cursor: Revision(cursor), history: Arc::clone(&self.history), reached })
    }

    fn add(&self, revision: Revision, heard: HeardBy) {
        let weight = weight(&heard);
        let mut history = self.history.lock();
        let dropped = match &mut *history {
            // The first change is the load of everything; it is where histories begin, not an event.
            None => {
                *history = Some(History::new(revision.0, KEPT));
                Vec::new()
            }
            Some(history) if heard.is_empty() => {
                history.advance(revision.0);
                Vec::new()
            }
            Some(history) => history.push(revision.0, weight, Arc::new(heard)),
        };
        drop(history);
        // Large ones take a while to take apart, which nobody need wait for.
        drop(dropped);
        self.reached.send_replace(Some(revision));
    }
}

/// Whether everything after a revision is known: it is not too long ago, and of this store.
fn keeps(history: &Option<History<Arc<HeardBy>>>, after: u64) -> bool {
    history.as_ref().is_some_and(|history| after <= history.head() && history.after(after).is_some())
}

/// Computes what each change means for its subscribers, in order, away from the runtime's threads: a change high
/// up in a large graph may take a while.
pub(super) async fn run(tags: Arc<Tags>, mut changes: mpsc::Receiver<Followed>) {
    while let Some(Followed { revision, change }) = changes.recv().await {
        let Ok(heard) = tokio::task::spawn_blocking(move || change.by_subscriber()).await else { continue };
        tags.events.add(revision, heard);
    }
}

/// A subscriber's place in the history.
pub struct Watching {
    subscriber: Subscriber,
    cursor: Revision,
    history: Arc<Mutex<Option<History<Arc<HeardBy>>>>>,
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
        let too_old = TooOld { asked: self.cursor };
        let history = self.history.lock();
        let Some(history) = history.as_ref() else { return Err(too_old) };
        for (revision, heard) in history.after(self.cursor.0).ok_or(too_old)? {
            if let Some(differences) = heard.get(&self.subscriber) {
                self.cursor = Revision(revision);
                return Ok(Some(Heard { revision: self.cursor, differences: differences.clone() }));
            }
        }
        self.cursor = Revision(history.head());
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
        graph
            .apply((0..members).map(|n| Write::Put(Fact::Membership(tag.clone(), member(n)))))
            .by_subscriber()
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
        let kept = history.as_ref().unwrap().after(999 - (KEPT.bytes / each) as u64).unwrap().count();
        assert_eq!(kept, KEPT.bytes / each);
        assert!(keeps(&history, 998) && !keeps(&history, 2), "the oldest go first");
    }

    #[test]
    fn a_change_larger_than_the_bound_is_heard_and_goes_with_the_next() {
        let events = Events::new();
        events.add(Revision(1), HeardBy::new());
        let dropped = events.history.lock().as_mut().unwrap().push(2, KEPT.bytes + 1, Arc::default());
        assert!(dropped.is_empty() && keeps(&events.history.lock(), 1));
        events.add(Revision(3), heard(1, "few"));
        let history = events.history.lock();
        assert!(!keeps(&history, 1) && keeps(&history, 2));
    }
}
