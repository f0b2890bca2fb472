//! `/policies` and `/explain`.

use std::sync::Arc;

use axum::{Json, extract::State};
use drivers::{flows::Flows, policy::Policy};
use wire::trestle::v1::{ExplainRequest, ExplainResponse, PolicyDetail, PolicyRequest, PolicyState};

use super::body::{Path, Query};
use crate::{
    explain::Explainer,
    failure::{Failure, Problem},
    realisation::Realisations,
    uses,
};

/// All policies, sorted by kind, namespace and name.
#[utoipa::path(get, path = "/policies", tag = "policies", responses(
    (status = 200, body = Vec<PolicyState>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(
    State(policy): State<Arc<Policy>>,
    State(realisations): State<Realisations>,
    State(flows): State<Option<Arc<Flows>>>,
) -> Json<Vec<PolicyState>> {
    let mut policies = realisations.policies(&policy, true);
    uses::tell(&flows, &policy, &mut policies).await;
    Json(policies)
}

/// One policy, with since when each place has it. The namespace of kinds without is `-`.
#[utoipa::path(get, path = "/policies/{kind}/{namespace}/{name}", tag = "policies",
    params(("kind" = String, Path), ("namespace" = String, Path), ("name" = String, Path)), responses(
    (status = 200, body = PolicyDetail),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(
    State(policy): State<Arc<Policy>>,
    State(realisations): State<Realisations>,
    State(flows): State<Option<Arc<Flows>>>,
    Path((kind, namespace, name)): Path<(String, String, String)>,
) -> Result<Json<PolicyDetail>, Failure> {
    let namespace = if namespace == "-" { String::new() } else { namespace };
    let mut detail = realisations.named(&policy, &PolicyRequest { kind, namespace, name })?;
    uses::tell_rules(&flows, &policy, &mut detail).await;
    Ok(Json(detail))
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
