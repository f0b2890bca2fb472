//! Flows: what hearing ten thousand new connections a second costs the agent's thread, and whether all are counted. Needs root.
//!
//! Connections are UDP datagrams between two addresses of one network namespace, each from a socket of its own. The thread that hears is
//! measured by its processor time; what the kernel needs to tell is not in it, but what it needs to hand over is.

use std::{
    io::{self, Write as _},
    net::UdpSocket,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use agent::watcher::Watcher;
use benches::report;
use nix::sched::{CloneFlags, unshare};
use rustix::time::{ClockId, clock_gettime};

const EACH_SECOND: u64 = 10_000;
const SECONDS: u64 = 10;
/// A machine that cannot send as many is told so.
const BURST: u64 = 100;
const PORTS: u16 = 16;
const FROM: &str = "10.9.0.1";
const TO: &str = "10.9.0.2";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        return Ok(writeln!(
            io::stderr(),
            "flows.* NOT MEASURED: no network namespace ({error}); run as root"
        )?);
    }
    let script = format!(
        "ip link set lo up; ip addr add {FROM}/32 dev lo; ip addr add {TO}/32 dev lo
         nft 'add table ip t; add chain ip t i {{ type filter hook input priority 0; }}; add rule ip t i ct state new accept'"
    );
    if !Command::new("sh").args(["-ec", &script]).status()?.success() {
        return Ok(writeln!(io::stderr(), "flows.* NOT MEASURED: no connection table here")?);
    }
    let mut watcher = Watcher::open()?;
    let served: Vec<UdpSocket> =
        (0..PORTS).map(|port| UdpSocket::bind((TO, 9_000 + port))).collect::<Result<_, _>>()?;
    let sending = thread::spawn(send);
    let begun = cpu();
    let (mut counted, mut rows) = (0, 0);
    let started = Instant::now();
    let mut second = 1;
    loop {
        let over = sending.is_finished();
        if watcher.read(0) == 0 && over {
            break;
        }
        if started.elapsed() >= Duration::from_secs(second) {
            second += 1;
            let seen = watcher.take();
            rows = rows.max(seen.len());
            counted += seen.iter().map(|(_, sum)| sum.count).sum::<u64>();
        }
        thread::sleep(Duration::from_millis(10));
    }
    let used = cpu().saturating_sub(begun);
    let (sent, took) = sending.join().map_err(|_| "the sender fell")??;
    counted += watcher.take().iter().map(|(_, sum)| sum.count).sum::<u64>();
    drop(served);
    let each = used.as_secs_f64() / sent as f64;
    report("flows.agent", "sent", sent as f64 / took.as_secs_f64(), "connections/s");
    report("flows.agent", "cpu_share", each * EACH_SECOND as f64 * 100.0, "% of a core at 10,000/s");
    report("flows.agent", "uncounted", sent.saturating_sub(counted) as f64, "connections");
    report("flows.agent", "lost", watcher.lost() as f64, "messages");
    report("flows.agent", "rows", rows as f64, "rows/s");
    Ok(())
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How many were sent, and in which time.
fn send() -> io::Result<(u64, Duration)> {
    let started = Instant::now();
    let mut sent = 0;
    while sent < EACH_SECOND * SECONDS {
        for _ in 0..BURST {
            // No two are alike: what has the addresses and ports of an open connection is none of its own.
            let (port, own) = (sent % u64::from(PORTS), sent / u64::from(PORTS));
            let socket = UdpSocket::bind((FROM, 10_000 + own as u16))?;
            socket.send_to(b"x", (TO, 9_000 + port as u16))?;
            sent += 1;
        }
        let due = Duration::from_micros(sent * 1_000_000 / EACH_SECOND);
        thread::sleep(due.saturating_sub(started.elapsed()));
    }
    Ok((sent, started.elapsed()))
}
