//! The record: what every call that writes was about to do and how it ended, and which calls were refused.
//!
//! ```text
//!   gate ─ intent ──► log ─► effect ─► outcome ─► log         one id; each line holds the hash of the line before
//!        ─ refusal ─► log, so many a minute for each caller
//!        ─ refusal of a stranger ─► strangers.log, a sample
//! ```
//!
//! In: records from the gate. Out: records for those who ask, and whether the log is as it was written. Holds: the open
//! log, what could not be written yet, and a thread that brings lines to the disk.
//!
//! An intent is in the file before the call has an effect. It is on the disk a tenth of a second later, or, where the
//! configuration says so, before the call's reply: the disk is then waited for while the call is carried out. If an
//! intent cannot be written the call is refused, unless the configuration says otherwise. An outcome that cannot be
//! written is held until it can.

mod call;
mod chain;
mod files;
mod keeper;
mod log;
mod message;
mod query;
mod quota;
mod record;
mod request;
mod strangers;
#[cfg(test)]
mod tests;
mod verify;

use std::{io, path::Path, sync::Arc, thread::JoinHandle};

use jiff::Timestamp;
use keeper::Shared;
use query::{Found, Search};
use serde::Deserialize;
use tokio::sync::watch;
use tonic::Code;

pub use call::{Call, begin, changed, note, object};
pub use chain::Head;
pub use files::{Opened, verify_file};
pub use message::AuditMessageError;
pub use query::Query;
pub use record::{Phase, Record};
pub use request::{named, of_documents};
pub use verify::{Finding, Place, Report};

use crate::{failure::Failure, metrics::Metrics};

/// What a call says that only asked what it would do.
pub const DRY_RUN: &str = "a dry run: nothing was changed";

/// What becomes of writes whose record cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenUnwritable {
    /// They are refused, before they have an effect.
    #[default]
    Refuse,
    /// They are carried out. What is lost is counted.
    Continue,
}

/// When records must be on the disk, so that they survive also a loss of power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sync {
    /// Within a tenth of a second, many at once.
    #[default]
    Soon,
    /// A call's intent before its reply.
    Call,
}

/// How calls are recorded.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// What becomes of writes while their records cannot be written.
    pub when_unwritable: WhenUnwritable,
    pub sync: Sync,
}

/// The log of one data directory.
pub struct Audit {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
    /// Closed when the keeper is gone.
    kept: watch::Receiver<()>,
}

/// Where an intent is in the log; none if nobody is to wait until it is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(Option<u64>);

impl Audit {
    /// Opens the log. That needs no room on the disk: if records cannot be written, [`Self::trouble`] says so.
    pub fn open(dir: &Path, options: AuditConfig, metrics: Arc<Metrics>) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(dir, options, metrics));
        let keeping = Arc::clone(&shared);
        let (runs, kept) = watch::channel(());
        let keep = move || {
            // Dropped with the thread, also if it panics.
            let _runs = runs;
            keeping.keep();
        };
        let keeper = std::thread::Builder::new().name("audit".to_owned()).spawn(keep)?;
        Ok(Self { shared, keeper: Some(keeper), kept })
    }

    /// Returns when nobody brings records to the disk any more: the log was closed, or its thread panicked.
    pub fn unkept(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut kept = self.kept.clone();
        async move { while kept.changed().await.is_ok() {} }
    }

    /// Writes down that the controller starts.
    pub fn start(&self) {
        self.shared.start();
    }

    /// Writes down what is about to happen. If that fails, it must not happen.
    pub fn intend(&self, record: Record) -> Result<Position, Failure> {
        let intended = self.shared.intend(record).map(Position);
        intended.map_err(|unrecorded| Failure::new(Code::Unavailable, unrecorded.to_string()))
    }

    /// Writes down what has happened. What cannot be written now is written as soon as it can.
    pub fn conclude(&self, record: Record) {
        self.shared.conclude(record.lines());
    }

    /// Waits until an intent is on the disk, where that is asked for.
    pub async fn durable(&self, position: Position) {
        let Position(Some(count)) = position else { return };
        // The sender lives in self, so the wait cannot fail.
        let _ = self.shared.synced.subscribe().wait_for(|synced| *synced >= count).await;
    }

    /// A call that was not carried out.
    pub fn refused(&self, record: Record) {
        self.shared.refused(record, Timestamp::now());
    }

    /// Why writes are refused for want of a record; none if they are not.
    pub fn trouble(&self) -> Option<String> {
        self.shared.trouble()
    }

    pub fn head(&self) -> Head {
        self.shared.head()
    }

    /// Changes with every record.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// The newest records that match, newest first. Reads files: not for threads that serve others.
    pub fn find(&self, query: Query, limit: usize) -> io::Result<Vec<Record>> {
        let mut search = Search::new(query);
        let mut records = Vec::new();
        for line in self.opened()?.newest_first() {
            let Ok(record) = serde_json::from_slice(&line?) else { continue };
            match search.line(record) {
                Found::Record(record) => records.push(*record),
                Found::Nothing => {}
                Found::End => break,
            }
            if records.len() >= limit {
                break;
            }
        }
        Ok(records)
    }

    /// Whether the log is as it was written. Reads all of it: not for threads that serve others.
    pub fn verify(&self) -> io::Result<Report> {
        // What this process knows of the end is newer than the file that it is kept in.
        let head = self.head();
        self.opened()?.verify_against(Some(head))
    }

    fn opened(&self) -> io::Result<Opened> {
        Opened::open(&self.shared.dir)
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(keeper) = self.keeper.take() {
            // A keeper that panicked has nothing more to write.
            let _ = keeper.join();
        }
    }
}
