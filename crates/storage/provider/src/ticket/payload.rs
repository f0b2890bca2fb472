//! The payload of a ticket: JSON, in the words of the original's releases.

use serde::{Deserialize, Serialize};

use super::{MintRequest, TicketError};
use crate::{rates::Rates, sources::Sources};

const ROLE: &str = "ocs-client";
const GIB: u64 = 1 << 30;

#[derive(Serialize, Deserialize)]
pub(super) struct Payload {
    pub(super) id: String,
    /// Seconds since 1970 as text; a JSON number is an error, as it is in the original.
    #[serde(rename = "expirationDate")]
    expiration_date: String,
    #[serde(rename = "subjectRole", default, skip_serializing_if = "Option::is_none")]
    subject_role: Option<String>,
    /// One release's limit, in GiB.
    #[serde(rename = "storageQuotaInGiB", default, skip_serializing_if = "Option::is_none")]
    storage_quota_in_gib: Option<u64>,
    /// Ours: names the signing key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kid: Option<String>,
    /// Ours: the most bytes, exact.
    #[serde(rename = "maxBytes", default, skip_serializing_if = "Option::is_none")]
    max_bytes: Option<String>,
    /// Ours: the addresses its consumer may come from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sources: Vec<String>,
    /// Ours: how much its consumer is served in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rates: Option<Rates>,
    /// Ours: what is stored for its consumer is encrypted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) encrypted: bool,
}

impl Payload {
    pub(super) fn ours(request: &MintRequest, expires_at: u64, key: &str) -> Self {
        Self {
            id: request.id.clone(),
            expiration_date: expires_at.to_string(),
            subject_role: Some(ROLE.to_owned()),
            storage_quota_in_gib: None,
            kid: Some(key.to_owned()),
            max_bytes: request.limit.map(|bytes| bytes.to_string()),
            sources: request.sources.to_texts(),
            rates: Some(request.rates).filter(|rates| !rates.is_unlimited()),
            encrypted: request.encrypted,
        }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a struct of strings and numbers always serialises")
    }

    pub(super) fn parse(json: &[u8]) -> Result<Self, TicketError> {
        let payload: Self = serde_json::from_slice(json)
            .map_err(|_| TicketError::Payload { what: "no JSON with an id and an expirationDate of text" })?;
        if payload.id.is_empty() || payload.id.len() > 253 {
            return Err(TicketError::Payload { what: "the id is empty or too long" });
        }
        Ok(payload)
    }

    pub(super) fn expires_at(&self) -> Result<u64, TicketError> {
        let text = self.expiration_date.as_str();
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(TicketError::Payload { what: "the expirationDate is no number of seconds" });
        }
        let seconds: i64 =
            text.parse().map_err(|_| TicketError::Payload { what: "the expirationDate is out of range" })?;
        Ok(u64::try_from(seconds).unwrap_or(0))
    }

    pub(super) fn limit(&self) -> Result<Option<u64>, TicketError> {
        if let Some(bytes) = &self.max_bytes {
            return bytes
                .parse()
                .map(Some)
                .map_err(|_| TicketError::Payload { what: "maxBytes is no number of bytes" });
        }
        // The original writes no quota as 0 or leaves it out.
        Ok(self.storage_quota_in_gib.filter(|gib| *gib > 0).map(|gib| gib.saturating_mul(GIB)))
    }

    pub(super) fn sources(&self) -> Result<Sources, TicketError> {
        Sources::parse(&self.sources)
            .map_err(|_| TicketError::Payload { what: "its sources are no addresses" })
    }

    pub(super) fn rates(&self) -> Result<Rates, TicketError> {
        let Rates { operations, bytes } = self.rates.unwrap_or_default();
        Rates::new(operations, bytes).map_err(|_| TicketError::Payload { what: "a rate of it is 0" })
    }

    /// Tickets older than roles have none.
    pub(super) fn check_role(&self) -> Result<(), TicketError> {
        match self.subject_role.as_deref() {
            None | Some(ROLE) => Ok(()),
            Some(_) => Err(TicketError::Role),
        }
    }
}
