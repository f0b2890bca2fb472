//! NBD beside nbdkit and qemu-nbd: the same client, the same kind of file, the same machine, one after the other. And
//! the provider through a whole controller.
//!
//! Each server runs in a process of its own. Every figure is the median of several rounds, in which the servers take
//! turns, so that a slow minute of the machine hits all of them.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "figures go to standard output, progress to standard error"
)]

#[path = "storage/client.rs"]
mod client;
#[path = "storage/fairness.rs"]
mod fairness;
#[path = "storage/provider.rs"]
mod provider;
#[path = "storage/servers.rs"]
mod servers;
#[path = "storage/vaults.rs"]
mod vaults;

use std::time::Instant;

use anyhow::{Context as _, Result};
use benches::report;
use client::Kind;
use servers::{Peer, Server};

const ROUNDS: usize = 7;
/// The part of the volume that is written and read.
const SPAN: u64 = 256 << 20;
const IDLE_CONNECTIONS: u64 = 1000;
const IDLE_AT_PEERS: u64 = 200;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|arg| arg == "--serve") {
        return servers::serve(&args[2], args[3] == "tls", args[4] == "encrypted");
    }
    // One figure or a few: everything whose name holds this word.
    let only = args.iter().skip(1).find(|arg| !arg.starts_with('-')).cloned().unwrap_or_default();
    let compare = |bench: &str, metric: &str, tls: bool, load: &Load| {
        if bench.contains(&only) { compare(bench, metric, tls, load) } else { Ok(()) }
    };
    for tls in [false, true] {
        let suffix = if tls { ".tls" } else { "" };
        compare(
            &format!("storage.write4k{suffix}"),
            "iops",
            tls,
            &Load { kind: Kind::Write, size: 4096, depth: 32, count: 60_000 },
        )?;
        compare(
            &format!("storage.read4k{suffix}"),
            "iops",
            tls,
            &Load { kind: Kind::Read, size: 4096, depth: 32, count: 60_000 },
        )?;
        for depth in [1, 32] {
            let load = |kind| Load { kind, size: 1 << 20, depth, count: 1024 };
            compare(
                &format!("storage.stream.write.depth{depth}{suffix}"),
                "mib_per_s",
                tls,
                &load(Kind::Write),
            )?;
            compare(
                &format!("storage.stream.read.depth{depth}{suffix}"),
                "mib_per_s",
                tls,
                &load(Kind::Read),
            )?;
        }
        let small = |kind| Load { kind, size: 4096, depth: 1, count: 10_000 };
        compare(&format!("storage.write4k.depth1{suffix}"), "iops", tls, &small(Kind::Write))?;
        compare(&format!("storage.read4k.depth1{suffix}"), "iops", tls, &small(Kind::Read))?;
    }
    for (bench, metric, load) in encrypted_loads() {
        if bench.contains(&only) {
            with_and_without(bench, metric, &load)?;
        }
    }
    if "storage.fairness".contains(&only) {
        fairness::measure()?;
    }
    if "storage.restart1k".contains(&only) {
        vaults::restart()?;
    }
    if "storage.snapshot100g".contains(&only) {
        vaults::snapshots()?;
    }
    if "storage.connection".contains(&only) {
        idle_memory()?;
    }
    if "storage.onboard storage.list10k".contains(&only) { provider::measure() } else { Ok(()) }
}

struct Load {
    kind: Kind,
    size: u32,
    depth: usize,
    count: u64,
}

impl Load {
    fn unit(&self, metric: &str) -> &'static str {
        if metric == "iops" { "1/s" } else { "MiB/s" }
    }

    fn figure(&self, metric: &str, per_second: f64) -> f64 {
        if metric == "iops" { per_second } else { per_second * f64::from(self.size) / f64::from(1 << 20) }
    }
}

/// What encryption is measured under; with it the network is as consumers have it, with TLS.
fn encrypted_loads() -> [(&'static str, &'static str, Load); 6] {
    let small = |kind, depth, count| Load { kind, size: 4096, depth, count };
    let large = |kind| Load { kind, size: 1 << 20, depth: 1, count: 1024 };
    [
        ("storage.write4k.encrypted", "iops", small(Kind::Write, 32, 60_000)),
        ("storage.read4k.encrypted", "iops", small(Kind::Read, 32, 60_000)),
        ("storage.write4k.depth1.encrypted", "iops", small(Kind::Write, 1, 10_000)),
        ("storage.read4k.depth1.encrypted", "iops", small(Kind::Read, 1, 10_000)),
        ("storage.stream.write.depth1.encrypted", "mib_per_s", large(Kind::Write)),
        ("storage.stream.read.depth1.encrypted", "mib_per_s", large(Kind::Read)),
    ]
}

