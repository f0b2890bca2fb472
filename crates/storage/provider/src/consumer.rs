//! A consumer: what is intended for it and how far storage has followed.
//!
//! ```text
//!                      applied                      offboarded
//!   onboard ─► Configuring ─────► Ready ─────────────────┐
//!                 │  ▲              │ failed             ▼
//!          failed ▼  │ (retried)    ▼                 Deleting ─► record removed
//!              Failed{reason} ◄─────┘ ──── offboarded ──►┘
//!                 └── applied ──► Ready
//! ```
//! Until its grace time is over, a consumer that is Deleting can be taken back: it is Configuring again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    client::Client,
    id::{ConsumerId, SealKeyId},
    identity::Data,
    quantity::Quantity,
    rates::Rates,
    sources::Sources,
    ticket::TicketHash,
};

/// How far storage has followed the intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum Phase {
    Configuring,
    Ready,
    Failed { reason: String },
    Deleting { reason: Option<String> },
}

impl Phase {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Configuring => "Configuring",
            Self::Ready => "Ready",
            Self::Failed { .. } => "Failed",
            Self::Deleting { .. } => "Deleting",
        }
    }
}

/// What happens to a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Storage matches the intent.
    Applied,
    /// A step towards the intent failed.
    Failed { reason: String },
    /// The grant changed, in size or in who may come: storage and network must follow.
    Regranted,
    /// The consumer is to go.
    Offboarded,
}

/// The event cannot happen now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the consumer is {phase} and cannot be changed any more")]
pub struct TransitionError {
    phase: &'static str,
}

/// One consumer's record. Written by calls and by the reconciler, each with the version it read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumer {
    pub id: ConsumerId,
    /// The ticket it came with: the same ticket again is the same consumer.
    pub ticket: TicketHash,
    /// What it asked for last, as it wrote it.
    pub requested: Quantity,
    /// What it was granted, in bytes.
    pub granted: u64,
    /// The most its ticket allows.
    pub ticket_limit: Option<u64>,
    /// Where it may come from, where the network to the storage is managed too.
    #[serde(default, skip_serializing_if = "Sources::is_empty")]
    pub sources: Sources,
    pub phase: Phase,
    /// The key its sealed id was first made with.
    pub seal_key: SealKeyId,
    /// The client certificate's identity it onboarded with, if it had one; later calls must come from the same.
    pub bound_to: Option<String>,
    pub created_at: u64,
    /// What people call it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// How much it is served in a second.
    #[serde(default, skip_serializing_if = "Rates::is_unlimited")]
    pub rates: Rates,
    /// Whether what is stored for it is encrypted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypted: bool,
    /// What it is labelled with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// When it leaves: until then its data is kept, and it can be taken back. Seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<u64>,
    /// What was made for it: what is there later must be the same.
    #[serde(default)]
    pub data: Data,
    /// What its client says of itself, if it is one of OCS's releases; then it is answered as those read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Box<Client>>,
}

impl Consumer {
    pub fn is_deleting(&self) -> bool {
        matches!(self.phase, Phase::Deleting { .. })
    }

    /// Whether it leaves and its data is still kept.
    pub fn is_kept_at(&self, now: u64) -> bool {
        self.is_deleting() && self.kept_until.is_some_and(|until| now < until)
    }

    /// The addresses that are to reach the storage on its behalf.
    pub fn permitted(&self) -> Sources {
        if self.is_deleting() { Sources::default() } else { self.sources.clone() }
    }

    /// Moves on by one event. `Ok(true)` when the record changed.
    pub fn handle(&mut self, event: Event) -> Result<bool, TransitionError> {
        let next = match (&self.phase, event) {
            (Phase::Configuring | Phase::Ready | Phase::Failed { .. }, Event::Applied) => Phase::Ready,
            (Phase::Configuring | Phase::Ready | Phase::Failed { .. }, Event::Failed { reason }) => {
                Phase::Failed { reason }
            }
            // A live consumer stays usable while its grant moves; the backend follows before the call is answered.
            (phase @ (Phase::Configuring | Phase::Ready | Phase::Failed { .. }), Event::Regranted) => {
                phase.clone()
            }
            (Phase::Configuring | Phase::Ready | Phase::Failed { .. }, Event::Offboarded) => {
                Phase::Deleting { reason: None }
            }
            (Phase::Deleting { .. }, Event::Failed { reason }) => Phase::Deleting { reason: Some(reason) },
            (phase @ Phase::Deleting { .. }, Event::Offboarded) => phase.clone(),
            (Phase::Deleting { .. }, Event::Applied | Event::Regranted) => {
                return Err(TransitionError { phase: "Deleting" });
            }
        };
        let changed = next != self.phase;
        self.phase = next;
        Ok(changed)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use uuid::Uuid;

    use super::*;

    pub(crate) fn example(n: u128, granted: u64) -> Consumer {
        Consumer {
            id: ConsumerId::new(Uuid::from_u128(n)),
            ticket: TicketHash::of(b"payload", &n.to_be_bytes()),
            requested: Quantity::from_bytes(granted, crate::Format::BinarySi),
            granted,
            ticket_limit: None,
            sources: Sources::default(),
            phase: Phase::Configuring,
            seal_key: SealKeyId(1),
            bound_to: None,
            created_at: 0,
            name: String::new(),
            rates: Rates::default(),
            encrypted: false,
            labels: BTreeMap::new(),
            kept_until: None,
            data: Data::Nothing,
            client: None,
        }
    }

    #[test]
    fn failure_is_reached_with_its_reason_and_left_by_success() {
        let mut consumer = example(1, 10);
        assert_eq!(consumer.handle(Event::Failed { reason: "disk".into() }), Ok(true));
        assert_eq!(consumer.phase, Phase::Failed { reason: "disk".into() });
        assert_eq!(consumer.handle(Event::Failed { reason: "disk".into() }), Ok(false));
        assert_eq!(consumer.handle(Event::Applied), Ok(true));
        assert_eq!(consumer.phase, Phase::Ready);
        assert_eq!(consumer.handle(Event::Applied), Ok(false));
    }

    #[test]
    fn nothing_leads_out_of_deleting() {
        let mut consumer = example(1, 10);
        consumer.handle(Event::Offboarded).unwrap();
        for event in [Event::Applied, Event::Regranted] {
            assert!(consumer.handle(event).is_err());
        }
        assert_eq!(consumer.handle(Event::Offboarded), Ok(false));
        assert_eq!(consumer.handle(Event::Failed { reason: "busy".into() }), Ok(true));
        assert!(consumer.is_deleting());
    }

    #[test]
    fn a_record_survives_json() {
        let mut consumer = example(1, 1 << 20);
        consumer.phase = Phase::Failed { reason: "disk".into() };
        let json = serde_json::to_string(&consumer).unwrap();
        assert_eq!(serde_json::from_str::<Consumer>(&json).unwrap(), consumer);
    }
}
