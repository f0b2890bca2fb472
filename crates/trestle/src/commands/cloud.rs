//! `trestle cloud`.

use clap::Subcommand;
use wire::trestle::v1::{
    CloudInfo, CloudRequest, ListCloudsRequest, orchestrator_client::OrchestratorClient,
};

use crate::{
    client::{Connection, MAX_MESSAGE},
    output::{Format, Rows},
};

#[derive(Debug, Subcommand)]
#[command(
    after_help = "Clouds are given with `trestle up --cloud NAME=PLUGIN` or in the configuration's `clouds`; see docs/cloud-plugins.md.

Examples:
  trestle cloud list
  trestle cloud get aws            since when it is as it is, and why"
)]
pub enum CloudCommand {
    /// All clouds that are to be, also those that do not answer
    List,
    /// One cloud
    Get { name: String },
}

pub async fn run(command: CloudCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut client = OrchestratorClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    match command {
        CloudCommand::List => {
            let reply = client.list_clouds(ListCloudsRequest {}).await?.into_inner();
            output.list(&reply.clouds)
        }
        CloudCommand::Get { name } => {
            output.one(&client.get_cloud(CloudRequest { name }).await?.into_inner())
        }
    }
}

impl Rows for CloudInfo {
    const HEADER: &'static [&'static str] = &["name", "plugin", "state", "since", "resources", "message"];

    fn row(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.plugin.clone(),
            self.state.clone(),
            self.since.clone(),
            self.resources.to_string(),
            self.message.clone(),
        ]
    }
}
