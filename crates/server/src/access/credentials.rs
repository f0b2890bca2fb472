//! Bearer tokens and client certificates: checked here, made in `issue`, kept in the store.
//!
//! A token is `trestle-ID-SECRET`; the store keeps only a hash of the secret. A certificate is checked by TLS;
//! the store knows which were issued, and which are revoked.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use aws_lc_rs::{constant_time, digest};
use drivers::{
    Mirror,
    pki::{Pki, PkiError},
};
use jiff::Timestamp;
use life::Life;
use model::{Role, Secret, Subject};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use store::{Key, Prefix, ReadError, Revision, Store, TransactError, follow::Progress};
use tokio::sync::watch;
use tonic::Code;

use super::{Credential, PeerCertificate, join::token::JoinRecord};
use crate::failure::{Failure, store_failure};

/// Longest life of a token or certificate: ten years, that of the CA.
pub(super) const MAX_TTL: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A token as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenRecord {
    pub subject: Subject,
    /// Hexadecimal SHA-256 of the secret part.
    pub(super) hash: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// It is the session of a browser: good in a cookie, and nowhere else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub session: bool,
    /// What a session was begun with, which it does not outlive: a credential's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// What it was made with, which it may outlive: a credential's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_with: Option<String>,
}

/// A certificate as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CertificateRecord {
    pub subject: Subject,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub revoked: bool,
    /// What it was made with, which it may outlive: a credential's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_with: Option<String>,
}

/// A token that was just made.
pub struct NewToken {
    pub id: String,
    pub record: TokenRecord,
    pub token: Secret,
}

