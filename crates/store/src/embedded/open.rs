//! First opening of a directory: lock it, make or open the file, verify it, read where it stands.
//!
//! A file named [`FILE`] is always a whole database: a new one is made beside, with its format marker, and renamed.
//! So an empty or cut file is damage, never a fresh start.

use std::{
    fs::{self, File, Permissions, TryLockError},
    io,
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use files::Lock;
use redb::{Builder, Database, ReadableDatabase as _, ReadableTableMetadata as _};
use thiserror::Error;

use super::{
    database::{Db, EngineError, OpenFile, guarded},
    tables::{FORMAT, LEASE_KEYS, LEASES, LOG, META, META_FORMAT, META_STATE, OBJECTS, State},
};
use crate::api::Cause;

pub(super) const FILE: &str = "store.redb";
const NEW_FILE: &str = "store.redb.new";
const LOCK_FILE: &str = "store.lock";
/// Of the handle that looks at every page once.
const CHECK_CACHE_BYTES: usize = 1 << 20;

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("{} is in use by another process; stop it, or choose another data directory", dir.display())]
    InUse { dir: PathBuf },
    #[error(
        "{} is damaged; restore a backup with `trestle store restore`", file.display()
    )]
    Corrupted {
        file: PathBuf,
        #[source]
        source: Cause,
    },
    #[error(
        "{} has format {found}, this version knows up to {FORMAT}; run the newer version that wrote it", file.display()
    )]
    NewerFormat { file: PathBuf, found: u64 },
    #[error(
        "{} stands at revision {found}, but revision {acknowledged} was acknowledged: it is damaged or was replaced \
         by an older copy; restore a backup with `trestle store restore`, or remove {} to accept the loss",
        file.display(), file.with_file_name(LOCK_FILE).display()
    )]
    Lost { file: PathBuf, found: u64, acknowledged: u64 },
    #[error("no space left to open {}; free some space and start again", file.display())]
    Full {
        file: PathBuf,
        #[source]
        source: Cause,
    },
    #[error("{} could not be opened; look at its permissions and at the disk", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    |source| OpenError::Io { path, source }
}

/// Makes the directory if need be and takes it for this process. The lock is a file of its own because the
/// database file is replaced by a restore.
pub(super) fn lock(dir: &Path) -> Result<Lock, OpenError> {
    files::create_dir(dir).map_err(io_error(dir))?;
    let path = dir.join(LOCK_FILE);
    let lock = Lock::take(&path).map_err(|err| match err {
        TryLockError::WouldBlock => OpenError::InUse { dir: dir.to_owned() },
        TryLockError::Error(source) => OpenError::Io { path, source },
    })?;
    tighten(dir)?;
    Ok(lock)
}

/// Earlier versions made files that others could read.
fn tighten(dir: &Path) -> Result<(), OpenError> {
    for entry in fs::read_dir(dir).map_err(io_error(dir))? {
        let path = entry.map_err(io_error(dir))?.path();
        let data = fs::symlink_metadata(&path).map_err(io_error(&path))?;
        if data.is_file() && data.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(io_error(&path))?;
        }
    }
    Ok(())
}

/// Writes the newest acknowledged revision into the lock file. It is not synced: after a crash of the process it is
/// exact, after a power cut it may be older, and it is never newer than what was synced. So a file that stands below
/// it has lost something.
pub(super) fn note_acknowledged(lock: &File, revision: u64) -> io::Result<()> {
    lock.write_all_at(format!("{revision:020}\n").as_bytes(), 0)
}

fn acknowledged(lock: &File) -> u64 {
    let mut text = [0; 20];
    let whole = lock.read_exact_at(&mut text, 0).is_ok();
    let number = str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
    number.filter(|_| whole).unwrap_or(0)
}

