//! Makes tokens, sessions and certificates, and revokes them.

use std::time::Duration;

use drivers::{pki::Issued, random};
use jiff::{SignedDuration, Timestamp};
use model::{Role, Secret, Subject};
use store::{Committed, Key, TransactError, Transaction};
use time::OffsetDateTime;

use super::{
    Credential,
    credentials::{
        CertificateRecord, Credentials, CredentialsError, MAX_TTL, NewToken, TokenRecord, hash, json, key,
    },
    session::{MAX_SESSIONS, SESSION},
};

/// How long a certificate is valid unless asked otherwise.
const CERTIFICATE_TTL: Duration = Duration::from_secs(365 * 24 * 3600);

impl Credentials {
    /// Until when those may be good that are made with the credential `maker`. People's credentials make none that outlive
    /// them; machines are furnished with theirs by whoever is there, for as long as the machine lasts.
    fn limit(&self, maker: Option<&Credential>, made: Role) -> Option<Timestamp> {
        match made {
            Role::Admin | Role::Operator | Role::Viewer => {
                let (root, now) = (self.root(maker?), Timestamp::now());
                // Revoked since the call was let in: what it makes is not good for a moment.
                if self.is_usable(&root, now) { self.end_of(&root) } else { Some(now) }
            }
            Role::Node | Role::Plugin | Role::Consumer => None,
        }
    }

    /// Makes a token with the credential `maker`.
    pub async fn create_token(
        &self,
        subject: Subject,
        ttl: Option<Duration>,
        maker: Option<&Credential>,
    ) -> Result<NewToken, CredentialsError> {
        let asked = ttl.map(|ttl| after(Timestamp::now(), ttl)).transpose()?;
        let expires_at = within(asked, self.limit(maker, subject.role))?;
        let maker = maker.map(|maker| self.root(maker));
        let made_with = maker.as_ref().map(ToString::to_string);
        let (created_at, session, parent) = (Timestamp::now(), false, None);
        self.create(maker.as_ref(), |hash| TokenRecord {
            subject,
            hash,
            created_at,
            expires_at,
            session,
            parent,
            made_with,
        })
        .await
    }

    /// Begins a session, which lasts no longer than what it was begun with.
    pub async fn create_session(
        &self,
        subject: Subject,
        parent: Option<&Credential>,
    ) -> Result<NewToken, CredentialsError> {
        let parent = parent.map(|parent| self.root(parent));
        let end = after(Timestamp::now(), SESSION)?;
        let end = parent.as_ref().and_then(|parent| self.end_of(parent)).map_or(end, |limit| limit.min(end));
        let begun_with = parent.as_ref().map(ToString::to_string);
        let (created_at, expires_at, session, made_with) = (Timestamp::now(), Some(end), true, None);
        let made = self.create(parent.as_ref(), |hash| TokenRecord {
            subject,
            hash,
            created_at,
            expires_at,
            session,
            parent: begun_with,
            made_with,
        });
        let made = made.await?;
        self.end_oldest_sessions(&made.record).await?;
        Ok(made)
    }

    /// Ends sessions that were begun with the same as this one, if there are too many.
    async fn end_oldest_sessions(&self, newest: &TokenRecord) -> Result<(), CredentialsError> {
        if newest.parent.is_none() {
            return Ok(());
        }
        let mut sessions = self.tokens();
        sessions.retain(|(_, record)| record.session && record.parent == newest.parent);
        sessions.sort_by_key(|(_, record)| record.created_at);
        let too_many = sessions.len().saturating_sub(MAX_SESSIONS);
        for (id, _) in &sessions[..too_many] {
            match self.revoke_token(id).await {
                // It has ended by itself meanwhile.
                Ok(()) | Err(CredentialsError::NoToken { .. }) => {}
                Err(err) => return Err(err),
            }
        }
        Ok(())
    }

    /// Stores a token, if what it is made with is good still when it is stored.
    async fn create(
        &self,
        maker: Option<&Credential>,
        record: impl FnOnce(String) -> TokenRecord,
    ) -> Result<NewToken, CredentialsError> {
        let (id, secret) = (common::hex(&random::bytes::<8>()), common::hex(&random::bytes::<32>()));
        let record = record(hash(&secret));
        let key = key("tokens", &id).expect("hexadecimal is a legal key");
        let committed = self.make(maker, key, json(&record)).await?;
        self.tokens.reach(committed.revision).await;
        Ok(NewToken { token: Secret::new(format!("trestle-{id}-{secret}")), id, record })
    }

