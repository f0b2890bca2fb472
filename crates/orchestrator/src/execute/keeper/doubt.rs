//! Doubt: an answer of the store was lost, and nobody knows whether memory has, or will have, all that is stored.
//!
//! A mark is written. When the watch brings it, it has brought whatever was applied before it. What was lost after the
//! mark was sent needs another one.

use std::time::Duration;

use futures::{FutureExt as _, future::BoxFuture};
use store::{Revision, Store, TransactError, Transaction};
use tokio::sync::watch;
use tracing::warn;

use super::fenced;
use crate::execute::{Fence, facts, lead::Rank};

/// Pauses before the mark is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Doubt {
    store: Store,
    rank: watch::Receiver<Rank>,
    phase: Phase,
    /// An answer was lost after the mark was sent.
    again: bool,
}

enum Phase {
    Certain,
    /// The mark is on its way: its revision, or none if it is not for this controller to write.
    Marking(BoxFuture<'static, Option<Revision>>),
    /// Memory that has reached the mark has all that was in doubt.
    Marked(Revision),
}

impl Doubt {
    pub(super) fn new(store: Store, rank: watch::Receiver<Rank>) -> Self {
        Self { store, rank, phase: Phase::Certain, again: false }
    }

    /// An answer was lost.
    pub(super) fn begin(&mut self) {
        match self.phase {
            Phase::Certain => self.send_mark(),
            Phase::Marking(_) | Phase::Marked(_) => self.again = true,
        }
    }

    fn send_mark(&mut self) {
        self.again = false;
        self.phase = Phase::Marking(write_mark(self.store.clone(), self.rank.clone()).boxed());
    }

    /// Returns when the mark has been written. A caller that stops waiting loses nothing.
    pub(super) async fn marked(&mut self) {
        match &mut self.phase {
            Phase::Marking(mark) => self.phase = Phase::Marked(mark.await.unwrap_or_default()),
            Phase::Certain | Phase::Marked(_) => std::future::pending().await,
        }
    }

    /// Memory has reached a revision. True if that ends the doubt.
    pub(super) fn ends_at(&mut self, reached: Revision) -> bool {
        match self.phase {
            Phase::Marked(mark) if mark <= reached && self.again => self.send_mark(),
            Phase::Marked(mark) if mark <= reached => {
                self.phase = Phase::Certain;
                return true;
            }
            Phase::Certain | Phase::Marking(_) | Phase::Marked(_) => {}
        }
        false
    }
}

/// Writes the mark, however long that takes. None if another one leads: what is in doubt is then not ours, and is read
/// before this one leads again.
async fn write_mark(store: Store, rank: watch::Receiver<Rank>) -> Option<Revision> {
    let mut backoff = common::Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let fence = match &*rank.borrow() {
            Rank::Alone => None,
            Rank::Leading(term) => Some(term.fence.clone()),
            Rank::Following(_) => return None,
        };
        match store.transact(mark(fence.as_ref())).await {
            Ok(committed) => return Some(committed.revision),
            Err(TransactError::Conflict { .. }) => return None,
            Err(err) => {
                warn!(error = common::chain(&err), "nothing is planned before it is known what is stored");
                tokio::time::sleep(backoff.pause()).await;
            }
        }
    }
}

/// A transaction that changes nothing but the mark.
pub(in crate::execute) fn mark(fence: Option<&Fence>) -> Transaction {
    fenced(fence).put(facts::mark(), "")
}
