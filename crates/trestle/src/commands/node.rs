//! `trestle node`.

use clap::Subcommand;
use wire::trestle::v1::{
    GetNodeRequest, ListNodesRequest, NodeHost, NodeObject, NodeObjectError, NodeStatus,
    nodes_client::NodesClient,
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
            output.list(&reply.nodes)
        }
        NodeCommand::Get { name } => {
            let reply = nodes.get_node(GetNodeRequest { name }).await?.into_inner();
            if !output.is_for_people() {
                return output.data(&reply);
            }
            let status = reply.status.unwrap_or_default();
            output.one(&status)?;
            if let Some(host) = &status.host {
                output.one(host)?;
            }
            output.list(&status.errors)?;
            output.list(&reply.objects)
        }
    }
}

/// The node itself.
impl Rows for NodeHost {
    const HEADER: &'static [&'static str] = &["restricted", "refused", "stays open", "addresses"];

    fn row(&self) -> Vec<String> {
        let restricted = match (self.restricts_input, self.restricts_output) {
            (false, false) => "no",
            (true, false) => "in",
            (false, true) => "out",
            (true, true) => "in and out",
        };
        let refused = match self.observed {
            Some(count) => format!("nothing: {count} packets observed"),
            None => "yes".to_owned(),
        };
        let addresses = self.interfaces.iter().flat_map(|one| &one.addresses);
        let addresses: Vec<&str> = addresses.map(String::as_str).collect();
        vec![restricted.to_owned(), refused, self.fail_safes.join(", "), addresses.join(" ")]
    }
}

impl Rows for NodeStatus {
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

impl Rows for NodeObjectError {
    const HEADER: &'static [&'static str] = &["not in force", "name", "because"];

    fn row(&self) -> Vec<String> {
        vec![self.kind().word().to_owned(), self.name.clone(), self.message.clone()]
    }
}

impl Rows for NodeObject {
    const HEADER: &'static [&'static str] = &["kind", "name", "revision", "members"];

    fn row(&self) -> Vec<String> {
        let members = self.members.map(|members| members.to_string()).unwrap_or_default();
        vec![self.kind().word().to_owned(), self.name.clone(), self.revision.to_string(), members]
    }
}
