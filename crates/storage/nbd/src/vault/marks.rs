//! Marks: what proves which vault a directory is, and which volume a file is.
//!
//! In: a directory. Out: what was found, to be judged against the consumers' records. Holds: nothing.
//! Not here: what becomes of it (`storage_provider::judge`).
//!
//! ```text
//!   <root>/vault                       id of the vault, and how often it was opened
//!   <root>/volumes/<id>/<volume>       the data
//!   <root>/volumes/<id>/<volume>.mark  whose it is, which, of what generation and size
//! ```
//! The names of volumes have no dot. Each opening is counted here and in the store: a directory that was opened less
//! often than the store knows was put back from a copy, and all that was marked before is older than what it replaced.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use storage_provider::{ConsumerId, Found, Mark, VaultId, VolumeId};
use uuid::{Builder, Uuid};

use super::{
    VaultError, files as failing,
    files::{checked, read_checked},
};

/// Which vault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) vault: VaultId,
    /// How often it was opened.
    pub(super) opening: u64,
    /// The opening that found it older than it had been: what was marked before is not to be trusted.
    #[serde(default)]
    pub(super) put_back: u64,
}

/// What is known of a vault from elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The vault that was in this place before.
    pub vault: Option<VaultId>,
    /// How often it was opened, as far as is known.
    pub opening: u64,
}

fn path(root: &Path) -> PathBuf {
    root.join("vault")
}

impl Identity {
    /// Which vault a directory is; `None` when it is none yet.
    pub(super) fn read(root: &Path) -> Result<Option<Self>, VaultError> {
        let path = path(root);
        match fs::read(&path) {
            Ok(text) => read_checked(&text).map(Some).map_err(|source| VaultError::Record { path, source }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failing("reading", &path)(error)),
        }
    }

    /// The identity after one more opening, on disk when this returns. A directory that is no vault becomes one, unless
    /// another is expected there.
    pub(super) fn opened(root: &Path, expected: &Expected) -> Result<Self, VaultError> {
        let found = Self::read(root)?;
        let next = match (found, expected.vault) {
            (None, Some(vault)) => return Err(VaultError::Gone { root: root.to_owned(), vault }),
            (Some(found), Some(vault)) if found.vault != vault => {
                return Err(VaultError::Foreign { root: root.to_owned(), vault, found: found.vault });
            }
            (None, None) => Self { vault: VaultId(fresh()?), opening: 1, put_back: 0 },
            (Some(found), _) if found.opening < expected.opening => {
                let opening = expected.opening + 1;
                Self { opening, put_back: opening, ..found }
            }
            (Some(found), _) => Self { opening: found.opening + 1, ..found },
        };
        let path = path(root);
        ::files::write(&path, &checked(&next)).map_err(failing("writing", &path))?;
        Ok(next)
    }
}

pub(super) fn fresh_volume() -> Result<VolumeId, VaultError> {
    Ok(VolumeId(fresh()?))
}

fn fresh() -> Result<Uuid, VaultError> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| VaultError::Randomness)?;
    Ok(Builder::from_random_bytes(bytes).into_uuid())
}

/// The mark beside a volume's data.
#[derive(Debug, Serialize, Deserialize)]
struct MarkFile {
    consumer: ConsumerId,
    name: String,
    /// The vault's opening it was written in.
    opening: u64,
    #[serde(flatten)]
    mark: Mark,
}

fn mark_path(data: &Path) -> PathBuf {
    data.with_extension("mark")
}

/// Writes the mark beside a volume's file. On disk when this returns.
pub(super) fn write(
    data: &Path,
    consumer: ConsumerId,
    name: &str,
    identity: &Identity,
    mark: Mark,
) -> Result<(), VaultError> {
    let path = mark_path(data);
    let file = MarkFile { consumer, name: name.to_owned(), opening: identity.opening, mark };
    ::files::write(&path, &checked(&file)).map_err(failing("writing", &path))
}

pub(super) fn remove(data: &Path) -> io::Result<()> {
    match fs::remove_file(mark_path(data)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Looks at one volume.
pub(super) fn look(data: &Path, consumer: ConsumerId, name: &str, identity: &Identity) -> Found {
    let damaged = |reason: String| Found::Damaged { reason };
    let size = match fs::symlink_metadata(data) {
        Ok(found) if found.is_file() => found.len(),
        Ok(_) => return damaged("it is not a file".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Found::Missing,
        Err(error) => return damaged(error.to_string()),
    };
    let text = match fs::read(mark_path(data)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Found::Unmarked { size },
        Err(error) => return damaged(format!("its mark cannot be read: {error}")),
    };
    let MarkFile { consumer: whose, name: called, opening, mark } = match read_checked(&text) {
        Ok(file) => file,
        Err(error) => return damaged(format!("its mark cannot be read: {}", common::chain(&error))),
    };
    if whose != consumer || called != name {
        return damaged(format!("it is marked as the volume {called:?} of the consumer {whose}"));
    }
    match size {
        _ if mark.vault == identity.vault && opening < identity.put_back => Found::Older,
        size if size < mark.size => Found::Short { mark, size },
        _ => Found::Whole(mark),
    }
}

/// The names of the volumes that have a file or a mark in a consumer's directory. What is not ours is passed over.
pub(super) fn names_in(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = files_in(dir)?;
    names.retain(|name| super::tenant::check_volume_name(name).is_ok());
    Ok(names)
}

/// The names of all files of volumes there, also of those that have not their volume's name.
pub(super) fn files_in(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        let name = name.strip_suffix(".mark").unwrap_or(name);
        if !name.contains('.') {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}
