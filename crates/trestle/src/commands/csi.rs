//! `trestle csi`: the driver by which Kubernetes and others use volumes of a consumer.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use storage_csi::{
    Account, Driver, Services,
    attach::{KernelAttacher, Records},
    bridge,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};

use super::{serve::log_to_stderr, storage};
use crate::client::ConnectionArgs;

/// Between tries to reach a controller that is not there yet.
const AGAIN: Duration = Duration::from_secs(5);
/// How often it is asked whether there are newer credentials.
const RENEWAL: Duration = Duration::from_secs(600);
const STATE: &str = "/run/trestle-csi/state";

#[derive(Debug, Args)]
#[command(
    subcommand_negates_reqs = true,
    after_help = "Examples:
  trestle --server https://storage.example.org:8081 --ca ca.pem csi --ticket-file ticket --capacity 100Gi
  trestle --server https://storage.example.org:8081 csi --credentials ./storage --services controller
  trestle install csi --ticket-file ticket --capacity 100Gi --controller https://storage.example.org:8081 --controller-ca ca.pem
See docs/csi.md."
)]
pub struct CsiArgs {
    #[command(subcommand)]
    command: Option<CsiCommand>,
    /// Socket on which it is called
    #[arg(
        long,
        env = "CSI_ENDPOINT",
        value_name = "SOCKET",
        default_value = "unix:///run/trestle-csi/csi.sock"
    )]
    endpoint: String,
    /// What to offer: what the storage answers, what a node answers, or both
    #[arg(long, value_name = "SERVICE", value_delimiter = ',', value_parser = ["controller", "node"], default_value = "controller,node")]
    services: Vec<String>,
    /// What this node is called (default: the name of the machine)
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node: Option<String>,
    /// Where the consumer's credentials are, as `trestle consumer onboard` writes them; with a ticket they are fetched
    #[arg(long, value_name = "DIR", default_value = "/var/lib/trestle-csi")]
    credentials: PathBuf,
    /// File with the ticket to come with, if the credentials are not there yet; the same for all nodes
    #[arg(long, value_name = "FILE", requires = "capacity")]
    ticket_file: Option<PathBuf>,
    /// Storage to ask for with the ticket, e.g. 100Gi
    #[arg(long, requires = "ticket_file")]
    capacity: Option<String>,
    /// What is attached to this node; gone when the machine is started anew
    #[arg(long, value_name = "DIR", default_value = STATE)]
    state: PathBuf,
    /// A further segment of this node's topology, KEY=VALUE; once per segment
    #[arg(long, value_name = "KEY=VALUE", value_parser = segment)]
    topology: Vec<(String, String)>,
    /// What is deleted can be taken back for a day (`trestle volume keep`), and counts for as long
    #[arg(long)]
    keep_deleted: bool,
}

#[derive(Debug, Subcommand)]
pub enum CsiCommand {
    /// Serve one attached volume to the kernel; the driver starts it
    Bridge {
        volume: String,
        /// Where the driver keeps what is attached
        #[arg(long, value_name = "DIR", default_value = STATE)]
        state: PathBuf,
    },
}

impl CsiArgs {
    /// Whether it is a process that there is one of for each volume.
    pub fn is_bridge(&self) -> bool {
        matches!(self.command, Some(CsiCommand::Bridge { .. }))
    }
}

fn segment(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
    parts.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| "write KEY=VALUE".to_owned())
}

pub async fn run(args: CsiArgs, connection: ConnectionArgs) -> anyhow::Result<()> {
    log_to_stderr("info");
    if let Some(CsiCommand::Bridge { volume, state }) = args.command {
        let records = Records::open(&state).with_context(|| format!("cannot use {}", state.display()))?;
        return Ok(bridge::run(&records, &volume, Arc::new(bridge::device::KernelDevices)).await?);
    }
    let Some(server) = connection.place()? else {
        bail!("no controller is known: name it with --server https://HOST:PORT");
    };
    let socket = args.endpoint.strip_prefix("unix:").unwrap_or(&args.endpoint);
    let socket = PathBuf::from(format!("/{}", socket.trim_start_matches('/')));
    let services = Services {
        controller: args.services.iter().any(|one| one == "controller"),
        node: args.services.iter().any(|one| one == "node"),
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let serving = Box::pin(drive(args, connection, server, socket, services));
    tokio::select! {
        () = stop => Ok(()),
        done = serving => done,
    }
}

/// Until it is stopped. What is attached stays.
async fn drive(
    args: CsiArgs,
    connection: ConnectionArgs,
    server: String,
    socket: PathBuf,
    services: Services,
) -> anyhow::Result<()> {
    let credentials = args.credentials.clone();
    onboarded(&args, &connection).await?;
    let account = Account::open(&credentials, &server)?;
    let node = args.node.map_or_else(this_machine, Ok)?;
    let segments: BTreeMap<String, String> = args.topology.into_iter().collect();
    let mut driver =
        Driver::new(account.clone(), services, &node).at(segments).keeping_deleted(args.keep_deleted);
    let attacher = services.node.then(|| -> anyhow::Result<KernelAttacher> {
        let records =
            Records::open(&args.state).with_context(|| format!("cannot use {}", args.state.display()))?;
        let program =
            vec![env::current_exe()?.into_os_string(), OsString::from("csi"), OsString::from("bridge")];
        Ok(KernelAttacher::new(records, account, program))
    });
    let attacher = attacher.transpose()?;
    if let Some(attacher) = &attacher {
        driver = driver.attaching(Arc::new(attacher.clone()));
    }
    let keeping = async {
        match attacher {
            Some(attacher) => attacher.keep().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        served = storage_csi::serve(driver, &socket, std::future::pending()) => Ok(served?),
        () = keeping => Ok(()),
        () = renewed(&credentials, &connection) => Ok(()),
    }
}

fn this_machine() -> anyhow::Result<String> {
    let name =
        rustix::system::uname().nodename().to_str().context("the machine's name is not text")?.to_owned();
    if name.is_empty() {
        bail!("the machine has no name; say one with --node");
    }
    Ok(name)
}

/// Fetches the credentials with the ticket, unless they are there. Asked again, with the same ticket, it is the same consumer.
async fn onboarded(args: &CsiArgs, connection: &ConnectionArgs) -> anyhow::Result<()> {
    let dir = &args.credentials;
    if dir.join("connection.json").exists() {
        return Ok(());
    }
    let (Some(file), Some(capacity)) = (&args.ticket_file, &args.capacity) else {
        bail!(
            "there are no credentials in {}: name a ticket with --ticket-file and --capacity, or the directory that `trestle consumer onboard` wrote with --credentials",
            dir.display()
        );
    };
    let ticket = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    loop {
        let onboarding = async {
            let connection = connection.clone().connect().await?;
            storage::take_in(connection, ticket.trim(), capacity, dir).await
        };
        match onboarding.await {
            Ok(()) => return Ok(()),
            Err(error) if storage::is_refused(&error) => return Err(error),
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the storage does not take this driver in yet; trying again"
                );
                sleep(AGAIN).await;
            }
        }
    }
}

/// Keeps the credentials what the storage says they are.
async fn renewed(dir: &Path, connection: &ConnectionArgs) {
    loop {
        sleep(RENEWAL).await;
        let asking = async {
            let connection = connection.clone().connect().await?;
            storage::renew(connection, dir).await
        };
        match asking.await {
            Ok(false) => {}
            Ok(true) => tracing::info!(dir = %dir.display(), "the credentials were renewed"),
            Err(error) => tracing::warn!(error = format!("{error:#}"), "cannot ask for newer credentials"),
        }
    }
}
