//! The code of each error of the drivers.

use cloud_api::CloudErrorKind;
use drivers::{hosts::HostsError, namespaces::NamespaceError, objects::ObjectsError, tags::TagError};
use orchestrator::execute::OrchestratorError;
use services::allot::AllotError;
use tags::RequestError;
use tonic::Code;

use super::{Failure, store_failure};

impl From<ObjectsError> for Failure {
    fn from(error: ObjectsError) -> Self {
        match &error {
            ObjectsError::NotFound { .. } => Failure::from_error(Code::NotFound, &error),
            ObjectsError::Twice(_) => Failure::from_error(Code::InvalidArgument, &error),
            ObjectsError::Allot(AllotError::Taken { .. }) => Failure::from_error(Code::AlreadyExists, &error),
            ObjectsError::Allot(AllotError::Exhausted { .. }) => {
                Failure::from_error(Code::ResourceExhausted, &error)
            }
            ObjectsError::Allot(AllotError::NoFamily { .. }) => {
                Failure::from_error(Code::FailedPrecondition, &error)
            }
            ObjectsError::Busy => Failure::from_error(Code::Aborted, &error),
            ObjectsError::Read(err) => store_failure::read(&error, err),
            ObjectsError::Write(err) => store_failure::transact(&error, err),
        }
    }
}

impl From<NamespaceError> for Failure {
    fn from(error: NamespaceError) -> Self {
        match &error {
            NamespaceError::NotFound { .. } => Failure::from_error(Code::NotFound, &error),
            NamespaceError::NotEmpty { .. } => Failure::from_error(Code::FailedPrecondition, &error),
            NamespaceError::DeleteDefault => Failure::from_error(Code::FailedPrecondition, &error),
            NamespaceError::Read(err) => store_failure::read(&error, err),
            NamespaceError::Write { err, .. } => store_failure::transact(&error, err),
        }
    }
}

impl From<HostsError> for Failure {
    fn from(error: HostsError) -> Self {
        match &error {
            HostsError::NotFound { .. } => Failure::from_error(Code::NotFound, &error),
            HostsError::Read(err) => store_failure::read(&error, err),
            HostsError::Write(err) => store_failure::transact(&error, err),
            HostsError::Tags { err, .. } => Failure::from_error(tag_code(err), &error),
        }
    }
}

impl From<TagError> for Failure {
    fn from(error: TagError) -> Self {
        match &error {
            TagError::Store(err) => store_failure::transact(&error, err),
            TagError::Read(err) => store_failure::read(&error, err),
            _ => Failure::from_error(tag_code(&error), &error),
        }
    }
}

fn tag_code(error: &TagError) -> Code {
    match error {
        TagError::Refused(refused) => refusal_code(refused),
        TagError::Kept { .. } | TagError::Owned { .. } => Code::FailedPrecondition,
        TagError::Store(_) | TagError::Read(_) => Code::Internal,
        TagError::Busy => Code::Aborted,
        TagError::Stopping | TagError::NotLoaded => Code::Unavailable,
    }
}

fn refusal_code(refused: &RequestError) -> Code {
    match refused {
        RequestError::NotFound(_) | RequestError::MemberNotFound { .. } | RequestError::NotAMember { .. } => {
            Code::NotFound
        }
        RequestError::Kind { .. } | RequestError::Cycle { .. } => Code::FailedPrecondition,
        RequestError::EmptyLeaf { .. } => Code::InvalidArgument,
    }
}

impl From<OrchestratorError> for Failure {
    fn from(error: OrchestratorError) -> Self {
        use OrchestratorError as E;
        let code = match &error {
            E::UnknownResource { .. }
            | E::UnknownTag { .. }
            | E::UnknownRule { .. }
            | E::UnknownPermission { .. }
            | E::UnknownLink { .. }
            | E::UnknownJob { .. }
            | E::UnknownCloud { .. }
            | E::UnknownNamespace { .. } => Code::NotFound,
            E::ResourceExists { .. } | E::TagExists { .. } => Code::AlreadyExists,
            E::JobEnded { .. }
            | E::Leaving { .. }
            | E::Problem(_)
            | E::Unreadable { .. }
            | E::WouldBuild { .. } => Code::FailedPrecondition,
            E::Cloud { err, .. } => match err.kind {
                CloudErrorKind::Invalid => Code::InvalidArgument,
                CloudErrorKind::NotFound => Code::NotFound,
                CloudErrorKind::Conflict => Code::FailedPrecondition,
                CloudErrorKind::Unsupported => Code::Unimplemented,
                CloudErrorKind::Throttled => Code::ResourceExhausted,
                // Not UNAVAILABLE, which says that this controller cannot be reached and that nothing happened.
                CloudErrorKind::Unavailable => Code::Unknown,
            },
            E::NoSpace(_) | E::NoNumbers { .. } => Code::ResourceExhausted,
            E::Superseded => Code::Aborted,
            // Its plugin cannot be reached; this controller can.
            E::CloudWaits { .. } => Code::FailedPrecondition,
            // Not DEADLINE_EXCEEDED, which says that this controller did not answer in time.
            E::Timeout { .. } => Code::Unknown,
            E::Write(err) => return store_failure::transact(&error, err),
            E::Read(err) => return store_failure::read(&error, err),
            // Another controller can do it at once, this one perhaps in a few seconds.
            E::NotLeading { .. } => Code::FailedPrecondition,
            E::Tags { .. } | E::Namespaces { .. } | E::NotLoaded | E::NotReady { .. } => Code::Unavailable,
            // It may have been written.
            E::Ended => Code::Unknown,
            E::Panicked { .. } | E::Unbelievable { .. } => Code::Internal,
        };
        Failure::from_error(code, &error)
    }
}
