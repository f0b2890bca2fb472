//! The store a configuration names: opened, or filled from a backup.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use store::{
    Store,
    backup::{RestoreError, Restored},
    embedded, etcd,
};
use tonic::Code;

use crate::{
    audit::{Audit, Call},
    blocking::blocking,
    config::{Config, EtcdConfig, StoreKind},
    failure::chain,
    metrics::Metrics,
    private_file,
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
}

/// Why a backup was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreStoreError {
    #[error("cannot tell where to restore to")]
    Target(#[from] OpenStoreError),
    #[error("cannot restore the backup")]
    Restore(#[source] RestoreError),
    #[error("nothing was restored, because it cannot be put on record in {}: {why}", path.display())]
    Record { path: PathBuf, why: String },
}

pub async fn open_store(config: &Config) -> Result<Store, OpenStoreError> {
    match &config.store {
        StoreKind::Embedded => {
            let mut options = embedded::Options::new(directory(config));
            (options.max_operations, options.max_transaction_bytes) = (MAX_OPERATIONS, MAX_TRANSACTION);
            blocking(move || options.open()).await.map_err(OpenStoreError::Embedded)
        }
        StoreKind::Etcd(config) => etcd_options(config)?.connect().await.map_err(OpenStoreError::Etcd),
    }
}

/// Puts a backup into the store. No controller may be running on it.
pub async fn restore_store(
    config: &Config,
    backup: &Path,
    replace: bool,
) -> Result<Restored, RestoreStoreError> {
    let audit = open_audit(config)?;
    let call =
        Call::new(Arc::clone(&audit), None, String::new(), "store restore", backup.display().to_string());
    call.begin().map_err(|failure| unrecorded(config, failure.message))?;
    let restored = restore(config, backup, replace).await;
    let (code, note) = match &restored {
        Ok(restored) => {
            (Code::Ok, format!("{} entries at revision {}", restored.entries, restored.revision.0))
        }
        Err(err) => (Code::FailedPrecondition, chain(err)),
    };
    call.conclude(code, &format!("by user {} of this machine; {note}", user())).await;
    drop(call);
    // The last handle; closing it waits for what is written.
    blocking(move || drop(audit)).await;
    restored
}

fn open_audit(config: &Config) -> Result<Arc<Audit>, RestoreStoreError> {
    let opened = private_file::create_dir(&config.data_dir)
        .and_then(|()| Audit::open(&config.data_dir, config.audit, Metrics::new()));
    opened.map(Arc::new).map_err(|err| unrecorded(config, err.to_string()))
}

fn unrecorded(config: &Config, why: String) -> RestoreStoreError {
    RestoreStoreError::Record { path: config.data_dir.clone(), why }
}

/// The user this process belongs to, as a number.
fn user() -> String {
    fs::metadata("/proc/self").map_or_else(|_| "unknown".to_owned(), |data| data.uid().to_string())
}

async fn restore(config: &Config, backup: &Path, replace: bool) -> Result<Restored, RestoreStoreError> {
    let restored = match &config.store {
        StoreKind::Embedded => {
            let (dir, backup) = (directory(config), backup.to_owned());
            blocking(move || embedded::restore(&dir, &backup, replace)).await
        }
        StoreKind::Etcd(config) => etcd::restore(etcd_options(config)?, backup, replace).await,
    };
    restored.map_err(RestoreStoreError::Restore)
}

fn directory(config: &Config) -> PathBuf {
    config.data_dir.join("store")
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
