//! `trestle namespace`.

use anyhow::{Context as _, bail};
use clap::Subcommand;
use wire::trestle::v1::{
    DeleteNamespaceRequest, Deployment, GetNamespaceRequest, ListNamespacesRequest, Namespace,
    namespaces_client::NamespacesClient,
};

use crate::{
    client::ConnectionArgs,
    context::ContextFile,
    output::{Format, Rows},
};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  trestle namespace create shop --deployment gcp=projects/shop-prod
  trestle namespace use shop")]
pub enum NamespaceCommand {
    /// All namespaces
    List,
    /// One namespace
    Get { name: String },
    /// Create a namespace, or replace its deployments
    #[command(visible_alias = "set")]
    Create {
        name: String,
        /// Where the namespace lives in a cloud, e.g. gcp=projects/shop; once per cloud
        #[arg(long, value_name = "CLOUD=ID", value_parser = deployment)]
        deployment: Vec<(String, String)>,
    },
    /// Delete an empty namespace
    Delete { name: String },
    /// Let later commands act in this namespace
    Use { name: String },
    /// The namespace that commands act in
    Current,
}

fn deployment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((cloud, id)) => Ok((cloud.to_owned(), id.to_owned())),
        None => Err("write it as CLOUD=ID".to_owned()),
    }
}

pub async fn run(
    command: NamespaceCommand,
    output: Format,
    connection: ConnectionArgs,
) -> anyhow::Result<()> {
    if let NamespaceCommand::Current = command {
        let name =
            ContextFile::load()?.and_then(|context| context.namespace).unwrap_or_else(|| "default".into());
        return output.done(&name.clone(), &serde_json::json!({ "name": name }));
    }
    let mut namespaces = NamespacesClient::new(connection.connect().await?);
    match command {
        NamespaceCommand::List => {
            let reply = namespaces.list_namespaces(ListNamespacesRequest {}).await?.into_inner();
            output.list(&reply.namespaces)
        }
        NamespaceCommand::Get { name } => {
            let reply = namespaces.get_namespace(GetNamespaceRequest { name }).await?.into_inner();
            output.one(&reply)
        }
        NamespaceCommand::Create { name, deployment } => {
            let deployments = deployment.into_iter().map(|(cloud, id)| Deployment { cloud, id }).collect();
            let reply = namespaces.set_namespace(Namespace { name, deployments }).await?.into_inner();
            output.done(&format!("Created/updated namespace: {}", reply.name), &reply)
        }
        NamespaceCommand::Delete { name } => {
            namespaces.delete_namespace(DeleteNamespaceRequest { name: name.clone() }).await?;
            output.done(&format!("Deleted namespace: {name}"), &serde_json::json!({ "name": name }))
        }
        NamespaceCommand::Use { name } => {
            namespaces.get_namespace(GetNamespaceRequest { name: name.clone() }).await?;
            let mut context = ContextFile::load()?.context("there is no context to keep the choice in")?;
            context.namespace = Some(name.clone());
            context.save()?;
            output
                .done(&format!("Commands now act in namespace: {name}"), &serde_json::json!({ "name": name }))
        }
        NamespaceCommand::Current => bail!("answered above, without a connection"),
    }
}

impl Rows for Namespace {
    const HEADER: &'static [&'static str] = &["name", "deployments"];

    fn row(&self) -> Vec<String> {
        let deployments: Vec<_> = self.deployments.iter().map(|d| format!("{}={}", d.cloud, d.id)).collect();
        vec![self.name.clone(), deployments.join(" ")]
    }
}