    /// Stores a new credential, if what it is made with is good still when it is stored: once a credential is revoked, nothing
    /// more is made with it at any controller.
    pub(super) async fn make(
        &self,
        maker: Option<&Credential>,
        key: Key,
        record: Vec<u8>,
    ) -> Result<Committed, CredentialsError> {
        let guarded = match maker {
            Some(maker) => self.guarded_by(maker).await?,
            None => Transaction::new(),
        };
        let made = self.store().transact(guarded.expect_absent(key.clone()).put(key, record)).await;
        made.map_err(|err| match err {
            TransactError::Conflict { .. } if maker.is_some() => CredentialsError::Maker,
            err => CredentialsError::Write(err),
        })
    }

    /// A transaction that is only carried out while a credential is good.
    async fn guarded_by(&self, maker: &Credential) -> Result<Transaction, CredentialsError> {
        let now = Timestamp::now();
        let (key, at) = match maker {
            Credential::Token(id) => {
                let key = key("tokens", id).ok_or(CredentialsError::Maker)?;
                let found = self.read::<TokenRecord>(&key).await?;
                let is_good = |record: &TokenRecord| record.expires_at.is_none_or(|end| now < end);
                (key, found.filter(|(record, _)| is_good(record)).map(|(_, at)| at))
            }
            Credential::Certificate(serial) => {
                let key = key("certificates", serial).ok_or(CredentialsError::Maker)?;
                let found = self.read::<CertificateRecord>(&key).await?;
                let is_good = |record: &CertificateRecord| !record.revoked && now < record.not_after;
                (key, found.filter(|(record, _)| is_good(record)).map(|(_, at)| at))
            }
        };
        Ok(Transaction::new().expect_modified_at(key, at.ok_or(CredentialsError::Maker)?))
    }

    pub async fn revoke_token(&self, id: &str) -> Result<(), CredentialsError> {
        let missing = || CredentialsError::NoToken { id: id.to_owned() };
        let key = key("tokens", id).ok_or_else(missing)?;
        let transaction = Transaction::new().expect_present(key.clone()).delete(key);
        let committed = match self.store().transact(transaction).await {
            Ok(committed) => committed,
            // The id of a token that lets machines join, then.
            Err(TransactError::Conflict { .. }) => {
                return if self.revoke_join_token(id).await? { Ok(()) } else { Err(missing()) };
            }
            Err(err) => return Err(CredentialsError::Write(err)),
        };
        self.tokens.reach(committed.revision).await;
        Ok(())
    }

    /// Issues a certificate with the credential `maker`.
    pub async fn issue_certificate(
        &self,
        subject: Subject,
        ttl: Option<Duration>,
        maker: Option<&Credential>,
    ) -> Result<(Issued, CertificateRecord), CredentialsError> {
        let now = Timestamp::now();
        let limit = self.limit(maker, subject.role);
        let usual = after(now, CERTIFICATE_TTL)?;
        let not_after = match ttl {
            Some(ttl) => within(Some(after(now, ttl)?), limit)?.unwrap_or(usual),
            None => limit.map_or(usual, |limit| limit.min(usual)),
        };
        let ttl = Duration::try_from(not_after.duration_since(now)).unwrap_or_default();
        let start = OffsetDateTime::from_unix_timestamp(now.as_second())
            .expect("the present is a representable time");
        let length = time::Duration::try_from(ttl).expect("lives are bounded");
        let issued = self.pki.issue_client(&subject, start, length).map_err(CredentialsError::Issue)?;
        let not_before = Timestamp::from_second(issued.not_before.unix_timestamp()).unwrap_or(now);
        let maker = maker.map(|maker| self.root(maker));
        let made_with = maker.as_ref().map(ToString::to_string);
        let record = CertificateRecord { subject, not_before, not_after, revoked: false, made_with };
        let key = key("certificates", &issued.serial).expect("hexadecimal is a legal key");
        let committed = self.make(maker.as_ref(), key, json(&record)).await?;
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
            match self.store().transact(transaction).await {
                Ok(committed) => {
                    self.certificates.reach(committed.revision).await;
                    return Ok(());
                }
                Err(TransactError::Conflict { .. }) => {}
                Err(err) => return Err(CredentialsError::Write(err)),
            }
        }
    }
}

/// The end that was asked for, if it is within the limit; the limit, if none was.
fn within(asked: Option<Timestamp>, limit: Option<Timestamp>) -> Result<Option<Timestamp>, CredentialsError> {
    match (asked, limit) {
        (Some(asked), Some(limit)) if asked > limit => Err(CredentialsError::Outlives { asked, limit }),
        (asked, limit) => Ok(asked.or(limit)),
    }
}

pub(super) fn after(start: Timestamp, ttl: Duration) -> Result<Timestamp, CredentialsError> {
    let too_long = || CredentialsError::TooLong { asked: ttl };
    if ttl > MAX_TTL {
        return Err(too_long());
    }
    let ttl = SignedDuration::try_from(ttl).map_err(|_| too_long())?;
    start.checked_add(ttl).map_err(|_| too_long())
}
