//! Join tokens: made by administrators, used up by machines.
//!
//! A token is a key of the store with the hash of its secret. Its uses are counted in the transaction that admits a host, so that any
//! number of machines at any number of controllers get exactly as many places as it has.

use std::time::Duration;

use aws_lc_rs::constant_time;
use drivers::random;
use jiff::Timestamp;
use model::{Fingerprint, Grant, JoinToken, Secret, Subject, change::Change};
use serde::{Deserialize, Serialize};
use store::{Revision, TransactError, Transaction};
use tonic::Code;

use super::super::{
    Caller,
    credentials::{Credentials, CredentialsError, hash, json, key},
    issue::after,
};
use crate::failure::Failure;

/// How long a token can be used unless asked otherwise.
const USUAL: Duration = Duration::from_secs(3600);
/// Uses of one token.
const MAX_USES: u32 = 100_000;

/// A join token as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinRecord {
    /// Hexadecimal SHA-256 of the secret part.
    hash: String,
    pub created_at: Timestamp,
    pub created_by: Option<Subject>,
    /// What it was made with: a credential's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_with: Option<String>,
    pub expires_at: Timestamp,
    pub uses: u32,
    pub used: u32,
    pub grant: Grant,
}

impl JoinRecord {
    pub fn left(&self) -> u32 {
        self.uses.saturating_sub(self.used)
    }

    fn is_good(&self, now: Timestamp) -> bool {
        now < self.expires_at && self.left() > 0
    }
}

/// What a machine is admitted with, and what using it costs.
pub struct Usable {
    pub id: String,
    pub grant: Grant,
    /// Goes into the transaction that admits the machine.
    pub used: Transaction,
}

impl Credentials {
    pub async fn create_join_token(
        &self,
        uses: u32,
        ttl: Option<Duration>,
        grant: Grant,
        maker: Option<&Caller>,
        ca: Fingerprint,
    ) -> Result<(JoinToken, JoinRecord), Failure> {
        let uses = if uses == 0 { 1 } else { uses };
        if uses > MAX_USES {
            let text = format!("a token for {uses} hosts is too much; at most {MAX_USES} are allowed");
            return Err(Failure::new(Code::InvalidArgument, text));
        }
        let (id, secret) = (common::hex(&random::bytes::<8>()), common::hex(&random::bytes::<16>()));
        let created_at = Timestamp::now();
        let expires_at = after(created_at, ttl.unwrap_or(USUAL))?;
        let created_by = maker.map(|maker| maker.subject.clone());
        let maker = maker.and_then(|maker| maker.credential.as_ref()).map(|maker| self.root(maker));
        let made_with = maker.as_ref().map(ToString::to_string);
        let hash = hash(&secret);
        let record = JoinRecord { hash, created_at, created_by, made_with, expires_at, uses, used: 0, grant };
        let key = key("joins", &id).expect("hexadecimal is a legal key");
        let committed = self.make(maker.as_ref(), key, json(&record)).await?;
        self.joins.reach(committed.revision).await;
        Ok((JoinToken { id, secret: Secret::new(secret), ca }, record))
    }

    /// A token that lets one more machine in. Whoever does not know the secret of one hears the same, whether there is one or not.
    pub async fn usable_join_token(&self, token: &JoinToken, now: Timestamp) -> Result<Usable, Failure> {
        let unknown = || {
            let text =
                "the join token is not known, or was revoked; make one with `trestle token create --join`";
            Failure::new(Code::Unauthenticated, text)
        };
        let key = key("joins", &token.id).ok_or_else(unknown)?;
        let found = self.read::<JoinRecord>(&key).await?;
        let shown = hash(token.secret.expose());
        let kept = found.as_ref().map_or("", |(record, _)| record.hash.as_str());
        let is_right = constant_time::verify_slices_are_equal(shown.as_bytes(), kept.as_bytes()).is_ok();
        let Some((record, at)) = found.filter(|_| is_right) else { return Err(unknown()) };
        if now >= record.expires_at {
            let text = format!(
                "the join token has expired at {:.0}; make another with `trestle token create --join`",
                record.expires_at
            );
            return Err(Failure::new(Code::Unauthenticated, text));
        }
        if record.left() == 0 {
            let text = format!(
                "the join token has let in the {} hosts it was made for; make another with `trestle token create --join`",
                record.uses
            );
            return Err(Failure::new(Code::ResourceExhausted, text));
        }
        let used = JoinRecord { used: record.used + 1, ..record.clone() };
        let used = Transaction::new().expect_modified_at(key.clone(), at).put(key, json(&used));
        Ok(Usable { id: token.id.clone(), grant: record.grant, used })
    }

    /// Revokes a join token; what it was, or none if there is none.
    pub(in crate::access) async fn revoke_join_token(&self, id: &str) -> Result<bool, CredentialsError> {
        let Some(key) = key("joins", id) else { return Ok(false) };
        match self.store().transact(Transaction::new().expect_present(key.clone()).delete(key)).await {
            Ok(committed) => {
                self.joins.reach(committed.revision).await;
                Ok(true)
            }
            Err(TransactError::Conflict { .. }) => Ok(false),
            Err(err) => Err(CredentialsError::Write(err)),
        }
    }

    /// All join tokens, by id.
    pub fn join_tokens(&self) -> Vec<(String, std::sync::Arc<JoinRecord>)> {
        self.joins.list()
    }

    pub fn join_token(&self, id: &str) -> Option<std::sync::Arc<JoinRecord>> {
        self.joins.get(id)
    }

    /// Says how a host that was removed could join anew, if the token it joined with lets more in.
    pub fn way_back(&self, by: &model::Admission) -> String {
        let model::Admission::Token { id } = by else {
            return format!(
                "It joined as {by}, and joins anew by that with another key for as long as a rule of hosts.identities admits it"
            );
        };
        let Some(token) = self.joins.get(id).filter(|token| token.is_good(Timestamp::now())) else {
            return String::new();
        };
        let (left, end) = (token.left(), token.expires_at);
        format!(
            "The token it joined with lets in {left} more until {end:.0}. If the host, or whoever has the token, shall not use it: \
             trestle token revoke {id}"
        )
    }

    /// Waits until the certificate of a transaction is known here, and the token's use if it has one.
    pub(super) async fn reach_joined(&self, revision: Revision, with_token: bool) {
        self.certificates.reach(revision).await;
        if with_token {
            self.joins.reach(revision).await;
        }
    }
}

/// For the record; of the secret not even the hash is in it.
pub fn changed(id: &str, before: Option<&JoinRecord>, after: Option<&JoinRecord>) -> Change {
    let shown = |record: &JoinRecord| {
        let mut shown = serde_json::to_value(record).unwrap_or_default();
        if let serde_json::Value::Object(fields) = &mut shown {
            fields.remove("hash");
        }
        shown
    };
    Change::between(format!("join token {id}"), before.map(shown).as_ref(), after.map(shown).as_ref())
}
