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

use std::process::ExitCode;

use clap::Parser as _;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = args::Args::parse();
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
    let args::Args { command, output, connection } = args;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(commands::run(command, output, connection))
}
