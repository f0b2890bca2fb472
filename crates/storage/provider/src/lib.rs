//! The storage provider's decisions: consumers, tickets, grants, and what must be done to storage.
//!
//! In: requests in the OCS design's words, stored records, observed storage; time, randomness and keys as arguments.
//! Out: records to store, answers with the OCS design's codes, and plans of steps for a backend.
//! Holds: no state. Not here: who runs the steps and keeps the records (`storage-backend`), what a step does
//! (`storage-nbd`, `storage-ceph`), the wire (`server`).
//!
//! This room is pure. It calls aws-lc-rs for signatures, seals and hashes, which are functions of their arguments.

mod calls;
mod capacity;
mod client;
mod connection;
mod consumer;
mod desired;
mod grant;
mod id;
mod identity;
mod plan;
mod quantity;
mod rates;
mod refusal;
mod sources;
mod terms;
mod ticket;
mod volume;

pub use calls::{
    Floor, Offboard, Onboard, OnboardRequest, OnboardView, Resize, decide_config, decide_keep, decide_labels,
    decide_name, decide_offboard, decide_onboard, decide_permit, decide_rates, decide_report, decide_resize,
    settle_resize,
};
pub use capacity::{Capacity, CapacityError, CapacityForm};
pub use client::{Client, ClientError, Third, ThirdError};
pub use connection::{ConnectionItem, connection_json};
pub use consumer::{Consumer, Event, Phase, TransitionError};
pub use desired::{DesiredState, desired_state};
pub use grant::{GrantError, Ledger, LedgerError, grant};
pub use id::{ConsumerId, IdSealer, ParseConsumerIdError, SealError, SealKey, SealKeyId, UnsealError};
pub use identity::{Data, Found, Loss, Mark, VaultId, Verdict, VolumeId, VolumeKeyId, judge};
pub use plan::{NetworkState, Observed, ObservedStorage, Plan, Reached, Step, plan};
pub use quantity::{Format, ParseQuantityError, Quantity};
pub use rates::{Rates, RatesError};
pub use refusal::{Code, Refusal};
pub use sources::{Sources, SourcesError};
pub use terms::{Holdings, Terms, TicketLimit};
pub use ticket::{
    KeyError, KeyId, KeyRing, MintRequest, MintedTicket, SigningKey, TicketError, TicketHash, TicketRecord,
    TicketState, TicketStatus, TicketText, VerifiedTicket, VerifyingKey,
};
pub use volume::{
    DEFAULT_VOLUME, MOST_VOLUMES, VolumeCode, VolumeRefusal, VolumeStatus, VolumeStep, VolumeWish, Volumes,
    check_export, check_import, decide_volume, export_of, is_volume_name, snapshot_parts,
};
