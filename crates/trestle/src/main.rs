//! The one binary: the controller and the user's commands.

mod args;
mod client;
mod commands;
mod config_file;
mod context;
mod demo;
mod exit;
mod manifest;
mod output;
mod paint;
mod progress;
mod simulated;
mod visible;

use std::{
    env,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
    time::Duration,
};

use clap::FromArgMatches as _;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
/// How long the allocator keeps memory that was freed; it looks at it before `main`.
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";
/// How long calls that block have to come back when all else is done.
const LAST_WORK: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    if commands::cni::is_called() {
        return commands::cni::called();
    }
    let matches = args::groups::command().get_matches();
    let args = args::Args::from_arg_matches(&matches).unwrap_or_else(|err| err.exit());
    // One provider for all TLS in the process, chosen before anything can need one.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        return exit::report(&anyhow::anyhow!(
            "cannot install the TLS provider: another one is already there"
        ));
    }
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => exit::report(&err),
    }
}

fn run(args: args::Args) -> anyhow::Result<()> {
    let args::Args { command, output, sort_by, connection } = args;
    output::shape(&output, sort_by);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let is_small = match &command {
        Some(args::Command::Agent(args)) => args.is_service(),
        // One for each volume.
        Some(args::Command::Csi(args)) => args.is_bridge(),
        _ => false,
    };
    if is_small {
        // It is on every node, where memory counts, and what it does is done by a thread of its own.
        give_memory_back_at_once();
        runtime.worker_threads(1);
    }
    let runtime = runtime.enable_all().build()?;
    let done = runtime.block_on(commands::run(command, output.form, connection));
    // What still runs on a thread may be stuck, and must not keep a process that has ended from ending.
    runtime.shutdown_timeout(LAST_WORK);
    done
}

/// Begins anew, as the same process, with an allocator that keeps nothing: an agent rests most of the time, and one at
/// rest would keep for ever what its first step has taken.
fn give_memory_back_at_once() {
    if env::var_os(PURGE_DELAY).is_some() {
        return;
    }
    let mut words = env::args_os();
    if let (Ok(program), Some(name)) = (env::current_exe(), words.next()) {
        // Returns only if it could not be done; then the agent needs a little more memory.
        let _ = Command::new(program).arg0(name).args(words).env(PURGE_DELAY, "0").exec();
    }
}