/// Why credentials could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("there is no token {id}")]
    NoToken { id: String },
    #[error("there is no certificate with serial {serial}")]
    NoCertificate { serial: String },
    #[error("the credential that this was asked with was revoked meanwhile, or has expired")]
    Maker,
    #[error(
        "too many login links are open that were made with this credential; use them, or wait until they expire"
    )]
    Logins,
    #[error("a life of {asked:?} is too long; at most {MAX_TTL:?} is allowed")]
    TooLong { asked: Duration },
    #[error(
        "a life until {asked:.0} is longer than that of the credential it is asked with, which ends at {limit:.0}; ask for less, \
         or with another credential"
    )]
    Outlives { asked: Timestamp, limit: Timestamp },
    #[error("cannot issue the certificate")]
    Issue(#[source] PkiError),
    #[error("cannot read credentials from the store")]
    Read(#[source] ReadError),
    #[error("cannot write credentials to the store")]
    Write(#[source] TransactError),
}

impl From<CredentialsError> for Failure {
    fn from(error: CredentialsError) -> Self {
        match &error {
            CredentialsError::NoToken { .. } | CredentialsError::NoCertificate { .. } => {
                Failure::from_error(Code::NotFound, &error)
            }
            CredentialsError::TooLong { .. } | CredentialsError::Outlives { .. } => {
                Failure::from_error(Code::InvalidArgument, &error)
            }
            CredentialsError::Maker => Failure::from_error(Code::Unauthenticated, &error),
            CredentialsError::Logins => Failure::from_error(Code::ResourceExhausted, &error),
            CredentialsError::Issue(_) => Failure::from_error(Code::Internal, &error),
            CredentialsError::Read(err) => store_failure::read(&error, err),
            CredentialsError::Write(err) => store_failure::transact(&error, err),
        }
    }
}

/// Where a certificate stands; none if the text is no serial.
pub fn certificate_key(serial: &str) -> Option<Key> {
    key("certificates", serial)
}

/// The credentials of one controller.
pub struct Credentials {
    store: Store,
    pub(super) pki: Arc<Pki>,
    pub(super) tokens: Arc<Mirror<TokenRecord>>,
    pub(super) certificates: Arc<Mirror<CertificateRecord>>,
    /// What lets machines join.
    pub(super) joins: Arc<Mirror<JoinRecord>>,
    /// Whether a consumer's certificate opens its storage now: those are the storage's to give and to take away.
    consumers: OnceLock<OpensStorage>,
}

/// Whether a certificate is the one its consumer was given for its storage.
pub type OpensStorage = Box<dyn Fn(&PeerCertificate) -> bool + Send + Sync>;

impl Credentials {
    pub fn start(store: Store, pki: Arc<Pki>, life: &Life) -> Self {
        let tokens = Mirror::start(store.clone(), prefix("tokens"), life);
        let certificates = Mirror::start(store.clone(), prefix("certificates"), life);
        let joins = Mirror::start(store.clone(), prefix("joins"), life);
        Self { store, pki, tokens, certificates, joins, consumers: OnceLock::new() }
    }

    /// Takes the certificates that open storage as their consumers' from now on.
    pub fn know_consumers(&self, opens: OpensStorage) {
        // Said once, when the controller is put together.
        let _ = self.consumers.set(opens);
    }

    /// What proves the caller and can be taken away; nothing where the storage says in each call whether it holds.
    pub fn named(&self, certificate: &PeerCertificate) -> Option<Credential> {
        self.certificates
            .get(&certificate.serial)
            .is_some()
            .then(|| Credential::Certificate(certificate.serial.clone()))
    }

    fn opens_storage(&self, certificate: &PeerCertificate) -> bool {
        self.consumers.get().is_some_and(|opens| opens(certificate))
    }

    /// How far what is known of them follows the store.
    pub fn progress(&self) -> [Progress; 3] {
        [self.tokens.progress(), self.certificates.progress(), self.joins.progress()]
    }

    /// Whether the stored credentials are known. Before that nobody is let in.
    pub fn is_synced(&self) -> bool {
        self.tokens.is_synced() && self.certificates.is_synced()
    }

    /// Who a token belongs to, and its id.
    pub fn check_token(&self, token: &Secret, now: Timestamp) -> Result<(Subject, String), Failure> {
        self.check(token, false, now)
    }

    /// Whose session a cookie is, and its id.
    pub fn check_session(&self, cookie: &Secret, now: Timestamp) -> Result<(Subject, String), Failure> {
        self.check(cookie, true, now).map_err(|failure| match failure.code {
            Code::Unauthenticated => Failure::new(failure.code, "the session has ended; log in again"),
            _ => failure,
        })
    }

    fn check(&self, token: &Secret, session: bool, now: Timestamp) -> Result<(Subject, String), Failure> {
        self.require_synced()?;
        let unknown = || Failure::new(Code::Unauthenticated, "the token is not known, or was revoked");
        let rest = token.expose().strip_prefix("trestle-").ok_or_else(unknown)?;
        let (id, secret) = rest.split_once('-').ok_or_else(unknown)?;
        let record = self.tokens.get(id).filter(|record| record.session == session).ok_or_else(unknown)?;
        constant_time::verify_slices_are_equal(hash(secret).as_bytes(), record.hash.as_bytes())
            .map_err(|_| unknown())?;
        if record.expires_at.is_some_and(|end| now >= end) {
            return Err(Failure::new(Code::Unauthenticated, "the token has expired"));
        }
        if !self.has_parent(&record, now) {
            return Err(unknown());
        }
        Ok((record.subject.clone(), id.to_owned()))
    }

    /// Whether what a session was begun with is good still.
    fn has_parent(&self, record: &TokenRecord, now: Timestamp) -> bool {
        let Some(parent) = &record.parent else { return true };
        Credential::parse(parent).is_some_and(|parent| self.is_usable(&parent, now))
    }

    /// Whether a certificate that TLS accepted, perhaps long ago, is one we issued, did not revoke, and which is valid still.
    pub fn check_certificate(&self, certificate: &PeerCertificate, now: Timestamp) -> Result<(), Failure> {
        self.require_synced()?;
        match self.certificates.get(&certificate.serial) {
            Some(record) if record.revoked => {
                Err(Failure::new(Code::Unauthenticated, "the client certificate was revoked"))
            }
            Some(record) if now >= record.not_after => {
                Err(Failure::new(Code::Unauthenticated, "the client certificate has expired"))
            }
            Some(record) if record.subject == certificate.subject => Ok(()),
            None if certificate.subject.role == Role::Consumer && self.consumers.get().is_some() => {
                let text = "the certificate does not open the consumer's storage any more; fetch the new one";
                match self.opens_storage(certificate) {
                    true => Ok(()),
                    false => Err(Failure::new(Code::Unauthenticated, text)),
                }
            }
            _ => Err(Failure::new(
                Code::Unauthenticated,
                "the client certificate is not on record here; if it is a host's, the host was removed",
            )),
        }
    }

    /// Whether a credential that was good is so still: on record, not revoked, not expired.
    pub fn is_usable(&self, credential: &Credential, now: Timestamp) -> bool {
        match credential {
            Credential::Token(id) => self.tokens.get(id).is_some_and(|record| {
                record.expires_at.is_none_or(|end| now < end) && self.has_parent(&record, now)
            }),
            Credential::Certificate(serial) => {
                self.certificates.get(serial).is_some_and(|record| !record.revoked && now < record.not_after)
            }
        }
    }

    /// When a credential ends by itself, if it does.
    pub fn end_of(&self, credential: &Credential) -> Option<Timestamp> {
        match credential {
            Credential::Token(id) => self.tokens.get(id)?.expires_at,
            Credential::Certificate(serial) => Some(self.certificates.get(serial)?.not_after),
        }
    }

    /// What a credential goes back to: for a session what it was begun with, else itself.
    pub fn root(&self, credential: &Credential) -> Credential {
        let parent = match credential {
            Credential::Token(id) => self.tokens.get(id).and_then(|record| record.parent.clone()),
            Credential::Certificate(_) => None,
        };
        parent.and_then(|parent| Credential::parse(&parent)).unwrap_or_else(|| credential.clone())
    }

    /// Change whenever a token or a certificate is made or revoked.
    pub fn changes(&self) -> [watch::Receiver<Option<Revision>>; 2] {
        [self.tokens.changes(), self.certificates.changes()]
    }

    fn require_synced(&self) -> Result<(), Failure> {
        if self.is_synced() {
            return Ok(());
        }
        Err(Failure::new(
            Code::Unavailable,
            "the controller has not yet read who may call; try again in a second",
        ))
    }

    pub fn tokens(&self) -> Vec<(String, Arc<TokenRecord>)> {
        self.tokens.list()
    }

    pub fn token(&self, id: &str) -> Option<Arc<TokenRecord>> {
        self.tokens.get(id)
    }

    pub fn certificate(&self, serial: &str) -> Option<Arc<CertificateRecord>> {
        self.certificates.get(serial)
    }

    pub fn certificates(&self) -> Vec<(String, Arc<CertificateRecord>)> {
        self.certificates.list()
    }

    /// Whether a certificate is on record in the store, whatever is remembered of it.
    pub(super) async fn is_stored(&self, serial: &str) -> Result<bool, store::ReadError> {
        match certificate_key(serial) {
            Some(key) => Ok(self.store.get(&key).await?.is_some()),
            None => Ok(false),
        }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        key: &Key,
    ) -> Result<Option<(T, store::Revision)>, CredentialsError> {
        let Some(entry) = self.store.get(key).await.map_err(CredentialsError::Read)? else { return Ok(None) };
        match serde_json::from_slice(&entry.value) {
            Ok(value) => Ok(Some((value, entry.modified))),
            Err(err) => {
                Err(CredentialsError::Read(ReadError::Parse { key: key.clone(), source: Arc::new(err) }))
            }
        }
    }
}

pub(super) fn prefix(kind: &str) -> Prefix {
    Prefix::below(&format!("access/{kind}")).expect("a fixed path is a legal prefix")
}

/// The key of an id given by a caller; none if it cannot be an id.
pub(super) fn key(kind: &str, id: &str) -> Option<Key> {
    prefix(kind).key(id).ok()
}

pub(super) fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("records have no maps with odd keys")
}

pub(super) fn hash(secret: &str) -> String {
    common::hex(digest::digest(&digest::SHA256, secret.as_bytes()).as_ref())
}
