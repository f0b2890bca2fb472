//! The open file: reads that survive a failed disk, and the reopening that heals it.
//!
//! In: reads from any thread, write transactions from the writer. Out: rows. Holds: the directory's lock and the
//! redb database. After an I/O error redb refuses everything until it is opened again; whoever meets that first
//! reopens it here, the others wait for the lock and go on.
//! Not here: first opening and verification ([`super::open`]), what rows mean ([`super::tables`]).

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use files::Lock;
use parking_lot::RwLock;
use redb::{Database, DatabaseError, ReadTransaction, ReadableDatabase as _, WriteTransaction};
use thiserror::Error;

use super::tables::Malformed;
use crate::api::{Cause, ReadError};

/// Opens the file (again). The tests put a faulty disk behind it.
pub(super) type OpenFile = Arc<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

/// How long a reopening waits for a transaction of the old handle to let go of the file.
const LET_GO: Duration = Duration::from_secs(5);

pub(super) struct Db {
    path: PathBuf,
    open: OpenFile,
    slot: RwLock<Slot>,
}

struct Slot {
    /// Counts reopenings, so that two threads that met the same failure reopen once.
    generation: u64,
    database: Option<Database>,
    closed: bool,
    /// Held for as long as the store is open; see `open::lock`.
    directory_lock: Option<Lock>,
}

/// Why the engine could not do something. Cheap to clone: one failure answers many waiters.
#[derive(Clone, Debug, Error)]
pub(super) enum EngineError {
    #[error("the storage engine failed")]
    Redb(#[source] Arc<redb::Error>),
    #[error("a row is damaged")]
    Malformed(#[from] Malformed),
    #[error("the storage engine gave up: {0}")]
    Panicked(String),
    #[error("the store was closed")]
    Closed,
}

macro_rules! from_redb {
    ($($error:ty),*) => {$(
        impl From<$error> for EngineError {
            fn from(error: $error) -> Self {
                Self::Redb(Arc::new(error.into()))
            }
        }
    )*};
}

from_redb!(
    redb::Error,
    redb::StorageError,
    redb::TableError,
    redb::TransactionError,
    redb::CommitError,
    DatabaseError
);

impl EngineError {
    /// No space, quota reached, or file size limit: the operator can mend it without us.
    pub(super) fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Self::Redb(error) => match &**error {
                redb::Error::Io(error) => matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge),
                _ => false,
            },
            Self::Malformed(_) | Self::Panicked(_) | Self::Closed => false,
        }
    }

    /// The handle is of no use any more, the file may be.
    fn wants_reopening(&self) -> bool {
        match self {
            Self::Redb(error) => {
                matches!(**error, redb::Error::PreviousIo | redb::Error::DatabaseClosed | redb::Error::Io(_))
            }
            Self::Panicked(_) => true,
            Self::Malformed(_) | Self::Closed => false,
        }
    }

    pub(super) fn into_read_error(self, path: &Path) -> ReadError {
        let place = path.display().to_string();
        match self {
            Self::Closed => ReadError::Unavailable { place, source: Arc::new(Self::Closed) },
            Self::Malformed(malformed) => ReadError::Damaged { place, what: malformed.to_string() },
            Self::Redb(error) => match &*error {
                redb::Error::Corrupted(what) => ReadError::Damaged { place, what: what.clone() },
                _ => ReadError::Storage { place, source: error as Cause },
            },
            Self::Panicked(_) => ReadError::Storage { place, source: Arc::new(self) },
        }
    }
}

impl Db {
    pub(super) fn new(path: PathBuf, open: OpenFile, database: Database, directory_lock: Lock) -> Self {
        let slot = Slot {
            generation: 0,
            database: Some(database),
            closed: false,
            directory_lock: Some(directory_lock),
        };
        Self { path, open, slot: RwLock::new(slot) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a read would have to wait for a reopening; then it must not run on an async thread.
    pub(super) fn is_busy(&self) -> bool {
        self.slot.try_read().is_none()
    }

    /// Runs a read on a fresh read transaction; heals the handle and tries once more if it failed.
    pub(super) fn read<T>(
        &self,
        read: impl Fn(&ReadTransaction) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let (generation, first) = self.begin_read();
        let error = match first.and_then(|transaction| guarded(|| read(&transaction))) {
            Err(error) if error.wants_reopening() => error,
            done => return done,
        };
        tracing::warn!(path = %self.path.display(), %error, "read failed, opening the store file again");
        self.reopen(generation)?;
        let transaction = self.begin_read().1?;
        guarded(|| read(&transaction))
    }

    pub(super) fn begin_read(&self) -> (u64, Result<ReadTransaction, EngineError>) {
        let slot = self.slot.read();
        let transaction = match &slot.database {
            Some(database) => guarded(|| Ok(database.begin_read()?)),
            None if slot.closed => Err(EngineError::Closed),
            None => Err(redb::Error::PreviousIo.into()),
        };
        (slot.generation, transaction)
    }

    pub(super) fn begin_write(&self) -> (u64, Result<WriteTransaction, EngineError>) {
        let slot = self.slot.read();
        let transaction = match &slot.database {
            Some(database) => guarded(|| Ok(database.begin_write()?)),
            None if slot.closed => Err(EngineError::Closed),
            None => Err(redb::Error::PreviousIo.into()),
        };
        (slot.generation, transaction)
    }

    /// Opens the file again unless somebody did since `generation`. redb then falls back to its last whole commit.
    pub(super) fn reopen(&self, generation: u64) -> Result<(), EngineError> {
        let mut slot = self.slot.write();
        if slot.closed {
            return Err(EngineError::Closed);
        }
        if slot.generation != generation {
            return Ok(());
        }
        drop(slot.database.take());
        let give_up = Instant::now() + LET_GO;
        let database = loop {
            match guarded(|| Ok((self.open)())) {
                Ok(Ok(database)) => break database,
                Ok(Err(DatabaseError::DatabaseAlreadyOpen)) if Instant::now() < give_up => {
                    thread::sleep(Duration::from_millis(5));
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(error) => return Err(error),
            }
        };
        slot.database = Some(database);
        slot.generation += 1;
        tracing::info!(path = %self.path.display(), "store file opened again");
        Ok(())
    }

    /// See [`super::open::note_acknowledged`].
    pub(super) fn note_acknowledged(&self, revision: u64) {
        if let Some(lock) = &self.slot.read().directory_lock
            && let Err(error) = super::open::note_acknowledged(lock, revision)
        {
            tracing::debug!(path = %self.path.display(), %error, "the acknowledged revision was not noted");
        }
    }

    /// Closes the file cleanly and gives the directory free. Reads fail from here on.
    pub(super) fn close(&self) {
        let mut slot = self.slot.write();
        slot.closed = true;
        let database = slot.database.take();
        if let Err(error) = guarded(|| {
            drop(database);
            Ok(())
        }) {
            tracing::warn!(path = %self.path.display(), %error, "store file did not close cleanly");
        }
        slot.directory_lock = None;
    }
}

/// redb asserts on pages that a damaged disk can falsify; an assertion must not take the process down.
pub(super) fn guarded<T>(engine: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(engine)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned());
        Err(EngineError::Panicked(text.unwrap_or_else(|| "unknown reason".to_owned())))
    })
}
