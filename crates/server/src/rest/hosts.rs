//! `/hosts`: the calls of `trestle.v1.Hosts`, as REST.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Extension, State},
};
use wire::trestle::v1::{CreateJoinTokenRequest, CreateJoinTokenResponse, HostInfo, RemoveHostResponse};

use super::body::{Body, Path};
use crate::{
    access::{Caller, join::Admissions},
    failure::{Failure, Problem},
    grpc::access::make_join_token,
    hosts::Hosts,
};

/// All hosts, by name.
#[utoipa::path(get, path = "/hosts", tag = "hosts", responses(
    (status = 200, body = Vec<HostInfo>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(State(hosts): State<Hosts>) -> Json<Vec<HostInfo>> {
    Json(hosts.list())
}

/// One host.
#[utoipa::path(get, path = "/hosts/{host}", tag = "hosts", params(("host" = String, Path)), responses(
    (status = 200, body = HostInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(
    State(hosts): State<Hosts>,
    Path(name): Path<String>,
) -> Result<Json<HostInfo>, Failure> {
    Ok(Json(hosts.get(&name)?))
}

/// Remove a host: its certificates, its tag and its record. It cannot come back with the key it had.
#[utoipa::path(delete, path = "/hosts/{host}", tag = "hosts", params(("host" = String, Path)), responses(
    (status = 200, body = RemoveHostResponse),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn remove(
    State(hosts): State<Hosts>,
    Path(name): Path<String>,
) -> Result<Json<RemoveHostResponse>, Failure> {
    Ok(Json(hosts.remove(&name).await?))
}

/// Make a token that lets machines join as hosts.
#[utoipa::path(post, path = "/hosts/tokens", tag = "hosts", request_body = CreateJoinTokenRequest, responses(
    (status = 200, body = CreateJoinTokenResponse),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn create_token(
    State(admissions): State<Arc<Admissions>>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<CreateJoinTokenRequest>,
) -> Result<Json<CreateJoinTokenResponse>, Failure> {
    Ok(Json(make_join_token(&admissions, Some(&caller), request).await?))
}
