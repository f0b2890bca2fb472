//! Failures as Kubernetes clients read them.

use axum::{
    Json, body,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use watch::discovery;

use crate::failure::FailureCode;

/// Problems are short; a longer body is not one.
const MOST: usize = 64 << 10;

#[derive(Deserialize)]
struct Detail {
    detail: String,
}

/// Replaces a problem document by a `v1` `Status` that says the same.
pub async fn as_status(response: Response) -> Response {
    if response.extensions().get::<FailureCode>().is_none() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let detail = body::to_bytes(body, MOST).await.ok();
    let detail = detail.and_then(|bytes| serde_json::from_slice::<Detail>(&bytes).ok());
    let message = detail.map(|detail| detail.detail).unwrap_or_default();
    // The gate knows operations, not routes; to Kubernetes an operation that is not there is a method that is not.
    if parts.status == StatusCode::NOT_IMPLEMENTED {
        parts.status = StatusCode::METHOD_NOT_ALLOWED;
    }
    let status = discovery::status(parts.status.as_u16(), reason(parts.status), &message);
    // Of the old headers, those of the body go with it.
    parts.headers.remove(header::CONTENT_TYPE);
    parts.headers.remove(header::CONTENT_LENGTH);
    let mut response = (parts.status, Json(status)).into_response();
    response.headers_mut().extend(parts.headers);
    response.extensions_mut().extend(parts.extensions);
    response
}

fn reason(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::NOT_ACCEPTABLE => "NotAcceptable",
        StatusCode::GONE => "Expired",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "InternalError",
    }
}
