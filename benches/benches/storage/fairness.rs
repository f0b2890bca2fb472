//! What one consumer's flood does to another: how much longer the slowest of a hundred synced writes takes.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::Result;
use benches::report;

use crate::{
    client::Kind,
    servers::{Peer, Server},
};

/// Connections of the flood, and synced writes that each has in flight.
const CONNECTIONS: usize = 300;
const IN_FLIGHT: usize = 60;
/// The part of its volume that each writes to.
const SPAN: u64 = 16 << 20;
const ASKED: u64 = 300;
const ROUNDS: usize = 3;

pub(crate) fn measure() -> Result<()> {
    let (mut ours, mut peers) = (Vec::new(), [Vec::new(), Vec::new()]);
    for _ in 0..ROUNDS {
        ours.push(ratio(&Server::ours(true)?)?);
        for (peer, ratios) in [Peer::Nbdkit, Peer::QemuNbd].into_iter().zip(&mut peers) {
            match Server::peer(peer, true).and_then(|server| ratio(&server)) {
                Ok(found) => ratios.push(found),
                Err(err) => eprintln!("storage.fairness: a peer answers no more: {err:#}"),
            }
        }
    }
    report("storage.fairness", "p99_ratio", crate::median(ours), "times");
    let peers = peers.into_iter().filter(|ratios| !ratios.is_empty()).map(crate::median);
    if let Some(best) = peers.min_by(f64::total_cmp) {
        report("storage.fairness.peer", "p99_ratio", best, "times");
    }
    Ok(())
}

/// The 99th percentile of a client alone, and beside the flood.
fn ratio(server: &Server) -> Result<f64> {
    let mut client = server.connect()?;
    let mut p99 = || anyhow::Ok(percentile(client.times(Kind::SyncedWrite, 4096, ASKED, SPAN)?));
    p99()?;
    let alone = p99()?;
    let (over, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(CONNECTIONS + 1)));
    let flood: Vec<_> = (0..CONNECTIONS)
        .map(|n| {
            let (client, over, begun) = (server.connect_other(), Arc::clone(&over), Arc::clone(&begun));
            thread::spawn(move || {
                // Elsewhere it would have a processor of its own: here it takes none from the client that is measured.
                let _ = rustix::process::setpriority_process(None, 19);
                begun.wait();
                let mut client = client?;
                while !over.load(Ordering::Acquire) {
                    client.run(Kind::SyncedWrite, 4096, IN_FLIGHT, 600, SPAN, Some(n as u64 + 1))?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    begun.wait();
    thread::sleep(std::time::Duration::from_millis(500));
    let beside = p99();
    over.store(true, Ordering::Release);
    // Of those who flood some wait longer than a client does; they have been there.
    let lasted =
        flood.into_iter().filter_map(|one| one.join().expect("a client does not panic").ok()).count();
    let beside = beside?;
    eprintln!("storage.fairness: {lasted} connections lasted at {}", server.name);
    eprintln!("storage.fairness: {} alone {alone:.2} ms, beside the flood {beside:.2} ms", server.name);
    Ok(beside / alone)
}

fn percentile(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}
