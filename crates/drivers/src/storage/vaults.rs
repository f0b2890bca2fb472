//! Which vault is where, and how often it was opened: what the store and the data directory know of a directory of volumes.
//!
//! ```text
//!   store       storage/vault/ID       openings, and the place it was served from last
//!   directory   DATA/storage-vault     the vault that is expected in DATA/volumes
//! ```
//! The second is what notices a disk that is not mounted, or another one in its place.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use storage_nbd::{Expected, KeyStore, Vault, VaultConfig};
use storage_provider::VaultId;
use store::{Key, Prefix, Store, Transaction};

use super::StorageError;
use crate::blocking::blocking;

const FILE: &str = "storage-vault";

/// What the store knows of a vault.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct VaultRecord {
    opening: u64,
    /// Host and directory.
    pub(super) place: String,
}

pub(super) fn key(vault: VaultId) -> Key {
    Prefix::below("storage/vault")
        .and_then(|prefix| prefix.key(&vault.to_string()))
        .expect("a UUID is a legal key")
}

/// Opens the vault of this data directory, if it is the one that was there before.
pub(super) async fn open(
    store: &Store,
    data_dir: &Path,
    config: VaultConfig,
    keys: Arc<dyn KeyStore>,
) -> Result<Vault, StorageError> {
    let root = config.root.clone();
    let file = data_dir.join(FILE);
    let named = read(&file)?;
    let found = blocking({
        let root = root.clone();
        move || Vault::id_in(&root)
    });
    let known = match found.await.map_err(StorageError::Vault)?.or(named) {
        Some(vault) => record(store, vault).await?,
        None => None,
    };
    let expected = Expected { vault: named, opening: known.map_or(0, |known| known.opening) };
    let opened = blocking(move || Vault::open_with(config, &expected, keys));
    let vault = opened.await.map_err(StorageError::Vault)?;
    if named.is_none() {
        let written = files::write(&file, format!("{}\n", vault.id()).as_bytes());
        written.map_err(|err| StorageError::VaultFile { path: file, err })?;
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let known = VaultRecord { opening: vault.opening(), place: format!("{}, {}", host, root.display()) };
    let text = serde_json::to_vec(&known).expect("a record always serialises");
    let put = Transaction::new().put(key(vault.id()), text);
    store.transact(put).await.map_err(|err| StorageError::Unreachable { reason: common::chain(&err) })?;
    Ok(vault)
}

async fn record(store: &Store, vault: VaultId) -> Result<Option<VaultRecord>, StorageError> {
    let unreadable = |reason: String| StorageError::Unreachable { reason };
    let entry = store.get(&key(vault)).await.map_err(|err| unreadable(common::chain(&err)))?;
    entry
        .map(|entry| serde_json::from_slice(&entry.value))
        .transpose()
        .map_err(|err| unreadable(format!("the record of the vault {vault}: {err}")))
}

fn read(path: &PathBuf) -> Result<Option<VaultId>, StorageError> {
    let failed = |err| StorageError::VaultFile { path: path.clone(), err };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(failed(err)),
    };
    let id = text.trim().parse().map_err(|err| failed(io::Error::new(io::ErrorKind::InvalidData, err)))?;
    Ok(Some(VaultId(id)))
}
