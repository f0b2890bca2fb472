//! What is remembered of a ticket: never the ticket.

use serde::{Deserialize, Serialize};

use super::{KeyId, TicketHash, VerifiedTicket};
use crate::{id::ConsumerId, rates::Rates, sources::Sources};

/// What became of a ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum TicketState {
    Issued,
    Used { consumer: ConsumerId },
    Revoked { at: u64, consumer: Option<ConsumerId> },
}

/// One ticket's record, kept under its hash: from minting for our own, from first use for the original's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketRecord {
    pub hash: TicketHash,
    /// For listing and revoking; it admits nobody.
    pub id: String,
    pub key: KeyId,
    /// `None` when it was minted elsewhere.
    pub issued_at: Option<u64>,
    pub expires_at: u64,
    pub limit: Option<u64>,
    /// Where its consumer may come from.
    #[serde(default, skip_serializing_if = "Sources::is_empty")]
    pub sources: Sources,
    /// How much its consumer is served in a second.
    #[serde(default, skip_serializing_if = "Rates::is_unlimited")]
    pub rates: Rates,
    /// Whether what is stored for its consumer is encrypted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypted: bool,
    #[serde(flatten)]
    pub state: TicketState,
}

/// How a ticket stands at one moment, for lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketStatus {
    Valid,
    Expired,
    Used,
    Revoked,
}

impl TicketRecord {
    pub(crate) fn used(ticket: &VerifiedTicket, known: Option<&Self>, consumer: ConsumerId) -> Self {
        Self {
            hash: ticket.hash.clone(),
            id: ticket.id.clone(),
            key: ticket.key.clone(),
            issued_at: known.and_then(|record| record.issued_at),
            expires_at: ticket.expires_at,
            limit: ticket.limit,
            sources: ticket.sources.clone(),
            rates: ticket.rates,
            encrypted: ticket.encrypted,
            state: TicketState::Used { consumer },
        }
    }

    pub fn status_at(&self, now: u64) -> TicketStatus {
        match self.state {
            TicketState::Revoked { .. } => TicketStatus::Revoked,
            TicketState::Used { .. } => TicketStatus::Used,
            TicketState::Issued if now > self.expires_at => TicketStatus::Expired,
            TicketState::Issued => TicketStatus::Valid,
        }
    }

    /// The consumer that came with it, also after it was revoked.
    pub fn consumer(&self) -> Option<ConsumerId> {
        match self.state {
            TicketState::Issued => None,
            TicketState::Used { consumer } => Some(consumer),
            TicketState::Revoked { consumer, .. } => consumer,
        }
    }

    /// Makes the ticket worthless. Its consumer, if it has one, stays until it is put off.
    pub fn revoked(&self, now: u64) -> Self {
        let state = match self.state {
            TicketState::Revoked { .. } => self.state.clone(),
            TicketState::Issued | TicketState::Used { .. } => {
                TicketState::Revoked { at: now, consumer: self.consumer() }
            }
        };
        Self { state, ..self.clone() }
    }

    /// Nothing depends on it any more: it has expired, and no consumer came with it.
    pub fn may_be_forgotten_at(&self, now: u64) -> bool {
        now > self.expires_at && self.consumer().is_none()
    }
}
