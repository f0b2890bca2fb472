//! How machines become hosts, stay hosts, and leave.
//!
//! ```text
//!   stranger ─ Challenge ─► nonce
//!            ─ Join(key request over the nonce, token | identity | nothing) ─► whose key is it?
//!                 a host's ──────────► its next certificate               (a half-finished join; months away)
//!                 a removed host's ──► refused
//!                 nobody's, and its platform gave the name again ──► the host of that name, with this key
//!                 nobody's ──────────► admitted (`token`, `identity`)? ─► one transaction: host, key, certificate, token used ─► tags
//!   host     ─ Renew(key request) ──► its next certificate, for the key it has or for its next one
//!            ─ Leave ───────────────► what an administrator's removal does
//! ```
//!
//! In: requests for certificates, and what proves that a machine may have one. Out: hosts with certificates. Holds: the key of its
//! nonces, and a turn, so that many machines with one token wait for each other instead of failing.
//!
//! Not here: what is stored of a host (`drivers::hosts`), what a certificate says (`drivers::pki`).

pub mod identity;
mod nonce;
pub mod token;

use std::{sync::Arc, time::Duration};

use drivers::{
    hosts::{self, HostRecord, plan},
    pki::{KeyRequest, Signed},
};
use jiff::Timestamp;
use model::{Admission, Fingerprint, Grant, Host, JoinToken, Joined, Role, Subject, TagName};
use store::{Revision, TransactError, Transaction};
use time::OffsetDateTime;
use tonic::Code;

use self::{
    identity::{Identities, IdentityConfig, Proven},
    nonce::Nonces,
    token::JoinRecord,
};
use super::{
    Caller, CertificateRecord, Credentials, CredentialsError, changes,
    credentials::{certificate_key, json},
};
use crate::{audit, failure::Failure};

/// Tries before other controllers' writes are given way to.
const TRIES: usize = 64;
/// Certificates of one host that are good at once. One that asks for more loses the oldest.
const MAX_CERTIFICATES: usize = 8;

/// Admits machines.
pub struct Admissions {
    pub credentials: Arc<Credentials>,
    pub hosts: Arc<hosts::Hosts>,
    /// How long a host's certificate is good.
    lifetime: Duration,
    /// By whose word machines are admitted that have no token.
    identities: Identities,
    door: Door,
    nonces: Nonces,
    turn: tokio::sync::Mutex<()>,
}

/// Where machines come to join.
pub struct Door {
    /// The fingerprint they know the controller by; none: the listeners speak no TLS.
    pub ca: Box<dyn Fn() -> Option<Fingerprint> + Send + Sync>,
    /// URLs by which the controller's certificate knows it.
    pub servers: Vec<String>,
}

/// What a stranger asks.
pub struct Asked {
    pub request: Vec<u8>,
    /// Empty: the name of the host whose key it is.
    pub name: String,
    pub proof: Proof,
}

/// What proves that a machine may join.
pub enum Proof {
    /// Nothing but its key: it has joined before.
    Key,
    Token(String),
    /// A signed statement of what the machine is, and who issued it.
    Identity {
        provider: String,
        statement: String,
    },
}

impl Proof {
    /// From the text that machines show: a join token, or `IDENTITY:STATEMENT`.
    pub fn parse(text: String) -> Self {
        match text.split_once(':') {
            Some((provider, statement)) => {
                Self::Identity { provider: provider.to_owned(), statement: statement.to_owned() }
            }
            None => Self::Token(text),
        }
    }
}

/// A host with a new certificate.
pub struct Admitted {
    pub record: HostRecord,
    pub certificate: Signed,
    /// What does not stand in the way, but should be looked at.
    pub warnings: Vec<String>,
}

