//! The page, and what every reply of this listener tells browsers.

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tonic::Code;

use super::body::Path;
use crate::{
    config::{Page, PageFile},
    failure::{Failure, Problem},
};

/// Everything comes from here, nothing is written into the document, nobody frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

const HEADERS: &[(&str, &str)] = &[
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
    ("content-security-policy", POLICY),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Axum middleware around the whole listener. Replies are not kept by browsers unless they say so themselves.
pub(super) async fn guard(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The page.
#[utoipa::path(get, path = "/", tag = "system", security(()), responses((status = 200, content_type = "text/html")))]
pub(super) async fn index(State(page): State<Page>, headers: HeaderMap) -> Result<Response, Failure> {
    find(page, "index.html", &headers)
}

/// A file of the page.
#[utoipa::path(get, path = "/page/{file}", tag = "system", security(()), params(("file" = String, Path)), responses(
    (status = 200),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn file(
    State(page): State<Page>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    find(page, &name, &headers)
}

fn find(page: Page, name: &str, asked: &HeaderMap) -> Result<Response, Failure> {
    let unknown = || Failure::new(Code::NotFound, format!("the page has no file {name:?}"));
    Ok(serve(page(name).ok_or_else(unknown)?, asked))
}

/// Browsers ask each time, and are told when they have it already.
fn serve(file: PageFile, asked: &HeaderMap) -> Response {
    let headers =
        [(header::CONTENT_TYPE, file.kind), (header::ETAG, file.tag), (header::CACHE_CONTROL, "no-cache")];
    let known = asked.get(header::IF_NONE_MATCH).is_some_and(|tag| tag.as_bytes() == file.tag.as_bytes());
    match known {
        true => (StatusCode::NOT_MODIFIED, headers).into_response(),
        false => (headers, file.bytes).into_response(),
    }
}
