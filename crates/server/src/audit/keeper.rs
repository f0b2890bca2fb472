//! What the log's callers and its thread share: who writes, who brings it to the disk, and what happens when neither
//! can.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use model::Subject;
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::{
    AuditConfig, Sync, WhenUnwritable,
    chain::Head,
    log::{HeadFile, Log},
    query::START,
    quota::Quota,
    record::{Phase, Record},
    strangers::Strangers,
};
use crate::metrics::Metrics;

/// How often the thread looks around: for what can be written again, quotas that end, lines nobody waits for.
const TICK: Duration = Duration::from_secs(1);
/// Lines written within this time go to the disk together, unless somebody waits for them.
const SYNC: Duration = Duration::from_millis(100);
/// Refusals a minute that are written down: of each caller, and of all strangers together.
const PER_CALLER: u32 = 30;
const PER_STRANGERS: u32 = 60;
/// Lines held while they cannot be written. Calls in flight leave one each; more come only where calls go on all the same.
const MAX_HELD: usize = 10_000;

pub struct Shared {
    pub dir: PathBuf,
    options: AuditConfig,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
    /// The thread has something to do.
    woken: Condvar,
    /// The number of the newest record that is on the disk.
    pub synced: watch::Sender<u64>,
    /// Counts records.
    pub changes: watch::Sender<u64>,
}

struct State {
    log: Log,
    held: VecDeque<Record>,
    trouble: Option<Trouble>,
    /// Somebody waits for the disk up to this record.
    wanted: u64,
    /// The thread has nothing to do until something is written.
    dozes: bool,
    refusals: Quota<Subject>,
    strange: Quota<()>,
    strangers: Strangers,
    stop: bool,
}

/// Records cannot be written.
struct Trouble {
    since: Timestamp,
    why: String,
    /// The disk did not take what was written; only a sync that works ends that.
    is_of_sync: bool,
    refused: u64,
    lost: u64,
}

/// Why what was about to happen must not.
#[derive(Debug, thiserror::Error)]
#[error(
    "nothing was changed, because the record of it cannot be written to {}: {why}; make room there, or mend the disk",
    path.display()
)]
pub struct Unrecorded {
    path: PathBuf,
    why: String,
}

impl Shared {
    pub fn new(dir: &Path, options: AuditConfig, metrics: Arc<Metrics>) -> Self {
        let log = Log::open(dir);
        let synced = log.head().count;
        let state = State {
            log,
            held: VecDeque::new(),
            trouble: None,
            wanted: 0,
            dozes: false,
            refusals: Quota::new(PER_CALLER),
            strange: Quota::new(PER_STRANGERS),
            strangers: Strangers::new(dir),
            stop: false,
        };
        Self {
            dir: dir.to_owned(),
            options,
            metrics,
            state: Mutex::new(state),
            woken: Condvar::new(),
            synced: watch::Sender::new(synced),
            changes: watch::Sender::new(0),
        }
    }

    pub fn start(&self) {
        let mut state = self.state.lock();
        let (notes, head) = (state.log.take_notes(), state.log.head());
        for note in &notes {
            warn!(log = %state.log.path().display(), "audit: {note}");
        }
        info!(records = head.count, hash = head.hash, "the audit log goes on from here");
        let mut record = Record::event(Timestamp::now(), START, notes.join("; "));
        record.object = format!("version {}", env!("CARGO_PKG_VERSION"));
        self.write_or_hold(&mut state, vec![record]);
    }

