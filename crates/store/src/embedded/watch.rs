//! One watch: a cursor over the feed, with the file's log behind it.
//!
//! In: a prefix and where to begin. Out: events. Holds: the cursor, and at most one page of the initial state, one
//! page of the log, or one change; never a queue.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use tokio::{sync::watch::Receiver, task::spawn_blocking, time::Instant};

use super::{
    Shared,
    database::EngineError,
    feed::Next,
    open::read_state,
    tables::{Change, LOG},
};
use crate::api::{Entry, Event, Prefix, ReadError, Revision, Snapshot, Watch, WatchError, WatchFrom};

/// One look into the log reads at most so much.
const LOG_PAGE_CHANGES: usize = 64;
const LOG_PAGE_BYTES: usize = 256 * 1024;

struct Cursor {
    shared: Arc<Shared>,
    prefix: Prefix,
    phase: Phase,
    /// Changes up to here are told or about to be (they are in `changes`).
    at: u64,
    changes: VecDeque<Arc<Change>>,
    /// The next event of the first of `changes`.
    event: usize,
    head_rx: Option<Receiver<u64>>,
}

enum Phase {
    Begin(WatchFrom),
    Initial { snapshot: Snapshot, page: std::vec::IntoIter<Entry>, give_up: Instant },
    Live,
}

pub(super) fn watch(shared: Arc<Shared>, prefix: Prefix, from: WatchFrom) -> Watch {
    let head_rx = shared.feed.subscribe();
    let cursor = Cursor {
        shared,
        prefix,
        phase: Phase::Begin(from),
        at: 0,
        changes: VecDeque::new(),
        event: 0,
        head_rx,
    };
    Watch::new(stream::unfold(cursor, |mut cursor| async move {
        let event = cursor.next().await;
        Some((event, cursor))
    }))
}

impl Cursor {
    async fn next(&mut self) -> Result<Event, WatchError> {
        loop {
            match &mut self.phase {
                Phase::Begin(WatchFrom::Start) => return self.begin_initial().await,
                Phase::Begin(WatchFrom::After(revision)) => {
                    let revision = *revision;
                    self.begin_after(revision).await?;
                }
                Phase::Initial { snapshot, page, give_up } => {
                    if let Some(entry) = page.next() {
                        return Ok(Event::Apply(entry));
                    }
                    // The snapshot pins freed pages of the file, which must not grow for ever.
                    if Instant::now() > *give_up {
                        return Err(WatchError::TooSlow);
                    }
                    let revision = snapshot.revision;
                    match snapshot.pages.next().await {
                        Some(entries) => *page = entries.map_err(WatchError::Read)?.into_iter(),
                        None => {
                            self.phase = Phase::Live;
                            return Ok(Event::InitDone { revision });
                        }
                    }
                }
                Phase::Live => {
                    if let Some(event) = self.pop_event() {
                        return Ok(event);
                    }
                    self.advance().await?;
                }
            }
        }
    }

    async fn begin_initial(&mut self) -> Result<Event, WatchError> {
        let snapshot = self.shared.snapshot(&self.prefix).await.map_err(|error| self.read_error(error))?;
        let revision = snapshot.revision;
        self.at = revision.0;
        let give_up = Instant::now() + self.shared.snapshot_time;
        self.phase = Phase::Initial { snapshot, page: Vec::new().into_iter(), give_up };
        Ok(Event::Init { revision })
    }

    async fn begin_after(&mut self, revision: Revision) -> Result<(), WatchError> {
        let state = self.shared.read_off_thread(read_state).await.map_err(|error| self.read_error(error))?;
        let (current, oldest) = (Revision(state.revision), Revision(state.compacted));
        if revision > current {
            return Err(WatchError::Future { asked: revision, current });
        }
        if revision < oldest {
            return Err(WatchError::Compacted { oldest });
        }
        self.at = revision.0;
        self.phase = Phase::Live;
        Ok(())
    }

    fn pop_event(&mut self) -> Option<Event> {
        while let Some(change) = self.changes.front() {
            while let Some(event) = change.events.get(self.event) {
                self.event += 1;
                if covers(&self.prefix, event) {
                    return Some(event.clone());
                }
            }
            self.changes.pop_front();
            self.event = 0;
        }
        None
    }

    /// Fetches the next change, or waits until there may be one.
    async fn advance(&mut self) -> Result<(), WatchError> {
        match self.shared.feed.after(self.at) {
            Next::Change(change) => {
                self.at = change.revision;
                self.changes.push_back(change);
                Ok(())
            }
            Next::InLog => self.read_log().await,
            Next::UpToDate => {
                let Some(head_rx) = &mut self.head_rx else { return Err(WatchError::Closed) };
                let at = self.at;
                head_rx.wait_for(|head| *head > at).await.map(drop).map_err(|_| WatchError::Closed)
            }
        }
    }

    async fn read_log(&mut self) -> Result<(), WatchError> {
        let at = self.at;
        let page = self
            .shared
            .read_off_thread(move |transaction| {
                let state = read_state(transaction)?;
                if at < state.compacted {
                    return Ok(Err(Revision(state.compacted)));
                }
                read_log_page(transaction, at).map(Ok)
            })
            .await
            .map_err(|error| self.read_error(error))?;
        let changes = page.map_err(|oldest| WatchError::Compacted { oldest })?;
        match changes.last() {
            Some(newest) => self.at = newest.revision,
            // The feed's head is committed, so its row is in the log: waiting here would be for ever.
            None => {
                let what = format!("no log record after revision {at}");
                let place = self.shared.place();
                return Err(WatchError::Read(ReadError::Damaged { place, what }));
            }
        }
        self.changes.extend(changes.into_iter().map(Arc::new));
        Ok(())
    }

    fn read_error(&self, error: ReadError) -> WatchError {
        if self.shared.feed.subscribe().is_none() { WatchError::Closed } else { WatchError::Read(error) }
    }
}

fn covers(prefix: &Prefix, event: &Event) -> bool {
    match event {
        Event::Apply(entry) => prefix.contains(&entry.key),
        Event::Delete { key, .. } => prefix.contains(key),
        Event::Init { .. } | Event::InitDone { .. } => true,
    }
}

fn read_log_page(transaction: &redb::ReadTransaction, after: u64) -> Result<Vec<Change>, EngineError> {
    let log = transaction.open_table(LOG)?;
    let mut changes = Vec::new();
    let mut bytes = 0;
    for row in redb::ReadableTable::range(&log, after + 1..)? {
        let (revision, row) = row?;
        bytes += row.value().len();
        changes.push(Change::decode(revision.value(), row.value())?);
        if changes.len() >= LOG_PAGE_CHANGES || bytes >= LOG_PAGE_BYTES {
            break;
        }
    }
    Ok(changes)
}

impl Shared {
    /// Reads the file where it may block.
    pub(super) async fn read_off_thread<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl Fn(&redb::ReadTransaction) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let shared = Arc::clone(self);
        let done = spawn_blocking(move || shared.db.read(read)).await;
        let done = done.unwrap_or_else(|error| Err(EngineError::Panicked(error.to_string())));
        done.map_err(|error| error.into_read_error(self.db.path()))
    }
}

/// How long a watch may take over its initial state by default.
pub(super) const SNAPSHOT_TIME: Duration = Duration::from_secs(120);
