//! `trestle resource`.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process,
};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use wire::trestle::v1::{
    CreateCloudResourceRequest, ListResourcesRequest, ResourceInfo, ResourceRequest, RuleScope,
    orchestrator_client::OrchestratorClient, rule_scope::Scope,
};

use super::job::{ChangeArgs, finish, said};
use crate::{
    client::ConnectionArgs,
    context::ContextFile,
    output::{Format, Rows, print, rows},
    visible::visible,
};

#[derive(Debug, Subcommand)]
#[command(after_help = "A resource is written CLOUD.NAME (in the current namespace) or NAMESPACE.CLOUD.NAME.

Examples:
  trestle resource create a.web --region west
  trestle resource create a.api --command 'python3 -m http.server 80'
  trestle resource attach a.old netns:old --dry-run
  trestle resource attach aws.old i-0123456789abcdef0
  trestle resource list
  trestle resource exec a.web -- ping -c1 10.1.0.2")]
pub enum ResourceCommand {
    /// Create a resource, closed to all traffic
    Create {
        name: String,
        /// The cloud's own description, without network settings
        #[arg(long, value_name = "TEXT", default_value = "{}")]
        description: String,
        /// Read the description from a file
        #[arg(long, value_name = "FILE", conflicts_with = "description")]
        file: Option<PathBuf>,
        /// Put this region into the description
        #[arg(long)]
        region: Option<String>,
        /// Put this command into the description: a Linux cloud runs it inside, and again whenever it ends
        #[arg(long, value_name = "SHELL")]
        command: Option<String>,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Take over what exists in a cloud: it is closed but for its rules, and is as before once the resource is deleted
    Attach {
        name: String,
        /// The cloud's own id: netns:NAMESPACE or link:INTERFACE in a Linux cloud, i-… in AWS, /subscriptions/… in Azure, the instance's in IBM Cloud
        id: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// The resources of the current namespace
    List {
        /// Of all namespaces
        #[arg(short = 'A', long, visible_alias = "all-namespaces")]
        all: bool,
    },
    /// One resource, and what is in force at it
    Get { name: String },
    /// Delete a resource with its rules; what was attached is let go and stays
    Delete {
        name: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Run a command inside a resource of a Linux cloud of this machine
    Exec {
        name: String,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

/// The full name of a resource.
pub fn full(name: &str) -> anyhow::Result<String> {
    match name.split('.').count() {
        2 => Ok(format!("{}.{name}", namespace()?)),
        3 => Ok(name.to_owned()),
        _ => bail!("{name:?} is no resource: write CLOUD.NAME or NAMESPACE.CLOUD.NAME"),
    }
}

pub fn namespace() -> anyhow::Result<String> {
    Ok(ContextFile::load()?.and_then(|context| context.namespace).unwrap_or_else(|| "default".into()))
}

pub async fn run(command: ResourceCommand, output: Format, connection: ConnectionArgs) -> anyhow::Result<()> {
    let connection = connection.connect().await?;
    let mut client = OrchestratorClient::new(connection.clone());
    match command {
        ResourceCommand::Create { name, description, file, region, command, change } => {
            let name = full(&name)?;
            let description = match file {
                Some(path) => {
                    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?
                }
                None => description,
            };
            let description = with_settings(description, [("region", region), ("command", command)])?;
            let dry_run = change.dry_run;
            let request =
                CreateCloudResourceRequest { name: name.clone(), description, attach: false, dry_run };
            let outcome = client.create_cloud_resource(request).await?.into_inner();
            if finish(outcome, &change, output, &connection).await? {
                show(&mut client, name, output).await?;
            }
            Ok(())
        }
        ResourceCommand::Attach { name, id, change } => {
            let name = full(&name)?;
            let dry_run = change.dry_run;
            let request =
                CreateCloudResourceRequest { name: name.clone(), description: id, attach: true, dry_run };
            let outcome = client.create_cloud_resource(request).await?.into_inner();
            if finish(outcome, &change, output, &connection).await? {
                show(&mut client, name, output).await?;
            }
            Ok(())
        }
        ResourceCommand::List { all } => {
            let namespace = if all { String::new() } else { namespace()? };
            let listed = client.list_resources(ListResourcesRequest { namespace }).await?.into_inner();
            output.list(&listed.resources)
        }
        ResourceCommand::Get { name } => {
            let name = full(&name)?;
            show(&mut client, name.clone(), output).await?;
            if output.is_for_people() {
                let scope = RuleScope { scope: Some(Scope::Resource(name)) };
                let in_force = client.list_rules_in_force(scope).await?.into_inner().rules;
                print("")?;
                rows(&in_force)?;
            }
            Ok(())
        }
        ResourceCommand::Delete { name, change } => {
            let name = full(&name)?;
            let request = ResourceRequest { name: name.clone(), dry_run: change.dry_run };
            let outcome = client.delete_resource(request).await?.into_inner();
            if finish(outcome, &change, output, &connection).await? {
                said(output, &format!("Deleted resource: {name}"), &name)?;
            }
            Ok(())
        }
        ResourceCommand::Exec { name, command } => {
            let request = ResourceRequest { name: full(&name)?, dry_run: false };
            exec(&client.get_resource(request).await?.into_inner(), &command)
        }
    }
}

/// A description with settings put in; without settings it is passed on as it is, whatever it is.
fn with_settings(description: String, settings: [(&str, Option<String>); 2]) -> anyhow::Result<String> {
    if settings.iter().all(|(_, value)| value.is_none()) {
        return Ok(description);
    }
    let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&description)
        .context("--region and --command need a description that is a JSON object")?;
    for (name, value) in settings {
        if let Some(value) = value
            && fields.insert(name.to_owned(), value.into()).is_some()
        {
            bail!("the description has a {name} already");
        }
    }
    Ok(serde_json::Value::Object(fields).to_string())
}

async fn show(
    client: &mut OrchestratorClient<crate::client::Connection>,
    name: String,
    output: Format,
) -> anyhow::Result<()> {
    let resource = client.get_resource(ResourceRequest { name, dry_run: false }).await?.into_inner();
    output.one(&resource)?;
    tell_notes(&resource, output);
    Ok(())
}

/// What a table has no place for. Programs find it in the object.
pub fn tell_notes(resource: &ResourceInfo, output: Format) {
    if output.is_for_people() {
        let mut out = io::stderr().lock();
        // Nobody is left to tell if standard error is closed.
        resource.notes.iter().for_each(|note| drop(writeln!(out, "note: {}", visible(note))));
    }
}

/// Becomes the command, in the resource's network namespace.
fn exec(resource: &ResourceInfo, command: &[String]) -> anyhow::Result<()> {
    let Some(namespace) = resource.uri.strip_prefix("netns:") else {
        bail!("{} is no network namespace, so nothing can be run in it from here", resource.name);
    };
    if !rustix::process::geteuid().is_root() {
        bail!("{} is the network namespace {namespace}, and to enter it one must be root", resource.name);
    }
    if !std::path::Path::new("/run/netns").join(namespace).exists() {
        bail!("{} is the network namespace {namespace}, which is not on this machine", resource.name);
    }
    let err = process::Command::new("ip").args(["netns", "exec", namespace]).args(command).exec();
    Err(err).context("cannot run `ip netns exec`; is iproute2 installed?")
}

impl Rows for ResourceInfo {
    const HEADER: &'static [&'static str] = &["name", "region", "state", "ip", "entries", "message"];

    fn row(&self) -> Vec<String> {
        let entries = self.permit_list.len().to_string();
        vec![
            self.name.clone(),
            self.region.clone(),
            self.state.clone(),
            self.ip.clone(),
            entries,
            self.message.clone(),
        ]
    }
}
