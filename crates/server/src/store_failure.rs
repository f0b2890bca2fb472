//! Which code a caller gets for a failure of the store.

use store::{Outcome, ReadError, TransactError};
use tonic::Code;

pub fn read_code(error: &ReadError) -> Code {
    match error {
        ReadError::Unavailable { .. } => Code::Unavailable,
        ReadError::Storage { .. } => Code::Internal,
        ReadError::Damaged { .. } | ReadError::Parse { .. } => Code::DataLoss,
    }
}

pub fn transact_code(error: &TransactError) -> Code {
    match error {
        TransactError::Conflict { .. } => Code::Aborted,
        TransactError::TooLarge { .. } | TransactError::Full { .. } => Code::ResourceExhausted,
        TransactError::LeaseNotFound { .. } => Code::FailedPrecondition,
        TransactError::Unavailable { outcome: Outcome::NotApplied, .. } => Code::Unavailable,
        // Not UNAVAILABLE, which clients repeat by themselves: whether it happened is not known.
        TransactError::Unavailable { outcome: Outcome::Unknown, .. } => Code::Unknown,
        TransactError::Storage { .. } | TransactError::DuplicateKey { .. } => Code::Internal,
    }
}