impl Admissions {
    pub fn new(
        credentials: Arc<Credentials>,
        hosts: Arc<hosts::Hosts>,
        lifetime: Duration,
        identities: Vec<IdentityConfig>,
        door: Door,
    ) -> Self {
        Self {
            credentials,
            hosts,
            lifetime,
            identities: Identities::new(identities),
            door,
            nonces: Nonces::new(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Makes a token that lets machines join.
    pub async fn create_token(
        &self,
        uses: u32,
        ttl: Option<Duration>,
        grant: Grant,
        maker: Option<&Caller>,
    ) -> Result<(JoinToken, JoinRecord), Failure> {
        let Some(ca) = (self.door.ca)() else {
            let text = "the controller's listeners speak plaintext, and hosts join over TLS; start it without `plaintext_loopback`";
            return Err(Failure::new(Code::FailedPrecondition, text));
        };
        let (token, record) = self.credentials.create_join_token(uses, ttl, grant, maker, ca).await?;
        audit::changed(token::changed(&token.id, None, Some(&record)));
        Ok((token, record))
    }

    /// URLs by which the controller's certificate knows it.
    pub fn servers(&self) -> &[String] {
        &self.door.servers
    }

    /// How long a host's certificate is good.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// What a machine signs to prove that its key is its own, now.
    pub fn challenge(&self) -> String {
        self.nonces.give(Timestamp::now())
    }

    pub async fn join(&self, asked: Asked) -> Result<Admitted, Failure> {
        let request = KeyRequest::read(&asked.request).map_err(|err| Failure::invalid(&err))?;
        self.nonces.check(&request.signed, Timestamp::now())?;
        if let Some((key, _)) = self.hosts.of_key(&request.fingerprint).await? {
            return self.again(&key, &request, &asked.name).await;
        }
        if let Proof::Key = asked.proof {
            let text = "this machine's key is no host's here: it never joined, or the controller was set up anew; join with a token";
            return Err(Failure::new(Code::Unauthenticated, text));
        }
        // Who proves nothing holds nobody up, nor does who is asked about a statement.
        let proven = self.proven(&asked.proof, &request.signed).await?;
        let grant = &proven.grant;
        let name = Host::parse_name(&asked.name).map_err(|err| Failure::invalid(&err))?;
        if name.as_str().contains('_') {
            // Agents of ExternalNodes write the slash of their names so.
            let text = format!(
                "{name} has an underscore, which names of hosts do not have; give another with --name"
            );
            return Err(Failure::new(Code::InvalidArgument, text));
        }
        check_name(grant, &name)?;
        audit::begin(Some(&subject(&name)))?;
        audit::object(&name);
        let _turn = self.turn.lock().await;
        for _ in 0..TRIES {
            if self.is_replaced(&name, &proven).await? {
                return self.next_certificate(&name, &request, Change::Admitted).await;
            }
            let used = self.used(&asked.proof, &proven, &name).await?;
            self.check_free(&name).await?;
            let (by, grant) = (proven.by.clone(), proven.grant.clone());
            if let Some(admitted) = self.admit(&name, &request, by, grant, used).await? {
                return Ok(admitted);
            }
        }
        Err(busy())
    }

    /// The next certificate of a host that has one, whose serial this is: for its key, or for another one that takes its place.
    pub async fn renew(
        &self,
        name: &TagName,
        serial: Option<&str>,
        request: &[u8],
    ) -> Result<Admitted, Failure> {
        let request = KeyRequest::read(request).map_err(|err| Failure::invalid(&err))?;
        let Some((record, _)) = self.hosts.newest(name).await?.filter(|(record, _)| !record.leaving) else {
            let text = format!(
                "{name} did not join: its certificate was issued by hand, and so is the next (`trestle cert issue {name} --role node`)"
            );
            return Err(Failure::new(Code::FailedPrecondition, text));
        };
        let is_known = record.host.fingerprint == request.fingerprint;
        let change = if is_known { Change::None } else { Change::Proven(serial.unwrap_or_default()) };
        self.next_certificate(name, &request, change).await
    }

    /// The host goes, and cannot come back with its key. It is no error if it is gone.
    pub async fn leave(&self, name: &TagName) -> Result<(), Failure> {
        match self.hosts.remove(name, Timestamp::now().as_second(), forget_certificates).await {
            Ok((_, change)) => audit::changed(change),
            Err(hosts::HostsError::NotFound { .. }) => {}
            Err(err) => return Err(err.into()),
        }
        Ok(())
    }

    /// Whoever has this key has joined before.
    async fn again(
        &self,
        key: &hosts::KeyRecord,
        request: &KeyRequest,
        name: &str,
    ) -> Result<Admitted, Failure> {
        let host = &key.host;
        if let Some(removed) = key.removed {
            let at = Timestamp::from_second(removed).unwrap_or_default();
            let text = format!(
                "this machine has the key of host {host}, which was removed at {at:.0} and does not come back; run `trestle leave` on \
                 it, which deletes the key, and join it anew"
            );
            return Err(Failure::new(Code::PermissionDenied, text));
        }
        if !name.is_empty() && name != host.as_str() {
            let text = format!(
                "this machine has the key of host {host}: if its disk is a copy of that host's, run `trestle leave --local` on it and \
                 join again; if it is {host}, leave the name away, or remove it first (`trestle host remove {host}`)"
            );
            return Err(Failure::new(Code::FailedPrecondition, text));
        }
        if let Some(replaced) = key.replaced {
            let at = Timestamp::from_second(replaced).unwrap_or_default();
            let text = format!(
                "this machine has an earlier key of host {host}, which has had another one since {at:.0}: if its disk is a copy of that \
                 host's, or an old one, run `trestle leave --local` on it and join it anew; if it is {host}, remove that host first \
                 (`trestle host remove {host}`)"
            );
            return Err(Failure::new(Code::PermissionDenied, text));
        }
        audit::begin(Some(&subject(host)))?;
        audit::object(host);
        self.next_certificate(host, request, Change::None).await
    }

    /// What the proof admits to, and under which limits.
    async fn proven(&self, proof: &Proof, nonce: &str) -> Result<Proven, Failure> {
        match proof {
            Proof::Key => Err(Failure::new(
                Code::Unauthenticated,
                "a key alone proves nothing of a machine that is new",
            )),
            Proof::Token(text) => {
                let usable = self.credentials.usable_join_token(&token(text)?, Timestamp::now()).await?;
                Ok(Proven {
                    by: Admission::Token { id: usable.id },
                    grant: usable.grant,
                    once: false,
                    replaces: false,
                })
            }
            Proof::Identity { provider, statement } => {
                let now = Timestamp::now().as_second();
                self.identities.admit(provider, statement, nonce, now).await
            }
        }
    }

    /// What using the proof writes, by what is stored now.
    async fn used(&self, proof: &Proof, proven: &Proven, name: &TagName) -> Result<Transaction, Failure> {
        if let Proof::Token(text) = proof {
            return Ok(self.credentials.usable_join_token(&token(text)?, Timestamp::now()).await?.used);
        }
        if !proven.once {
            return Ok(Transaction::new());
        }
        if let Some(before) = self.hosts.of_identity(&proven.by).await? {
            let text = format!(
                "{} has joined before, as host {}: such a statement can be shown by whoever has seen it, and lets a machine in once. If \
                 this is that machine made anew, remove the host and join with a token (trestle token create --join)",
                proven.by, before.host
            );
            return Err(Failure::new(Code::PermissionDenied, text));
        }
        Ok(plan::once(&proven.by, name))
    }

    /// Whether there is a host of the name whose place this machine takes: its platform gave them the name, one after the other.
    async fn is_replaced(&self, name: &TagName, proven: &Proven) -> Result<bool, Failure> {
        if !proven.replaces {
            return Ok(false);
        }
        let found = self.hosts.newest(name).await?.filter(|(record, _)| !record.leaving);
        Ok(found.is_some_and(|(record, _)| match (&record.host.joined.by, &proven.by) {
            (Admission::Identity { provider: before, .. }, Admission::Identity { provider, .. }) => {
                before == provider
            }
            _ => false,
        }))
    }

    /// No other host has the name, nor a node that did not join. One whose removal was begun is gone first.
    async fn check_free(&self, name: &TagName) -> Result<(), Failure> {
        let Some((record, _)) = self.hosts.newest(name).await? else {
            return self.check_unissued(name).await;
        };
        if record.leaving {
            self.hosts.finish_removal(&record).await?;
            return Ok(());
        }
        let at = Timestamp::from_second(record.host.joined.at).unwrap_or_default();
        let text = format!(
            "there is a host {name} already, with another key; it joined at {at:.0}. Join under another name (--name), or, if this \
             machine takes its place, remove it first: trestle host remove {name}"
        );
        Err(Failure::new(Code::AlreadyExists, text))
    }

    /// No credential of the name was issued by hand: who lets machines join does not make them nodes that are there already.
    async fn check_unissued(&self, name: &TagName) -> Result<(), Failure> {
        let (node, now) = (subject(name), Timestamp::now());
        let mut is_issued = self
            .credentials
            .tokens()
            .iter()
            .any(|(_, token)| token.subject == node && token.expires_at.is_none_or(|end| now < end));
        for (serial, certificate) in self.credentials.certificates() {
            if certificate.subject == node && !certificate.revoked && now < certificate.not_after {
                // That of a host which was just removed may still be in memory.
                is_issued |= self.credentials.is_stored(&serial).await.map_err(hosts::HostsError::Read)?;
            }
        }
        if !is_issued {
            return Ok(());
        }
        let text = format!(
            "{name} is the name of a node whose certificate or token was issued by hand. Join under another name (--name), or, if \
             this machine is that node, revoke what it has first: trestle cert list, trestle token list"
        );
        Err(Failure::new(Code::AlreadyExists, text))
    }

    /// Makes a host of a machine; none if somebody else wrote meanwhile.
    async fn admit(
        &self,
        name: &TagName,
        request: &KeyRequest,
        by: Admission,
        grant: Grant,
        used: Transaction,
    ) -> Result<Option<Admitted>, Failure> {
        let now = Timestamp::now();
        let host = Host {
            name: name.clone(),
            labels: grant.labels,
            tags: grant.tags,
            addresses: Default::default(),
            fingerprint: request.fingerprint.clone(),
            joined: Joined { by, at: now.as_second() },
        };
        let record = HostRecord {
            host,
            certificates: Default::default(),
            newest: None,
            tagged: false,
            leaving: false,
        };
        let (certificate, issued) = self.sign(name, request, now)?;
        let until = certificate.not_after.unix_timestamp();
        let (record, _) = record.with_certificate(certificate.serial.clone(), until, now.as_second());
        let transaction = plan::together(plan::together(plan::admit(&record), issued), used);
        match self.hosts.commit(transaction).await {
            Ok(revision) => self.admitted(None, record, certificate, revision).await.map(Some),
            Err(TransactError::Conflict { .. }) => Ok(None),
            Err(err) => Err(CredentialsError::Write(err).into()),
        }
    }

    async fn next_certificate(
        &self,
        name: &TagName,
        request: &KeyRequest,
        change: Change<'_>,
    ) -> Result<Admitted, Failure> {
        for _ in 0..TRIES {
            let found = self.hosts.newest(name).await?.filter(|(record, _)| !record.leaving);
            let Some((before, at)) = found else {
                let text = format!("host {name} was removed; run `trestle leave` on it, and join it anew");
                return Err(Failure::new(Code::PermissionDenied, text));
            };
            if let Some(serial) = before.certificates.keys().find(|serial| self.is_revoked(serial)) {
                let text = format!(
                    "certificate {serial} of host {name} was revoked, so it gets no other; remove the host and join it anew"
                );
                return Err(Failure::new(Code::PermissionDenied, text));
            }
            let now = Timestamp::now();
            let (certificate, issued) = self.sign(name, request, now)?;
            let until = certificate.not_after.unix_timestamp();
            let (mut record, mut ended) =
                before.clone().with_certificate(certificate.serial.clone(), until, now.as_second());
            ended.extend(record.drop_oldest(MAX_CERTIFICATES));
            let old = before.host.fingerprint.clone();
            let written = if old == request.fingerprint || matches!(change, Change::None) {
                plan::replace(&record, at)
            } else {
                if let Change::Proven(serial) = change {
                    check_newest(&before, serial)?;
                }
                self.check_nobodys(&before, &request.fingerprint).await?;
                record.host.fingerprint = request.fingerprint.clone();
                plan::change_key(&record, at, &old, now.as_second())
            };
            let keys = ended.iter().filter_map(|serial| certificate_key(serial));
            let transaction = keys.fold(plan::together(written, issued), Transaction::delete);
            match self.hosts.commit(transaction).await {
                Ok(revision) => return self.admitted(Some(&before), record, certificate, revision).await,
                Err(TransactError::Conflict { .. }) => {}
                Err(err) => return Err(CredentialsError::Write(err).into()),
            }
        }
        Err(busy())
    }

    /// A key that is or was a host's is no other one's.
    async fn check_nobodys(&self, host: &HostRecord, to: &Fingerprint) -> Result<(), Failure> {
        let name = &host.host.name;
        match self.hosts.of_key(to).await? {
            None => Ok(()),
            Some((key, _)) => {
                let text = format!(
                    "the key that host {name} asks a certificate for is or was that of host {}",
                    key.host
                );
                Err(Failure::new(Code::PermissionDenied, text))
            }
        }
    }

    fn is_revoked(&self, serial: &str) -> bool {
        self.credentials.certificate(serial).is_some_and(|record| record.revoked)
    }

    /// A certificate, and what puts it on record.
    fn sign(
        &self,
        name: &TagName,
        request: &KeyRequest,
        now: Timestamp,
    ) -> Result<(Signed, Transaction), Failure> {
        let start = OffsetDateTime::from_unix_timestamp(now.as_second())
            .expect("the present is a representable time");
        let ttl = time::Duration::try_from(self.lifetime).expect("lives are bounded");
        let subject = subject(name);
        let signed = self
            .credentials
            .pki
            .sign_client(&subject, request, start, ttl)
            .map_err(CredentialsError::Issue)?;
        let time = |time: OffsetDateTime| Timestamp::from_second(time.unix_timestamp()).unwrap_or(now);
        let (not_before, not_after) = (time(signed.not_before), time(signed.not_after));
        let record = CertificateRecord { subject, not_before, not_after, revoked: false, made_with: None };
        let key = certificate_key(&signed.serial).expect("hexadecimal is a legal key");
        Ok((signed, Transaction::new().expect_absent(key.clone()).put(key, json(&record))))
    }

    /// It is a host: what is read from here on shows it, and its tags hold it.
    async fn admitted(
        &self,
        before: Option<&HostRecord>,
        record: HostRecord,
        certificate: Signed,
        revision: Revision,
    ) -> Result<Admitted, Failure> {
        let with_token = before.is_none() && matches!(record.host.joined.by, Admission::Token { .. });
        self.credentials.reach_joined(revision, with_token).await;
        let issued = self.credentials.certificate(&certificate.serial);
        audit::changed(changes::certificate(&certificate.serial, None, issued.as_deref()));
        audit::changed(plan::changed(before, Some(&record)));
        let mut warnings = Vec::new();
        if !record.tagged
            && let Err(err) = self.hosts.join_tags(&record).await
        {
            // The keeper goes on trying.
            warnings.push(common::chain(&err));
        }
        Ok(Admitted { record, certificate, warnings })
    }
}

fn token(text: &str) -> Result<JoinToken, Failure> {
    text.parse().map_err(|err: model::ParseJoinTokenError| Failure::invalid(&err))
}

/// Whether a certificate may be for another key than the one that the host has had.
#[derive(Clone, Copy)]
enum Change<'a> {
    None,
    /// The certificate of this serial proves the host.
    Proven(&'a str),
    /// Its platform says that it is the host.
    Admitted,
}

/// Only the newest certificate of a host gets it another key: who has an earlier one has what a thief or a copy has.
fn check_newest(host: &HostRecord, serial: &str) -> Result<(), Failure> {
    if host.is_newest(serial) {
        return Ok(());
    }
    let text = format!("host {} has another key than the one it asks a certificate for", host.host.name);
    Err(Failure::new(Code::PermissionDenied, text))
}

/// What was issued to a host is on record no longer, and so lets nobody in.
pub fn forget_certificates(record: &HostRecord) -> Transaction {
    let keys = record.certificates.keys().filter_map(|serial| certificate_key(serial));
    keys.fold(Transaction::new(), Transaction::delete)
}

fn check_name(grant: &Grant, name: &TagName) -> Result<(), Failure> {
    if grant.names.matches(name.as_str()) {
        return Ok(());
    }
    let text = format!(
        "what lets this machine join is for hosts named {}, and not for {name}; give one with --name",
        grant.names
    );
    Err(Failure::new(Code::PermissionDenied, text))
}

fn subject(name: &TagName) -> Subject {
    Subject { role: Role::Node, name: name.clone() }
}

fn busy() -> Failure {
    Failure::new(Code::Aborted, "other controllers kept admitting hosts meanwhile; try again")
}
