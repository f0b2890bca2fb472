//! Recent changes in memory, shared by all watches: one ring, one notifier, a cursor per watch.
//!
//! In: the writer publishes each batch after its commit. Out: the change after a given revision, if the ring still
//! holds it. Holds: the newest changes, bounded by count and bytes; what fell out is in the file's log. Nothing
//! here belongs to one watch, so a slow one costs nobody anything.
//!
//! ```text
//!            floor                         head
//!   log …────┤ change change change change │        cursor in (floor, head): next from the ring
//!            └────────── ring ─────────────┘        cursor < floor: next from the file's log
//! ```

use std::{collections::VecDeque, sync::Arc};

use parking_lot::RwLock;
use tokio::sync::watch;

use super::tables::Change;

pub(super) struct Feed {
    ring: RwLock<Ring>,
    /// The newest published revision. Dropped by [`Feed::close`], which ends the watches.
    head: RwLock<Option<watch::Sender<u64>>>,
    max_changes: usize,
    max_bytes: usize,
}

struct Ring {
    changes: VecDeque<Arc<Change>>,
    bytes: usize,
    /// Changes up to here are not in the ring.
    floor: u64,
    head: u64,
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
        let ring = Ring { changes: VecDeque::new(), bytes: 0, floor: head, head };
        Self {
            ring: RwLock::new(ring),
            head: RwLock::new(Some(watch::Sender::new(head))),
            max_changes,
            max_bytes,
        }
    }

    /// Changes must be newer than all before, in order, and committed.
    pub(super) fn publish(&self, changes: Vec<Arc<Change>>) {
        let Some(newest) = changes.last().map(|change| change.revision) else { return };
        let mut ring = self.ring.write();
        for change in changes {
            ring.bytes += change.weight();
            ring.changes.push_back(change);
        }
        ring.head = newest;
        while ring.changes.len() > self.max_changes || ring.bytes > self.max_bytes {
            let Some(oldest) = ring.changes.pop_front() else { break };
            ring.bytes -= oldest.weight();
            ring.floor = oldest.revision;
        }
        drop(ring);
        self.announce(newest);
    }

    /// After the file was reopened: its revision is the truth, and what the ring missed is in its log.
    pub(super) fn reset(&self, head: u64) {
        let mut ring = self.ring.write();
        if ring.head == head {
            return;
        }
        *ring = Ring { changes: VecDeque::new(), bytes: 0, floor: head, head };
        drop(ring);
        self.announce(head);
    }

    pub(super) fn after(&self, cursor: u64) -> Next {
        let ring = self.ring.read();
        if cursor >= ring.head {
            return Next::UpToDate;
        }
        if cursor < ring.floor {
            return Next::InLog;
        }
        let index = ring.changes.partition_point(|change| change.revision <= cursor);
        ring.changes.get(index).map_or(Next::UpToDate, |change| Next::Change(Arc::clone(change)))
    }

    pub(super) fn head(&self) -> u64 {
        self.ring.read().head
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
