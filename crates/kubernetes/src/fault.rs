//! Why a list or a watch ended, as far as it decides what is done next.

use common::chain;
use kube::core::Status;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The API server has no such kind.
    Absent,
    /// It no longer knows what came after the version that was asked for: begin anew.
    Expired,
    /// It does not stream first states: list instead.
    NoStreaming,
    /// Anything else, for people: the same is tried again.
    Other(String),
}

impl Fault {
    /// Of a request for a stream that begins with the first state.
    pub(crate) fn of_streaming(err: &kube::Error) -> Self {
        match err {
            kube::Error::Api(status) => Self::of_streaming_status(status),
            _ => Self::of(err),
        }
    }

    /// Servers that have it switched off call the request invalid; those whose etcd is too old for it, a fault of their own. If it is
    /// another fault, listing meets it too.
    pub(crate) fn of_streaming_status(status: &Status) -> Self {
        match status.code {
            401 | 403 | 404 | 410 | 429 => Self::of_status(status),
            _ => Self::NoStreaming,
        }
    }

    pub(crate) fn of(err: &kube::Error) -> Self {
        match err {
            kube::Error::Api(status) => Self::of_status(status),
            _ => Self::Other(chain(err)),
        }
    }

    pub(crate) fn of_status(status: &Status) -> Self {
        match status.code {
            404 => Self::Absent,
            410 => Self::Expired,
            code => Self::Other(format!("{} ({code} {})", status.message, status.reason)),
        }
    }
}
