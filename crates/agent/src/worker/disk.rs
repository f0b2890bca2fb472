//! What the worker keeps on disk beside the journal: the local registry, and a lock on the directory.

use std::{fs::TryLockError, io, path::Path};

use files::Lock;

use super::LoadError;
use crate::{journal::Finding, registry::Registry};

const LOCK: &str = "lock";
/// The local registry's file.
pub const REGISTRY: &str = "endpoints.json";

/// Keeps other agents out of the directory, for as long as the file is open.
pub fn lock(dir: &Path) -> Result<Lock, LoadError> {
    let path = dir.join(LOCK);
    files::guarded_dir(dir).map_err(TryLockError::Error).and_then(|()| Lock::take(&path)).map_err(|err| {
        match err {
            TryLockError::WouldBlock => LoadError::Taken { path: dir.to_owned() },
            TryLockError::Error(source) => LoadError::Directory { path: dir.to_owned(), source },
        }
    })
}

/// `expected`: an agent that knew something has been here, and so a registry must be.
pub fn read_registry(path: &Path, expected: bool) -> (Registry, Finding) {
    let read = std::fs::read(path).map_err(|err| match err.kind() {
        io::ErrorKind::NotFound if !expected => Finding::Nothing,
        io::ErrorKind::NotFound => damaged(path, "it is missing"),
        _ => damaged(path, &err.to_string()),
    });
    match read.and_then(|bytes| Registry::decode(&bytes).map_err(|why| damaged(path, &why.to_string()))) {
        Ok(registry) => (registry, Finding::Whole),
        Err(finding) => (Registry::default(), finding),
    }
}

fn damaged(path: &Path, why: &str) -> Finding {
    Finding::Damaged(format!("the local registry {} cannot be read: {why}", path.display()))
}

/// What should be there and is not, for people.
pub fn lost(state: &Finding, registry: &Finding, pods: &Registry) -> Vec<String> {
    let meanwhile =
        "what is in the kernel stays and Pods that it does not know are closed, until a controller is heard";
    let mut lost = Vec::new();
    match state {
        Finding::Damaged(why) => lost.push(format!("{why}; {meanwhile}")),
        Finding::Nothing if pods.endpoints.iter().any(|endpoint| !endpoint.closed) => {
            lost.push(format!("the node's state is not there any more; {meanwhile}"));
        }
        Finding::Nothing | Finding::Whole => {}
    }
    if let Finding::Damaged(why) = registry {
        lost.push(format!(
            "{why}; {meanwhile}. Pods that are not found by their address must be attached again"
        ));
    }
    lost
}

/// That a host which has joined has neither state nor registry, for people.
pub fn nothing_left(registry: &Path) -> String {
    format!(
        "this host has joined, and nothing of what applied to it is there any more ({} is missing): it is closed but for what stays \
         open, until a controller is heard",
        registry.display()
    )
}

/// A directory for an agent that has never run: from here on a registry that is missing is one that was lost. What is there stays.
pub fn prepare(dir: &Path) -> io::Result<()> {
    files::guarded_dir(dir)?;
    let path = dir.join(REGISTRY);
    if path.exists() { Ok(()) } else { write_registry(&path, &Registry::default()) }
}

/// Whether an agent has used the directory: what is in the kernel may be its.
pub fn has_run(dir: &Path) -> bool {
    dir.join(LOCK).exists()
}

/// Whether an agent uses the directory now.
pub fn is_run(dir: &Path) -> io::Result<bool> {
    if !has_run(dir) {
        return Ok(false);
    }
    match Lock::take(&dir.join(LOCK)) {
        Ok(_) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(err)) => Err(err),
    }
}

pub fn write_registry(path: &Path, registry: &Registry) -> io::Result<()> {
    let text = registry.encode()?;
    files::write(path, &text)
}
