//! The controller itself: health, metrics, audit and the document.

use std::sync::{Arc, LazyLock};

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use drivers::{blocking, flows::Flows, storage::Storage, tags::Tags};
use serde::{Deserialize, Serialize};
use store::Store;
use tonic::Code;
use transport::Hub;
use utoipa::{IntoParams, ToSchema};

use super::body::Query;
use crate::{
    audit::{self, Audit, Record},
    failure::{Failure, Problem},
    grpc::audit::time,
    metrics::Metrics,
    serving::Serving,
};

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Pong {
    message: &'static str,
}

/// Whether the controller can serve.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Readiness {
    ready: bool,
    /// Why not; empty if it is.
    problems: Vec<String>,
}

/// Is somebody there?
#[utoipa::path(get, path = "/ping", tag = "system", security(()), responses((status = 200, body = Pong)))]
pub(super) async fn ping() -> Json<Pong> {
    Json(Pong { message: "pong" })
}

/// The process lives.
#[utoipa::path(get, path = "/healthz", tag = "system", security(()), responses((status = 200, body = String)))]
pub(super) async fn healthz() -> &'static str {
    "ok"
}

/// The controller has read its initial state and the store takes writes.
#[utoipa::path(get, path = "/readyz", tag = "system", security(()), responses(
    (status = 200, body = Readiness),
    (status = 503, body = Readiness),
))]
pub(super) async fn readyz(State(serving): State<Arc<Serving>>) -> Response {
    let problems = serving.not_ready().await;
    let ready = problems.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, problems })).into_response()
}

/// Numbers for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "system", responses(
    (status = 200, content_type = "application/openmetrics-text"),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn metrics(
    State(metrics): State<Arc<Metrics>>,
    State(store): State<Store>,
    State(tags): State<Arc<Tags>>,
    State(hub): State<Arc<Hub>>,
    State(storage): State<Option<Arc<Storage>>>,
    State(flows): State<Option<Arc<Flows>>>,
) -> Response {
    if let Ok(health) = store.health().await {
        metrics.observe_store(&health);
    }
    metrics.observe_tags(&tags.stats());
    metrics.observe_nodes(&hub.stats());
    if let Some(storage) = &storage {
        metrics.observe_storage(&storage.stats().await);
    }
    if let Some(flows) = &flows {
        metrics.observe_flows(&flows.stats());
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], metrics.render()).into_response()
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    /// At most this many; default 100.
    limit: Option<usize>,
    /// All lines of one call, its intent too.
    #[serde(default)]
    id: String,
    /// A name, a role and a name as in `admin/alice`, or `unknown`.
    #[serde(default)]
    caller: String,
    /// A part of an object's name, in the request or among what changed.
    #[serde(default)]
    object: String,
    /// A part of the operation's name.
    #[serde(default)]
    operation: String,
    /// A code such as `OK`.
    #[serde(default)]
    result: String,
    /// RFC 3339.
    #[serde(default)]
    since: String,
    #[serde(default)]
    until: String,
}

/// The newest audit records that match, newest first; one for each call.
#[utoipa::path(get, path = "/audit", tag = "system", params(AuditQuery), responses(
    (status = 200, body = Vec<Record>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn audit(
    State(audit): State<Arc<Audit>>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<Vec<Record>>, Failure> {
    let AuditQuery { limit, id, caller, object, operation, result, since, until } = query;
    let (since, until) = (time("since", &since)?, time("until", &until)?);
    let query = audit::Query { id, caller, object, operation, result, since, until };
    let found = blocking(move || audit.find(query, limit.unwrap_or(100))).await;
    found
        .map(Json)
        .map_err(|err| Failure::new(Code::Internal, format!("the audit log cannot be read: {err}")))
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "system", security(()), responses((status = 200)))]
pub(super) async fn openapi() -> impl IntoResponse {
    // Made once: anyone may ask for it, as often as they like.
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
        serde_json::to_vec(&super::openapi()).expect("the document has no maps with odd keys").into()
    });
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.clone())
}
