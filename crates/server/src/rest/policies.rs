//! `/policies` and `/explain`.

use std::sync::Arc;

use axum::{Json, extract::State};
use drivers::policy::Policy;
use wire::trestle::v1::{ExplainRequest, ExplainResponse, PolicyState};

use super::body::Query;
use crate::{
    explain::Explainer,
    failure::{Failure, Problem},
    realisation::Realisations,
};

/// All policies, sorted by kind, namespace and name.
#[utoipa::path(get, path = "/policies", tag = "policies", responses(
    (status = 200, body = Vec<PolicyState>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(
    State(policy): State<Arc<Policy>>,
    State(realisations): State<Realisations>,
) -> Json<Vec<PolicyState>> {
    Json(realisations.policies(&policy, true))
}

/// Why one workload can or cannot reach another.
#[utoipa::path(get, path = "/explain", tag = "policies", params(ExplainRequest), responses(
    (status = 200, body = ExplainResponse),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn explain(
    State(explainer): State<Explainer>,
    Query(request): Query<ExplainRequest>,
) -> Result<Json<ExplainResponse>, Failure> {
    Ok(Json(explainer.explain(&request).await?))
}
