//! Recent changes in memory, shared by all watches: one history, one notifier, a cursor per watch.
//!
//! In: the writer publishes each batch after its commit. Out: the change after a given revision, if the history still
//! holds it; what it does not is in the file's log.

use std::sync::Arc;

use common::{Bounds, History};
use parking_lot::RwLock;
use tokio::sync::watch;

use super::tables::Change;

pub(super) struct Feed {
    history: RwLock<History<Arc<Change>>>,
    /// The newest published revision. Dropped by [`Feed::close`], which ends the watches.
    head: RwLock<Option<watch::Sender<u64>>>,
    bounds: Bounds,
}

/// What follows a cursor.
pub(super) enum Next {
    Change(Arc<Change>),
    /// In the file's log.
    InLog,
    /// Nothing yet.
    UpToDate,
}

impl Feed {
    pub(super) fn new(head: u64, max_changes: usize, max_bytes: usize) -> Self {
        let bounds = Bounds { changes: max_changes, bytes: max_bytes, newest_stays: false };
        let (history, sender) = (History::new(head, bounds), watch::Sender::new(head));
        Self { history: RwLock::new(history), head: RwLock::new(Some(sender)), bounds }
    }

    /// Changes must be newer than all before, in order, and committed.
    pub(super) fn publish(&self, changes: Vec<Arc<Change>>) {
        let Some(newest) = changes.last().map(|change| change.revision) else { return };
        let mut history = self.history.write();
        for change in changes {
            drop(history.push(change.revision, change.weight(), change));
        }
        drop(history);
        self.announce(newest);
    }

    /// After the file was reopened: its revision is the truth, and what was missed is in its log.
    pub(super) fn reset(&self, head: u64) {
        let mut history = self.history.write();
        if history.head() == head {
            return;
        }
        *history = History::new(head, self.bounds);
        drop(history);
        self.announce(head);
    }

    pub(super) fn after(&self, cursor: u64) -> Next {
        let history = self.history.read();
        if cursor >= history.head() {
            return Next::UpToDate;
        }
        match history.after(cursor).map(|mut rest| rest.next()) {
            None => Next::InLog,
            Some(None) => Next::UpToDate,
            Some(Some((_, change))) => Next::Change(Arc::clone(change)),
        }
    }

    pub(super) fn head(&self) -> u64 {
        self.history.read().head()
    }

    /// `None` once the store is closed.
    pub(super) fn subscribe(&self) -> Option<watch::Receiver<u64>> {
        self.head.read().as_ref().map(watch::Sender::subscribe)
    }

    pub(super) fn close(&self) {
        self.head.write().take();
    }

    fn announce(&self, head: u64) {
        if let Some(sender) = &*self.head.read() {
            sender.send_replace(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Event, Revision};

    fn change(revision: u64) -> Arc<Change> {
        let delete = Event::Delete { key: "k".parse().unwrap(), revision: Revision(revision) };
        Arc::new(Change { revision, events: vec![delete] })
    }

    #[test]
    fn what_falls_out_of_the_ring_is_looked_up_in_the_log() {
        let feed = Feed::new(10, 3, usize::MAX);
        feed.publish((11..=15).map(change).collect());
        assert!(matches!(feed.after(10), Next::InLog));
        assert!(matches!(feed.after(11), Next::InLog));
        assert!(matches!(feed.after(12), Next::Change(change) if change.revision == 13));
        assert!(matches!(feed.after(14), Next::Change(change) if change.revision == 15));
        assert!(matches!(feed.after(15), Next::UpToDate));
    }

    #[test]
    fn the_ring_is_bounded_by_bytes_too() {
        let feed = Feed::new(0, 1000, change(1).weight() * 2);
        feed.publish((1..=5).map(change).collect());
        assert!(matches!(feed.after(2), Next::InLog));
        assert!(matches!(feed.after(3), Next::Change(change) if change.revision == 4));
        let tiny = Feed::new(0, 1000, 1);
        tiny.publish(vec![change(1)]);
        assert!(matches!(tiny.after(0), Next::InLog));
    }
}
