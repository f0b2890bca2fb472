//! `trestle allow` and `trestle deny`.
//!
//! ```text
//!   plan, shown ─► asked, if something is built ─► stored ─► its job ─► in force ─► proved by explain
//! ```

mod words;

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use wire::trestle::v1::{
    AllowOutcome, AllowRequest, DenyRequest, ListPermissionsRequest, PermissionInfo, PermissionRequest,
    permissions_client::PermissionsClient,
};

use super::{
    enforcement::{Changes, until_in_force},
    job, policy, resource,
};
use crate::{
    client::{Connection, ConnectionArgs},
    exit::Answer,
    output::{Format, Rows, print},
    progress::during,
};

/// How long nodes may take to have a policy, once everything else is done.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Flags of `trestle allow`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "An end is a resource (a.web), a host, a Pod (shop/web-1), a tag, a namespace, or an address or prefix. Where several
kinds have one name, write which: resource:, host:, pod:, tag:, namespace: or ip: before it.

Exit codes: 0 it is allowed and explain says so, 1 it is not; and the codes of `trestle --help`.

Examples:
  trestle allow a.web b.db --port 5432
  trestle allow a.web b.db --port 5432 --ping --dry-run
  trestle allow shop/web-1 tag:db --port 5432 --yes
  trestle allow namespace:shop 192.0.2.0/24 --port 53/udp --port 53
  trestle allow list
  trestle deny a.web b.db --port 5432"
)]
pub struct AllowArgs {
    #[command(subcommand)]
    command: Option<AllowCommand>,
    #[command(flatten)]
    what: Option<What>,
    /// Show what would be written and built, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Do it although a policy test fails then
    #[arg(long)]
    despite_tests: bool,
    /// Build gateways and links without asking
    #[arg(short, long)]
    yes: bool,
    /// Do not wait for it to be in force; print the permission
    #[arg(long, conflicts_with = "dry_run")]
    detach: bool,
}

#[derive(Debug, Subcommand)]
pub enum AllowCommand {
    /// The permissions there are
    List,
    /// One permission, with what it gives and how far it is
    Get { name: String },
    /// Take a permission back by its name
    Remove {
        name: String,
        /// Show what would be done, and do nothing
        #[arg(long)]
        dry_run: bool,
        /// Do it although a policy test fails then
        #[arg(long)]
        despite_tests: bool,
    },
}

/// Flags of `trestle deny`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "It takes back the permission that `trestle allow` with the same words has made, and nothing else. What still
permits it is told.

Example:
  trestle deny a.web b.db --port 5432"
)]
pub struct DenyArgs {
    #[command(flatten)]
    what: What,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Do it although a policy test fails then
    #[arg(long)]
    despite_tests: bool,
}

/// Who may open what to whom.
#[derive(Clone, Debug, clap::Args)]
pub struct What {
    /// Who opens connections
    from: String,
    /// To whom
    to: String,
    /// Destination port or range, of TCP or of the protocol behind it: 5432, 8000-8010, 53/udp
    #[arg(short, long, value_name = "PORT", value_delimiter = ',')]
    port: Vec<String>,
    /// The protocol of the ports; without ports, all of it: tcp, udp, sctp, icmp or any
    #[arg(long, visible_alias = "protocol", value_name = "NAME")]
    proto: Option<String>,
    /// ICMP, as ping needs it
    #[arg(long)]
    ping: bool,
}

impl What {
    /// As the API takes it.
    fn traffic(&self) -> anyhow::Result<Vec<String>> {
        let own = self.proto.as_deref().unwrap_or("tcp");
        let mut traffic: Vec<String> = self
            .port
            .iter()
            .map(|port| match port.split_once('/') {
                Some((ports, protocol)) => format!("{protocol} {ports}"),
                None => format!("{own} {port}"),
            })
            .collect();
        if let (Some(protocol), true) = (&self.proto, self.port.is_empty()) {
            traffic.push(protocol.clone());
        }
        if self.ping {
            traffic.push("icmp".to_owned());
        }
        if traffic.is_empty() {
            bail!("say what is to be allowed: --port 5432, --ping, or --proto any for everything");
        }
        Ok(traffic)
    }
}

pub async fn allow(args: AllowArgs, output: Format, connection: ConnectionArgs) -> anyhow::Result<()> {
    let connection = connection.connect().await?;
    let mut client = PermissionsClient::new(connection.clone());
    match (&args.command, &args.what) {
        (Some(AllowCommand::List), _) => {
            let listed = client.list_permissions(ListPermissionsRequest {}).await?.into_inner();
            output.list(&listed.permissions)
        }
        (Some(AllowCommand::Get { name }), _) => {
            let info = client.get_permission(PermissionRequest { name: name.clone() }).await?.into_inner();
            output.done(&words::permission(&info), &info)
        }
        (Some(AllowCommand::Remove { name, dry_run, despite_tests }), _) => {
            let request = DenyRequest {
                name: name.clone(),
                dry_run: *dry_run,
                despite_tests: *despite_tests,
                ..DenyRequest::default()
            };
            take_back(request, output, connection).await
        }
        (None, Some(what)) => grant(what, &args, output, connection).await,
        (None, None) => bail!("name both ends: trestle allow FROM TO --port 5432"),
    }
}

