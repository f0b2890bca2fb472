//! Restoring a backup into a directory, while no process has it open.
//!
//! The new file is made whole beside the old one and renamed over it: a crash at any moment leaves either. What was
//! there is kept as `store.redb.before-restore`.
//! Revisions go on above both the backup's and the replaced store's, with a gap: a reader that remembers a revision
//! from after the backup must be told to start over, not be shown another history under the same numbers.

use std::{fs, io, path::Path};

use redb::Database;

use super::{
    database::EngineError,
    open::{self, FILE, OpenError},
    tables::{META, META_STATE, OBJECTS, State, encode_object},
};
use crate::{
    api::{Entry, Revision},
    backup::{BackupFile, RestoreError, Restored},
};

const RESTORED_FILE: &str = "store.redb.restored";
const KEPT_FILE: &str = "store.redb.before-restore";
/// Larger than what any store writes between a backup and its restore.
const REVISION_GAP: u64 = 1_000_000_000;
/// Entries per commit while the new file is filled.
const BATCH: usize = 10_000;
const CACHE_BYTES: usize = 64 << 20;

impl From<OpenError> for RestoreError {
    fn from(error: OpenError) -> Self {
        Self::Target(error.into())
    }
}

/// Restores a backup file into a directory. Blocks. Without `replace`, a directory that holds any object, or a file
/// that cannot be read, is refused.
pub fn restore(dir: &Path, backup: &Path, replace: bool) -> Result<Restored, RestoreError> {
    let backup = BackupFile::verify(backup)?;
    let lock = open::lock(dir)?;
    let path = dir.join(FILE);
    let before = existing(&path)?;
    if !replace && !matches!(before, Existing::Nothing | Existing::Store { empty: true, .. }) {
        return Err(RestoreError::NotEmpty { place: dir.display().to_string() });
    }
    let newest = match before {
        Existing::Store { revision, .. } => revision.max(backup.header.revision.0),
        Existing::Nothing | Existing::Unreadable => backup.header.revision.0,
    };
    let revision = newest + REVISION_GAP;
    let new = dir.join(RESTORED_FILE);
    fill(&new, &backup, revision)?;
    let failed = |error: io::Error| RestoreError::Target(open::io_error(&path)(error).into());
    if !matches!(before, Existing::Nothing) {
        // A second name, not a move: the store is in its place at every moment.
        let kept = dir.join(KEPT_FILE);
        match fs::remove_file(&kept) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => fs::hard_link(&path, &kept).map_err(failed)?,
        }
    }
    open::publish(dir, &new)?;
    open::note_acknowledged(&lock, revision).map_err(failed)?;
    Ok(Restored { entries: backup.trailer.entries, revision: Revision(revision) })
}

enum Existing {
    Nothing,
    Store { revision: u64, empty: bool },
    Unreadable,
}

fn existing(path: &Path) -> Result<Existing, OpenError> {
    if !path.try_exists().map_err(open::io_error(path))? {
        return Ok(Existing::Nothing);
    }
    Ok(match open::peek(path) {
        Some((state, empty)) => Existing::Store { revision: state.revision, empty },
        None => Existing::Unreadable,
    })
}

fn fill(new: &Path, backup: &BackupFile, revision: u64) -> Result<(), RestoreError> {
    // Nothing of the history before the restore can be watched.
    let state = State { revision, compacted: revision, ..State::default() };
    let database = open::create(new, state, CACHE_BYTES)?;
    let failed = |error: EngineError| RestoreError::Target(open::open_error(new, error).into());
    let mut batch = Vec::with_capacity(BATCH);
    for entry in backup.entries()? {
        let entry = entry?;
        batch.push(Entry {
            key: entry.key,
            value: entry.value,
            created: entry.created,
            modified: entry.modified,
            lease: None,
        });
        if batch.len() == BATCH {
            insert(&database, &batch, state).map_err(failed)?;
            batch.clear();
        }
    }
    insert(&database, &batch, state).map_err(failed)
}

fn insert(database: &Database, batch: &[Entry], state: State) -> Result<(), EngineError> {
    let transaction = database.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        for entry in batch {
            objects.insert(entry.key.as_str(), encode_object(entry).as_slice())?;
        }
        transaction.open_table(META)?.insert(META_STATE, state.encode().as_slice())?;
    }
    transaction.commit()?;
    Ok(())
}
