//! `trestle node`.

use clap::Subcommand;
use serde::Serialize;
use wire::trestle::v1::{
    GetNodeRequest, ListNodesRequest, NodeObject, NodeObjectError, NodeStatus, nodes_client::NodesClient,
};

use crate::{
    client::{Connection, MAX_MESSAGE},
    output::{Format, Rows},
};

#[derive(Debug, Subcommand)]
#[command(
    after_help = "A node that has applied everything has lag 0. Nodes on Azure NPM's protocol never say what they
have applied.

Examples:
  trestle node list
  trestle node get node-1"
)]
pub enum NodeCommand {
    /// All nodes: connected, known by a certificate, or described by a Node object
    List,
    /// One node: its connection, what is wrong on it, and the objects it is meant to hold
    Get { name: String },
}

pub async fn run(command: NodeCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut nodes = NodesClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    match command {
        NodeCommand::List => {
            let reply = nodes.list_nodes(ListNodesRequest {}).await?.into_inner();
            output.list(&reply.nodes.into_iter().map(NodeView::from).collect::<Vec<_>>())
        }
        NodeCommand::Get { name } => {
            let reply = nodes.get_node(GetNodeRequest { name }).await?.into_inner();
            let view = WholeView {
                node: reply.status.unwrap_or_default().into(),
                objects: reply.objects.into_iter().map(ObjectView::from).collect(),
            };
            if output != Format::Table {
                return output.data(&view);
            }
            output.one(&view.node)?;
            output.list(&view.node.errors)?;
            output.list(&view.objects)
        }
    }
}

#[derive(Debug, Serialize)]
struct WholeView {
    #[serde(flatten)]
    node: NodeView,
    objects: Vec<ObjectView>,
}

#[derive(Debug, Serialize)]
struct NodeView {
    name: String,
    connected: bool,
    protocol: String,
    peer: String,
    version: String,
    connected_at: Option<i64>,
    disconnected_at: Option<i64>,
    revision: u64,
    sent_revision: u64,
    applied_revision: Option<u64>,
    lag_seconds: f64,
    errors: Vec<ErrorView>,
    skipped: u64,
    bytes_sent: u64,
    last_end: String,
    controller: String,
}

impl From<NodeStatus> for NodeView {
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
            errors: status.errors.into_iter().map(ErrorView::from).collect(),
            skipped: status.skipped,
            bytes_sent: status.bytes_sent,
            last_end: status.last_end,
            controller: status.controller,
        }
    }
}

impl Rows for NodeView {
    const HEADER: &'static [&'static str] = &[
        "name",
        "connected",
        "protocol",
        "peer",
        "version",
        "revision",
        "applied",
        "lag",
        "errors",
        "last end",
        "controller",
    ];

    fn row(&self) -> Vec<String> {
        let applied = self.applied_revision.map_or_else(|| "-".to_owned(), |revision| revision.to_string());
        vec![
            self.name.clone(),
            if self.connected { "yes" } else { "no" }.to_owned(),
            self.protocol.clone(),
            self.peer.clone(),
            self.version.clone(),
            self.revision.to_string(),
            applied,
            format!("{:.1}s", self.lag_seconds),
            self.errors.len().to_string(),
            self.last_end.clone(),
            self.controller.clone(),
        ]
    }
}

#[derive(Debug, Serialize)]
struct ErrorView {
    kind: &'static str,
    name: String,
    message: String,
}

impl From<NodeObjectError> for ErrorView {
    fn from(error: NodeObjectError) -> Self {
        Self { kind: error.kind().word(), name: error.name, message: error.message }
    }
}

impl Rows for ErrorView {
    const HEADER: &'static [&'static str] = &["not in force", "name", "because"];

    fn row(&self) -> Vec<String> {
        vec![self.kind.to_owned(), self.name.clone(), self.message.clone()]
    }
}

#[derive(Debug, Serialize)]
struct ObjectView {
    kind: &'static str,
    name: String,
    revision: u64,
    members: Option<u64>,
}

impl From<NodeObject> for ObjectView {
    fn from(object: NodeObject) -> Self {
        Self {
            kind: object.kind().word(),
            name: object.name,
            revision: object.revision,
            members: object.members,
        }
    }
}

impl Rows for ObjectView {
    const HEADER: &'static [&'static str] = &["kind", "name", "revision", "members"];

    fn row(&self) -> Vec<String> {
        let members = self.members.map(|members| members.to_string()).unwrap_or_default();
        vec![self.kind.to_owned(), self.name.clone(), self.revision.to_string(), members]
    }
}
