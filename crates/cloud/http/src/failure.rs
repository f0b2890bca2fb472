//! Why a request did not succeed, in classes that a plugin can act on.

use cloud_api::{CloudError, CloudErrorKind};

use crate::Reply;

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

impl Class {
    /// Of a refusal whose code says no more than its status.
    pub fn of_status(status: u16) -> Self {
        match status {
            401 => Self::Unauthenticated,
            403 => Self::Denied,
            404 => Self::NotFound,
            409 => Self::Exists,
            429 => Self::Throttled,
            200..300 | 500.. => Self::Failed,
            _ => Self::Invalid,
        }
    }
}

/// A refusal as the cloud words it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub class: Class,
    pub code: String,
    pub message: String,
}

impl Answer {
    /// Not the cloud has answered, but somebody in between: how that begins.
    pub fn of_another(class: Class, code: &str, reply: &Reply) -> Self {
        Self { class, code: code.to_owned(), message: reply.text().chars().take(80).collect() }
    }
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

/// An outcome for which one class of refusals is as good as success.
fn unless<T>(fine: Class, outcome: Result<T, Failure>) -> Result<(), Failure> {
    match outcome {
        Err(failure) if !failure.is(fine) => Err(failure),
        _ => Ok(()),
    }
}

/// What is gone already is as good as taken away.
pub fn or_gone<T>(outcome: Result<T, Failure>) -> Result<(), Failure> {
    unless(Class::NotFound, outcome)
}

/// What is there already is as good as made.
pub fn or_there<T>(outcome: Result<T, Failure>) -> Result<(), Failure> {
    unless(Class::Exists, outcome)
}

/// What was asked for; none if there is no such thing.
pub fn if_there<T>(outcome: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match outcome {
        Err(failure) if failure.is(Class::NotFound) => Ok(None),
        outcome => outcome.map(Some),
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
