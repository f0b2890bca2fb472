//! Why a request did not succeed, in classes that a plugin can act on.

use cloud_api::{CloudError, CloudErrorKind};

/// What kind of refusal an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Too many requests. Nothing happened; slower, then again.
    Throttled,
    /// Something else is at work on the same object. Nothing happened; again after a pause.
    Busy,
    /// The object is not as the request took it to be. Nothing happened; it has to be read again first.
    Changed,
    /// The cloud failed. Something may have happened.
    Failed,
    /// Credentials are wrong or stale.
    Unauthenticated,
    /// Credentials are fine but lack a permission.
    Denied,
    NotFound,
    Exists,
    /// Other objects depend on it.
    InUse,
    /// A quota or a fixed bound.
    Limit,
    /// Everything else: the request can never succeed.
    Invalid,
}

/// A refusal as the cloud words it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub class: Class,
    pub code: String,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("{operation}: the cloud refused with {status} {}: {}", answer.code, answer.message)]
    Refused { operation: String, status: u16, answer: Answer },
    #[error("{operation}: the cloud could not be reached: {message}")]
    Unreachable { operation: String, message: String },
    #[error("{operation}: the answer cannot be read: {message}")]
    Unreadable { operation: String, message: String },
    #[error("no usable credentials: {message}")]
    Credentials { message: String },
}

impl Failure {
    pub fn class(&self) -> Class {
        match self {
            Self::Refused { answer, .. } => answer.class,
            Self::Unreachable { .. } | Self::Unreadable { .. } => Class::Failed,
            Self::Credentials { .. } => Class::Unauthenticated,
        }
    }

    pub fn is(&self, class: Class) -> bool {
        self.class() == class
    }

    /// The cloud's own word for it.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused { answer, .. } => &answer.code,
            _ => "",
        }
    }
}

impl From<Failure> for CloudError {
    fn from(failure: Failure) -> Self {
        let kind = match failure.class() {
            Class::Throttled => CloudErrorKind::Throttled,
            // Wrong credentials are mended by somebody, after which the same call succeeds.
            Class::Busy | Class::Changed | Class::Failed | Class::Unauthenticated | Class::Denied => {
                CloudErrorKind::Unavailable
            }
            Class::NotFound => CloudErrorKind::NotFound,
            Class::Exists | Class::InUse | Class::Limit => CloudErrorKind::Conflict,
            Class::Invalid => CloudErrorKind::Invalid,
        };
        Self::new(kind, failure.to_string())
    }
}
