//! What REST answers and the command line prints with `-o json`: one type for both.
//!
//! In: messages of the wire. Out: JSON, and its schema for the page. Not here: how a terminal shows them (`trestle`).

use serde::Serialize;
use utoipa::ToSchema;
use wire::trestle::v1;

/// An onboarding ticket, without its text.
#[derive(Debug, Serialize, ToSchema)]
pub struct Ticket {
    pub id: String,
    /// `valid`, `used`, `revoked` or `expired`.
    pub state: String,
    /// Names the key it is signed with.
    pub key: String,
    /// Seconds since the epoch.
    pub expires_at: u64,
    pub limit_bytes: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub consumer: String,
    /// Where its consumer may come from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
}

impl From<v1::Ticket> for Ticket {
    fn from(ticket: v1::Ticket) -> Self {
        let v1::Ticket { id, key, expires_at, limit_bytes, state, consumer, sources, .. } = ticket;
        Self { id, state, key, expires_at, limit_bytes, consumer, sources }
    }
}

/// A cluster that uses our storage.
#[derive(Debug, Serialize, ToSchema)]
pub struct Consumer {
    pub id: String,
    /// `Configuring`, `Ready`, `Failed` or `Deleting`.
    pub phase: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub requested: String,
    pub granted_bytes: u64,
    /// Absent if the storage cannot say.
    pub used_bytes: Option<u64>,
    pub created_at: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub notice: String,
    /// The addresses and prefixes that are let through to the storage on its behalf.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
}

impl From<v1::Consumer> for Consumer {
    fn from(consumer: v1::Consumer) -> Self {
        let v1::Consumer {
            id,
            phase,
            reason,
            requested,
            granted_bytes,
            created_at,
            used_bytes,
            notice,
            sources,
        } = consumer;
        Self { id, phase, reason, requested, granted_bytes, used_bytes, created_at, notice, sources }
    }
}
