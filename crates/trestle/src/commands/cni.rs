//! `trestle cni`: the CNI plugin as a runtime calls it, and its place on a node.

use std::{
    env, fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use agent::{
    cni::{self, PROGRAM, chain},
    local::SOCKET,
};
use anyhow::{Context as _, bail};
use clap::Subcommand;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::output::Format;

/// Where runtimes look for plugins, and for networks.
pub const BIN_DIR: &str = "/opt/cni/bin";
pub const CONF_DIR: &str = "/etc/cni/net.d";
/// A network configuration is small.
const MOST_BYTES: u64 = 4 << 20;

#[derive(Debug, clap::Args)]
#[command(
    subcommand_required = false,
    after_help = "A container runtime calls this program as `trestle-cni`, chained after the plugin that makes a Pod's link, with CNI_COMMAND in its
environment; it then asks the node's agent to attach the Pod before it starts. See docs/kubernetes.md.

Examples:
  sudo trestle cni install                      # this program to /opt/cni/bin, its name into the network of /etc/cni/net.d
  sudo trestle cni install --no-chain           # only the program: `trestle agent --cni` keeps the name there
  sudo trestle cni remove"
)]
pub struct CniArgs {
    #[command(subcommand)]
    command: Option<CniCommand>,
}

#[derive(Debug, Subcommand)]
pub enum CniCommand {
    /// Put the plugin onto this node
    Install {
        #[command(flatten)]
        place: Place,
        /// Leave the node's network configuration as it is
        #[arg(long)]
        no_chain: bool,
    },
    /// Take the plugin out of this node's network, and away
    Remove {
        #[command(flatten)]
        place: Place,
        /// Also what an agent has put into the kernel, and what it keeps below this directory: no agent may run
        #[arg(long, value_name = "DIR")]
        agent: Option<PathBuf>,
        /// Then wait to be stopped: for a Pod that shows by being ready that it is done
        #[arg(long)]
        stay: bool,
    },
}

/// Where on the node.
#[derive(Debug, clap::Args)]
pub struct Place {
    /// Where the runtime looks for plugins
    #[arg(long, value_name = "DIR", default_value = BIN_DIR)]
    bin_dir: PathBuf,
    /// Where the runtime looks for network configurations
    #[arg(long, value_name = "DIR", default_value = CONF_DIR)]
    conf_dir: PathBuf,
    /// Socket of the agent's local API
    #[arg(long, env = "TRESTLE_AGENT_SOCKET", value_name = "FILE", default_value = SOCKET)]
    socket: PathBuf,
}

/// Whether this process was started as the plugin: under its name, which is all that a runtime knows of it.
pub fn is_called() -> bool {
    let program = env::args_os().next().unwrap_or_default();
    Path::new(&program).file_name().is_some_and(|name| name == PROGRAM)
}

/// Does what a runtime asks; its answer is on standard output, also when it is an error.
pub fn called() -> ExitCode {
    let mut text = Vec::new();
    let answer = match io::stdin().take(MOST_BYTES).read_to_end(&mut text).and_then(|_| runtime()) {
        Ok(runtime) => runtime.block_on(cni::answer(&text, |name| env::var(name).unwrap_or_default())),
        Err(err) => Err(cni::unreadable(&err)),
    };
    let (document, code) = match answer {
        Ok(document) => (document, ExitCode::SUCCESS),
        Err(fault) => (Some(fault), ExitCode::FAILURE),
    };
    let told = document.map_or(Ok(()), |document| writeln!(io::stdout().lock(), "{document}"));
    if told.is_ok() { code } else { ExitCode::FAILURE }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

pub async fn run(args: CniArgs, output: Format) -> anyhow::Result<()> {
    match args.command {
        None => bail!("a container runtime calls this as {PROGRAM}; `trestle cni install` puts it there"),
        Some(CniCommand::Install { place, no_chain }) => install(&place, no_chain, output),
        Some(CniCommand::Remove { place, agent, stay }) => {
            remove(&place, agent.as_deref(), output)?;
            if stay { until_stopped().await } else { Ok(()) }
        }
    }
}

fn install(place: &Place, no_chain: bool, output: Format) -> anyhow::Result<()> {
    let program = place.bin_dir.join(PROGRAM);
    copy(&program).with_context(|| format!("cannot write {}", program.display()))?;
    let changed = match no_chain {
        true => None,
        false => chain::put(&place.conf_dir, &chain::plugin(&place.socket))?,
    };
    let named = match (&changed, no_chain) {
        (_, true) => String::new(),
        (Some(path), _) => format!("; {} names it", path.display()),
        (None, _) => "; the node's network named it already".to_owned(),
    };
    output.done(
        &format!("{} is there{named}", program.display()),
        &json!({ "program": program, "changed": changed }),
    )
}

async fn until_stopped() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    terminate.recv().await;
    Ok(())
}

/// This program, whole or not at all: a runtime may call it at any time.
fn copy(to: &Path) -> io::Result<()> {
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir)?;
    }
    let mut from = fs::File::open("/proc/self/exe")?;
    files::replace(to, |file| {
        io::copy(&mut from, file)?;
        file.set_permissions(fs::Permissions::from_mode(0o755))
    })
    .map(drop)
}

/// Out of the network first: a plugin that is named and not there lets no Pod start.
fn remove(place: &Place, agent: Option<&Path>, output: Format) -> anyhow::Result<()> {
    let changed = if place.conf_dir.exists() { chain::take_out(&place.conf_dir)? } else { Vec::new() };
    let program = place.bin_dir.join(PROGRAM);
    match fs::remove_file(&program) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => {
            return Err(err).with_context(|| format!("cannot remove {}", program.display()));
        }
        _ => {}
    }
    if let Some(dir) = agent {
        // Somebody who enforces what is on disk would make again what is taken away.
        let is_run = ::agent::is_run(&dir.join("agent"));
        if is_run.with_context(|| format!("cannot look at {}", dir.display()))? {
            bail!("an agent runs with what is in {}: stop it first", dir.display());
        }
        ::agent::take_out().context("what is in the kernel stays in force")?;
        match fs::remove_dir_all(dir) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => {
                return Err(err).with_context(|| format!("cannot remove {}", dir.display()));
            }
            _ => {}
        }
    }
    let sentence = match changed.as_slice() {
        [] => "No network of this node names the plugin".to_owned(),
        paths => {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            format!("Taken out of {}", paths.join(", "))
        }
    };
    output.done(&format!("{sentence}; {} is not there", program.display()), &json!({ "changed": changed }))
}
