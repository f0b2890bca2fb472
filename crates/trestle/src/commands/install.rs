//! `trestle install`: what a platform needs so that Trestle runs in it.

mod csi;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use kubernetes::{
    Access,
    install::{Install, Installer, Volume},
};
use serde_json::{Value, json};

use super::{
    agent::CONTAINERD,
    cni::{BIN_DIR, CONF_DIR},
};
use crate::{
    output::{Format, print},
    progress::during,
};

/// For nodes to follow.
const PATIENCE: Duration = Duration::from_secs(300);
const IMAGE: &str = concat!("trestle:", env!("CARGO_PKG_VERSION"));

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  trestle install kubernetes --name prod --observe --apply")]
pub enum InstallCommand {
    /// A Kubernetes cluster: prints what it needs as YAML, or makes it with --apply
    #[command(
        after_help = "What is made: a namespace; a controller with its volume, on the network of a node; an agent on each node, which joins by the
token of its service account and puts the CNI plugin into the node's network. Everything is in docs/kubernetes.md.

Examples:
  trestle install kubernetes --name prod | kubectl apply -f -
  trestle install kubernetes --name prod --observe --apply       # read and explain first; refuse nothing
  trestle install kubernetes --name prod --apply                 # again without: from now on policies are in force
  trestle install kubernetes --dry-run --apply                   # the API server judges it, and makes nothing
  trestle install kubernetes --uninstall --apply                 # leaves nothing, in the cluster and on nodes"
    )]
    Kubernetes(Box<KubernetesArgs>),
    /// The CSI driver in a Kubernetes cluster that uses volumes of a Trestle elsewhere
    #[command(
        after_help = "What is made: a namespace; the ticket in a Secret; the driver with Kubernetes' helpers for volumes, and on each node; a class of
volumes and one of snapshots. Nodes need the kernel's module nbd. Everything is in docs/csi.md.

Examples:
  trestle install csi --ticket-file ticket --capacity 100Gi --controller https://storage.example.org:8081 --controller-ca ca.pem | kubectl apply -f -
  trestle install csi --uninstall --apply     # the driver goes; volumes and their data stay"
    )]
    Csi(Box<csi::CsiArgs>),
}

#[derive(Debug, clap::Args)]
pub struct KubernetesArgs {
    /// What the cluster is called: its workloads have the label trestle.dev/cluster with it
    #[arg(long, default_value = "kubernetes")]
    name: model::Segment,
    /// Where it is made; it is Trestle's own
    #[arg(long, value_name = "NAME", default_value = "trestle")]
    into: String,
    /// Image with this program, as nodes get it (`make image` makes one)
    #[arg(long, default_value = IMAGE)]
    image: String,
    /// How agents reach the controller, https://HOST:PORT (default: by the address of its Service)
    #[arg(long, value_name = "URL")]
    controller: Option<String>,
    /// The node on which the controller runs (default: any)
    #[arg(long, value_name = "NODE")]
    controller_node: Option<String>,
    /// The controller keeps what it knows in this directory of its node, and in no volume
    #[arg(long, value_name = "DIR")]
    host_path: Option<String>,
    /// Size of its volume
    #[arg(long, value_name = "SIZE", default_value = "1Gi", conflicts_with = "host_path")]
    volume: String,
    /// Class of its volume (default: the cluster's default)
    #[arg(long, value_name = "CLASS", conflicts_with = "host_path")]
    storage_class: Option<String>,
    /// How the controller reaches the API server, HOST:PORT (default: as Pods do)
    #[arg(long, value_name = "HOST:PORT")]
    api_server: Option<String>,
    /// Refuse nothing: count what policies would refuse
    #[arg(long)]
    observe: bool,
    /// Balance Services too, in place of kube-proxy: nftables or ipvs
    #[arg(long, value_name = "MODE", value_parser = ["nftables", "ipvs"])]
    services: Option<String>,
    /// A further flag of all agents, as --agent-flag=--guard=veth; once per flag
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    agent_flag: Vec<String>,
    /// Agents ask the nodes' container runtime (CRI) for Pods that were there before, beside looking at routes
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, default_missing_value = CONTAINERD)]
    runtime: Option<String>,
    /// Where nodes' runtimes look for plugins
    #[arg(long, value_name = "DIR", default_value = BIN_DIR)]
    cni_bin_dir: String,
    /// Where nodes' runtimes look for network configurations
    #[arg(long, value_name = "DIR", default_value = CONF_DIR)]
    cni_conf_dir: String,
    /// Make it, instead of printing it
    #[arg(long)]
    apply: bool,
    /// With --apply: the API server judges it, and nothing is made
    #[arg(long, requires = "apply", conflicts_with = "uninstall")]
    dry_run: bool,
    /// Take all of it away, in the cluster and on nodes
    #[arg(long)]
    uninstall: bool,
    /// Whose cluster (default: as kubectl would)
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in it (default: the current one)
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl KubernetesArgs {
    fn install(&self) -> anyhow::Result<Install> {
        let api_server = self.api_server.as_deref().map(place).transpose()?;
        let volume = match &self.host_path {
            Some(path) => Volume::HostPath(path.clone()),
            None => Volume::Claim { size: self.volume.clone(), class: self.storage_class.clone() },
        };
        let install = Install {
            namespace: self.into.clone(),
            cluster: self.name.to_string(),
            image: self.image.clone(),
            server: self.controller.clone(),
            api_server,
            volume,
            controller_node: self.controller_node.clone(),
            observe: self.observe,
            agent_flags: self.agent_flag.clone(),
            services: self.services.clone(),
            runtime: self.runtime.clone(),
            cni_bin_dir: self.cni_bin_dir.clone(),
            cni_conf_dir: self.cni_conf_dir.clone(),
        };
        install.check()?;
        Ok(install)
    }
}

