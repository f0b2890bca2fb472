//! The command line, as clap reads it.

pub mod groups;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Parser, Subcommand};
use model::Role;

use crate::{
    client::ConnectionArgs,
    commands::{
        access, agent, allow, audit, check, cloud, cni, csi, doctor, flows, get, host, install, job, join,
        kubernetes, link, namespace, node, object, page, plugin, policy, resource, rule, seen, service,
        staged, storage, store, tag, trial, verify, volume,
    },
    output::{Output, OutputParser},
};

/// One control plane for who may talk to whom.
#[derive(Debug, Parser)]
#[command(
    name = "trestle",
    version,
    about,
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 not allowed, 5 controller not reachable.
With --wait: 7 it is applied, and not yet in force everywhere.
With --exit-code (explain, check) the answer is the exit code: 0 yes, 1 no, 6 in part; what failed exits with 2 then."
)]
pub struct Args {
    /// None: where you are, and what to do next.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Form of the result; wide has further columns, name is names alone, jsonpath='{.metadata.name}' what a template takes of the data
    #[arg(short, long, global = true, value_parser = OutputParser, default_value = "table")]
    pub output: Output,
    /// The order of a list: a column, or a path such as .metadata.name
    #[arg(long, global = true, value_name = "FIELD")]
    pub sort_by: Option<String>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a controller here, with no configuration; other commands find it by themselves
    #[command(after_help = "Examples:
  trestle up
  sudo trestle up --demo                            a story with real packets; Ctrl-C takes everything away
  trestle up --cloud a=fake --cloud b=fake          two clouds in memory, to try things out
  sudo trestle up --cloud lab=linux                 this machine's network namespaces as a cloud
  trestle up --kubernetes prod=~/.kube/config       what a Kubernetes cluster has
  trestle up --plaintext-loopback --anonymous-role operator")]
    Up(UpArgs),
    /// Start a controller from a configuration file
    #[command(after_help = "Example:
  trestle serve --config /etc/trestle/trestle.yaml")]
    Serve {
        /// YAML file; see docs/operating.md
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Name or address in the server's certificate, beside those of the file; once per name
        #[arg(long, value_name = "NAME")]
        name: Vec<String>,
    },
    /// Serve a cloud as a plugin, in a process of its own
    Plugin(plugin::PluginArgs),
    /// Enforce policies on this node, as its controller says; attach the Pods of this node
    Agent(Box<agent::AgentArgs>),
    /// The CNI plugin, which has this node's Pods attached before they start
    Cni(cni::CniArgs),
    /// The CSI driver, by which Kubernetes and others use volumes of a consumer
    Csi(Box<csi::CsiArgs>),
    /// Names for addresses, resources and groups of other tags
    #[command(subcommand)]
    Tag(tag::TagCommand),
    /// Clouds: how each is, since when and why
    #[command(subcommand)]
    Cloud(cloud::CloudCommand),
    /// Resources in clouds
    #[command(subcommand)]
    Resource(resource::ResourceCommand),
    /// Allow connections between two ends, all that both need; shown before, and proved after
    Allow(Box<allow::AllowArgs>),
    /// Take back what `trestle allow` with the same words has allowed
    Deny(allow::DenyArgs),
    /// Who may talk to a resource, one end at a time
    #[command(subcommand)]
    Rule(rule::RuleCommand),
    /// VPN links between clouds
    #[command(subcommand)]
    Link(link::LinkCommand),
    /// Long work
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Compare the clouds with what was made
    Check(check::CheckArgs),
    /// Whether all that can be seen from here is as it has to be, and the command that mends what is not
    Doctor(doctor::DoctorArgs),
    /// Compare, and mend what differs
    #[command(after_help = "Example:
  trestle check        look first
  trestle fix")]
    Fix,
    /// Units in which resources are named and networks are kept apart
    #[command(subcommand)]
    Namespace(namespace::NamespaceCommand),
    /// Nodes: their connection, what they have applied, and what they could not
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Make this machine a host: a key, a certificate, the agent as a service
    Join(Box<join::JoinArgs>),
    /// Undo it: this machine is no host any more
    Leave(join::LeaveArgs),
    /// Hosts: machines that have joined
    #[command(subcommand)]
    Host(host::HostCommand),
    /// Kubernetes clusters that are read
    #[command(subcommand)]
    Kubernetes(kubernetes::KubernetesCommand),
    /// What a platform needs so that Trestle runs in it
    #[command(subcommand)]
    Install(install::InstallCommand),
    /// Store Kubernetes-style YAML: Pods, policies, groups, external entities …
    Apply(object::ApplyArgs),
    /// Store policies for a while: they go back to what they were by themselves, unless they are confirmed
    Try(trial::TryArgs),
    /// Show stored objects
    Get(get::GetArgs),
    /// Delete stored objects, by name or by the YAML that describes them
    Delete(object::DeleteArgs),
    /// Network policies and what they come to
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Load-balanced services, and where packets to them go
    #[command(subcommand)]
    Service(service::ServiceCommand),
    /// Why one workload can or cannot reach another
    Explain(policy::ExplainArgs),
    /// Run policy tests: whether what their authors rely on is so, or would be
    Test(verify::TestArgs),
    /// What of the policies does nothing, with the proof
    Lint(verify::LintArgs),
    /// Changes that are kept beside what is in force, with what each would open and close
    Staged(staged::StagedArgs),
    /// Put staged changes in force
    Promote(staged::PromoteArgs),
    /// Forget staged changes
    Discard(staged::DiscardArgs),
    /// What connections that were seen would meet after a change
    Replay(seen::ReplayArgs),
    /// Policies written from connections that were seen
    Suggest(seen::SuggestArgs),
    /// Onboarding tickets, to hand storage to other clusters
    #[command(subcommand)]
    Ticket(storage::TicketCommand),
    /// Clusters that use our storage
    #[command(subcommand)]
    Consumer(storage::ConsumerCommand),
    /// Volumes of consumers, by name; and what becomes of data that is not what was made
    #[command(subcommand)]
    Volume(volume::VolumeCommand),
    /// The controller's store
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Bearer tokens, for people and browsers
    #[command(subcommand)]
    Token(access::TokenCommand),
    /// Client certificates, for machines
    #[command(subcommand)]
    Cert(access::CertCommand),
    /// Who did what: the newest records of the audit log, newest first
    Audit(audit::AuditArgs),
    /// One screen: what runs, what is unhealthy, what to do
    #[command(after_help = "Examples:
  trestle status
  trestle status -o json | jq .troubles")]
    Status,
    /// The same, live: nodes, policies, resources, links, jobs, consumers
    #[command(after_help = "Examples:
  trestle top          Tab for another noun, arrows to scroll, q to leave
  trestle top flows --since 1h")]
    Top {
        #[command(subcommand)]
        what: Option<TopCommand>,
    },
    /// Connections that nodes have seen, allowed and denied, and what decided
    Flows(Box<flows::FlowsArgs>),
    /// The address of the live page, with a code that logs the browser in
    Page(page::PageArgs),
    /// Who I am, as the controller sees it
    Whoami,
    /// Version of this program
    Version,
    /// Write the manual pages of all commands
    #[command(hide = true)]
    Man {
        /// Where to
        dir: PathBuf,
    },
    /// Completion for a shell
    #[command(after_help = "Examples:
  trestle completion bash > /etc/bash_completion.d/trestle
  trestle completion zsh > ~/.zfunc/_trestle
  trestle completion fish > ~/.config/fish/completions/trestle.fish")]
    Completion { shell: clap_complete::Shell },
}

