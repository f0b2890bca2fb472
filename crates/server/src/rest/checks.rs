//! `/policy-tests`, `/lint`, `/replay` and `/suggestions`: what policies come to, asked before or beside what is in force. All of them
//! only read.

use std::sync::Arc;

use axum::{Json, extract::State};
use drivers::policy::Policy;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use wire::trestle::v1::{
    LintFinding, LintRequest, ReplayRequest, ReplayResponse, RunPolicyTestsRequest, RunPolicyTestsResponse,
    SeenFlow, SuggestRequest, SuggestResponse,
};

use super::{
    body::{Body, Query},
    objects::texts,
};
use crate::{
    failure::{Failure, Problem},
    linted,
    objects::Changing,
    seen,
};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct TestsQuery {
    /// As if all that is staged were in force.
    staged: bool,
}

/// Run the policy tests that are stored.
#[utoipa::path(get, path = "/policy-tests", tag = "policies", params(TestsQuery), responses(
    (status = 200, body = RunPolicyTestsResponse),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn tests(
    State(changing): State<Changing>,
    Query(TestsQuery { staged }): Query<TestsQuery>,
) -> Result<Json<RunPolicyTestsResponse>, Failure> {
    let request = RunPolicyTestsRequest { staged, ..RunPolicyTestsRequest::default() };
    Ok(Json(changing.tests.run(request).await?))
}

/// Run policy tests as if documents (YAML or JSON) were stored: those stored, and those among the documents.
#[utoipa::path(post, path = "/policy-tests", tag = "policies", params(TestsQuery),
    request_body(content = String, content_type = "application/yaml"), responses(
    (status = 200, body = RunPolicyTestsResponse),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn tests_with(
    State(changing): State<Changing>,
    Query(TestsQuery { staged }): Query<TestsQuery>,
    text: String,
) -> Result<Json<RunPolicyTestsResponse>, Failure> {
    let documents = drivers::blocking(move || texts(&text)).await?;
    let request = RunPolicyTestsRequest { documents, staged, ..RunPolicyTestsRequest::default() };
    Ok(Json(changing.tests.run(request).await?))
}

/// What of the policies does nothing, with the proof.
#[utoipa::path(get, path = "/lint", tag = "policies", responses(
    (status = 200, body = Vec<LintFinding>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn lint(State(policy): State<Arc<Policy>>) -> Result<Json<Vec<LintFinding>>, Failure> {
    Ok(Json(linted::lint(&policy, LintRequest::default()).await?.findings))
}

/// The same of documents (YAML or JSON), as if they were stored.
#[utoipa::path(post, path = "/lint", tag = "policies",
    request_body(content = String, content_type = "application/yaml"), responses(
    (status = 200, body = Vec<LintFinding>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn lint_with(
    State(policy): State<Arc<Policy>>,
    text: String,
) -> Result<Json<Vec<LintFinding>>, Failure> {
    let documents = drivers::blocking(move || texts(&text)).await?;
    let request = LintRequest { documents, only_documents: true };
    Ok(Json(linted::lint(&policy, request).await?.findings))
}

/// Connections that were seen, and what is to be tried on them.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Replayed {
    flows: Vec<SeenFlow>,
    /// Documents (YAML or JSON), as if they were stored.
    #[serde(default)]
    documents: String,
    /// As if all that is staged were in force.
    #[serde(default)]
    staged: bool,
}

/// What connections that were seen would meet.
#[utoipa::path(post, path = "/replay", tag = "policies", request_body = Replayed, responses(
    (status = 200, body = ReplayResponse),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn replay(
    State(changing): State<Changing>,
    Body(Replayed { flows, documents, staged }): Body<Replayed>,
) -> Result<Json<ReplayResponse>, Failure> {
    let documents = match documents.trim().is_empty() {
        true => Vec::new(),
        false => drivers::blocking(move || texts(&documents)).await?,
    };
    Ok(Json(seen::replay(&changing.tests, ReplayRequest { flows, documents, staged }).await?))
}

/// Connections that were seen, to be permitted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Seen {
    flows: Vec<SeenFlow>,
    /// Only for what is in this namespace. Empty: for all.
    #[serde(default)]
    namespace: String,
}

/// Policies that permit connections that were seen, and as little else as labels allow.
#[utoipa::path(post, path = "/suggestions", tag = "policies", request_body = Seen, responses(
    (status = 200, body = SuggestResponse),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn suggest(
    State(policy): State<Arc<Policy>>,
    Body(Seen { flows, namespace }): Body<Seen>,
) -> Result<Json<SuggestResponse>, Failure> {
    Ok(Json(seen::suggest(&policy, SuggestRequest { flows, namespace }).await?))
}
