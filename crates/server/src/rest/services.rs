//! `/services`.

use std::sync::Arc;

use axum::{Json, extract::State};
use drivers::services::Services;
use wire::trestle::v1::{ExplainServiceRequest, ExplainServiceResponse, ListServicesRequest, ServiceState};

use super::body::{Path, Query};
use crate::{
    failure::{Failure, Problem},
    services_view as view,
};

/// Services that nodes balance.
#[utoipa::path(get, path = "/services", tag = "services", params(ListServicesRequest), responses(
    (status = 200, body = Vec<ServiceState>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(
    State(services): State<Arc<Services>>,
    Query(query): Query<ListServicesRequest>,
) -> Result<Json<Vec<ServiceState>>, Failure> {
    Ok(Json(view::list(&services, &query.namespace)))
}

/// One service with its endpoints.
#[utoipa::path(get, path = "/services/{namespace}/{name}", tag = "services",
    params(("namespace" = String, Path), ("name" = String, Path)), responses(
    (status = 200, body = ServiceState),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(
    State(services): State<Arc<Services>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Json<ServiceState>, Failure> {
    Ok(Json(view::get(&services, &namespace, &name)?))
}

/// Where a packet to a service goes from a node, and why.
#[utoipa::path(get, path = "/services/explain", tag = "services", params(ExplainServiceRequest), responses(
    (status = 200, body = ExplainServiceResponse),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn explain(
    State(services): State<Arc<Services>>,
    Query(request): Query<ExplainServiceRequest>,
) -> Result<Json<ExplainServiceResponse>, Failure> {
    Ok(Json(view::explain(&services, &request)?))
}
