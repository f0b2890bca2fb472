//! A cloud over gRPC, from both sides.
//!
//! [`RemoteCloud`] is a cloud whose plugin is elsewhere; [`PluginService`] puts a cloud of this process on the wire.
//! Back to back they are the cloud itself: the conformance suite passes through them. [`OriginalCloud`] and [`LaterCloud`] are
//! clouds whose plugins know a revision of Paraglider's protocol and nothing else.

mod client;
mod convert;
mod later;
mod original;
mod revision;
mod server;

use std::sync::Arc;

pub use client::RemoteCloud;
pub use later::LaterCloud;
use model::CloudTraits;
pub use original::OriginalCloud;
pub use revision::{ParseRevisionError, Revision};
pub use server::PluginService;
use tonic::{Code, Status, metadata::MetadataValue, transport::Channel};
use wire::trestle::v1::{DescribeCloudRequest, cloud_extension_client::CloudExtensionClient};

use crate::{Cloud, CloudError, CloudErrorKind, Result};

/// A cloud whose plugin has answered.
pub struct Connected {
    pub cloud: Arc<dyn Cloud>,
    /// The revision of Paraglider's protocol that is spoken with it; none: ours.
    pub revision: Option<Revision>,
}

/// The cloud behind a connection, once its plugin answers. `bounds` is what is known of a cloud whose plugin cannot
/// describe itself; `revision` is the one of Paraglider's protocol that it speaks, where somebody has said so.
pub async fn connect(channel: Channel, bounds: CloudTraits, revision: Option<Revision>) -> Result<Connected> {
    if let Some(revision) = revision {
        return Ok(speaking(revision, channel, bounds));
    }
    let described = CloudExtensionClient::new(channel.clone()).describe_cloud(DescribeCloudRequest {}).await;
    match described {
        Ok(_) => Ok(Connected { cloud: Arc::new(RemoteCloud::new(channel)), revision: None }),
        Err(status) if is_missing(&status) => match revision::revision_of(&channel).await? {
            Some(revision) => Ok(speaking(revision, channel, bounds)),
            None => Err(CloudError::new(CloudErrorKind::Conflict, UNTOLD)),
        },
        Err(status) => Err(status.into()),
    }
}

/// A guess would put what is sent into other fields.
const UNTOLD: &str = "it cannot be told which revision of Paraglider's protocol the plugin speaks; say it in the \
    configuration (`revision: 1` to `4`, or NAME=URL,revision=N on the command line)";

fn speaking(revision: Revision, channel: Channel, bounds: CloudTraits) -> Connected {
    let cloud: Arc<dyn Cloud> = match revision {
        Revision::First => Arc::new(OriginalCloud::first(channel, bounds)),
        Revision::Second => Arc::new(OriginalCloud::second(channel, bounds)),
        Revision::Third => Arc::new(LaterCloud::third(channel, bounds)),
        Revision::Today => Arc::new(LaterCloud::today(channel, bounds)),
    };
    Connected { cloud, revision: Some(revision) }
}

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
            // Plugins of Paraglider's protocol answer everything with UNKNOWN; it may pass.
            _ => CloudErrorKind::Unavailable,
        };
        let message =
            if status.message().is_empty() { status.code().description() } else { status.message() };
        Self::new(kind, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a plugin refuses must not be taken for what it does not have.
    #[test]
    fn a_refusal_is_no_missing_method() {
        assert!(is_missing(&Status::unimplemented("")));
        let refusal = CloudError::unsupported("not without its flag");
        let status = Status::from(refusal.clone());
        assert!(!is_missing(&status));
        assert_eq!(CloudError::from(status), refusal);
    }
}
