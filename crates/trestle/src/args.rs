//! The command line, as clap reads it.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Parser, Subcommand};
use model::Role;

use crate::{
    client::ConnectionArgs,
    commands::{
        access, agent, job, link, namespace, node, object, plugin, policy, resource, rule, service, storage,
        store, tag,
    },
    output::Format,
};

/// One control plane for who may talk to whom.
#[derive(Debug, Parser)]
#[command(
    name = "trestle",
    version,
    about,
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 not allowed, 5 controller not reachable."
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
    /// Form of the result
    #[arg(short, long, global = true, value_enum, default_value_t)]
    pub output: Format,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a controller here, with no configuration; other commands find it by themselves
    Up(UpArgs),
    /// Start a controller from a configuration file
    Serve {
        /// YAML file; see docs/operating.md
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Serve a cloud as a plugin, in a process of its own
    Plugin(plugin::PluginArgs),
    /// Enforce policies on this node, as its controller says; attach the Pods of this node
    Agent(Box<agent::AgentArgs>),
    /// Names for addresses, resources and groups of other tags
    #[command(subcommand)]
    Tag(tag::TagCommand),
    /// Resources in clouds
    #[command(subcommand)]
    Resource(resource::ResourceCommand),
    /// Who may talk to a resource
    #[command(subcommand)]
    Rule(rule::RuleCommand),
    /// VPN links between clouds
    #[command(subcommand)]
    Link(link::LinkCommand),
    /// Long work
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Compare the clouds with what was made
    Check,
    /// Compare, and mend what differs
    Fix,
    /// Units in which resources are named and networks are kept apart
    #[command(subcommand)]
    Namespace(namespace::NamespaceCommand),
    /// Nodes: their connection, what they have applied, and what they could not
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Store Kubernetes-style YAML: Pods, policies, groups, external entities …
    Apply(object::ApplyArgs),
    /// Show stored objects
    Get(object::GetArgs),
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
    /// Onboarding tickets, to hand storage to other clusters
    #[command(subcommand)]
    Ticket(storage::TicketCommand),
    /// Clusters that use our storage
    #[command(subcommand)]
    Consumer(storage::ConsumerCommand),
    /// The controller's store
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Bearer tokens, for people and browsers
    #[command(subcommand)]
    Token(access::TokenCommand),
    /// Client certificates, for machines
    #[command(subcommand)]
    Cert(access::CertCommand),
    /// The newest records of the audit log, newest first
    Audit {
        /// At most this many
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// What the controller is and how it is
    Status,
    /// Who I am, as the controller sees it
    Whoami,
    /// Version of this program
    Version,
    /// Completion for a shell, e.g. `trestle completion bash > /etc/bash_completion.d/trestle`
    Completion { shell: clap_complete::Shell },
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
    /// A cloud to have, once per cloud; KIND is linux (network namespaces, needs root), fake (in
    /// memory) or the http:// URL of a plugin
    #[arg(long, value_name = "NAME=KIND", value_parser = crate::commands::serve::cloud)]
    pub cloud: Vec<server::CloudConfig>,
    /// With --plaintext-loopback: the role of callers without token or certificate
    #[arg(long, value_name = "ROLE", requires = "plaintext_loopback")]
    pub anonymous_role: Option<Role>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Args::command().debug_assert();
    }
}
