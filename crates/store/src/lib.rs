//! Versioned, watchable objects: the one place where intent is kept.
//!
//! In: keys and bytes from the rooms that own them. Out: entries with revisions, and watches that tell each
//! change once, in order. Holds: a backend, embedded ([`embedded`]) or shared ([`etcd`]); both keep the same
//! contract, proven by one conformance suite. Not here: what a value means; typed access is [`typed`].
//!
//! The contract:
//! - Every committed transaction that changes something has a revision of its own, larger than all before it.
//!   Revisions may have gaps.
//! - An acknowledged transaction is on disk (fsync) or in etcd's quorum. It is applied whole or not at all.
//! - A watch yields `Init, Apply…, InitDone` for the state at one revision, then `Apply` and `Delete` for every
//!   change after it, in revision order, without gap or double; from a revision, only the changes after it.
//!   [`follow`] makes one that never ends of it.
//! - History up to the compacted revision is gone; a watch from there gets [`WatchError::Compacted`]: start over.
//! - A lease ends by time (monotonic clock) or revocation, and its keys end with it, in one transaction.
//!
//! `docs/store.md` has the whole of it, with failure modes and tuning.

pub mod api;
pub mod backup;
pub mod embedded;
pub mod etcd;
pub mod follow;
pub mod sealed;
pub mod typed;

pub use api::*;
