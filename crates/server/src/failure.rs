//! What a caller is told when a call fails: one code and one text, the same over gRPC and REST.
//!
//! In: the typed errors of the rooms. Out: a gRPC status, or RFC 9457 problem JSON with the same code.

mod codes;
pub mod store_failure;

use std::error::Error;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use tonic::{Code, Status};
use utoipa::ToSchema;

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: Code,
    pub message: String,
    /// The HTTP status, where it says more than the code's own.
    pub status: Option<StatusCode>,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), status: None }
    }

    /// From an error and everything below it, joined into one line.
    pub fn from_error(code: Code, error: &dyn Error) -> Self {
        Self::new(code, common::chain(error))
    }

    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status: Some(status), ..self }
    }

    pub fn invalid(error: &dyn Error) -> Self {
        Self::from_error(Code::InvalidArgument, error)
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        Status::new(failure.code, failure.message)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::new(status.code(), status.message())
    }
}

/// RFC 9457 problem details, with the gRPC code beside the HTTP status.
#[derive(Debug, Serialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`: the code says what kind of problem it is.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The HTTP status in words.
    pub title: &'static str,
    pub status: u16,
    /// What was attempted, on what, and what to look at next.
    pub detail: String,
    /// The canonical gRPC code, for example `NOT_FOUND`.
    pub code: &'static str,
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = self.status.unwrap_or_else(|| http_status(self.code));
        let problem = Problem {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: self.message,
            code: code_name(self.code),
        };
        let mut response = (status, Json(problem)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // The middle layers read the code without parsing the body.
        response.extensions_mut().insert(FailureCode(self.code));
        response
    }
}

/// Left on a failed REST response for the layers around it.
#[derive(Clone, Copy, Debug)]
pub struct FailureCode(pub Code);

/// The name of a code as the gRPC specification writes it.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// The HTTP status for a code, as Google's API guide maps them.
pub fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted | Code::FailedPrecondition => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
    }
}
