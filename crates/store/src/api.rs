//! What a backend must do, in types.
//!
//! In: nothing; these are the words both backends and all callers share. Out: [`Store`], the handle rooms hold,
//! and [`Backend`], what stands behind it. Not here: how a backend keeps the contract ([`crate::embedded`],
//! [`crate::etcd`]).

mod backend;
mod entry;
mod error;
mod key;
mod transaction;
mod watch;

pub use backend::{Backend, Health, Snapshot, Store};
pub use entry::{Entry, Lease, LeaseId, Listing, Revision};
pub(crate) use error::check_ttl;
pub use error::{
    BackupError, Cause, CompactError, LeaseError, Limit, Outcome, ReadError, TransactError, WatchError,
};
pub use key::{Key, KeyError, Prefix};
pub use transaction::{Committed, Compare, Expected, Operation, Transaction};
pub use watch::{Event, Line, Watch, WatchFrom};