/// An encrypted volume and one that is not, in turns. The second is told as the first one's peer.
fn with_and_without(bench: &str, metric: &str, load: &Load) -> Result<()> {
    let servers = [Server::ours_encrypted(true)?, Server::ours(true)?];
    let mut figures = [const { Vec::new() }; 2];
    for round in 0..ROUNDS {
        for (server, figures) in servers.iter().zip(&mut figures) {
            figures.push(load.figure(metric, once(server, load, round as u64)?));
        }
    }
    let [with, without] = figures.map(median);
    report(bench, metric, with, load.unit(metric));
    report(&format!("{bench}.peer"), metric, without, load.unit(metric));
    Ok(())
}

/// Ours and the better peer under one load.
fn compare(bench: &str, metric: &str, tls: bool, load: &Load) -> Result<()> {
    let servers = [Server::ours(tls)?, Server::peer(Peer::Nbdkit, tls)?, Server::peer(Peer::QemuNbd, tls)?];
    let mut figures = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        for (place, (server, figures)) in servers.iter().zip(&mut figures).enumerate() {
            // A peer that has stopped answering once (qemu-nbd does, with TLS) is out.
            if figures.contains(&0.0) {
                continue;
            }
            let figure = match once(server, load, round as u64) {
                Err(err) if place > 0 => {
                    eprintln!("{bench}: {} answers no more: {err:#}", server.name);
                    figures.clear();
                    0.0
                }
                result => load.figure(metric, result?),
            };
            figures.push(figure);
        }
    }
    // The processor time a server took tells more than its speed where others use the machine too.
    let busy: Vec<String> = servers.iter().map(Server::busy).collect::<Result<_>>()?;
    let [ours, nbdkit, qemu] = figures.map(median);
    eprintln!(
        "{bench}: ours {ours:.0}, nbdkit {nbdkit:.0}, qemu-nbd {qemu:.0} {}; busy for {}",
        load.unit(metric),
        busy.join(", ")
    );
    report(bench, metric, ours, load.unit(metric));
    report(&format!("{bench}.peer"), metric, nbdkit.max(qemu), load.unit(metric));
    Ok(())
}

/// Requests a second in one round.
fn once(server: &Server, load: &Load, seed: u64) -> Result<f64> {
    let mut client = server.connect().with_context(|| format!("connecting to {}", server.name))?;
    if matches!(load.kind, Kind::Read) && seed == 0 {
        client.run(Kind::Write, 1 << 20, 4, SPAN >> 20, SPAN, None)?;
    }
    let random = (load.size < 1 << 20).then_some(seed + 1);
    let began = Instant::now();
    let answered = client.run(load.kind, load.size, load.depth, load.count, SPAN, random)?;
    Ok(answered as f64 / began.elapsed().as_secs_f64())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// What connections that do nothing cost the server: ours a thousand, the peers, which keep threads for each, fewer.
fn idle_memory() -> Result<()> {
    for tls in [false, true] {
        let bench = if tls { "storage.connection.tls" } else { "storage.connection" };
        let ours = Server::ours(tls)?;
        let threads = ours.status("Threads:")?;
        report(bench, "kib", idle(&ours, IDLE_CONNECTIONS)?, "KiB");
        report(bench, "threads", ours.status("Threads:")? as f64 - threads as f64, "in all");
        let nbdkit = idle(&Server::peer(Peer::Nbdkit, tls)?, IDLE_AT_PEERS)?;
        let qemu = idle(&Server::peer(Peer::QemuNbd, tls)?, IDLE_AT_PEERS)?;
        eprintln!("{bench}: nbdkit {nbdkit:.0}, qemu-nbd {qemu:.0} KiB");
        report(&format!("{bench}.peer"), "kib", nbdkit.min(qemu), "KiB");
    }
    Ok(())
}

/// KiB of memory for each of so many connections that were used once.
fn idle(server: &Server, connections: u64) -> Result<f64> {
    let mut warm = server.connect()?;
    warm.run(Kind::Write, 4096, 32, 1000, SPAN, Some(1))?;
    let before = server.status("VmRSS:")?;
    let mut idle = Vec::new();
    for _ in 0..connections {
        let mut client = server.connect()?;
        client.run(Kind::Read, 4096, 1, 1, SPAN, None)?;
        idle.push(client);
    }
    // Longer than our sessions keep a thread and a buffer.
    std::thread::sleep(std::time::Duration::from_millis(700));
    Ok(server.status("VmRSS:")?.saturating_sub(before) as f64 / connections as f64)
}