#[derive(Debug, Subcommand)]
pub enum TopCommand {
    /// Flows added up over some time, those with the largest count first
    Flows(Box<flows::TopArgs>),
}

/// Flags of `trestle up`.
#[derive(Debug, clap::Args)]
pub struct UpArgs {
    /// Where to keep everything (default: ~/.local/share/trestle)
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// REST, page and metrics
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub http: SocketAddr,
    /// gRPC
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    pub grpc: SocketAddr,
    /// Watch API, for node agents and kubectl
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8443")]
    pub watch: SocketAddr,
    /// NBD, for storage handed to other clusters
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:10809")]
    pub nbd: SocketAddr,
    /// Speak plaintext instead of TLS; on loopback addresses only
    #[arg(long)]
    pub plaintext_loopback: bool,
    /// A cloud to have, once per cloud; KIND is linux (network namespaces, needs root), aws, azure, gcp or ibm
    /// (credentials as their own tools find them), fake (in memory), the http:// URL of a plugin, or sim, where
    /// trestle-clouds is installed: aws=sim, azure=sim, gcp=sim and ibm=sim
    #[arg(long, value_name = "NAME=KIND", value_parser = crate::commands::serve::cloud)]
    pub cloud: Vec<crate::commands::serve::CloudFlag>,
    /// A Kubernetes cluster to read: its Pods, policies and services, as its API server has them. Without KUBECONFIG as the Pod that
    /// this runs in, elsewhere as kubectl would
    #[arg(long, value_name = "NAME[=KUBECONFIG]", value_parser = crate::commands::serve::cluster)]
    pub kubernetes: Vec<server::ClusterConfig>,
    /// With --plaintext-loopback: the role of callers without token or certificate
    #[arg(long, value_name = "ROLE", requires = "plaintext_loopback")]
    pub anonymous_role: Option<Role>,
    /// Play a story: two clouds, two nodes with Pods, a service and storage, step by step and with real packets. Then stay
    /// up, and leave nothing behind. Keeps everything in a directory of its own. Without root a part is left out
    #[arg(long, conflicts_with_all = ["cloud", "kubernetes", "plaintext_loopback"])]
    pub demo: bool,
    /// With --demo: what the story's clouds are made of
    #[arg(long, value_enum, default_value_t, requires = "demo")]
    pub clouds: DemoClouds,
    /// With --demo: end after the story
    #[arg(long, requires = "demo")]
    pub once: bool,
}

