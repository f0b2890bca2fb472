//! The key that seals secrets in the store: where it is, and that it is there before anything is read.
//!
//! ```text
//!   embedded   DATA/sealing.key, made at the first start
//!   etcd       store.etcd.sealing_key_file, the same for every controller; without it nothing is sealed, which is told
//! ```
//!
//! A store that has something sealed is not opened with a new key: whoever restored a backup elsewhere is told to bring the key.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use model::Secret;
use store::{
    Store,
    sealed::{Keys, KeysError, ResealError, Resealed, Sealed},
};
use tracing::{info, warn};

use crate::{config::StoreKind, random};

const FILE: &str = "sealing.key";

/// Why secrets in the store cannot be sealed or opened.
#[derive(Debug, thiserror::Error)]
pub enum SealingError {
    #[error("cannot read the sealing key {}; for etcd make one with `(umask 077; openssl rand -hex 32 > {})` and give it to every controller", path.display(), path.display())]
    Read {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("cannot write the sealing key {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("others can read the sealing key {}; run: chmod 600 {}", path.display(), path.display())]
    Loose { path: PathBuf },
    #[error("the sealing key {} cannot be used", path.display())]
    Keys {
        path: PathBuf,
        #[source]
        err: KeysError,
    },
    #[error(
        "secrets in the store are sealed with the key {keys}, and {} is not there: bring it from where the store was written; to give those secrets up, make a new one with `(umask 077; openssl rand -hex 32 > {})`",
        path.display(), path.display()
    )]
    Missing { path: PathBuf, keys: String },
    #[error("cannot seal secrets in the store")]
    Reseal(#[from] ResealError),
}

/// The store with its secrets sealed; what is not yet, is first.
pub(crate) async fn sealed(store: Store, kind: &StoreKind, data_dir: &Path) -> Result<Store, SealingError> {
    let path = match kind {
        StoreKind::Embedded => data_dir.join(FILE),
        StoreKind::Etcd(config) => match &config.sealing_key_file {
            Some(path) => path.clone(),
            None => {
                warn!(
                    "keys of VPN links are in etcd as they are, and no volume can be encrypted; set store.etcd.sealing_key_file to have secrets sealed"
                );
                return Ok(store);
            }
        },
    };
    let (text, is_new) = match read(&path) {
        Err(SealingError::Read { err, .. })
            if err.kind() == io::ErrorKind::NotFound && matches!(kind, StoreKind::Embedded) =>
        {
            (Secret::new(common::hex(&random::bytes::<32>())), true)
        }
        read => (read?, false),
    };
    let keys = Keys::parse(text.expose()).map_err(|err| SealingError::Keys { path: path.clone(), err })?;
    let secrets = [orchestrator::secrets(), crate::storage::secrets()].concat();
    let sealed = Sealed::new(store, keys, secrets);
    if is_new {
        // What a new key cannot open was sealed with one that is gone; nothing may be sealed before that is known.
        let missing = sealed.missing().await?;
        if !missing.is_empty() {
            return Err(SealingError::Missing { path, keys: missing.join(", ") });
        }
        files::write(&path, format!("{}\n", text.expose()).as_bytes())
            .map_err(|err| SealingError::Write { path: path.clone(), err })?;
    }
    let Resealed { entries, missing } = sealed.reseal().await?;
    if entries > 0 {
        info!(entries, "secrets in the store were sealed with the newest key");
    }
    if !missing.is_empty() {
        warn!(
            keys = missing.join(", "),
            "secrets in the store are sealed with keys that {} has not",
            path.display()
        );
    }
    Ok(Store::new(sealed))
}

/// Whether secrets in such a store are sealed.
pub(crate) fn seals(kind: &StoreKind) -> bool {
    match kind {
        StoreKind::Embedded => true,
        StoreKind::Etcd(config) => config.sealing_key_file.is_some(),
    }
}

fn read(path: &Path) -> Result<Secret, SealingError> {
    let failed = |err| SealingError::Read { path: path.to_owned(), err };
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(SealingError::Loose { path: path.to_owned() });
    }
    fs::read_to_string(path).map(Secret::new).map_err(failed)
}

#[cfg(test)]
mod tests;
