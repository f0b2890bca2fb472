//! What tests of several rooms share: network namespaces, packets as bytes, a real etcd, random objects and the naive
//! reading of them, the contract of clouds on a simulated one. A dev dependency; `arrows` fails if a room that is shipped
//! depends on it.
//!
//! Each concern is a feature and brings only what it needs, so that `cargo test -p node-kernel` builds no policy engine.
//! What stands on a whole controller, agent or orchestrator is in `testkit-controllers`: features are joined when the
//! workspace is built at once, and a change of `server` must not compile the tests of nodes and of the store anew.
//!
//! Not here: what the tests of one room alone need. That is beside them, in `tests/support`.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[cfg(feature = "contract")]
pub mod contract;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "contract")]
pub mod lists;
#[cfg(feature = "namespaces")]
pub mod namespaces;
#[cfg(feature = "packets")]
pub mod packets;
#[cfg(feature = "planes")]
pub mod planes;
#[cfg(feature = "policies")]
pub mod policies;
