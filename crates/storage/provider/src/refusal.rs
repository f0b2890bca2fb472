//! Refusals: every way a call can fail, with the code the OCS design's tables give it.
//!
//! | call              | 0 | 3 INVALID_ARGUMENT              | 13 INTERNAL                      | 14 UNAVAILABLE |
//! |-------------------|---|---------------------------------|----------------------------------|----------------|
//! | OnBoardConsumer   |   | ticket, capacity, sources       | nothing left, provider's fault   |                |
//! | GetStorageConfig  |   | id (unknown, forged, deleting)  | Failed, provider's fault         | Configuring    |
//! | UpdateCapacity    |   | id, capacity, below use         | not Ready, provider's fault      |                |
//! | OffboardConsumer  |   | id                              | provider's fault                 |                |

use crate::{
    capacity::CapacityError,
    client::{ClientError, ThirdError},
    consumer::TransitionError,
    grant::{GrantError, LedgerError},
    id::{SealError, UnsealError},
    sources::SourcesError,
    ticket::TicketError,
    volume::VolumeRefusal,
};

/// The gRPC codes the OCS design uses, with their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    InvalidArgument = 3,
    /// Not in the OCS design: later clients stop asking until they have something to say.
    FailedPrecondition = 9,
    Internal = 13,
    Unavailable = 14,
}

/// Why a call is refused. The text goes to the caller and to logs: it holds no ticket, id or key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the onboarding ticket is not valid")]
    Ticket(#[from] TicketError),
    #[error("the capacity is not valid")]
    Capacity(#[from] CapacityError),
    #[error("the addresses to permit are not valid")]
    Sources(#[from] SourcesError),
    #[error(transparent)]
    Id(#[from] UnsealError),
    #[error("what the client says of itself is not valid")]
    Client(#[from] ClientError),
    #[error("the ticket was used by another client of this provider; ask its administrator for a new one")]
    OtherClient,
    #[error(
        "the client has not said in which namespace its operator runs; it does so when it reports its status"
    )]
    NoNamespace,
    #[error("there are no shared file systems here; claim block storage")]
    NoFileSystems,
    #[error("there is no such storage consumer; contact the administrator of the provider")]
    UnknownConsumer,
    #[error("the storage consumer is being removed")]
    Deleting(#[from] TransitionError),
    #[error(
        "the storage consumer belongs to another client; call with the certificate it was onboarded with"
    )]
    ForeignClient,
    #[error("the capacity cannot be lowered to {requested} bytes: {used} bytes are in use; free some first")]
    BelowUse { requested: u64, used: u64 },
    #[error(
        "the capacity cannot be lowered to {requested} bytes: a volume of {volumes} bytes is in use by a client or holds data beyond; shrink the file system and disconnect first, or have the administrator force it, after which writes beyond the grant fail"
    )]
    BelowVolumes { requested: u64, volumes: u64 },
    #[error("the consumer is {phase}: there is nothing to take back, or its data is not kept any more")]
    NotKept { phase: &'static str },
    #[error("a name has at most 63 bytes, no control characters, and no spaces around it")]
    Name,
    #[error("the labels are not valid: {why}")]
    Labels { why: String },
    #[error(
        "nothing of the consumer's data is here that could be adopted; put it back, or give it up with `trestle volume recreate --data-is-lost`"
    )]
    NothingToAdopt,
    #[error("the consumer's data is whole: {what} would replace it; nothing was done")]
    DataIsWhole { what: &'static str },
    #[error("storage cannot be granted")]
    Grant(#[from] GrantError),
    #[error("storage is being prepared; ask again in a few seconds")]
    Configuring,
    #[error("storage could not be prepared: {reason}")]
    Failed { reason: String },
    #[error("the storage consumer is {phase}; its capacity can change once it is Ready")]
    NotReady { phase: &'static str },
    #[error("the provider's books are damaged")]
    Ledger(#[from] LedgerError),
    #[error("the consumer's id cannot be sealed")]
    Seal(#[from] SealError),
    #[error("the volume is left as it is")]
    Volume(#[from] VolumeRefusal),
    #[error("the provider failed: {reason}; contact its administrator")]
    Provider { reason: String },
}

impl From<ThirdError> for Refusal {
    fn from(error: ThirdError) -> Self {
        match error {
            ThirdError::Client(error) => error.into(),
            ThirdError::Capacity(error) => error.into(),
        }
    }
}

impl Refusal {
    pub fn code(&self) -> Code {
        match self {
            Self::Ticket(_)
            | Self::Capacity(_)
            | Self::Sources(_)
            | Self::Id(_)
            | Self::Client(_)
            | Self::OtherClient
            | Self::NoFileSystems
            | Self::UnknownConsumer
            | Self::Deleting(_)
            | Self::ForeignClient
            | Self::BelowUse { .. }
            | Self::BelowVolumes { .. }
            | Self::NotKept { .. }
            | Self::Name
            | Self::Labels { .. }
            | Self::NothingToAdopt
            | Self::Volume(_)
            | Self::DataIsWhole { .. } => Code::InvalidArgument,
            Self::Grant(_)
            | Self::Failed { .. }
            | Self::NotReady { .. }
            | Self::Ledger(_)
            | Self::Seal(_)
            | Self::Provider { .. } => Code::Internal,
            Self::Configuring => Code::Unavailable,
            Self::NoNamespace => Code::FailedPrecondition,
        }
    }

    /// The refusal and its causes in one line, for callers that see only text.
    pub fn message(&self) -> String {
        common::chain(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Capacity;

    #[test]
    fn codes_are_the_numbers_of_the_seed() {
        let capacity = Refusal::from(Capacity::decode(b"abc").unwrap_err());
        assert_eq!(capacity.code() as i32, 3);
        assert_eq!(Refusal::Configuring.code() as i32, 14);
        assert_eq!(Refusal::Failed { reason: String::new() }.code() as i32, 13);
        assert_eq!(Refusal::BelowUse { requested: 1, used: 2 }.code() as i32, 3);
    }

    #[test]
    fn a_message_tells_the_whole_chain_once() {
        let message = Refusal::from(UnsealError).message();
        assert_eq!(message, UnsealError.to_string());
        let message = Refusal::from(Capacity::decode(b"abc").unwrap_err()).message();
        assert!(message.starts_with("the capacity is not valid: \"abc\" is no quantity"), "{message}");
    }
}
