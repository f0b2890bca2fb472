//! What a caller is told of a failure of the store.

use std::error::Error;

use axum::http::StatusCode;
use store::{Outcome, ReadError, TransactError};
use tonic::Code;

use super::Failure;

/// A read that failed, told by the error around it.
pub fn read(around: &dyn Error, error: &ReadError) -> Failure {
    Failure::from_error(read_code(error), around)
}

/// A transaction that failed, told by the error around it.
pub fn transact(around: &dyn Error, error: &TransactError) -> Failure {
    let failure = Failure::from_error(transact_code(error), around);
    match error {
        TransactError::Full { .. } => failure.with_status(StatusCode::INSUFFICIENT_STORAGE),
        TransactError::TooLarge { .. } => failure.with_status(StatusCode::PAYLOAD_TOO_LARGE),
        _ => failure,
    }
}

fn read_code(error: &ReadError) -> Code {
    match error {
        ReadError::Unavailable { .. } => Code::Unavailable,
        ReadError::Storage { .. } => Code::Internal,
        ReadError::Damaged { .. } | ReadError::Parse { .. } => Code::DataLoss,
    }
}

fn transact_code(error: &TransactError) -> Code {
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
