//! `/policies` and `/explain`.

use std::sync::Arc;

use axum::{Json, extract::State};
use drivers::policy::Policy;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use watch::Phase;
use wire::trestle::v1::{self, ExplainRequest};

use super::body::Query;
use crate::{
    explain::Explainer,
    failure::{Failure, Problem},
    realisation::{Realisations, problems},
};

/// A policy and what it comes to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PolicyState {
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    generation: i64,
    /// Where it is to be enforced: nodes, external nodes, `cloud`.
    span: Vec<String>,
    /// What cannot be enforced as written; the policy denies what it covers.
    problems: Vec<FieldProblem>,
    /// `Pending` (nobody needs it), `Realizing`, `Realized`, or `Failed` (all nodes have answered, and some could not).
    phase: &'static str,
    /// Nodes that have this generation.
    realized: usize,
    /// Nodes that could not enforce it.
    failures: Vec<NodeFailure>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NodeFailure {
    node: String,
    message: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FieldProblem {
    path: String,
    message: String,
}

/// All policies, sorted by kind, namespace and name.
#[utoipa::path(get, path = "/policies", tag = "policies", responses(
    (status = 200, body = Vec<PolicyState>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(
    State(policy): State<Arc<Policy>>,
    State(realisations): State<Realisations>,
) -> Json<Vec<PolicyState>> {
    let mut realisations = realisations.all();
    let policies = policy.list().into_iter().map(|(id, state)| {
        let told = realisations.remove(&id);
        let failures = told.iter().flat_map(|told| &told.failures);
        let failures =
            failures.map(|(node, message)| NodeFailure { node: node.to_string(), message: message.clone() });
        PolicyState {
            phase: told.as_ref().map_or(Phase::Pending, |told| told.phase).as_str(),
            realized: told.as_ref().map_or(0, |told| told.current),
            failures: failures.collect(),
            kind: id.kind.as_str(),
            namespace: id.namespace,
            name: id.name,
            generation: state.generation,
            span: state.span.iter().map(ToString::to_string).collect(),
            problems: problems(state.problems, told.as_ref())
                .into_iter()
                .map(|p| FieldProblem { path: p.path, message: p.message })
                .collect(),
        }
    });
    Json(policies.collect())
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainQuery {
    /// `10.0.0.1`, `namespace.cloud.name` of a resource, `namespace/name` of a Pod, or `pod/…`, `entity/…`, `node/name`.
    source: String,
    destination: String,
    /// `tcp`, `udp`, `sctp`, `icmp` or `other`. Absent: `tcp` if a port is given, else all of them.
    #[serde(default)]
    protocol: String,
    /// Absent: every port, each answered for.
    port: Option<u32>,
    /// Absent: whichever the client has; an answer that depends on it says so.
    source_port: Option<u32>,
}

/// Why a connection is permitted or denied.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Explanation {
    /// Everything that was asked about is open.
    allowed: bool,
    /// `allowed`, `denied`, or `some`: of what was asked about, some is open and some is not.
    verdict: String,
    /// What is open of each protocol that was asked about.
    openings: Vec<Opening>,
    source: End,
    destination: End,
    /// Decided at the source. Where only some of what was asked about is open, the steps are those of something that is
    /// not, which a note names.
    egress: Side,
    /// Decided at the destination.
    ingress: Side,
    notes: Vec<String>,
    /// What would have to change; empty when permitted, and when no port was asked about.
    remedies: Vec<String>,
}

/// What is open of one protocol.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Opening {
    /// `tcp`, `udp`, `sctp`, `icmp` or `other`.
    protocol: String,
    /// `allowed`, `denied` or `some`.
    verdict: String,
    /// As in `80, 8000-8010`, `all but 22`, `443, 80 from 40000-60000`; types of ICMP, numbers of other protocols.
    ports: String,
    /// Where the verdict is `some`: what opens the first of them, at either end.
    because: Vec<String>,
}

#[derive(Debug, Default, Serialize, ToSchema)]
pub(super) struct End {
    workloads: Vec<String>,
    address: String,
    enforced_on: Vec<String>,
}

#[derive(Debug, Default, Serialize, ToSchema)]
pub(super) struct Side {
    allowed: bool,
    /// In order; the last one decides.
    steps: Vec<Step>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Step {
    stage: String,
    outcome: String,
    details: Vec<String>,
}

/// Why one workload can or cannot reach another.
#[utoipa::path(get, path = "/explain", tag = "policies", params(ExplainQuery), responses(
    (status = 200, body = Explanation),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn explain(
    State(explainer): State<Explainer>,
    Query(query): Query<ExplainQuery>,
) -> Result<Json<Explanation>, Failure> {
    let ExplainQuery { source, destination, protocol, port, source_port } = query;
    let request = ExplainRequest { source, destination, protocol, port, source_port };
    let reply = explainer.explain(&request).await?;
    let openings = reply.openings.into_iter().map(|opening| {
        let v1::Opening { protocol, verdict, ports, because } = opening;
        Opening { protocol, verdict, ports, because }
    });
    Ok(Json(Explanation {
        allowed: reply.allowed,
        verdict: reply.verdict,
        openings: openings.collect(),
        source: end(reply.source),
        destination: end(reply.destination),
        egress: side(reply.egress),
        ingress: side(reply.ingress),
        notes: reply.notes,
        remedies: reply.remedies,
    }))
}

fn end(end: Option<v1::ExplainedEnd>) -> End {
    let v1::ExplainedEnd { workloads, address, enforced_on } = end.unwrap_or_default();
    End { workloads, address, enforced_on }
}

fn side(side: Option<v1::ExplainedSide>) -> Side {
    let v1::ExplainedSide { allowed, steps } = side.unwrap_or_default();
    let steps = steps.into_iter().map(|v1::ExplainedStep { stage, outcome, details }| Step {
        stage,
        outcome,
        details,
    });
    Side { allowed, steps: steps.collect() }
}
