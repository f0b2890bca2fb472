//! One module per noun; each turns flags into calls and replies into output.

pub mod access;
pub mod agent;
pub mod allow;
pub mod audit;
pub mod check;
pub mod cloud;
pub mod cni;
pub mod csi;
pub mod doctor;
pub mod enforcement;
pub mod flows;
pub mod get;
pub mod here;
pub mod host;
pub mod install;
pub mod job;
pub mod join;
pub mod kubernetes;
pub mod link;
pub mod namespace;
pub mod node;
pub mod object;
pub mod overview;
pub mod page;
pub mod plugin;
pub mod policy;
pub mod resource;
pub mod rule;
pub mod seen;
pub mod serve;
pub mod service;
pub mod staged;
pub mod status;
pub mod storage;
pub mod store;
pub mod tag;
pub mod top;
pub mod trial;
pub mod verify;
pub mod volume;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::{
    args::{Args, Command, TopCommand},
    client::ConnectionArgs,
    demo,
    output::Format,
    progress::during,
};

/// None: where you are, and what to do next.
pub async fn run(command: Option<Command>, output: Format, connection: ConnectionArgs) -> anyhow::Result<()> {
    let Some(command) = command else {
        return during("Asking", Box::pin(here::run(connection))).await;
    };
    match command {
        Command::Up(args) if args.demo => demo::run(args).await,
        Command::Up(args) => serve::up(args).await,
        Command::Serve { config, name } => serve::serve(&config, name).await,
        Command::Plugin(args) => plugin::run(args).await,
        Command::Agent(args) => agent::run(*args, output, connection).await,
        Command::Cni(args) => cni::run(args, output).await,
        Command::Csi(args) => csi::run(*args, connection).await,
        Command::Tag(command @ tag::TagCommand::Watch { .. }) => {
            tag::run(command, output, connection.connect().await?).await
        }
        Command::Tag(command) => {
            during("Asking", tag::run(command, output, connection.connect().await?)).await
        }
        Command::Cloud(command) => {
            during("Asking", cloud::run(command, output, connection.connect().await?)).await
        }
        Command::Resource(command) => resource::run(command, output, connection).await,
        Command::Allow(args) => Box::pin(allow::allow(*args, output, connection)).await,
        Command::Deny(args) => Box::pin(allow::deny(args, output, connection)).await,
        Command::Rule(command) => rule::run(command, output, connection).await,
        Command::Link(command) => link::run(command, output, connection.connect().await?).await,
        Command::Job(command) => job::run(command, output, connection.connect().await?).await,
        Command::Check(args) => {
            during("Comparing", check::check(args, output, connection.connect().await?)).await
        }
        Command::Doctor(args) => during("Looking", doctor::run(args, output, connection)).await,
        Command::Fix => during("Mending", check::fix(output, connection.connect().await?)).await,
        Command::Namespace(command) => namespace::run(command, output, connection).await,
        Command::Node(command) => {
            during("Reading", node::run(command, output, connection.connect().await?)).await
        }
        Command::Join(args) => join::join(*args, output).await,
        Command::Leave(args) => join::leave(args, output).await,
        Command::Host(command) => {
            during("Reading", host::run(command, output, connection.connect().await?)).await
        }
        Command::Install(command) => install::run(command, output).await,
        Command::Kubernetes(command) => kubernetes::run(command, output, connection).await,
        Command::Apply(args) => {
            during("Applying", object::apply(args, output, connection.connect().await?)).await
        }
        Command::Try(args) => during("Trying", trial::run(args, output, connection.connect().await?)).await,
        Command::Get(args) if args.is_watch() => get::get(args, output, connection.connect().await?).await,
        Command::Get(args) => during("Reading", get::get(args, output, connection.connect().await?)).await,
        Command::Delete(args) => {
            during("Deleting", object::delete(args, output, connection.connect().await?)).await
        }
        Command::Policy(command) => {
            during("Reading", policy::run(command, output, connection.connect().await?)).await
        }
        Command::Service(command) => {
            during("Reading", service::run(command, output, connection.connect().await?)).await
        }
        Command::Explain(args) => {
            during("Asking", policy::explain(args, output, connection.connect().await?)).await
        }
        Command::Test(args) => {
            during("Testing", verify::test(args, output, connection.connect().await?)).await
        }
        Command::Lint(args) => {
            during("Looking", verify::lint(args, output, connection.connect().await?)).await
        }
        Command::Staged(args) => {
            during("Comparing", staged::list(args, output, connection.connect().await?)).await
        }
        Command::Promote(args) => {
            during("Promoting", staged::promote(args, output, connection.connect().await?)).await
        }
        Command::Discard(args) => {
            during("Discarding", staged::discard(args, output, connection.connect().await?)).await
        }
        Command::Replay(args) => {
            during("Replaying", seen::replay(args, output, connection.connect().await?)).await
        }
        Command::Suggest(args) => {
            during("Thinking", seen::suggest(args, output, connection.connect().await?)).await
        }
        Command::Ticket(command) => {
            during("Asking", storage::ticket(command, output, connection.connect().await?)).await
        }
        Command::Consumer(command) => {
            during("Waiting", storage::consumer(command, output, connection.connect().await?)).await
        }
        Command::Volume(command) => {
            during("Waiting", volume::run(command, output, connection.connect().await?)).await
        }
        Command::Store(command) => during("Copying", store::run(command, output, connection)).await,
        Command::Token(command) => access::token(command, output, connection.connect().await?).await,
        Command::Cert(command) => access::cert(command, output, connection.connect().await?).await,
        Command::Audit(args) => during("Reading", audit::run(args, output, connection)).await,
        Command::Top { what: None } => top::run(connection.connect().await?).await,
        Command::Top { what: Some(TopCommand::Flows(args)) } => {
            during("Adding up", flows::top(*args, output, connection.connect().await?)).await
        }
        Command::Flows(args) if args.is_follow() => {
            flows::run(*args, output, connection.connect().await?).await
        }
        Command::Flows(args) => {
            during("Reading", flows::run(*args, output, connection.connect().await?)).await
        }
        Command::Status => {
            during("Reading", Box::pin(status::run(output, connection.connect().await?))).await
        }
        Command::Page(args) => page::run(args, output, connection).await,
        Command::Whoami => access::whoami(output, connection.connect().await?).await,
        Command::Version => output.done(
            &format!("trestle {}", env!("CARGO_PKG_VERSION")),
            &serde_json::json!({ "version": env!("CARGO_PKG_VERSION") }),
        ),
        Command::Man { dir } => {
            std::fs::create_dir_all(&dir)?;
            clap_mangen::generate_to(Args::command(), &dir)
                .with_context(|| format!("cannot write to {}", dir.display()))
        }
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Args::command(), "trestle", &mut std::io::stdout());
            Ok(())
        }
    }
}
