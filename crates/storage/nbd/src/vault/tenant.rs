//! A tenant: one consumer's account, credential and sessions. Its volumes are in `volumes`, what is done to them in
//! `changes`.

mod changes;
mod volumes;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::{SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use storage_provider::{ConsumerId, DEFAULT_VOLUME, Observed, ObservedStorage, is_volume_name};
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
    keys::Keyring,
    pace::Pace,
    talking::Talking,
    volume::{Layer, Volume},
};

pub(crate) struct Tenant {
    pub(crate) id: ConsumerId,
    pub(crate) account: Arc<Account>,
    pub(crate) talking: Talking,
    pub(crate) pace: Arc<Pace>,
    root: PathBuf,
    identity: Identity,
    keys: Keyring,
    inner: Mutex<Inner>,
    /// How many sessions are open.
    sessions: watch::Sender<usize>,
    /// Somebody merges files of it.
    merging: AtomicBool,
}

struct Inner {
    record: Record,
    /// Why the record cannot be used; it is empty then.
    trouble: Option<String>,
    volumes: BTreeMap<String, Arc<Volume>>,
    /// The files they are made of, by name.
    layers: BTreeMap<String, Arc<Layer>>,
    /// Cancelled, and replaced, to end all sessions.
    stop: CancellationToken,
}

/// What a client may do with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Write,
    Read,
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
    if is_volume_name(name) && !name.contains('@') {
        return Ok(());
    }
    Err(VaultError::VolumeName { name: name.chars().take(64).collect() })
}

impl Tenant {
    /// Opens what a record names and what is whole. What is not is left out; observing shows it.
    pub(super) fn open(root: &Path, id: ConsumerId, identity: Identity, keys: Keyring) -> Self {
        let (record, trouble) = match Record::read(root, id) {
            Ok(record) => (record, None),
            Err(error) => (Record::default(), Some(common::chain(&error))),
        };
        let account = Arc::new(Account::default());
        account.restore_limit(record.limit.unwrap_or(0));
        let (volumes, layers) = (BTreeMap::new(), BTreeMap::new());
        let inner = Inner { record, trouble, volumes, layers, stop: CancellationToken::new() };
        let tenant = Self {
            id,
            account,
            talking: Talking::default(),
            pace: Arc::default(),
            root: root.to_owned(),
            identity,
            keys,
            inner: Mutex::new(inner),
            sessions: watch::Sender::new(0),
            merging: AtomicBool::new(false),
        };
        tenant.open_whole(&mut tenant.inner.lock());
        tenant
    }

    /// Closes volumes, all of them or those `which` names. They stay where they are.
    fn close(&self, inner: &mut Inner, which: impl Fn(&str) -> bool) {
        inner.volumes.retain(|name, volume| {
            let closes = which(name);
            if closes {
                volume.retire();
            }
            !closes
        });
        self.forget_layers(inner);
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
            gone: record.gone.iter().copied().collect(),
            untidy: trouble.is_none() && self.is_untidy(record),
            trouble: trouble.clone(),
            rates: Some(self.pace.rates()),
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
        self.close(&mut inner, |_| true);
        self.open_whole(&mut inner);
        std::mem::take(&mut inner.stop).cancel();
        Ok(())
    }

    /// Ends everything; the data is about to go.
    pub(super) fn retire(&self) {
        let mut inner = self.inner.lock();
        inner.record = Record::default();
        self.close(&mut inner, |_| true);
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

    /// A volume by the name a client gave, and whether that client may write to it: nothing of the name reaches the file
    /// system. `VOLUME:EPOCH` is for the writer of that epoch, as long as it is the present one, `VOLUME:read` for reading.
    pub(crate) fn export(&self, name: &str) -> Option<(Arc<Volume>, Share)> {
        let prefix = format!("{}/", self.id);
        let name = name.strip_prefix(&prefix).unwrap_or(name);
        let (name, share) = match name.split_once(':') {
            Some((name, share)) => (name, Some(share)),
            None => (name, None),
        };
        let name = if name.is_empty() { DEFAULT_VOLUME } else { name };
        let inner = self.inner.lock();
        let volume = inner.volumes.get(name).cloned()?;
        let entry = inner.record.volumes.get(name)?;
        let share = match share {
            Some("read") => Share::Read,
            // Written as it was given, so that one epoch has one name.
            Some(epoch) if entry.writer.is_some() && entry.epoch.to_string() == epoch => Share::Write,
            Some(_) => return None,
            None if entry.writer.is_some() || volume.read_only => Share::Read,
            None => Share::Write,
        };
        // What is written to a file that has no name any more is lost with the process.
        (inner.record.is_shown(name) && volume.is_in_place(&self.dir())).then_some((volume, share))
    }

    /// The same, whoever writes to it.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.export(name).map(|(volume, _)| volume)
    }

    /// Every volume that is open, those that were deleted and are kept included.
    pub(crate) fn volumes(&self) -> Vec<Arc<Volume>> {
        self.inner.lock().volumes.values().cloned().collect()
    }

    /// The volumes and snapshots that clients can open.
    pub(crate) fn exports(&self) -> Vec<String> {
        let inner = self.inner.lock();
        inner.volumes.keys().filter(|name| inner.record.is_shown(name)).cloned().collect()
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn volume_path(root: &Path, id: ConsumerId, name: &str) -> PathBuf {
    root.join("volumes").join(id.to_string()).join(name)
}