    pub fn intend(&self, record: Record) -> Result<Option<u64>, Unrecorded> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let written = match &state.trouble {
            Some(Trouble { is_of_sync: true, why, .. }) => Err(why.clone()),
            _ => self.write(state, &[record]),
        };
        let why = match written {
            Ok(()) => {
                let count = state.log.head().count;
                if self.options.sync == Sync::Soon {
                    return Ok(None);
                }
                state.wanted = count;
                self.woken.notify_one();
                return Ok(Some(count));
            }
            Err(why) => why,
        };
        self.metrics.audit_failures.inc();
        let trouble = state.trouble.as_mut();
        match self.options.when_unwritable {
            WhenUnwritable::Continue => {
                trouble.into_iter().for_each(|trouble| trouble.lost += 1);
                Ok(None)
            }
            WhenUnwritable::Refuse => {
                trouble.into_iter().for_each(|trouble| trouble.refused += 1);
                Err(Unrecorded { path: state.log.path(), why })
            }
        }
    }

    pub fn conclude(&self, lines: Vec<Record>) {
        self.write_or_hold(&mut self.state.lock(), lines);
    }

    pub fn refused(&self, record: Record, now: Timestamp) {
        let mut state = self.state.lock();
        let state = &mut *state;
        match &record.caller {
            Some(caller) if state.refusals.admit(caller.clone(), now) => {
                self.write_or_hold(state, vec![record]);
            }
            Some(_) => {
                self.metrics.audit_left_out.inc();
            }
            None => {
                self.metrics.stranger_refusals.inc();
                if state.strange.admit((), now)
                    && let Err(err) = state.strangers.append(&record)
                {
                    warn!(error = %err, "cannot write down the refusal of a stranger");
                }
            }
        }
    }

    pub fn trouble(&self) -> Option<String> {
        let state = self.state.lock();
        let trouble =
            state.trouble.as_ref().filter(|_| self.options.when_unwritable == WhenUnwritable::Refuse)?;
        let path = state.log.path();
        Some(format!(
            "writes are refused: audit records cannot be written to {}: {}",
            path.display(),
            trouble.why
        ))
    }

    pub fn head(&self) -> Head {
        self.state.lock().log.head()
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.woken.notify_one();
    }

    /// Writes what is held, then these; all or none.
    fn write(&self, state: &mut State, records: &[Record]) -> Result<(), String> {
        let now = Timestamp::now();
        let ending = state.trouble.take_if(|trouble| !trouble.is_of_sync);
        let appended = if state.held.is_empty() && ending.is_none() {
            state.log.append(records)
        } else {
            let mut lines: Vec<Record> = state.held.iter().cloned().collect();
            lines.extend(ending.as_ref().map(|trouble| recovered(trouble, now)));
            lines.extend_from_slice(records);
            state.log.append(&lines)
        };
        match appended {
            Ok(()) => {
                state.held.clear();
                if let Some(Trouble { since, refused, .. }) = ending {
                    warn!(%since, refused, "audit records can be written again");
                }
                self.changes.send_modify(|count| *count += 1);
                if state.dozes {
                    self.woken.notify_one();
                }
                Ok(())
            }
            Err(err) => {
                let why = err.to_string();
                if let Some(ending) = ending {
                    state.trouble.get_or_insert(ending);
                }
                fail(state, &why, false, now);
                Err(why)
            }
        }
    }

    fn write_or_hold(&self, state: &mut State, lines: Vec<Record>) {
        if self.write(state, &lines).is_ok() {
            return;
        }
        self.metrics.audit_failures.inc();
        for line in lines {
            if state.held.len() < MAX_HELD {
                state.held.push_back(line);
            } else if let Some(trouble) = &mut state.trouble {
                trouble.lost += 1;
            }
        }
    }

    /// The thread: brings lines to the disk, and keeps the head beside them.
    pub fn keep(&self) {
        let mut head_file = HeadFile::default();
        let mut ticked = Instant::now();
        loop {
            let mut state = self.state.lock();
            let is_new = state.log.head().count > *self.synced.borrow();
            if !state.stop && state.wanted <= *self.synced.borrow() {
                state.dozes = !is_new;
                let patience = if is_new { SYNC } else { TICK.saturating_sub(ticked.elapsed()) };
                let timed_out = self.woken.wait_for(&mut state, patience).timed_out();
                let dozed = std::mem::take(&mut state.dozes);
                if dozed && !timed_out && !state.stop && state.wanted <= *self.synced.borrow() {
                    // Something was written. What comes soon after goes to the disk with it.
                    continue;
                }
            }
            let is_tick = ticked.elapsed() >= TICK || state.stop;
            if is_tick {
                ticked = Instant::now();
                self.tick(&mut state, Timestamp::now());
            }
            let retry = state.trouble.as_ref().is_some_and(|trouble| trouble.is_of_sync);
            let is_new = |head: &Head| head.count > *self.synced.borrow() || retry;
            let written = state.log.written().filter(|(_, head)| is_new(head));
            let stop = state.stop;
            drop(state);
            if let Some((file, head)) = written {
                self.settle(file.sync_data(), &head, &mut head_file);
            }
            if is_tick && let Err(err) = head_file.sync() {
                warn!(error = %err, "cannot bring the audit log's head to the disk");
            }
            if stop {
                let head = self.head();
                info!(records = head.count, hash = head.hash, "the audit log ends here");
                return;
            }
        }
    }

    /// After the disk took, or did not take, the lines up to a head.
    fn settle(&self, synced: io::Result<()>, head: &Head, head_file: &mut HeadFile) {
        let mut state = self.state.lock();
        let is_kept = synced.is_ok();
        match synced {
            Ok(()) => {
                if let Some(trouble) = state.trouble.as_mut().filter(|trouble| trouble.is_of_sync) {
                    trouble.is_of_sync = false;
                    // If that fails, it is a trouble of its own.
                    let _ = self.write(&mut state, &[]);
                }
            }
            Err(err) => {
                self.metrics.audit_failures.inc();
                fail(&mut state, &err.to_string(), true, Timestamp::now());
            }
        }
        drop(state);
        if is_kept && let Err(err) = head_file.write(&self.dir, head) {
            warn!(error = %err, "cannot keep the audit log's head");
        }
        // Also if it failed: those who wait can do nothing about it, and their calls have been carried out.
        self.synced.send_replace(head.count);
    }

    #[cfg(test)]
    pub fn tick_at(&self, now: Timestamp) {
        self.tick(&mut self.state.lock(), now);
    }

    fn tick(&self, state: &mut State, now: Timestamp) {
        state.log.check_file();
        let left_out = |who: String, count: u64| {
            let mut record =
                Record::event(now, "refusals", format!("{count} more refusals of {who} are not listed"));
            record.phase = Phase::Refusal;
            record
        };
        let others = || "other callers".to_owned();
        let mut lines: Vec<_> = state
            .refusals
            .ended(now)
            .into_iter()
            .map(|(caller, count)| {
                let who = caller.as_ref().map_or_else(others, ToString::to_string);
                Record { caller, result: "PERMISSION_DENIED".to_owned(), ..left_out(who, count) }
            })
            .collect();
        for (_, count) in state.strange.ended(now) {
            // A sample; the metric has the count.
            let _ = state.strangers.append(&left_out("strangers".to_owned(), count));
        }
        let is_writable = state.trouble.as_ref().is_none_or(|trouble| !trouble.is_of_sync);
        if is_writable && (!lines.is_empty() || !state.held.is_empty() || state.trouble.is_some()) {
            self.write_or_hold(state, std::mem::take(&mut lines));
        }
    }
}

fn fail(state: &mut State, why: &str, is_of_sync: bool, now: Timestamp) {
    match &mut state.trouble {
        Some(trouble) => trouble.is_of_sync |= is_of_sync,
        none => {
            error!(log = %state.log.path().display(), error = why, "audit records cannot be written");
            *none = Some(Trouble { since: now, why: why.to_owned(), is_of_sync, refused: 0, lost: 0 });
        }
    }
}

/// The line that tells of a gap.
fn recovered(trouble: &Trouble, now: Timestamp) -> Record {
    let Trouble { since, why, refused, lost, .. } = trouble;
    let note = format!(
        "records could not be written since {since}: {why}; {refused} calls were refused, {lost} records were lost"
    );
    Record::event(now, "record keeping", note)
}
