//! `/nodes`: the calls of `trestle.v1.Nodes`, as REST.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use wire::trestle::v1::{NodeObject, NodeObjectError, NodeStatus};

use super::body::Path;
use crate::{
    failure::{Failure, Problem},
    nodes::Nodes,
};

/// A node: its connection, what it has applied, and what it could not.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Node {
    name: String,
    connected: bool,
    /// `node`, or `seed` for `pb.DataplaneEvents`; empty if it was not connected since the controller started.
    protocol: String,
    /// Address and port of its end.
    peer: String,
    /// The agent's version.
    version: String,
    /// Seconds since the epoch.
    connected_at: Option<i64>,
    disconnected_at: Option<i64>,
    /// The newest revision of what concerns it, the last one sent, and the last one it has applied.
    revision: u64,
    sent_revision: u64,
    applied_revision: Option<u64>,
    /// Age of the oldest change it has not applied; 0 if it has applied everything.
    lag_seconds: f64,
    /// Objects that are not in force on it.
    errors: Vec<ObjectError>,
    /// Messages it did not understand.
    skipped: u64,
    bytes_sent: u64,
    /// Why its last stream ended, if the controller ended it.
    #[serde(skip_serializing_if = "String::is_empty")]
    last_end: String,
    /// The controller it is or was connected to, if that is not this one.
    #[serde(skip_serializing_if = "String::is_empty")]
    controller: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ObjectError {
    kind: &'static str,
    name: String,
    message: String,
}

/// A node with the objects it is meant to hold.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WholeNode {
    #[serde(flatten)]
    node: Node,
    /// In the order they are applied.
    objects: Vec<Object>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Object {
    kind: &'static str,
    name: String,
    /// When it last changed for this node.
    revision: u64,
    /// Of a set.
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<u64>,
}

/// All nodes, by name.
#[utoipa::path(get, path = "/nodes", tag = "nodes", responses(
    (status = 200, body = Vec<Node>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(State(nodes): State<Nodes>) -> Result<Json<Vec<Node>>, Failure> {
    Ok(Json(nodes.list().await?.into_iter().map(Node::from).collect()))
}

/// One node, with the objects it is meant to hold.
#[utoipa::path(get, path = "/nodes/{node}", tag = "nodes", params(("node" = String, Path)), responses(
    (status = 200, body = WholeNode),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(
    State(nodes): State<Nodes>,
    Path(name): Path<String>,
) -> Result<Json<WholeNode>, Failure> {
    let (status, objects) = nodes.get(&name).await?;
    Ok(Json(WholeNode { node: status.into(), objects: objects.into_iter().map(Object::from).collect() }))
}

impl From<NodeStatus> for Node {
    fn from(status: NodeStatus) -> Self {
        Self {
            name: status.name,
            connected: status.connected,
            protocol: status.protocol,
            peer: status.peer,
            version: status.version,
            connected_at: status.connected_at,
            disconnected_at: status.disconnected_at,
            revision: status.revision,
            sent_revision: status.sent_revision,
            applied_revision: status.applied_revision,
            lag_seconds: status.lag_seconds,
            errors: status.errors.into_iter().map(ObjectError::from).collect(),
            skipped: status.skipped,
            bytes_sent: status.bytes_sent,
            last_end: status.last_end,
            controller: status.controller,
        }
    }
}

impl From<NodeObjectError> for ObjectError {
    fn from(error: NodeObjectError) -> Self {
        Self { kind: error.kind().word(), name: error.name, message: error.message }
    }
}

impl From<NodeObject> for Object {
    fn from(object: NodeObject) -> Self {
        let kind = object.kind().word();
        Self { kind, name: object.name, revision: object.revision, members: object.members }
    }
}
