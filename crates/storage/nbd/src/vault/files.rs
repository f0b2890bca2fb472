//! Files of the vault: records that are whole or absent, and directories.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use storage_provider::{ConsumerId, Mark};

use super::{VaultError, files};
use crate::identity::Fingerprint;

/// What is known of a tenant beside its data. Holds a private key: readable by its owner only.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) limit: Option<u64>,
    pub(super) volumes: BTreeMap<String, Entry>,
    pub(super) credential: Option<Credential>,
}

/// One volume, as the tenant's record knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredEntry")]
pub(super) struct Entry {
    pub(super) size: u64,
    /// Absent: made before there were marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mark: Option<Mark>,
    /// It is being made: nobody was given it, and what is missing of it may be made.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) pending: bool,
}

/// Earlier versions kept the size alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredEntry {
    Size(u64),
    Entry {
        size: u64,
        #[serde(default)]
        mark: Option<Mark>,
        #[serde(default)]
        pending: bool,
    },
}

impl From<StoredEntry> for Entry {
    fn from(stored: StoredEntry) -> Self {
        match stored {
            StoredEntry::Size(size) => Self { size, mark: None, pending: false },
            StoredEntry::Entry { size, mark, pending } => Self { size, mark, pending },
        }
    }
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credential {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) authority: String,
    pub(super) fingerprint: Fingerprint,
    /// The one this renewed: its holder may not have fetched the new one yet. It ends by its own date, or by revoking.
    #[serde(default)]
    pub(super) renewed: Option<Fingerprint>,
    pub(super) renew_at: SystemTime,
}

impl Credential {
    pub(super) fn admits(&self, shown: Fingerprint) -> bool {
        self.fingerprint == shown || self.renewed == Some(shown)
    }
}

impl Record {
    fn path(root: &Path, consumer: ConsumerId) -> PathBuf {
        root.join("consumers").join(format!("{consumer}.json"))
    }

    pub(super) fn read(root: &Path, consumer: ConsumerId) -> Result<Self, VaultError> {
        let path = Self::path(root, consumer);
        let text = fs::read(&path).map_err(files("reading", &path))?;
        read_checked(&text).map_err(|source| VaultError::Record { path, source })
    }

    /// On disk when this returns; a reader sees the old one or the new one.
    pub(super) fn write(&self, root: &Path, consumer: ConsumerId) -> Result<(), VaultError> {
        let path = Self::path(root, consumer);
        ::files::write(&path, &checked(self)).map_err(files("writing", &path))
    }

    pub(super) fn remove(root: &Path, consumer: ConsumerId) -> Result<(), VaultError> {
        let path = Self::path(root, consumer);
        match fs::remove_file(&path) {
            Ok(()) => sync_dir(&root.join("consumers")).map_err(files("syncing", &path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(files("removing", &path)(error)),
        }
    }
}

/// Makes what happened to the names in a directory last.
pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The consumers that have an entry in a directory, with or without `.json`. What is not ours is passed over.
pub(super) fn ids_in(path: &Path) -> io::Result<Vec<ConsumerId>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if let Ok(id) = name.strip_suffix(".json").unwrap_or(&name).parse() {
            ids.push(id);
        }
    }
    Ok(ids)
}

pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// JSON on one line, and its SHA-256 on the next: a flipped bit is noticed, whatever it makes of the text.
pub(super) fn checked(value: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(value).expect("records have no maps with odd keys");
    let sum = common::hex(digest(&SHA256, &text).as_ref());
    text.extend(format!("\n{sum}\n").bytes());
    text
}

/// Reads what [`checked`] wrote. Text without a sum, as earlier versions wrote it, is JSON as a whole.
pub(super) fn read_checked<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Damage> {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let parts = text.iter().rposition(|byte| *byte == b'\n').map(|at| (&text[..at], &text[at + 1..]));
    let json = match parts {
        Some((json, sum)) if sum.len() == 64 && !json.contains(&b'\n') => {
            if common::hex(digest(&SHA256, json).as_ref()).as_bytes() != sum {
                return Err(Damage::Sum);
            }
            json
        }
        _ => bytes,
    };
    serde_json::from_slice(json).map_err(Damage::Json)
}

/// Why a record says nothing.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    #[error("its checksum is wrong")]
    Sum,
    #[error("it is not what was written")]
    Json(#[source] serde_json::Error),
}
