//! `/permissions`.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use utoipa::IntoParams;
use wire::trestle::v1::{AllowOutcome, AllowRequest, DenyRequest, PermissionInfo, Proof};

use super::body::{Body, Path, Query};
use crate::{
    failure::{Failure, Problem},
    permissions::Allows,
};

/// Whether something is to happen.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
pub(super) struct Really {
    /// Answer with the plan, and change nothing.
    dry_run: bool,
    /// Do it although a policy test fails then.
    despite_tests: bool,
}

/// 202 while a job makes it so.
fn answer(outcome: AllowOutcome) -> Response {
    let status = if outcome.job.is_some() { StatusCode::ACCEPTED } else { StatusCode::OK };
    (status, Json(outcome)).into_response()
}

/// All permissions, by name.
#[utoipa::path(get, path = "/permissions", tag = "permissions", responses(
    (status = 200, body = Vec<PermissionInfo>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(State(allows): State<Allows>) -> Result<Json<Vec<PermissionInfo>>, Failure> {
    Ok(Json(allows.list()?))
}

/// Allow: store a permission, and make it true.
#[utoipa::path(post, path = "/permissions", tag = "permissions", params(Really), request_body = AllowRequest, responses(
    (status = 200, body = AllowOutcome),
    (status = 202, body = AllowOutcome),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn allow(
    State(allows): State<Allows>,
    Query(Really { dry_run, despite_tests }): Query<Really>,
    Body(request): Body<AllowRequest>,
) -> Result<Response, Failure> {
    let despite_tests = despite_tests || request.despite_tests;
    Ok(answer(allows.allow(&AllowRequest { dry_run, despite_tests, ..request }).await?))
}

/// One permission.
#[utoipa::path(get, path = "/permissions/{name}", tag = "permissions", params(("name" = String, Path)), responses(
    (status = 200, body = PermissionInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(
    State(allows): State<Allows>,
    Path(name): Path<String>,
) -> Result<Json<PermissionInfo>, Failure> {
    Ok(Json(allows.get(&name)?))
}

/// Take a permission back, with all that it gave.
#[utoipa::path(delete, path = "/permissions/{name}", tag = "permissions", params(("name" = String, Path), Really),
    responses(
    (status = 200, body = AllowOutcome),
    (status = 202, body = AllowOutcome),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn deny(
    State(allows): State<Allows>,
    Path(name): Path<String>,
    Query(Really { dry_run, despite_tests }): Query<Really>,
) -> Result<Response, Failure> {
    Ok(answer(allows.deny(DenyRequest { name, dry_run, despite_tests, ..DenyRequest::default() }).await?))
}

/// Explain, for those at both ends, whether what a permission says is open now.
#[utoipa::path(get, path = "/permissions/{name}/proof", tag = "permissions", params(("name" = String, Path)), responses(
    (status = 200, body = Proof),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn proof(
    State(allows): State<Allows>,
    Path(name): Path<String>,
) -> Result<Json<Proof>, Failure> {
    let PermissionInfo { from, to, traffic, .. } = allows.get(&name)?;
    Ok(Json(allows.prove(&AllowRequest { from, to, traffic, ..AllowRequest::default() }).await?))
}