/// What the clouds of a demonstration are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DemoClouds {
    /// Network namespaces of this machine, with real packets; needs root
    #[default]
    Linux,
    /// AWS, Azure, Google Cloud and IBM Cloud, simulated by trestle-clouds, without accounts and without root
    Sim,
}

#[cfg(test)]
mod documented;

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Args::command().debug_assert();
    }

    #[test]
    fn every_command_that_takes_more_than_its_name_shows_an_example() {
        let mut args = super::Args::command();
        args.build();
        for command in args.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let plain = ["whoami", "version", "help"].contains(&name);
            assert!(plain || help.contains("Example"), "`trestle {name} --help` shows no example");
        }
    }

    /// Commands that do something, with what each is for.
    fn leaves(command: &clap::Command, path: &str, found: &mut Vec<serde_json::Value>) {
        let inner = command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help");
        for one in inner {
            let name = format!("{path}{}", one.get_name());
            if one.has_subcommands() {
                leaves(one, &format!("{name} "), found);
            }
            if !one.has_subcommands() || name == "top" {
                let about = one.get_about().map(ToString::to_string).unwrap_or_default();
                found.push(serde_json::json!({ "name": name, "about": about }));
            }
        }
    }

    /// The page finds commands by name and by what they are for.
    #[test]
    fn the_page_knows_every_command() {
        let mut commands = Vec::new();
        leaves(&super::Args::command(), "", &mut commands);
        let known = format!("{}\n", serde_json::to_string_pretty(&commands).unwrap());
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/src/commands.json");
        if std::env::var_os("TRESTLE_BLESS").is_some() {
            std::fs::write(&path, &known).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == known, "web/src/commands.json is not what there is; renew it with `make openapi`");
    }
}
