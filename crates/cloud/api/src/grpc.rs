//! A cloud over gRPC, from both sides.
//!
//! [`RemoteCloud`] is a cloud whose plugin is elsewhere; [`PluginService`] puts a cloud of this process on the wire.
//! Back to back they are the cloud itself: the conformance suite passes through them.

mod client;
mod convert;
mod server;

pub use client::RemoteCloud;
pub use server::PluginService;

use tonic::{Code, Status, metadata::MetadataValue};

use crate::{CloudError, CloudErrorKind};

impl From<CloudError> for Status {
    fn from(error: CloudError) -> Self {
        let code = match error.kind {
            CloudErrorKind::Invalid => Code::InvalidArgument,
            CloudErrorKind::NotFound => Code::NotFound,
            CloudErrorKind::Conflict => Code::FailedPrecondition,
            CloudErrorKind::Unsupported => Code::Unimplemented,
            CloudErrorKind::Throttled => Code::ResourceExhausted,
            CloudErrorKind::Unavailable => Code::Unavailable,
        };
        let mut status = Status::new(code, error.message);
        if code == Code::Unimplemented {
            status.metadata_mut().insert(REFUSAL, MetadataValue::from_static("unsupported"));
        }
        status
    }
}

/// Says that a cloud refused, where the code alone would say that its plugin does not have the method.
const REFUSAL: &str = "trestle-refusal";

/// Whether a plugin does not have the method that was called.
fn is_missing(status: &Status) -> bool {
    status.code() == Code::Unimplemented && !status.metadata().contains_key(REFUSAL)
}

impl From<Status> for CloudError {
    fn from(status: Status) -> Self {
        let kind = match status.code() {
            Code::InvalidArgument | Code::OutOfRange => CloudErrorKind::Invalid,
            Code::NotFound => CloudErrorKind::NotFound,
            Code::FailedPrecondition | Code::AlreadyExists => CloudErrorKind::Conflict,
            Code::Unimplemented => CloudErrorKind::Unsupported,
            Code::ResourceExhausted => CloudErrorKind::Throttled,
            // Plugins in the seed's dialect answer everything with UNKNOWN; it may pass.
            _ => CloudErrorKind::Unavailable,
        };
        let message =
            if status.message().is_empty() { status.code().description() } else { status.message() };
        Self::new(kind, message)
    }
}
