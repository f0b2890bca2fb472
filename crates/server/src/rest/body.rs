//! What routes share: request parts that fail as problem JSON instead of plain text, and the reply to a change.

use axum::{
    Json, RequestPartsExt as _,
    extract::{
        FromRequest, FromRequestParts, Request,
        rejection::{JsonRejection, PathRejection},
    },
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
};
use serde::{Serialize, de::DeserializeOwned};
use tonic::Code;
use utoipa::ToSchema;

use crate::failure::Failure;

/// An empty object: the change was made.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Done {}

/// A JSON body.
pub(super) struct Body<T>(pub T);

/// Whether a request is of a program that says nothing of its body's type, as Paraglider's clients do. A browser always
/// says from where it asks when it changes something, so that no page of others can pass for such a program.
pub(super) fn is_bare(headers: &HeaderMap) -> bool {
    [header::CONTENT_TYPE, header::COOKIE, header::ORIGIN, HeaderName::from_static("sec-fetch-site")]
        .iter()
        .all(|name| !headers.contains_key(name))
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(mut request: Request, state: &S) -> Result<Self, Failure> {
        if is_bare(request.headers()) {
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(header::CONTENT_TYPE, json);
        }
        match Json::<T>::from_request(request, state).await {
            Ok(Json(value)) => Ok(Self(value)),
            Err(rejection) => Err(json_failure(&rejection)),
        }
    }
}

fn json_failure(rejection: &JsonRejection) -> Failure {
    match rejection.status() {
        status @ StatusCode::PAYLOAD_TOO_LARGE => {
            Failure::new(Code::ResourceExhausted, rejection.body_text()).with_status(status)
        }
        _ => Failure::new(Code::InvalidArgument, rejection.body_text()),
    }
}

/// Path parameters.
pub(super) struct Path<T>(pub T);

impl<T: DeserializeOwned + Send + 'static, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        match parts.extract::<axum::extract::Path<T>>().await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(rejection) => Err(path_failure(&rejection)),
        }
    }
}

/// Parameters after the question mark.
pub(super) struct Query<T>(pub T);

impl<T: DeserializeOwned + Send + 'static, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        match parts.extract::<axum::extract::Query<T>>().await {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(Failure::new(Code::InvalidArgument, rejection.body_text())),
        }
    }
}

fn path_failure(rejection: &PathRejection) -> Failure {
    Failure::new(Code::InvalidArgument, rejection.body_text())
}
