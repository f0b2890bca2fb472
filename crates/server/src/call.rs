//! One call, as every layer around its handler sees it: what it asks for, how it is refused, how it ended.

use std::{any::Any, sync::Arc};

use axum::{
    extract::{MatchedPath, Request},
    http::header,
    response::{IntoResponse as _, Response},
};
use tonic::{Code, Status};
use tracing::error;

use crate::{
    failure::{Failure, FailureCode},
    metrics::Metrics,
};

/// A call's place among those in flight: whoever goes on with the call when its caller is gone keeps it.
#[derive(Clone)]
pub struct Place(#[expect(dead_code, reason = "it is given back when dropped")] Arc<dyn Any + Send + Sync>);

impl Place {
    pub fn new(share: impl Any + Send + Sync) -> Self {
        Self(Arc::new(share))
    }
}

/// Whether a request speaks gRPC, which decides the form of the answer.
pub fn is_grpc(request: &Request) -> bool {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// The operation's name in the table; none if no route matches.
pub fn operation(request: &Request, is_grpc: bool) -> Option<String> {
    if is_grpc {
        return Some(request.uri().path().trim_start_matches('/').to_owned());
    }
    let route = request.extensions().get::<MatchedPath>()?;
    Some(format!("{} {}", request.method(), route.as_str()))
}

/// A failure in the form the caller speaks.
pub fn refuse(failure: Failure, is_grpc: bool) -> Response {
    if is_grpc { Status::from(failure).into_http() } else { failure.into_response() }
}

/// How a call ended. A gRPC call that fails before its first message says so in its headers.
pub fn result_code(response: &Response) -> Code {
    if let Some(FailureCode(code)) = response.extensions().get::<FailureCode>() {
        return *code;
    }
    match Status::from_header_map(response.headers()) {
        Some(status) => status.code(),
        None if response.status().is_server_error() => Code::Internal,
        None if response.status().is_client_error() => Code::InvalidArgument,
        None => Code::Ok,
    }
}

/// The answer to a call that panicked.
pub fn panicked(metrics: &Metrics, panic: &(dyn Any + Send), is_grpc: bool) -> Response {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    metrics.panics.inc();
    error!(panic = text, "a call panicked");
    refuse(Failure::new(Code::Internal, "the call failed inside the server; see its log"), is_grpc)
}
