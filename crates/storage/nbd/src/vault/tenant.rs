//! A tenant: one consumer's volumes, account, credential and sessions.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use storage_provider::{ConsumerId, Observed, ObservedStorage};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    VaultError, files as failing,
    files::{Credential, Record, sync_dir},
};
use crate::{
    account::Account,
    allocation::BLOCK,
    identity::{Fingerprint, Issuer, identity_uri},
    volume::{Volume, create_file},
};

/// The volume every consumer has.
pub(crate) const DEFAULT_VOLUME: &str = "data";
const MAX_VOLUMES: usize = 256;

pub(crate) struct Tenant {
    pub(crate) id: ConsumerId,
    pub(crate) account: Arc<Account>,
    root: PathBuf,
    inner: Mutex<Inner>,
    /// How many sessions are open.
    sessions: watch::Sender<usize>,
}

struct Inner {
    record: Record,
    volumes: BTreeMap<String, Arc<Volume>>,
    /// Cancelled, and replaced, to end all sessions.
    stop: CancellationToken,
}

/// Held by a session as long as it lives.
pub(crate) struct SessionPass {
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) stop: CancellationToken,
}

impl Drop for SessionPass {
    fn drop(&mut self) {
        self.tenant.sessions.send_modify(|open| *open -= 1);
    }
}

pub(super) fn check_volume_name(name: &str) -> Result<(), VaultError> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let starts = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if starts && name.len() <= 64 && name.bytes().all(good) {
        return Ok(());
    }
    Err(VaultError::VolumeName { name: name.chars().take(64).collect() })
}

impl Tenant {
    /// Opens what a record names. A volume whose file is gone is left out; observing shows it.
    pub(super) fn open(root: &Path, id: ConsumerId) -> Result<Self, VaultError> {
        let record = Record::read(root, id)?;
        let account = Arc::new(Account::default());
        account.restore_limit(record.limit.unwrap_or(0));
        let mut volumes = BTreeMap::new();
        for name in record.volumes.keys() {
            check_volume_name(name)?;
            let path = volume_path(root, id, name);
            if path.exists() {
                volumes.insert(name.clone(), Arc::new(Volume::open(name, &path, Arc::clone(&account))?));
            }
        }
        let inner = Inner { record, volumes, stop: CancellationToken::new() };
        Ok(Self {
            id,
            account,
            root: root.to_owned(),
            inner: Mutex::new(inner),
            sessions: watch::Sender::new(0),
        })
    }

    pub(super) fn observe(&self) -> Observed {
        let inner = self.inner.lock();
        let data = inner.volumes.get(DEFAULT_VOLUME).filter(|volume| self.is_in_place(volume));
        let wanted = inner.record.limit.unwrap_or(0) / BLOCK * BLOCK;
        let all_there = inner.record.volumes.keys().all(|name| inner.volumes.contains_key(name));
        Observed {
            storage: Some(ObservedStorage {
                quota: inner.record.limit,
                used: self.account.balance().used,
                in_shape: all_there && data.is_some_and(|volume| volume.size() >= wanted),
            }),
            credentials: inner
                .record
                .credential
                .as_ref()
                .is_some_and(|held| SystemTime::now() < held.renew_at),
            trash: false,
        }
    }

    /// Whether the file we hold is still the one under the volume's name.
    fn is_in_place(&self, volume: &Volume) -> bool {
        let named = fs::metadata(volume_path(&self.root, self.id, &volume.name));
        named.is_ok_and(|named| volume.inode().is_ok_and(|held| held == (named.dev(), named.ino())))
    }

    /// Makes a volume, lets it grow to `bytes`, or makes it again when its file is gone.
    pub(crate) fn ensure_volume(&self, name: &str, bytes: u64) -> Result<(), VaultError> {
        check_volume_name(name)?;
        let size = bytes / BLOCK * BLOCK;
        let mut inner = self.inner.lock();
        let known = inner.record.volumes.get(name).copied();
        if known.is_none() && inner.record.volumes.len() >= MAX_VOLUMES {
            return Err(VaultError::TooManyVolumes { consumer: self.id, most: MAX_VOLUMES });
        }
        if known.is_none_or(|known| known < size) {
            inner.record.volumes.insert(name.to_owned(), size);
            inner.record.write(&self.root, self.id)?;
        }
        // Every volume the record names, so that one lost by hand does not keep the tenant out of shape.
        let names: Vec<(String, u64)> =
            inner.record.volumes.iter().map(|(name, size)| (name.clone(), *size)).collect();
        let dir = self.root.join("volumes").join(self.id.to_string());
        fs::create_dir_all(&dir).map_err(failing("creating", &dir))?;
        for (name, size) in names {
            self.place(&mut inner, &name, size)?;
        }
        for dir in [&dir, &self.root.join("volumes")] {
            sync_dir(dir).map_err(failing("syncing", dir))?;
        }
        Ok(())
    }

    fn place(&self, inner: &mut Inner, name: &str, size: u64) -> Result<(), VaultError> {
        let path = volume_path(&self.root, self.id, name);
        if let Some(volume) = inner.volumes.get(name).filter(|volume| !self.is_in_place(volume)) {
            volume.retire();
            inner.volumes.remove(name);
        }
        create_file(&path, size).map_err(failing("making the volume", &path))?;
        match inner.volumes.get(name) {
            Some(volume) => volume.grown().map_err(failing("looking at the volume", &path))?,
            None => {
                let volume = Volume::open(name, &path, Arc::clone(&self.account))?;
                inner.volumes.insert(name.to_owned(), Arc::new(volume));
            }
        }
        Ok(())
    }

