//! `trestle-clouds`: AWS, Azure, Google Cloud and IBM Cloud, simulated, as a program of its own. No part of the product.
//!
//! Out: one line of JSON on standard output, as soon as everything listens: `{"url": …}`, and with `--plugins` also
//! `"plugins": {"aws": …, "azure": …, "gcp": …, "ibm": …}`. Ends on Ctrl-C; with `--plugins` when standard input ends, and so
//! with whoever started it, however that ends.
//!
//! ```text
//!   controller ── gRPC ── plugin ── the cloud's own API over HTTP ─┐
//!                       the clouds' own clients ──────────────────┴─ simulator ── /wire: who reaches whom?
//! ```

mod plugins;

use std::{
    fs::File,
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
};

use anyhow::Context as _;
use clap::Parser;
use cloud_sim::Sim;
use serde_json::json;
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

/// AWS, Azure, Google Cloud and IBM Cloud, simulated, for trying things out
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Where the clouds' own clients find them
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4566")]
    listen: SocketAddr,
    /// How many times as fast as usual time passes
    #[arg(long, value_name = "TIMES", default_value_t = 60, conflicts_with = "plugins")]
    speed: u32,
    /// Write every request down, its credentials aside
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Serve each cloud's plugin too, for a controller. Time passes when all of them wait, and at once; this ends when
    /// standard input does
    #[arg(long)]
    plugins: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let filter = EnvFilter::try_from_env("TRESTLE_LOG").unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    let sim = Sim::listen(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    if let Some(path) = &args.record {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        sim.record(file);
    }
    let mut said = json!({ "url": sim.url() });
    if args.plugins {
        said["plugins"] = json!(plugins::serve(&sim).await?);
    } else {
        sim.run_clock(args.speed);
    }
    writeln!(io::stdout(), "{said}")?;
    tokio::select! {
        stopped = tokio::signal::ctrl_c() => Ok(stopped?),
        () = starter_is_gone(), if args.plugins => Ok(()),
    }
}

/// Whoever started this holds the other end of standard input.
async fn starter_is_gone() {
    let (gone, told) = oneshot::channel();
    // A thread: the runtime would wait for its read before it ends.
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = gone.send(());
    });
    let _ = told.await;
}
