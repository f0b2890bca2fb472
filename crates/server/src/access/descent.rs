//! What was made with a credential. Whoever had it may have made others, which go on when it is revoked; here they are found, and
//! revoked with it.
//!
//! Read from the store, not from the mirrors: nothing is made with a credential any more once it is revoked there
//! ([`Credentials::make`]), so what is read then is all there will be.

use std::{collections::BTreeSet, fmt};

use jiff::Timestamp;
use model::change::Change;
use serde::de::DeserializeOwned;

use super::{
    CertificateRecord, Credential, TokenRecord, changes,
    credentials::{Credentials, CredentialsError, prefix},
    join::token::{self, JoinRecord},
};

/// Something that was made with a credential.
pub enum Made {
    Token(String, TokenRecord),
    Join(String, JoinRecord),
    Certificate(String, CertificateRecord),
}

impl Made {
    /// What became of it when it was revoked.
    pub fn revoked(&self) -> Change {
        match self {
            Self::Token(id, record) => changes::token(id, Some(record), None),
            Self::Join(id, record) => token::changed(id, Some(record), None),
            Self::Certificate(serial, record) => {
                let after = CertificateRecord { revoked: true, ..record.clone() };
                changes::certificate(serial, Some(record), Some(&after))
            }
        }
    }
}

/// As what is made with it names it.
impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(id, _) | Self::Join(id, _) => Credential::Token(id.clone()).fmt(f),
            Self::Certificate(serial, _) => Credential::Certificate(serial.clone()).fmt(f),
        }
    }
}

impl Credentials {
    /// Revokes what was made with a credential that was revoked just now, and what was made with that. `revoked` hears of each.
    pub async fn revoke_made_with(
        &self,
        credential: &Credential,
        mut revoked: impl FnMut(&Made),
    ) -> Result<(), CredentialsError> {
        let mut makers = BTreeSet::from([credential.to_string()]);
        loop {
            let found = self.made_with(&makers).await?;
            if found.is_empty() {
                return Ok(());
            }
            for made in &found {
                let done = match made {
                    Made::Token(id, _) | Made::Join(id, _) => self.revoke_token(id).await,
                    Made::Certificate(serial, _) => self.revoke_certificate(serial).await,
                };
                match done {
                    Ok(()) => revoked(made),
                    // Somebody else has revoked it meanwhile.
                    Err(CredentialsError::NoToken { .. } | CredentialsError::NoCertificate { .. }) => {}
                    Err(err) => return Err(err),
                }
            }
            makers = found.iter().map(ToString::to_string).collect();
        }
    }

    /// What was made with one of these and is good still. Sessions are not among it: they end with what they were begun with.
    async fn made_with(&self, makers: &BTreeSet<String>) -> Result<Vec<Made>, CredentialsError> {
        let by = |made_with: &Option<String>| made_with.as_ref().is_some_and(|maker| makers.contains(maker));
        let mut made = Vec::new();
        for (id, record) in self.stored::<TokenRecord>("tokens").await? {
            made.extend(by(&record.made_with).then_some(Made::Token(id, record)));
        }
        for (id, record) in self.stored::<JoinRecord>("joins").await? {
            made.extend(by(&record.made_with).then_some(Made::Join(id, record)));
        }
        let now = Timestamp::now();
        for (serial, record) in self.stored::<CertificateRecord>("certificates").await? {
            let is_meant = by(&record.made_with) && !record.revoked && now < record.not_after;
            made.extend(is_meant.then_some(Made::Certificate(serial, record)));
        }
        Ok(made)
    }

    /// All that is stored of one kind and can be read: the rest is good for nothing anyway.
    pub(super) async fn stored<T: DeserializeOwned>(
        &self,
        kind: &str,
    ) -> Result<Vec<(String, T)>, CredentialsError> {
        let listed = self.store().list(&prefix(kind)).await.map_err(CredentialsError::Read)?;
        let read = listed
            .entries
            .into_iter()
            .filter_map(|entry| Some((entry.key.name().ok()?, serde_json::from_slice(&entry.value).ok()?)));
        Ok(read.collect())
    }
}
