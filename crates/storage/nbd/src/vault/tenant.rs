//! A tenant: one consumer's account, credential and sessions. Its volumes are in `volumes`.

mod volumes;

use std::{
    collections::BTreeMap,
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
    VaultError,
    files::{Credential, Record},
    marks::{self, Identity},
};
use crate::{
    account::Account,
    allocation::BLOCK,
    identity::{Fingerprint, Issuer, identity_uri},
    talking::Talking,
    volume::Volume,
};

/// The volume every consumer has.
pub(crate) const DEFAULT_VOLUME: &str = "data";

pub(crate) struct Tenant {
    pub(crate) id: ConsumerId,
    pub(crate) account: Arc<Account>,
    pub(crate) talking: Talking,
    root: PathBuf,
    identity: Identity,
    inner: Mutex<Inner>,
    /// How many sessions are open.
    sessions: watch::Sender<usize>,
}

struct Inner {
    record: Record,
    /// Why the record cannot be used; it is empty then.
    trouble: Option<String>,
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
    /// Opens what a record names and what is whole. What is not is left out; observing shows it.
    pub(super) fn open(root: &Path, id: ConsumerId, identity: Identity) -> Self {
        let (record, trouble) = match Record::read(root, id) {
            Ok(record) => (record, None),
            Err(error) => (Record::default(), Some(common::chain(&error))),
        };
        let account = Arc::new(Account::default());
        account.restore_limit(record.limit.unwrap_or(0));
        let inner = Inner { record, trouble, volumes: BTreeMap::new(), stop: CancellationToken::new() };
        let tenant = Self {
            id,
            account,
            talking: Talking::default(),
            root: root.to_owned(),
            identity,
            inner: Mutex::new(inner),
            sessions: watch::Sender::new(0),
        };
        tenant.open_whole(&mut tenant.inner.lock());
        tenant
    }

    pub(super) fn observe(&self) -> Observed {
        let mut inner = self.inner.lock();
        self.close_lost(&mut inner);
        let found = self.look(&inner.record);
        let Inner { record, trouble, volumes, .. } = &*inner;
        let wanted = record.limit.unwrap_or(0) / BLOCK * BLOCK;
        let all_open = record.volumes.keys().all(|name| volumes.contains_key(name));
        let data = volumes.get(DEFAULT_VOLUME);
        Observed {
            found,
            trouble: trouble.clone(),
            storage: Some(ObservedStorage {
                quota: record.limit,
                used: self.account.balance().used,
                in_shape: all_open && data.is_some_and(|volume| volume.size() >= wanted),
            }),
            credentials: record.credential.as_ref().is_some_and(|held| SystemTime::now() < held.renew_at),
            trash: false,
        }
    }

    /// What is there of a consumer of whom there is no record.
    pub(super) fn observe_remains(root: &Path, id: ConsumerId, identity: &Identity) -> Observed {
        let dir = root.join("volumes").join(id.to_string());
        if !dir.exists() {
            return Observed::default();
        }
        let names = marks::names_in(&dir).unwrap_or_default();
        let look = |name: String| {
            let found = marks::look(&volume_path(root, id, &name), id, &name, identity);
            (name, found)
        };
        let found: BTreeMap<_, _> = names.into_iter().map(look).collect();
        Observed {
            trouble: (!found.is_empty()).then(|| format!("the record consumers/{id}.json is missing")),
            found,
            storage: Some(ObservedStorage { quota: None, used: 0, in_shape: false }),
            ..Observed::default()
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
        if bytes < before {
            self.lower_default(&mut inner, bytes)?;
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
        let renewed = inner.record.credential.as_ref().map(|held| held.fingerprint);
        inner.record.credential = Some(Credential {
            certificate: issued.certificate,
            key: issued.key,
            authority: issued.authority,
            fingerprint,
            renewed,
            renew_at: issued.renew_at,
        });
        inner.record.write(&self.root, self.id)
    }

    pub(crate) fn credential(&self) -> Option<Credential> {
        self.inner.lock().record.credential.clone()
    }

    pub(super) fn admits(&self, certificate: Fingerprint) -> bool {
        self.inner.lock().record.credential.as_ref().is_some_and(|held| held.admits(certificate))
    }

    /// Refuses the credential from now on and ends every session. Data and books stay.
    pub(crate) fn revoke(&self) -> Result<(), VaultError> {
        let mut inner = self.inner.lock();
        if inner.record.credential.take().is_some() {
            inner.record.write(&self.root, self.id)?;
        }
        // Old sessions keep the old volumes, which answer nothing any more.
        std::mem::take(&mut inner.volumes).into_values().for_each(|volume| volume.retire());
        self.open_whole(&mut inner);
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
        if certificate.is_some_and(|shown| !held.is_some_and(|held| held.admits(shown)))
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
        let volume = self.inner.lock().volumes.get(name).cloned()?;
        // What is written to a file that has no name any more is lost with the process.
        self.is_in_place(&volume).then_some(volume)
    }

    pub(crate) fn volumes(&self) -> Vec<Arc<Volume>> {
        self.inner.lock().volumes.values().cloned().collect()
    }
}

fn volume_path(root: &Path, id: ConsumerId, name: &str) -> PathBuf {
    root.join("volumes").join(id.to_string()).join(name)
}