/// Opens the store of a directory, making an empty one if there is none.
pub(super) fn open(dir: &Path, cache_bytes: usize, verify: bool) -> Result<(Db, State), OpenError> {
    let lock = lock(dir)?;
    let path = dir.join(FILE);
    let is_new = !path.try_exists().map_err(io_error(&path))?;
    if is_new {
        let acknowledged = acknowledged(&lock);
        if acknowledged > 0 {
            return Err(OpenError::Lost { file: path, found: 0, acknowledged });
        }
        let new = dir.join(NEW_FILE);
        drop(create(&new, State::default(), cache_bytes)?);
        publish(dir, &new)?;
    }
    // A length of 0 would make redb start afresh.
    if fs::metadata(&path).map_err(io_error(&path))?.len() == 0 {
        let source = Arc::new(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is empty"));
        return Err(OpenError::Corrupted { file: path, source });
    }
    if verify && !is_new {
        check_pages(&path)?;
    }
    let file = path.clone();
    let opener: OpenFile = Arc::new(move || builder(cache_bytes, &Arc::default()).open(&file));
    open_with(&path, opener, lock)
}

/// Verifies every checksum. Each page is looked at once, so none is worth keeping: this handle has next to no cache, and what it has
/// goes with it.
fn check_pages(path: &Path) -> Result<(), OpenError> {
    let repaired = Arc::new(AtomicBool::new(false));
    let checked = guarded(|| {
        let mut database = builder(CHECK_CACHE_BYTES, &repaired).open(path)?;
        // After an unclean end redb has verified every checksum itself.
        if !repaired.load(Ordering::Relaxed) && !database.check_integrity()? {
            tracing::warn!(path = %path.display(), "free space of the store file was rebuilt, no data was touched");
        }
        Ok(())
    });
    checked.map_err(|error| open_error(path, error))
}

/// The part after the file exists; the tests call it with a faulty disk behind `opener`.
pub(super) fn open_with(path: &Path, opener: OpenFile, lock: Lock) -> Result<(Db, State), OpenError> {
    let database = guarded(|| Ok(opener()?)).map_err(|error| open_error(path, error))?;
    let acknowledged = acknowledged(&lock);
    let db = Db::new(path.to_owned(), opener, database, lock);
    let file = path.to_owned();
    let state = match check_format(&db).map_err(|error| open_error(path, error))? {
        Ok(state) => state,
        Err(found) => return Err(OpenError::NewerFormat { file, found }),
    };
    if state.revision < acknowledged {
        return Err(OpenError::Lost { file, found: state.revision, acknowledged });
    }
    Ok((db, state))
}

fn builder(cache_bytes: usize, repaired: &Arc<AtomicBool>) -> Builder {
    let mut builder = Builder::new();
    let repaired = Arc::clone(repaired);
    builder.set_cache_size(cache_bytes).set_repair_callback(move |session| {
        repaired.store(true, Ordering::Relaxed);
        tracing::info!(progress = session.progress(), "store was not closed cleanly, verifying it");
    });
    builder
}

pub(super) fn open_error(path: &Path, error: EngineError) -> OpenError {
    let file = path.to_owned();
    if error.is_full() {
        return OpenError::Full { file, source: Arc::new(error) };
    }
    let EngineError::Redb(engine) = &error else {
        return OpenError::Corrupted { file, source: Arc::new(error) };
    };
    match &**engine {
        redb::Error::DatabaseAlreadyOpen => {
            OpenError::InUse { dir: file.parent().unwrap_or(&file).to_owned() }
        }
        // What redb reads beyond the end of a cut file, or finds where a header should be.
        redb::Error::Io(source) => match source.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                OpenError::Corrupted { file, source: Arc::new(error) }
            }
            kind => OpenError::Io { path: file, source: io::Error::new(kind, error) },
        },
        _ => OpenError::Corrupted { file, source: Arc::new(error) },
    }
}

/// `Ok(Err(found))` is a format from the future.
fn check_format(db: &Db) -> Result<Result<State, u64>, EngineError> {
    db.read(|transaction| {
        let meta = transaction.open_table(META)?;
        let format = meta.get(META_FORMAT)?.ok_or_else(|| damaged("no format marker"))?;
        let format: [u8; 8] = format.value().try_into().map_err(|_| damaged("format marker"))?;
        let found = u64::from_le_bytes(format);
        if found > FORMAT {
            return Ok(Err(found));
        }
        read_state(transaction).map(Ok)
    })
}

pub(super) fn read_state(transaction: &redb::ReadTransaction) -> Result<State, EngineError> {
    let meta = transaction.open_table(META)?;
    let row = meta.get(META_STATE)?.ok_or_else(|| damaged("no state"))?;
    Ok(State::decode(row.value())?)
}

fn damaged(what: &str) -> EngineError {
    redb::Error::Corrupted(what.to_owned()).into()
}

/// Makes an empty database file with all tables, over whatever a crash may have left there.
pub(super) fn create(path: &Path, state: State, cache_bytes: usize) -> Result<Database, OpenError> {
    let file = files::create(path).map_err(io_error(path))?;
    let made = guarded(|| {
        let database = Builder::new().set_cache_size(cache_bytes).create_file(file)?;
        make_tables(&database, state)?;
        Ok(database)
    });
    made.map_err(|error| open_error(path, error))
}

pub(super) fn make_tables(database: &Database, state: State) -> Result<(), EngineError> {
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert(META_FORMAT, FORMAT.to_le_bytes().as_slice())?;
        meta.insert(META_STATE, state.encode().as_slice())?;
        transaction.open_table(OBJECTS)?;
        transaction.open_table(LOG)?;
        transaction.open_table(LEASES)?;
        transaction.open_table(LEASE_KEYS)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Renames a finished file to its place and makes the new name durable. The file must be closed.
pub(super) fn publish(dir: &Path, new: &Path) -> Result<(), OpenError> {
    File::open(new).and_then(|file| file.sync_all()).map_err(io_error(new))?;
    fs::rename(new, dir.join(FILE)).map_err(io_error(new))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error(dir))
}

/// Where a file's store stands and whether it holds no object; `None` if it cannot be read.
pub(super) fn peek(path: &Path) -> Option<(State, bool)> {
    if fs::metadata(path).ok()?.len() == 0 {
        return None;
    }
    let read = guarded(|| {
        let database = Builder::new().open(path)?;
        let transaction = database.begin_read()?;
        let empty = transaction.open_table(OBJECTS)?.is_empty()?;
        Ok((read_state(&transaction)?, empty))
    });
    read.ok()
}
