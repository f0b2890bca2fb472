//! Following a prefix: the one way in which memory becomes a function of what is stored.
//!
//! In: a prefix of a store. Out: [`Step`]s, for ever: the whole state, then every change, and after each whole
//! transaction the word that it is whole. Holds: the watch, and where it stands. A lost watch is started over inside,
//! with growing pauses, and begins with the whole state again. Not here: what the entries mean.
//!
//! ```text
//!   Begin  Apply…  Complete            the state at one revision; what it does not mention does not exist
//!          Apply|Delete…  Complete     one transaction, and so on
//!   Begin  …                           the watch was lost: the state replaces what was known, at its Complete
//! ```
//!
//! So what was deleted while the watch was lost is what was known and is not mentioned between `Begin` and `Complete`.
//! A state or a transaction that never became complete counts for nothing: another `Begin` follows.
//!
//! A follower holds itself what it makes of the steps, and says when it has taken a revision in
//! ([`Follower::took_in`]); whoever wrote waits for that with [`Progress::reach`], and reads what it wrote.

use std::{fmt, sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::api::{Entry, Event, Key, Line, Prefix, Revision, Store, Watch, WatchError, WatchFrom};

/// Pauses before a lost watch is started over: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What a follower is told next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The whole state follows, as entries, until `Complete`.
    Begin,
    /// The entry as it is now.
    Apply(Entry),
    Delete {
        key: Key,
        revision: Revision,
    },
    /// All that belongs to the transaction with this revision, or to the state at it, has been told.
    Complete {
        revision: Revision,
    },
}

/// A watch that never ends.
pub struct Follower {
    store: Store,
    prefix: Prefix,
    watch: Watch,
    opened: Instant,
    phase: Phase,
    /// The first event of the transaction after the one whose end is told.
    ahead: Option<Event>,
    backoff: common::Backoff,
    progress: Progress,
}

enum Phase {
    /// Nothing is half told: what comes next may be waited for.
    Between,
    /// The entries of a state.
    Loading,
    /// Events of this transaction were told, and perhaps not all of them.
    Within(Revision),
    /// The watch was lost; another begins then.
    Lost { again: Instant },
}

impl Follower {
    /// Begins with the whole state below `prefix`.
    pub fn new(store: Store, prefix: Prefix) -> Self {
        let watch = store.watch(&prefix, WatchFrom::Start);
        let progress = Progress::default();
        progress.0.connection.lock().line = watch.line();
        Self {
            store,
            prefix,
            watch,
            opened: Instant::now(),
            phase: Phase::Between,
            ahead: None,
            backoff: common::Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            progress,
        }
    }

    /// How far this follower is, for those who wait or watch over it.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// The follower's owner has taken in everything up to the revision of a `Complete`.
    pub fn took_in(&self, revision: Revision) {
        self.progress.0.reached.send_replace(Some(revision));
    }

    /// The next step; waits for it without end. A caller that stops waiting loses nothing.
    ///
    /// Events of one transaction are ready together, so `next().now_or_never()` takes in what is ready and never parts
    /// a transaction from its `Complete`.
    pub async fn next(&mut self) -> Step {
        loop {
            if let Phase::Lost { again } = self.phase {
                sleep_until(again).await;
                self.open();
            }
            let event = match self.ahead.take() {
                Some(event) => Some(Ok(event)),
                None => match self.phase {
                    Phase::Within(revision) => match self.watch.next().now_or_never() {
                        // The backend has nothing ready: the transaction is whole.
                        None => return self.complete(revision),
                        Some(event) => event,
                    },
                    _ => self.watch.next().await,
                },
            };
            match event {
                Some(Ok(event)) => return self.deliver(event),
                Some(Err(error)) => self.lose(Some(&error)),
                None => self.lose(None),
            }
        }
    }

    fn deliver(&mut self, event: Event) -> Step {
        match (event, &self.phase) {
            (Event::Init { .. }, _) => {
                self.phase = Phase::Loading;
                Step::Begin
            }
            (Event::InitDone { revision }, _) => {
                self.progress.0.connection.lock().lost = None;
                self.complete(revision)
            }
            (Event::Apply(entry), Phase::Loading) => Step::Apply(entry),
            (event, &Phase::Within(revision)) if event.revision() != revision => {
                self.ahead = Some(event);
                self.complete(revision)
            }
            (Event::Apply(entry), _) => {
                self.phase = Phase::Within(entry.modified);
                Step::Apply(entry)
            }
            (Event::Delete { key, revision }, _) => {
                self.phase = Phase::Within(revision);
                Step::Delete { key, revision }
            }
        }
    }

    fn complete(&mut self, revision: Revision) -> Step {
        self.phase = Phase::Between;
        Step::Complete { revision }
    }

    fn open(&mut self) {
        self.watch = self.store.watch(&self.prefix, WatchFrom::Start);
        self.opened = Instant::now();
        self.phase = Phase::Between;
        self.progress.0.connection.lock().line = self.watch.line();
    }

    fn lose(&mut self, error: Option<&WatchError>) {
        let now = Instant::now();
        self.progress.0.connection.lock().lost.get_or_insert(now);
        // One that lived for long was good: its end is no reason to wait for long.
        if self.opened.elapsed() > self.backoff.longest() {
            self.backoff.reset();
        }
        let pause = self.backoff.pause();
        let cause = error.map_or_else(|| "it ended".to_owned(), |error| common::chain(error));
        tracing::warn!(prefix = %self.prefix, %cause, ?pause, "a watch on the store was lost and is started over");
        self.phase = Phase::Lost { again: now + pause };
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// How far a follower is. Cheap to clone; outlives the follower.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// None before the first whole state.
    reached: watch::Sender<Option<Revision>>,
    connection: Mutex<Connection>,
}

#[derive(Debug, Default)]
struct Connection {
    /// When the watch ended, until the next one has told the whole state.
    lost: Option<Instant>,
    /// The current watch's own connection.
    line: Line,
}

impl Progress {
    /// The revision that was taken in last; none before the first whole state.
    pub fn reached(&self) -> Option<Revision> {
        *self.0.reached.borrow()
    }

    /// To wait for the next.
    pub fn changes(&self) -> watch::Receiver<Option<Revision>> {
        self.0.reached.subscribe()
    }

    /// Waits until a transaction that changed something below the prefix has been taken in.
    pub async fn reach(&self, revision: Revision) {
        let mut reached = self.0.reached.subscribe();
        // The sender lives in self, so the wait cannot fail.
        let _ = reached.wait_for(|at| at.is_some_and(|at| at >= revision)).await;
    }

    /// Since when changes may have been missed: the watch is lost, or has no connection. None if all is well.
    /// A connection whose other end is silent is found out within [`crate::etcd`]'s pings.
    pub fn broken_since(&self) -> Option<Instant> {
        let connection = self.0.connection.lock();
        [connection.lost, connection.line.broken_since()].into_iter().flatten().min()
    }
}
