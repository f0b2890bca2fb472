//! The simulated clouds as a process, for official clients and for trying things out.
//!
//! `cargo run -p cloud-sim --example clouds -- 127.0.0.1:4566 60 [requests.jsonl]`: where to listen, how many times as
//! fast as usual time passes, and where to write requests down.

use std::io::Write as _;

use cloud_sim::Sim;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:4566".to_owned());
    let speed = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(60);
    let sim = Sim::listen(address.parse().map_err(std::io::Error::other)?).await?;
    if let Some(path) = arguments.next() {
        sim.record(std::fs::File::create(path)?);
    }
    let clock = sim.run_clock(speed);
    let url = sim.url();
    writeln!(
        std::io::stdout(),
        "AWS {url}/\nAzure {url}/\nGoogle Cloud {url}/compute/v1/\nIBM Cloud {url}/v1\ntime passes {speed} times as fast as usual"
    )?;
    tokio::signal::ctrl_c().await?;
    clock.abort();
    Ok(())
}