/// `HOST:PORT`.
fn place(text: &str) -> anyhow::Result<(String, u16)> {
    let parsed = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = parsed
        .filter(|(host, _)| !host.is_empty() && !host.contains('/'))
        .with_context(|| format!("--api-server {text}: write HOST:PORT"))?;
    Ok((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
}

pub async fn run(command: InstallCommand, output: Format) -> anyhow::Result<()> {
    let args = match command {
        InstallCommand::Kubernetes(args) => args,
        InstallCommand::Csi(args) => return csi::run(*args, output).await,
    };
    let install = args.install()?;
    if !args.apply {
        return show(&install, args.uninstall, output);
    }
    let access = Access { kubeconfig: args.kubeconfig.clone(), context: args.context.clone() };
    let installer = Installer::connect(&access).await?;
    if args.uninstall {
        let done = installer.uninstall(&install, PATIENCE, |step| crate::progress::note(step.to_owned()));
        during("Uninstalling", done).await?;
        return output.done(
            &format!("Trestle is uninstalled from {}", installer.server),
            &json!({ "server": installer.server }),
        );
    }
    let documents = install.documents();
    for document in &documents {
        // Before its namespace is there nothing in it can be judged.
        if args.dry_run
            && document["metadata"]["namespace"].is_string()
            && installer.get(&documents[0]).await?.is_none()
        {
            bail!(
                "there is no namespace {}, so what is to be in it cannot be judged: kubectl create namespace {}",
                install.namespace,
                install.namespace
            );
        }
        during("Applying", installer.apply(document, args.dry_run)).await?;
    }
    let sentence = match args.dry_run {
        true => format!("{} takes all {} objects; nothing was made", installer.server, documents.len()),
        false => format!(
            "Trestle is being started in {}: kubectl -n {} get pods -w",
            installer.server, install.namespace
        ),
    };
    output.done(
        &sentence,
        &json!({ "server": installer.server, "objects": documents.len(), "dry_run": args.dry_run }),
    )
}

fn show(install: &Install, uninstall: bool, output: Format) -> anyhow::Result<()> {
    let documents = if uninstall { vec![install.leaving()] } else { install.documents() };
    if output != Format::Table {
        return output.data(&documents);
    }
    let head = match uninstall {
        true => format!(
            "# 1. kubectl -n {0} delete daemonset trestle-agent\n# 2. this; until it is ready on all nodes: kubectl -n {0} rollout status \
             daemonset trestle-leave\n# 3. kubectl delete namespace {0}; kubectl delete clusterrole,clusterrolebinding trestle\n",
            install.namespace
        ),
        false => String::new(),
    };
    print(&format!("{head}{}", yamls(&documents)?))
}

/// Documents for kubectl.
fn yamls(documents: &[Value]) -> anyhow::Result<String> {
    let yaml: Vec<String> = documents.iter().map(yaml).collect::<anyhow::Result<_>>()?;
    Ok(yaml.join("---\n"))
}

fn yaml(document: &Value) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(document)?)
}
