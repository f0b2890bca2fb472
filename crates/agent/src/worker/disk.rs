//! What the worker keeps on disk beside the journal: the local registry, and a lock on the directory.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use rustix::fs::{FlockOperation, flock};
use tracing::warn;

use super::LoadError;
use crate::{
    endpoints::{Endpoint, Endpoints},
    file,
    journal::JournalError,
};

/// Keeps other agents out of the directory, for as long as the file is open.
pub fn lock(dir: &Path) -> Result<File, LoadError> {
    let path = dir.join("lock");
    let open = || {
        file::own_dir(dir)?;
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    };
    open().map_err(|source: io::Error| match source.kind() {
        io::ErrorKind::WouldBlock => LoadError::Taken { path: dir.to_owned() },
        _ => LoadError::Journal(JournalError::Directory { path, source }),
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
    file::replace(path, |file| file.write_all(&text)).map(drop)
}
