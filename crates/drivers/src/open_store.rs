//! The store a configuration names: opened, or filled from a backup.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use store::{
    Store,
    backup::{RestoreError, Restored},
    embedded, etcd,
};

use crate::{
    blocking::blocking,
    config::{EtcdConfig, StoreKind},
    sealing::{self, SealingError},
};

/// Operations and bytes one transaction may have: whole tags of a million members.
const MAX_OPERATIONS: usize = 4 << 20;
const MAX_TRANSACTION: usize = 1 << 30;

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    #[error("cannot open the embedded store")]
    Embedded(#[source] embedded::OpenError),
    #[error("cannot use etcd")]
    Etcd(#[source] etcd::ConnectError),
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("`store.etcd.client` is set without `store.etcd.ca`")]
    ClientWithoutCa,
    #[error("secrets in the store cannot be kept")]
    Sealing(#[from] SealingError),
}

/// Why a backup was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreStoreError {
    #[error("cannot tell where to restore to")]
    Target(#[from] OpenStoreError),
    #[error("cannot restore the backup")]
    Restore(#[source] RestoreError),
}

/// Opens the store; secrets in it are sealed ([`crate::sealing`]).
pub async fn open_store(kind: &StoreKind, data_dir: &Path) -> Result<Store, OpenStoreError> {
    let store = match kind {
        StoreKind::Embedded => {
            let mut options = embedded::Options::new(directory(data_dir));
            (options.max_operations, options.max_transaction_bytes) = (MAX_OPERATIONS, MAX_TRANSACTION);
            blocking(move || options.open()).await.map_err(OpenStoreError::Embedded)
        }
        StoreKind::Etcd(config) => etcd_options(config)?.connect().await.map_err(OpenStoreError::Etcd),
    }?;
    Ok(sealing::sealed(store, kind, data_dir).await?)
}

/// Puts a backup into the store. No controller may be running on it.
pub async fn restore_store(
    kind: &StoreKind,
    data_dir: &Path,
    backup: &Path,
    replace: bool,
) -> Result<Restored, RestoreStoreError> {
    let restored = match kind {
        StoreKind::Embedded => {
            let (dir, backup) = (directory(data_dir), backup.to_owned());
            blocking(move || embedded::restore(&dir, &backup, replace)).await
        }
        StoreKind::Etcd(config) => etcd::restore(etcd_options(config)?, backup, replace).await,
    };
    restored.map_err(RestoreStoreError::Restore)
}

fn directory(data_dir: &Path) -> PathBuf {
    data_dir.join("store")
}

fn etcd_options(config: &EtcdConfig) -> Result<etcd::Options, OpenStoreError> {
    let read = |path: &PathBuf| {
        fs::read_to_string(path).map_err(|err| OpenStoreError::Read { path: path.clone(), err })
    };
    let identity = match &config.client {
        Some(client) => Some((read(&client.certificate)?, read(&client.key)?)),
        None => None,
    };
    let mut options = etcd::Options::new(config.endpoints.clone());
    options.namespace = config.prefix.clone();
    options.max_operations = config.max_txn_ops;
    options.max_request_bytes = config.max_request_bytes;
    options.tls = match &config.ca {
        Some(ca) => Some(etcd::Tls { ca: read(ca)?, identity, server_name: None }),
        None if identity.is_some() => return Err(OpenStoreError::ClientWithoutCa),
        None => None,
    };
    Ok(options)
}
