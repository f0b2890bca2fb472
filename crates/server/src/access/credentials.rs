//! Bearer tokens and client certificates: made here, checked here, kept in the store.
//!
//! A token is `trestle-ID-SECRET`; the store keeps only a hash of the secret. A certificate is checked by TLS;
//! the store knows which were issued, and which are revoked.

use std::{sync::Arc, time::Duration};

use aws_lc_rs::{constant_time, digest};
use drivers::{
    Mirror,
    pki::{Issued, Pki, PkiError, hex},
    random,
};
use jiff::{SignedDuration, Timestamp};
use life::Life;
use model::{Secret, Subject};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use store::{Key, Prefix, ReadError, Revision, Store, TransactError, Transaction, follow::Progress};
use time::OffsetDateTime;
use tokio::sync::watch;
use tonic::Code;

use super::{Credential, PeerCertificate, session::SESSION};
use crate::failure::{Failure, store_failure};

/// How long a certificate is valid unless asked otherwise.
const CERTIFICATE_TTL: Duration = Duration::from_secs(365 * 24 * 3600);
/// Longest life of a token or certificate: ten years, that of the CA.
const MAX_TTL: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A token as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenRecord {
    pub subject: Subject,
    /// Hexadecimal SHA-256 of the secret part.
    hash: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// It is the session of a browser: good in a cookie, and nowhere else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub session: bool,
}

/// A certificate as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CertificateRecord {
    pub subject: Subject,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub revoked: bool,
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
    #[error("a life of {asked:?} is too long; at most {MAX_TTL:?} is allowed")]
    TooLong { asked: Duration },
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
            CredentialsError::TooLong { .. } => Failure::from_error(Code::InvalidArgument, &error),
            CredentialsError::Issue(_) => Failure::from_error(Code::Internal, &error),
            CredentialsError::Read(err) => store_failure::read(&error, err),
            CredentialsError::Write(err) => store_failure::transact(&error, err),
        }
    }
}

/// The credentials of one controller.
pub struct Credentials {
    store: Store,
    pki: Arc<Pki>,
    tokens: Arc<Mirror<TokenRecord>>,
    certificates: Arc<Mirror<CertificateRecord>>,
}

impl Credentials {
    pub fn start(store: Store, pki: Arc<Pki>, life: &Life) -> Self {
        let tokens = Mirror::start(store.clone(), prefix("tokens"), life);
        let certificates = Mirror::start(store.clone(), prefix("certificates"), life);
        Self { store, pki, tokens, certificates }
    }

