//! Files of the vault: records that are whole or absent, and directories.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde::{Deserialize, Serialize};
use storage_provider::ConsumerId;

use super::{VaultError, files};
use crate::identity::Fingerprint;

/// What is known of a tenant beside its data. Holds a private key: readable by its owner only.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) limit: Option<u64>,
    /// Name and size of each volume.
    pub(super) volumes: BTreeMap<String, u64>,
    pub(super) credential: Option<Credential>,
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
        let json = fs::read(&path).map_err(files("reading", &path))?;
        serde_json::from_slice(&json).map_err(|source| VaultError::Record { path, source })
    }

    /// On disk when this returns; a reader sees the old one or the new one.
    pub(super) fn write(&self, root: &Path, consumer: ConsumerId) -> Result<(), VaultError> {
        let path = Self::path(root, consumer);
        let json = serde_json::to_vec_pretty(self).expect("a record always serialises");
        ::files::write(&path, &json).map_err(files("writing", &path))
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
