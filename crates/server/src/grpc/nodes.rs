//! `trestle.v1.Nodes`: the nodes as the controller sees them.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use ::transport::{HeldObject, Hub, SessionView};
use tonic::{Code, Request, Response, Status};
use wire::trestle::v1::{
    GetNodeRequest, GetNodeResponse, ListNodesRequest, ListNodesResponse, NodeObject, NodeObjectError,
    NodeStatus, nodes_server,
};

use crate::{failure::Failure, transport::SEED};

pub(super) struct Service(pub Arc<Hub>);

#[tonic::async_trait]
impl nodes_server::Nodes for Service {
    async fn list_nodes(&self, _: Request<ListNodesRequest>) -> Result<Response<ListNodesResponse>, Status> {
        let nodes = self.0.sessions().into_iter().map(status).collect();
        Ok(Response::new(ListNodesResponse { nodes }))
    }

    async fn get_node(&self, request: Request<GetNodeRequest>) -> Result<Response<GetNodeResponse>, Status> {
        let name = request.into_inner().name;
        let (session, held) = (self.0.session(&name), self.0.held(&name));
        if session.is_none() && held.is_none() {
            let text = format!(
                "no node {name} has connected since the controller started, and no object is meant for it"
            );
            return Err(Failure::new(Code::NotFound, text).into());
        }
        let status = session.map_or_else(|| NodeStatus { name, ..NodeStatus::default() }, status);
        let objects = held.unwrap_or_default().into_iter().map(object).collect();
        Ok(Response::new(GetNodeResponse { status: Some(status), objects }))
    }
}

fn object(held: HeldObject) -> NodeObject {
    NodeObject {
        kind: i32::from(held.key.kind.0),
        name: held.key.name.to_string(),
        revision: held.revision.0,
        members: held.members.map(|members| members as u64),
    }
}

fn status(view: SessionView) -> NodeStatus {
    let error = |(key, message): (::transport::Key, String)| NodeObjectError {
        kind: i32::from(key.kind.0),
        name: key.name.to_string(),
        message,
    };
    NodeStatus {
        name: view.name.to_string(),
        connected: view.connected,
        protocol: if view.dialect == SEED { "seed" } else { "node" }.to_owned(),
        peer: view.peer,
        version: view.version,
        connected_at: Some(seconds(view.connected_at)),
        disconnected_at: view.disconnected_at.map(seconds),
        revision: view.revision.0,
        sent_revision: view.sent.0,
        applied_revision: view.applied.map(|applied| applied.0),
        lag_seconds: view.lag.as_secs_f64(),
        errors: view.errors.into_iter().map(error).collect(),
        skipped: view.skipped,
        bytes_sent: view.bytes_sent,
        last_end: view.last_end.map(|end| end.message).unwrap_or_default(),
    }
}

fn seconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
