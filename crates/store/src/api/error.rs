//! What can go wrong, one enum per kind of operation. Texts are for operators: they say where to look next.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use thiserror::Error;

use super::{Key, LeaseId, Revision};

/// The underlying error. Shared, because one failed commit answers many waiters.
pub type Cause = Arc<dyn StdError + Send + Sync>;

/// What is known of a transaction that was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was not applied and never will be; repeating it is safe.
    NotApplied,
    /// It may or may not have been applied; read before repeating it.
    Unknown,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotApplied => "nothing was written",
            Self::Unknown => "outcome unknown: read the keys before trying again",
        })
    }
}

/// Which size limit a transaction broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Operations,
    Bytes,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operations => "operations",
            Self::Bytes => "bytes",
        })
    }
}

#[derive(Clone, Debug, Error)]
pub enum TransactError {
    #[error("{key} changed meanwhile or is not as expected (found: {}); read it and decide again", found_text(*found))]
    Conflict { key: Key, found: Option<Revision> },
    #[error("the transaction touches {key:?} twice; give each key one operation")]
    DuplicateKey { key: String },
    #[error("the transaction has {size} {unit}, the limit is {limit}; {hint}")]
    TooLarge { unit: Limit, size: u64, limit: u64, hint: &'static str },
    #[error("lease {lease} does not exist (expired or revoked); grant a new one")]
    LeaseNotFound { lease: LeaseId },
    #[error(
        "no space left for {place}; nothing was written; free some space, writes then work again by themselves"
    )]
    Full {
        place: String,
        #[source]
        source: Cause,
    },
    #[error("{place} cannot be reached; {outcome}")]
    Unavailable {
        place: String,
        outcome: Outcome,
        #[source]
        source: Cause,
    },
    #[error("writing to {place} failed; {outcome}; look at the disk and the kernel log")]
    Storage {
        place: String,
        outcome: Outcome,
        #[source]
        source: Cause,
    },
}

impl TransactError {
    /// Whether the transaction may have been applied although it was not acknowledged: read before going on.
    pub fn may_be_applied(&self) -> bool {
        matches!(
            self,
            Self::Unavailable { outcome: Outcome::Unknown, .. }
                | Self::Storage { outcome: Outcome::Unknown, .. }
        )
    }
}

fn found_text(found: Option<Revision>) -> String {
    found.map_or_else(|| "no such key".to_owned(), |revision| format!("revision {revision}"))
}

// For assertions: two errors are equal if they say the same thing; causes are not compared.
impl PartialEq for TransactError {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other) && self.to_string() == other.to_string()
    }
}

#[derive(Clone, Debug, Error)]
pub enum ReadError {
    #[error("{place} cannot be reached; is it running, and are address and certificates right?")]
    Unavailable {
        place: String,
        #[source]
        source: Cause,
    },
    #[error("reading from {place} failed; look at the disk and the kernel log")]
    Storage {
        place: String,
        #[source]
        source: Cause,
    },
    #[error("{place} holds damaged data ({what}); restore a backup with `trestle store restore`")]
    Damaged { place: String, what: String },
    #[error("{key} does not hold what its readers expect; correct or delete it")]
    Parse {
        key: Key,
        #[source]
        source: Cause,
    },
}

#[derive(Clone, Debug, Error)]
pub enum WatchError {
    #[error("history up to revision {oldest} is compacted; start the watch over from the current state")]
    Compacted { oldest: Revision },
    #[error(
        "revision {asked} is not reached yet (the store is at {current}, perhaps restored); start the watch over"
    )]
    Future { asked: Revision, current: Revision },
    #[error("the reader took too long over the initial state; start the watch over")]
    TooSlow,
    #[error("the store was closed")]
    Closed,
    #[error("the watch cannot read on")]
    Read(#[source] ReadError),
}

#[derive(Clone, Debug, Error)]
pub enum LeaseError {
    #[error("lease {lease} does not exist (expired or revoked); grant a new one")]
    NotFound { lease: LeaseId },
    #[error("a time to live of {seconds} s is not between 1 s and {} s", MAX_TTL_SECONDS)]
    Ttl { seconds: u64 },
    #[error("the lease could not be written")]
    Write(#[source] TransactError),
}

/// etcd's own limit.
pub(crate) const MAX_TTL_SECONDS: u64 = 9_000_000_000;

#[derive(Clone, Debug, Error)]
pub enum CompactError {
    #[error("revision {asked} is not reached yet (the store is at {current})")]
    Future { asked: Revision, current: Revision },
    #[error("history could not be compacted")]
    Write(#[source] TransactError),
}

#[derive(Debug, Error)]
pub enum BackupError {
    #[error("the store could not be read for the backup")]
    Read(#[source] ReadError),
    #[error("the backup could not be written")]
    Write(#[source] std::io::Error),
    #[error("entry {key} could not be encoded")]
    Encode {
        key: Key,
        #[source]
        source: serde_json::Error,
    },
}

/// A time to live as both backends can keep it: whole seconds, rounded up.
pub(crate) fn check_ttl(ttl: Duration) -> Result<Duration, LeaseError> {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    if seconds == 0 || seconds > MAX_TTL_SECONDS {
        return Err(LeaseError::Ttl { seconds });
    }
    Ok(Duration::from_secs(seconds))
}
