//! `/policy-tests`, `/lint`, `/replay` and `/suggestions`: what policies come to, asked before or beside what is in force. All of them
//! only read.

use axum::{Json, extract::State};
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

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct LintQuery {
    /// Also tell rules that have decided no connection since then, as nodes tell: a time as in RFC 3339, or how long ago, as in `30d`.
    unused_since: String,
}

/// What of the policies does nothing, with the proof.
#[utoipa::path(get, path = "/lint", tag = "policies", params(LintQuery), responses(
    (status = 200, body = Vec<LintFinding>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn lint(
    State(changing): State<Changing>,
    Query(LintQuery { unused_since }): Query<LintQuery>,
) -> Result<Json<Vec<LintFinding>>, Failure> {
    let request = LintRequest { unused_since, ..LintRequest::default() };
    Ok(Json(linted::lint(&changing, request).await?.findings))
}

/// The same of documents (YAML or JSON), as if they were stored.
#[utoipa::path(post, path = "/lint", tag = "policies",
    request_body(content = String, content_type = "application/yaml"), responses(
    (status = 200, body = Vec<LintFinding>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn lint_with(
    State(changing): State<Changing>,
    text: String,
) -> Result<Json<Vec<LintFinding>>, Failure> {
    let documents = drivers::blocking(move || texts(&text)).await?;
    let request = LintRequest { documents, only_documents: true, unused_since: String::new() };
    Ok(Json(linted::lint(&changing, request).await?.findings))
}

/// Connections that were seen, and what is to be tried on them.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Replayed {
    #[serde(default)]
    flows: Vec<SeenFlow>,
    /// Instead of `flows`: what nodes have told this controller since then. A time as in RFC 3339, or how long ago, as in `7d`.
    #[serde(default)]
    since: String,
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
    Body(Replayed { flows, since, documents, staged }): Body<Replayed>,
) -> Result<Json<ReplayResponse>, Failure> {
    let documents = match documents.trim().is_empty() {
        true => Vec::new(),
        false => drivers::blocking(move || texts(&documents)).await?,
    };
    Ok(Json(seen::replay(&changing, ReplayRequest { flows, documents, staged, since }).await?))
}

/// Connections that were seen, to be permitted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Seen {
    #[serde(default)]
    flows: Vec<SeenFlow>,
    /// Instead of `flows`: what nodes have told this controller since then. A time as in RFC 3339, or how long ago, as in `7d`.
    #[serde(default)]
    since: String,
    /// Only for what is in this namespace. Empty: for all.
    #[serde(default)]
    namespace: String,
    /// Also policies of egress. Otherwise egress stays open.
    #[serde(default)]
    egress: bool,
}

/// Policies that permit connections that were seen, and as little else as labels allow.
#[utoipa::path(post, path = "/suggestions", tag = "policies", request_body = Seen, responses(
    (status = 200, body = SuggestResponse),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn suggest(
    State(changing): State<Changing>,
    Body(Seen { flows, since, namespace, egress }): Body<Seen>,
) -> Result<Json<SuggestResponse>, Failure> {
    Ok(Json(seen::suggest(&changing, SuggestRequest { flows, namespace, since, egress }).await?))
}
