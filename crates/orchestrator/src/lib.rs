//! The orchestrator: from what users want to clouds that are so.
//!
//! In: requests (`create a resource`, `permit this`), tag changes, time. Out: calls to clouds, jobs that say how it
//! goes. Holds: the intent and the inventory, both in the store, both in memory.
//!
//! ```text
//!   request ─► intent ─┐
//!   tags ──────────────┼─► plan (pure) ─► steps that wait for nothing ─► clouds ─► inventory ─┐
//!   inventory ─────────┘        ▲                                                             │
//!                               └─────────────────────────────────────────────────────────────┘
//! ```
//!
//! Not here: what a tag is (`tags`), how a cloud is spoken to (`cloud-api`), the wire (`server`).

pub mod execute;
#[cfg(test)]
mod kinds;
pub mod plan;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

/// Where in the store secrets are: what lies below is to be sealed.
pub fn secrets() -> Vec<store::Prefix> {
    vec![execute::links_made()]
}
