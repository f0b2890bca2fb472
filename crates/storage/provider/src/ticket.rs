//! Onboarding tickets: minted for a consumer to be, shown once, remembered only as a hash.
//!
//! In: keys, a random id and the time as arguments. Out: the ticket text, or what a ticket shown to us says.
//! Not here: which tickets exist (records in the store), what a ticket buys (`calls`).
//!
//! ```text
//!   base64( {"id":…,"expirationDate":"…","kid":…} ) . base64( signature over the payload bytes as sent )
//! ```
//! Two kinds of signature: Ed25519, ours, whose payload names its key; and RSA PKCS#1 v1.5 with SHA-256, as the
//! original's tickets have it, which name none and are tried against every RSA key.

mod keys;
mod payload;
mod record;
#[cfg(test)]
mod tests;

use aws_lc_rs::digest;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use model::Secret;
use serde::{Deserialize, Serialize};

use self::{keys::Algorithm, payload::Payload};
pub use self::{
    keys::{KeyError, KeyId, KeyRing, SigningKey, VerifyingKey},
    record::{TicketRecord, TicketState, TicketStatus},
};
use crate::{rates::Rates, sources::Sources};

/// Longest ticket looked at. One with an RSA-8192 signature and every field has about 2,000 characters.
const MAX_TEXT: usize = 8 << 10;

/// SHA-256 over payload and signature: names a ticket without being one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TicketHash(String);

impl TicketHash {
    pub(crate) fn of(payload: &[u8], signature: &[u8]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(payload);
        context.update(b".");
        context.update(signature);
        Self(common::hex(context.finish().as_ref()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a ticket does not admit. Never holds a part of the ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    #[error("it does not have the form of a ticket: two parts joined by a dot")]
    Form,
    #[error("it is not base64 in the standard alphabet with padding")]
    Encoding,
    #[error("its payload is not as a ticket's must be: {what}")]
    Payload { what: &'static str },
    #[error("it was not signed by a key this provider trusts")]
    Signature,
    #[error("it expired {seconds} s ago; ask the provider's administrator for a new one")]
    Expired { seconds: u64 },
    #[error("it was revoked; ask the provider's administrator for a new one")]
    Revoked,
    #[error("it was used by a consumer that has left; ask the provider's administrator for a new one")]
    Spent,
    #[error("it is for another role than a storage client")]
    Role,
}

/// A ticket taken apart; nothing about it is verified yet, except that it has one spelling only.
pub struct TicketText {
    payload: Vec<u8>,
    signature: Vec<u8>,
}

/// What a ticket with a good signature says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedTicket {
    pub hash: TicketHash,
    pub id: String,
    /// The key that signed it.
    pub key: KeyId,
    /// Seconds since 1970; the ticket is good up to and including this second.
    pub expires_at: u64,
    /// The most bytes it may be exchanged for.
    pub limit: Option<u64>,
    /// Where its consumer may come from; nothing: no network is opened for it.
    pub sources: Sources,
    /// How much its consumer is served in a second.
    pub rates: Rates,
    /// Whether what is stored for its consumer is encrypted.
    pub encrypted: bool,
}

/// What an administrator wants in a new ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MintRequest {
    /// Unique; a random UUID.
    pub id: String,
    pub now: u64,
    /// Seconds it stays good.
    pub lifetime: u64,
    /// The most bytes it may be exchanged for.
    pub limit: Option<u64>,
    /// Where its consumer may come from.
    pub sources: Sources,
    /// How much its consumer is served in a second.
    pub rates: Rates,
    /// Whether what is stored for its consumer is encrypted.
    pub encrypted: bool,
}

/// A new ticket: the text goes to the administrator and nowhere else, the record to the store.
#[derive(Clone, Debug)]
pub struct MintedTicket {
    pub text: Secret,
    pub record: TicketRecord,
}

impl TicketText {
    /// Takes a ticket apart. White space around it is no part of it: it travels in files and mails.
    pub fn parse(text: &str) -> Result<Self, TicketError> {
        let text = text.trim_matches([' ', '\t', '\r', '\n']);
        if text.len() > MAX_TEXT {
            return Err(TicketError::Form);
        }
        let (payload, signature) = text.split_once('.').ok_or(TicketError::Form)?;
        if payload.is_empty() || signature.is_empty() || signature.contains('.') {
            return Err(TicketError::Form);
        }
        let decode = |part: &str| STANDARD.decode(part).map_err(|_| TicketError::Encoding);
        Ok(Self { payload: decode(payload)?, signature: decode(signature)? })
    }

    /// Under which name a ticket is remembered. Only who has seen the whole ticket can compute it.
    pub fn hash(&self) -> TicketHash {
        TicketHash::of(&self.payload, &self.signature)
    }

    /// Checks the signature and reads the payload. Whether the ticket is still good is [`VerifiedTicket::check_at`].
    pub fn verify(&self, keys: &KeyRing, now: u64) -> Result<VerifiedTicket, TicketError> {
        // Only the key's name is taken from what is not yet verified.
        let claimed = Payload::parse(&self.payload).ok().and_then(|payload| payload.kid);
        let key = keys
            .candidates(claimed.as_deref(), now)
            .find(|key| key.verifies(&self.payload, &self.signature))
            .ok_or(TicketError::Signature)?;
        let payload = Payload::parse(&self.payload)?;
        payload.check_role()?;
        Ok(VerifiedTicket {
            hash: self.hash(),
            key: key.id.clone(),
            expires_at: payload.expires_at()?,
            limit: payload.limit()?,
            sources: payload.sources()?,
            rates: payload.rates()?,
            encrypted: payload.encrypted,
            id: payload.id,
        })
    }
}

impl VerifiedTicket {
    pub fn check_at(&self, now: u64) -> Result<(), TicketError> {
        match now.checked_sub(self.expires_at) {
            Some(seconds) if seconds > 0 => Err(TicketError::Expired { seconds }),
            _ => Ok(()),
        }
    }
}

/// Makes a ticket, signed with the ring's signing key.
pub(crate) fn mint(key: &SigningKey, request: &MintRequest) -> MintedTicket {
    let expires_at = request.now.saturating_add(request.lifetime);
    let payload = Payload::ours(request, expires_at, key.id().as_str()).to_json();
    let signature = key.sign(&payload);
    let record = TicketRecord {
        hash: TicketHash::of(&payload, &signature),
        id: request.id.clone(),
        key: key.id().clone(),
        issued_at: Some(request.now),
        expires_at,
        limit: request.limit,
        sources: request.sources.clone(),
        rates: request.rates,
        encrypted: request.encrypted,
        state: TicketState::Issued,
    };
    let text = Secret::new(format!("{}.{}", STANDARD.encode(&payload), STANDARD.encode(&signature)));
    MintedTicket { text, record }
}

impl KeyRing {
    /// Mints a ticket with the current signing key.
    pub fn mint(&self, request: &MintRequest) -> Result<MintedTicket, KeyError> {
        Ok(mint(self.signing().ok_or(KeyError::NoSigningKey)?, request))
    }
}

impl VerifyingKey {
    fn verifies(&self, payload: &[u8], signature: &[u8]) -> bool {
        use aws_lc_rs::signature::{ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
        match &self.algorithm {
            Algorithm::Ed25519 => {
                UnparsedPublicKey::new(&ED25519, &self.public).verify(payload, signature).is_ok()
            }
            Algorithm::Rsa => UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.public)
                .verify(payload, signature)
                .is_ok(),
        }
    }
}
