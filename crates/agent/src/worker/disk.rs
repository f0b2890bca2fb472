//! What the worker keeps on disk beside the journal: the local registry, and a lock on the directory.

use std::{fs::TryLockError, io, path::Path};

use files::Lock;
use tracing::warn;

use super::LoadError;
use crate::{
    endpoints::{Endpoint, Endpoints},
    journal::JournalError,
};

/// Keeps other agents out of the directory, for as long as the file is open.
pub fn lock(dir: &Path) -> Result<Lock, LoadError> {
    let path = dir.join("lock");
    files::create_dir(dir).map_err(TryLockError::Error).and_then(|()| Lock::take(&path)).map_err(|err| {
        match err {
            TryLockError::WouldBlock => LoadError::Taken { path: dir.to_owned() },
            TryLockError::Error(source) => LoadError::Journal(JournalError::Directory { path, source }),
        }
    })
}

pub fn read_registry(path: &Path) -> io::Result<Endpoints> {
    match std::fs::read(path) {
        Ok(bytes) => {
            let read = serde_json::from_slice::<Vec<Endpoint>>(&bytes)?;
            let count = read.len();
            let endpoints: Endpoints = read.into_iter().collect();
            if endpoints.len() < count {
                warn!(path = %path.display(), "the local registry has Pods that cannot be, or that stand in each other's place; they are left out");
            }
            Ok(endpoints)
        }
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Endpoints::default()),
        Err(err) => Err(err),
    }
}

pub fn write_registry(path: &Path, endpoints: &Endpoints) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(&endpoints.iter().collect::<Vec<_>>())?;
    files::write(path, &text)
}
