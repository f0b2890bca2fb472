//! `/nodes`: the calls of `trestle.v1.Nodes`, as REST.

use axum::{Json, extract::State};
use wire::trestle::v1::{GetNodeResponse, NodeStatus};

use super::body::Path;
use crate::{
    failure::{Failure, Problem},
    nodes::Nodes,
};

/// All nodes, by name.
#[utoipa::path(get, path = "/nodes", tag = "nodes", responses(
    (status = 200, body = Vec<NodeStatus>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(State(nodes): State<Nodes>) -> Result<Json<Vec<NodeStatus>>, Failure> {
    Ok(Json(nodes.list().await?))
}

/// One node, with the objects it is meant to hold.
#[utoipa::path(get, path = "/nodes/{node}", tag = "nodes", params(("node" = String, Path)), responses(
    (status = 200, body = GetNodeResponse),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(
    State(nodes): State<Nodes>,
    Path(name): Path<String>,
) -> Result<Json<GetNodeResponse>, Failure> {
    let (status, objects) = nodes.get(&name).await?;
    Ok(Json(GetNodeResponse { status: Some(status), objects }))
}