pub async fn deny(args: DenyArgs, output: Format, connection: ConnectionArgs) -> anyhow::Result<()> {
    let What { from, to, .. } = args.what.clone();
    let (traffic, namespace) = (args.what.traffic()?, resource::namespace()?);
    let DenyArgs { dry_run, despite_tests, .. } = args;
    let request = DenyRequest { name: String::new(), from, to, traffic, namespace, dry_run, despite_tests };
    take_back(request, output, connection.connect().await?).await
}

async fn grant(what: &What, args: &AllowArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut client = PermissionsClient::new(connection.clone());
    let request = AllowRequest {
        from: what.from.clone(),
        to: what.to.clone(),
        traffic: what.traffic()?,
        namespace: resource::namespace()?,
        dry_run: true,
        build: true,
        despite_tests: args.despite_tests,
    };
    let planned = client.allow(request.clone()).await?.into_inner();
    if args.dry_run {
        return output.done(&words::plan(&planned), &planned);
    }
    let builds = planned.build.is_some();
    if output.is_for_people() {
        print(&words::plan(&planned))?;
    }
    if builds && !args.yes && !agreed(&planned)? {
        bail!("nothing was changed");
    }
    // What was shown is what is agreed to: if something is built that was not shown, it is refused.
    let build = builds || args.yes;
    let mut changes = Changes::default();
    let made = changes.of(client.allow(AllowRequest { dry_run: false, build, ..request }).await?);
    let info = made.permission.context("the controller said nothing of the permission")?;
    if args.detach {
        return output.done(&words::permission(&info), &info);
    }
    if let Some(one) = made.job {
        job::until_ended(&connection, one.id).await?;
    }
    if !changes.is_empty() {
        during("Waiting", until_in_force(&connection, changes, PATIENCE)).await?;
    }
    let info = during("Waiting", until_settled(&mut client, &info.name)).await?;
    let proof = client.prove(asked(&info)).await?.into_inner();
    let back = format!("trestle deny {}", info.arguments);
    match output {
        Format::Table | Format::Wide | Format::Name => print(&words::proof(&info, &proof, &back))?,
        _ => output.done("", &serde_json::json!({ "permission": info, "proof": proof, "undo": back }))?,
    }
    if proof.allowed { Ok(()) } else { Err(Answer(1).into()) }
}

/// The question that a permission answers.
fn asked(info: &PermissionInfo) -> AllowRequest {
    AllowRequest {
        from: info.from.clone(),
        to: info.to.clone(),
        traffic: info.traffic.clone(),
        ..AllowRequest::default()
    }
}

/// Asks whoever sits there. Without a terminal nobody does.
fn agreed(planned: &AllowOutcome) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let plan = words::plan(planned);
        bail!(
            "this builds a link or a gateway, and nobody is here to be asked; agree with --yes. The plan:\n{plan}"
        );
    }
    let mut terminal = io::stderr().lock();
    write!(terminal, "Build it? [y/N] ")?;
    terminal.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Follows a permission until it is in force everywhere, has failed, or takes too long: who changed nothing waits for who did.
async fn until_settled(
    client: &mut PermissionsClient<Connection>,
    name: &str,
) -> anyhow::Result<PermissionInfo> {
    let began = Instant::now();
    loop {
        let info = client.get_permission(PermissionRequest { name: name.to_owned() }).await?.into_inner();
        if info.state != "pending" || began.elapsed() > PATIENCE {
            return Ok(info);
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn take_back(request: DenyRequest, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut client = PermissionsClient::new(connection.clone());
    let dry_run = request.dry_run;
    let mut changes = Changes::default();
    let outcome = changes.of(client.deny(request).await?);
    let info = outcome.permission.clone().unwrap_or_default();
    if dry_run {
        return output.done(&words::plan(&outcome), &outcome);
    }
    if let Some(one) = outcome.job {
        job::until_ended(&connection, one.id).await?;
    }
    if !changes.is_empty() {
        during("Waiting", until_in_force(&connection, changes, PATIENCE)).await?;
    }
    // Who was at its ends may be gone, and then there is nothing to ask.
    let proof = client.prove(asked(&info)).await.map(tonic::Response::into_inner).unwrap_or_default();
    match output {
        Format::Table | Format::Wide | Format::Name => print(&words::taken_back(&info, &proof)),
        _ => output.done("", &serde_json::json!({ "permission": info, "proof": proof })),
    }
}

impl Rows for PermissionInfo {
    const HEADER: &'static [&'static str] = &["name", "from", "to", "traffic", "state", "message"];

    fn row(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.from.clone(),
            self.to.clone(),
            self.traffic.join(", "),
            self.state.clone(),
            self.message.clone(),
        ]
    }
}

/// The reasons of an explanation, as `trestle explain` gives them.
fn explained(explanation: &wire::trestle::v1::ExplainResponse) -> String {
    policy::text(explanation)
}
