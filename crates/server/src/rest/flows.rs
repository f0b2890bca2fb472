//! `/flows`.

use std::sync::Arc;

use axum::{Json, extract::State};
use drivers::flows::Flows;
use wire::trestle::v1::{FlowList, FlowsRequest};

use super::body::Query;
use crate::{
    failure::{Failure, Problem},
    flows_view as view,
};

/// Connections that nodes have seen, allowed and denied, newest first.
#[utoipa::path(get, path = "/flows", tag = "flows", params(FlowsRequest), responses(
    (status = 200, body = FlowList),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(
    State(flows): State<Option<Arc<Flows>>>,
    Query(request): Query<FlowsRequest>,
) -> Result<Json<FlowList>, Failure> {
    Ok(Json(view::list(&flows, &request).await?))
}

/// The same, added up over all the time that is asked about; those with the largest count first.
#[utoipa::path(get, path = "/flows/top", tag = "flows", params(FlowsRequest), responses(
    (status = 200, body = FlowList),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn top(
    State(flows): State<Option<Arc<Flows>>>,
    Query(request): Query<FlowsRequest>,
) -> Result<Json<FlowList>, Failure> {
    Ok(Json(view::top(&flows, &request).await?))
}
