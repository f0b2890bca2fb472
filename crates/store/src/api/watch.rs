//! Watches: the state, then each change, once and in order.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{
    Stream, StreamExt as _,
    stream::{BoxStream, FusedStream},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Entry, Key, Revision, WatchError};

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// The current state (`Init, Apply…, InitDone`), then every change after it.
    Start,
    /// Only changes with a larger revision.
    After(Revision),
}

/// One step of a watch. Events of one transaction have the same revision and come directly after one another,
/// in the order of its operations; once the first is there, the others are ready without waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The state at `revision` follows. What was known before is to be replaced at `InitDone`.
    Init { revision: Revision },
    /// The entry as it is now: part of the initial state before `InitDone`, a change after it.
    Apply(Entry),
    /// The initial state is complete: keys that were not listed do not exist.
    InitDone { revision: Revision },
    /// The key was deleted by the transaction with this revision.
    Delete { key: Key, revision: Revision },
}

impl Event {
    /// The revision this event belongs to; a reader that has handled all events of a revision may resume after it.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Apply(entry) => entry.modified,
            Self::Init { revision } | Self::InitDone { revision } | Self::Delete { revision, .. } => {
                *revision
            }
        }
    }
}

/// A stream of events. It ends after the first error, and not before: start a new watch then.
pub struct Watch {
    events: BoxStream<'static, Result<Event, WatchError>>,
    ended: bool,
    line: Line,
}

/// Whether a watch is connected with the store, told by the watch to whoever wants to know. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Line(Arc<Mutex<Option<Instant>>>);

impl Line {
    /// Since when the watch has no connection and tries to get one; none while it has.
    pub fn broken_since(&self) -> Option<Instant> {
        *self.0.lock()
    }

    pub(crate) fn broke(&self) {
        self.0.lock().get_or_insert_with(Instant::now);
    }

    pub(crate) fn mended(&self) {
        *self.0.lock() = None;
    }
}

impl Watch {
    pub fn new(events: impl Stream<Item = Result<Event, WatchError>> + Send + 'static) -> Self {
        Self::on(Line::default(), events)
    }

    /// A watch that comes over a connection which may break and is made again.
    pub(crate) fn on(
        line: Line,
        events: impl Stream<Item = Result<Event, WatchError>> + Send + 'static,
    ) -> Self {
        Self { events: events.boxed(), ended: false, line }
    }

    pub fn line(&self) -> Line {
        self.line.clone()
    }
}

impl Stream for Watch {
    type Item = Result<Event, WatchError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let polled = self.events.poll_next_unpin(context);
        self.ended = matches!(polled, Poll::Ready(None | Some(Err(_))));
        polled
    }
}

impl FusedStream for Watch {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("ended", &self.ended).finish_non_exhaustive()
    }
}
