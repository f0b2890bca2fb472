//! A backup put back into the store, and on record.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use drivers::{RestoreStoreError, blocking};
use store::backup::Restored;
use tonic::Code;

use crate::{
    audit::{Audit, Call},
    config::Config,
    metrics::Metrics,
};

/// Why a backup was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Store(#[from] RestoreStoreError),
    #[error("nothing was restored, because it cannot be put on record in {}: {why}", path.display())]
    Record { path: PathBuf, why: String },
}

/// Puts a backup into the store. No controller may be running on it.
pub async fn restore_store(config: &Config, backup: &Path, replace: bool) -> Result<Restored, RestoreError> {
    let audit = open_audit(config)?;
    let call =
        Call::new(Arc::clone(&audit), None, String::new(), "store restore", backup.display().to_string());
    call.begin().map_err(|failure| unrecorded(config, failure.message))?;
    let restored = drivers::restore_store(&config.store, &config.data_dir, backup, replace).await;
    let (code, note) = match &restored {
        Ok(restored) => {
            (Code::Ok, format!("{} entries at revision {}", restored.entries, restored.revision.0))
        }
        Err(err) => (Code::FailedPrecondition, common::chain(err)),
    };
    call.conclude(code, &format!("by user {} of this machine; {note}", user())).await;
    drop(call);
    // The last handle; closing it waits for what is written.
    blocking(move || drop(audit)).await;
    Ok(restored?)
}

fn open_audit(config: &Config) -> Result<Arc<Audit>, RestoreError> {
    let opened = files::closed_dir(&config.data_dir)
        .and_then(|()| Audit::open(&config.data_dir, config.audit, Metrics::new()));
    opened.map(Arc::new).map_err(|err| unrecorded(config, err.to_string()))
}

fn unrecorded(config: &Config, why: String) -> RestoreError {
    RestoreError::Record { path: config.data_dir.clone(), why }
}

/// The user this process belongs to, as a number.
fn user() -> String {
    fs::metadata("/proc/self").map_or_else(|_| "unknown".to_owned(), |data| data.uid().to_string())
}
