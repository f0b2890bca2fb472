//! The storage provider at work: calls answered, records kept, storage made to match.
//!
//! In: calls in the OCS design's words (from `server`). Out: answers, and steps on a [`Backend`] and
//! on the [`Network`] before it.
//! Holds: who is being worked on, and when to look again; everything else is in the records and in the storage.
//! Not here: decisions (`storage-provider`), what a step does (`storage-nbd`, `storage-ceph`), the wire (`server`).
//!
//! ```text
//!   call ─► Provider ─► decide (pure) ─► Records (one transaction)
//!                                           │ wake
//!                                           ▼
//!              Reconciler: record + observed ─► plan (pure) ─► Backend and Network, step by step ─► Records (phase)
//! ```

mod backend;
mod network;
mod reconcile;
mod records;
mod service;
#[cfg(feature = "testing")]
pub mod testing;

pub use backend::{Backend, BackendError, Fill, LATENCIES, OperationFigures, Piece, Usage, VolumeFigures};
pub use network::{Network, NetworkError};
pub use reconcile::{ReconcileError, Reconciled};
pub use records::{Change, CommitError, Records, RecordsError, Stored, Version};
pub use service::{
    Caller, ClientState, Clock, ConsumerState, Details, Granted, Onboarded, Provider, ProviderConfig, Report,
    Reported, Resized,
};