    /// Deletes one volume and its data. Sessions on it get an error; the default volume stays.
    pub(crate) fn remove_volume(&self, name: &str) -> Result<(), VaultError> {
        let mut inner = self.inner.lock();
        if name == DEFAULT_VOLUME || !inner.record.volumes.contains_key(name) {
            return Err(VaultError::NoVolume { consumer: self.id, name: name.chars().take(64).collect() });
        }
        inner.record.volumes.remove(name);
        inner.record.write(&self.root, self.id)?;
        if let Some(volume) = inner.volumes.remove(name) {
            volume.retire();
        }
        let path = volume_path(&self.root, self.id, name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(failing("deleting", &path)(error))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn set_limit(&self, bytes: u64) -> Result<(), VaultError> {
        let mut inner = self.inner.lock();
        let before = self.account.balance().limit;
        // In force before it is written: a write accepted under a smaller limit than the record's harms nobody.
        self.account.set_limit(bytes).map_err(|used| VaultError::BelowUse { bytes, used })?;
        let old = inner.record.limit.replace(bytes);
        if let Err(error) = inner.record.write(&self.root, self.id) {
            inner.record.limit = old;
            self.account.restore_limit(before);
            return Err(error);
        }
        Ok(())
    }

    /// Makes a credential if there is none or it is due for renewal.
    pub(crate) fn ensure_credential(&self, issuer: &dyn Issuer) -> Result<(), VaultError> {
        let mut inner = self.inner.lock();
        if inner.record.credential.as_ref().is_some_and(|held| SystemTime::now() < held.renew_at) {
            return Ok(());
        }
        let issued = issuer.issue(&identity_uri(self.id))?;
        let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes());
        let fingerprint = Fingerprint::of(&certificate.map_err(|_| VaultError::Certificate)?);
        inner.record.credential = Some(Credential {
            certificate: issued.certificate,
            key: issued.key,
            authority: issued.authority,
            fingerprint,
            renew_at: issued.renew_at,
        });
        inner.record.write(&self.root, self.id)
    }

    pub(crate) fn credential(&self) -> Option<Credential> {
        self.inner.lock().record.credential.clone()
    }

    pub(super) fn admits(&self, certificate: Fingerprint) -> bool {
        self.inner.lock().record.credential.as_ref().is_some_and(|held| held.fingerprint == certificate)
    }

    /// Refuses the credential from now on and ends every session. Data and books stay.
    pub(crate) fn revoke(&self) -> Result<(), VaultError> {
        let mut inner = self.inner.lock();
        if inner.record.credential.take().is_some() {
            inner.record.write(&self.root, self.id)?;
        }
        // Old sessions keep the old volumes, which answer nothing any more.
        for (name, volume) in std::mem::take(&mut inner.volumes) {
            volume.retire();
            let path = volume_path(&self.root, self.id, &name);
            if path.exists() {
                let next = Volume::open(&name, &path, Arc::clone(&self.account))?;
                inner.volumes.insert(name, Arc::new(next));
            }
        }
        std::mem::take(&mut inner.stop).cancel();
        Ok(())
    }

    /// Ends everything; the data is about to go.
    pub(super) fn retire(&self) {
        let mut inner = self.inner.lock();
        inner.record = Record::default();
        std::mem::take(&mut inner.volumes).into_values().for_each(|volume| volume.retire());
        inner.stop.cancel();
    }

    /// Waits until no session is left.
    pub(crate) async fn sessions_ended(&self) {
        let mut open = self.sessions.subscribe();
        // The sender lives in `self`, so waiting ends by the count only.
        let _ = open.wait_for(|open| *open == 0).await;
    }

    pub(crate) fn open_sessions(&self) -> usize {
        *self.sessions.borrow()
    }

    /// Opens a session if the certificate is good (`None` is for tests without TLS) and there is room for one more.
    pub(crate) fn open_session(
        self: &Arc<Self>,
        certificate: Option<Fingerprint>,
        most: usize,
    ) -> Option<SessionPass> {
        let inner = self.inner.lock();
        let held = inner.record.credential.as_ref();
        if certificate.is_some_and(|shown| held.is_none_or(|held| held.fingerprint != shown))
            || inner.stop.is_cancelled()
        {
            return None;
        }
        let opened = self.sessions.send_if_modified(|open| {
            let room = *open < most;
            *open += usize::from(room);
            room
        });
        opened.then(|| SessionPass { tenant: Arc::clone(self), stop: inner.stop.clone() })
    }

    /// A volume by the name a client gave: nothing of it reaches the file system.
    pub(crate) fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        let prefix = format!("{}/", self.id);
        let name = name.strip_prefix(&prefix).unwrap_or(name);
        let name = if name.is_empty() { DEFAULT_VOLUME } else { name };
        self.inner.lock().volumes.get(name).cloned()
    }

    pub(crate) fn volumes(&self) -> Vec<Arc<Volume>> {
        self.inner.lock().volumes.values().cloned().collect()
    }
}

fn volume_path(root: &Path, id: ConsumerId, name: &str) -> PathBuf {
    root.join("volumes").join(id.to_string()).join(name)
}
