//! What nodes report: how far they are with a policy, and what they counted.

use std::sync::Arc;

use axum::{
    Extension, Json,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use drivers::peers::millis;
use model::policy::output::Identifier;
use tonic::Code;
use watch::{Cache, Report, discovery, proto, read_body};

use super::own_node;
use crate::{access::Caller, failure::Failure};

/// Reports in one body: one per node, and a body that is larger is not a report.
const MOST: usize = 10_000;

pub(super) async fn policy_status(
    State(watch): State<Arc<Cache>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    let status: proto::NetworkPolicyStatus =
        read_body(content_type(&headers), &body).map_err(|err| Failure::invalid(&err))?;
    if status.nodes.len() > MOST {
        let text = format!("{} nodes in one report; at most {MOST} are taken", status.nodes.len());
        return Err(Failure::new(Code::InvalidArgument, text));
    }
    // All or nothing: one foreign name spoils the report.
    let own = own_node(&caller);
    if let Some(foreign) =
        status.nodes.iter().find(|node| own.as_ref().is_some_and(|own| *own != node.node_name))
    {
        let node: String = foreign.node_name.chars().take(256).collect();
        let text = format!("{} may not report for node {node:?}", caller.subject);
        return Err(Failure::new(Code::PermissionDenied, text));
    }
    let policy = Identifier::parse(&name);
    for node in status.nodes {
        let report = Report {
            generation: node.generation,
            is_failure: node.realization_failure,
            message: node.message,
        };
        watch.report(&node.node_name, &policy, report, millis());
    }
    Ok((StatusCode::CREATED, Json(discovery::status(201, "", ""))).into_response())
}

/// Added up, and answered as a stock agent expects.
pub(super) async fn node_stats(
    State(watch): State<Arc<Cache>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    let content_type = content_type(&headers).to_owned();
    let stats: proto::NodeStatsSummary =
        read_body(&content_type, &body).map_err(|err| Failure::invalid(&err))?;
    if own_node(&caller).is_some_and(|own| own != stats.metadata.name) {
        let name: String = stats.metadata.name.chars().take(256).collect();
        let text = format!("{} may not report for node {name:?}", caller.subject);
        return Err(Failure::new(Code::PermissionDenied, text));
    }
    watch.count(&stats.metadata.name, &stats, millis());
    Ok((StatusCode::CREATED, [(header::CONTENT_TYPE, content_type)], body).into_response())
}

pub(super) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or("application/json")
}