    /// Whether the stored credentials are known. Before that nobody is let in.
    /// How far what is known of them follows the store.
    pub fn progress(&self) -> [Progress; 2] {
        [self.tokens.progress(), self.certificates.progress()]
    }

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
        Ok((record.subject.clone(), id.to_owned()))
    }

    /// Whether a certificate that TLS accepted is also one we issued and did not revoke.
    pub fn check_certificate(&self, certificate: &PeerCertificate) -> Result<(), Failure> {
        self.require_synced()?;
        match self.certificates.get(&certificate.serial) {
            Some(record) if record.revoked => {
                Err(Failure::new(Code::Unauthenticated, "the client certificate was revoked"))
            }
            Some(record) if record.subject == certificate.subject => Ok(()),
            _ => Err(Failure::new(Code::Unauthenticated, "the client certificate is not on record here")),
        }
    }

    /// Whether a credential that was good is so still: on record, not revoked, not expired.
    pub fn is_usable(&self, credential: &Credential, now: Timestamp) -> bool {
        match credential {
            Credential::Token(id) => {
                self.tokens.get(id).is_some_and(|record| record.expires_at.is_none_or(|end| now < end))
            }
            Credential::Certificate(serial) => {
                self.certificates.get(serial).is_some_and(|record| !record.revoked && now < record.not_after)
            }
        }
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

    pub async fn create_token(
        &self,
        subject: Subject,
        ttl: Option<Duration>,
    ) -> Result<NewToken, CredentialsError> {
        self.create(subject, ttl, false, Transaction::new()).await
    }

    /// Begins a session; those that have expired are forgotten.
    pub async fn create_session(&self, subject: Subject) -> Result<NewToken, CredentialsError> {
        let now = Timestamp::now();
        let ended = |record: &TokenRecord| record.session && record.expires_at.is_some_and(|end| end <= now);
        let tokens = self.tokens.list().into_iter().filter(|(_, record)| ended(record));
        let keys = tokens.filter_map(|(id, _)| key("tokens", &id));
        let transaction = keys.fold(Transaction::new(), Transaction::delete);
        self.create(subject, Some(SESSION), true, transaction).await
    }

    async fn create(
        &self,
        subject: Subject,
        ttl: Option<Duration>,
        session: bool,
        transaction: Transaction,
    ) -> Result<NewToken, CredentialsError> {
        let (id, secret) = (hex(&random::bytes::<8>()), hex(&random::bytes::<32>()));
        let created_at = Timestamp::now();
        let expires_at = ttl.map(|ttl| after(created_at, ttl)).transpose()?;
        let record = TokenRecord { subject, hash: hash(&secret), created_at, expires_at, session };
        let key = key("tokens", &id).expect("hexadecimal is a legal key");
        let transaction = transaction.expect_absent(key.clone()).put(key, json(&record));
        let committed = self.store.transact(transaction).await.map_err(CredentialsError::Write)?;
        self.tokens.reach(committed.revision).await;
        Ok(NewToken { token: Secret::new(format!("trestle-{id}-{secret}")), id, record })
    }

    pub async fn revoke_token(&self, id: &str) -> Result<(), CredentialsError> {
        let missing = || CredentialsError::NoToken { id: id.to_owned() };
        let key = key("tokens", id).ok_or_else(missing)?;
        let transaction = Transaction::new().expect_present(key.clone()).delete(key);
        let committed = match self.store.transact(transaction).await {
            Ok(committed) => committed,
            Err(TransactError::Conflict { .. }) => return Err(missing()),
            Err(err) => return Err(CredentialsError::Write(err)),
        };
        self.tokens.reach(committed.revision).await;
        Ok(())
    }

    pub async fn issue_certificate(
        &self,
        subject: Subject,
        ttl: Option<Duration>,
    ) -> Result<(Issued, CertificateRecord), CredentialsError> {
        let (now, ttl) = (Timestamp::now(), ttl.unwrap_or(CERTIFICATE_TTL));
        let not_after = after(now, ttl)?;
        let start = OffsetDateTime::from_unix_timestamp(now.as_second())
            .expect("the present is a representable time");
        let length = time::Duration::try_from(ttl).expect("lives are bounded");
        let issued = self.pki.issue_client(&subject, start, length).map_err(CredentialsError::Issue)?;
        let not_before = Timestamp::from_second(issued.not_before.unix_timestamp()).unwrap_or(now);
        let record = CertificateRecord { subject, not_before, not_after, revoked: false };
        let key = key("certificates", &issued.serial).expect("hexadecimal is a legal key");
        let transaction = Transaction::new().expect_absent(key.clone()).put(key, json(&record));
        let committed = self.store.transact(transaction).await.map_err(CredentialsError::Write)?;
        self.certificates.reach(committed.revision).await;
        Ok((issued, record))
    }

    pub async fn revoke_certificate(&self, serial: &str) -> Result<(), CredentialsError> {
        let missing = || CredentialsError::NoCertificate { serial: serial.to_owned() };
        let key = key("certificates", serial).ok_or_else(missing)?;
        loop {
            let Some((mut record, at)) = self.read::<CertificateRecord>(&key).await? else {
                return Err(missing());
            };
            record.revoked = true;
            let transaction =
                Transaction::new().expect_modified_at(key.clone(), at).put(key.clone(), json(&record));
            match self.store.transact(transaction).await {
                Ok(committed) => {
                    self.certificates.reach(committed.revision).await;
                    return Ok(());
                }
                Err(TransactError::Conflict { .. }) => {}
                Err(err) => return Err(CredentialsError::Write(err)),
            }
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
    hex(digest::digest(&digest::SHA256, secret.as_bytes()).as_ref())
}

pub(super) fn after(start: Timestamp, ttl: Duration) -> Result<Timestamp, CredentialsError> {
    let too_long = || CredentialsError::TooLong { asked: ttl };
    if ttl > MAX_TTL {
        return Err(too_long());
    }
    let ttl = SignedDuration::try_from(ttl).map_err(|_| too_long())?;
    start.checked_add(ttl).map_err(|_| too_long())
}
