//! Guests: an administrator's calls while ten thousand hostile connections try to take the controller, beside the same calls
//! on an idle one.
//!
//! The controller is the real one, in this process; the hostile clients are in a second one, from forty addresses of this
//! machine, and come again as soon as they are cut. They shake half a hand, dribble headers and bodies, leave frames half sent,
//! read nothing of what they ask for, and reset what they ask at once. `TRESTLE_BENCH_HOSTILE` sets the number.

#[path = "guests/administrator.rs"]
mod administrator;
#[path = "guests/hostile.rs"]
mod hostile;

use std::{
    env, fs,
    time::{Duration, Instant},
};

use administrator::Administrator;
use benches::report;
use server::{Config, Controller};
use tokio::process::Command;

const HOSTILE: usize = 10_000;
/// How long calls are measured, idle and under attack.
const MEASURED: Duration = Duration::from_secs(20);
/// How often somebody asks for health, who does not say who it is.
const PROBE: Duration = Duration::from_millis(500);
/// Time for the hostile ones to come.
const COMING: Duration = Duration::from_secs(15);
/// Says in the environment what this process is.
const ROLE: &str = "TRESTLE_BENCH_ROLE";

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let count = env::var("TRESTLE_BENCH_HOSTILE").ok().and_then(|text| text.parse().ok()).unwrap_or(HOSTILE);
    match env::var(ROLE) {
        Ok(role) => runtime.block_on(hostile::run(&role, count)),
        Err(_) => runtime.block_on(measure(count)),
    }
}

async fn measure(count: usize) -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let mut config = Config::in_dir(dir.path().join("data"));
    config.listen.http = "127.0.0.1:0".parse()?;
    config.listen.grpc = "127.0.0.1:0".parse()?;
    config.listen.watch = "127.0.0.1:0".parse()?;
    let controller = Controller::start(config).await?;
    let mut administrator = Administrator::new(&controller).await?;
    calls("guests.idle", &mut administrator).await?;
    report("guests.idle", "rss_mib", peak_mib()?, "MiB");

    let (http, grpc) = (controller.http_addr(), controller.grpc_addr());
    let role = format!("{http} {grpc} {}", controller.ca_path().display());
    let mut child = Command::new(env::current_exe()?).env(ROLE, role).kill_on_drop(true).spawn()?;
    tokio::time::sleep(COMING).await;
    report("guests.attack", "hostile", count as f64, "connections");
    calls("guests.attack", &mut administrator).await?;
    report("guests.attack", "rss_peak_mib", peak_mib()?, "MiB");
    let metrics = administrator.metrics().await?;
    for (line, metric) in
        [("trestle_connections ", "open"), ("trestle_connections_refused_total ", "refused")]
    {
        let value = metrics.lines().find_map(|text| text.strip_prefix(line)?.trim().parse().ok());
        report("guests.attack", metric, value.unwrap_or_default(), "connections");
    }
    child.kill().await?;
    controller.stop().await?;
    Ok(())
}

/// Calls on an open connection, on a new one each, and for health, one after the other.
async fn calls(bench: &str, administrator: &mut Administrator) -> Outcome<()> {
    let mut taken = [Vec::new(), Vec::new(), Vec::new()];
    let mut failed = 0;
    let started = Instant::now();
    let mut asked = started;
    while started.elapsed() < MEASURED {
        let probes = asked.elapsed() >= PROBE;
        if probes {
            asked = Instant::now();
        }
        for (kind, times) in taken.iter_mut().enumerate().take(if probes { 3 } else { 2 }) {
            let begun = Instant::now();
            let answered = match kind {
                0 => administrator.call().await,
                1 => administrator.call_anew().await,
                _ => administrator.health().await,
            };
            match answered {
                Ok(()) => times.push(begun.elapsed()),
                Err(_) => failed += 1,
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for (name, times) in ["call", "new_connection", "health"].iter().zip(&mut taken) {
        times.sort_unstable();
        for (metric, share) in [("p50", 50), ("p99", 99), ("max", 100)] {
            let at = (times.len() * share / 100).min(times.len().saturating_sub(1));
            let value = times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0);
            report(&format!("{bench}.{name}"), &format!("{metric}_ms"), value, "ms");
        }
    }
    report(bench, "failed", f64::from(failed), "calls");
    report(bench, "calls", taken.iter().map(Vec::len).sum::<usize>() as f64, "calls");
    Ok(())
}

/// The most memory this process ever had.
fn peak_mib() -> Outcome<f64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("status has no VmHWM")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}
