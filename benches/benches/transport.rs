//! Transport: ten thousand agent streams with TLS from a second process, beside a raw TCP write loop.
//!
//! The controller is the real one, in this process; the agents are minimal HTTP/2 clients in a process of their own
//! on the same machine, so both share its cores. Clocks are the machine's. `TRESTLE_BENCH_AGENTS` sets the number.
//! Measured: memory per connection, connect storm, one small event to all, many events to all, a snapshot to all,
//! and what a reconnect costs after a controller restart that changed nothing.

#[path = "transport/agent.rs"]
mod agent;
#[path = "transport/agents.rs"]
mod agents;
#[path = "transport/certificates.rs"]
mod certificates;
#[path = "transport/floor.rs"]
mod floor;

use benches::report;
use std::{
    env, fs,
    io::{self, Write as _},
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use agents::Agents;
use server::{Config, Controller, transport::objects};
use transport::{Source, SpanChange};
use wire::trestle::v1::{NodePolicy, ObjectKind, SetMember};

const AGENTS: usize = 10_000;
/// Small events sent one by one, for latencies.
const EVENTS: usize = 20;
/// Events sent as fast as they are taken, for throughput.
const BURST: usize = 200;
/// Sets every agent holds: about 100 KiB.
const SETS: usize = 500;

/// The source that the bench is.
const SOURCE: &str = "bench";

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Ok(role) = env::var(agents::ROLE) {
        return runtime.block_on(agents::run(&role));
    }
    let count = env::var("TRESTLE_BENCH_AGENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(AGENTS);
    runtime.block_on(async {
        floor::measure(count).await?;
        Box::pin(measure(count)).await
    })
}

async fn measure(count: usize) -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let mut config = Config::in_dir(dir.path().join("data"));
    config.listen.http = "127.0.0.1:0".parse()?;
    config.listen.grpc = "127.0.0.1:0".parse()?;
    config.listen.watch = "127.0.0.1:0".parse()?;
    let controller = Controller::start_with(config.clone(), &[SOURCE]).await?;
    config.listen.grpc = controller.grpc_addr();
    let certificates = dir.path().join("agents.json");
    let started = Instant::now();
    certificates::issue(&controller, count, &certificates).await?;
    note(&format!("{count} certificates in {:.1} s", started.elapsed().as_secs_f64()))?;
    let source = publish_all(&controller, 0)?;

    let mut agents = Agents::start(&controller, count, &certificates)?;
    let (memory, started) = (resident()?, Instant::now());
    agents.say("connect nothing")?;
    agents.hear("synced").await?;
    report("transport.connect", "seconds", started.elapsed().as_secs_f64(), "s");
    tokio::time::sleep(Duration::from_secs(3)).await;
    report("transport.connection", "kib", (resident()? - memory) as f64 / 1024.0 / count as f64, "KiB");

    fan_out(&mut agents, &source).await?;
    throughput(&mut agents, &source, count).await?;
    report("transport.connection.busy", "kib", (resident()? - memory) as f64 / 1024.0 / count as f64, "KiB");
    snapshot(&mut agents, count).await?;
    let last = tick(&source);
    agents.hear(&format!("tick {last}")).await?;
    restart(controller, config, &mut agents, last).await
}

/// One small event at a time, each seen by all before the next.
async fn fan_out(agents: &mut Agents, source: &Source) -> Outcome<()> {
    let mut rounds = Vec::new();
    for _ in 0..EVENTS {
        let event = tick(source);
        rounds.push(Latencies::parse(&agents.hear(&format!("tick {event}")).await?)?);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    Latencies::median(rounds).report("transport.fanout")
}

async fn throughput(agents: &mut Agents, source: &Source, count: usize) -> Outcome<()> {
    agents.say(&format!("expect {}", BURST * count))?;
    agents.hear("expecting").await?;
    let started = Instant::now();
    for event in 0..BURST {
        source.publish([objects::put_policy(&format!("burst-{event}"), &policy(1), SpanChange::Everyone)]);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    agents.hear("received").await?;
    let rate = (BURST * count) as f64 / started.elapsed().as_secs_f64();
    report("transport.events", "deliveries_per_s", rate, "1/s");
    Ok(())
}

/// All agents come back with nothing.
async fn snapshot(agents: &mut Agents, count: usize) -> Outcome<()> {
    let started = Instant::now();
    agents.say("connect nothing")?;
    let bytes: f64 = agents.hear("synced").await?.trim().parse()?;
    let seconds = started.elapsed().as_secs_f64();
    report("transport.snapshot", "seconds", seconds, "s");
    report("transport.snapshot", "bytes_per_agent", bytes / count as f64, "B");
    report("transport.snapshot", "mib_per_s", bytes / seconds / f64::from(1 << 20), "MiB/s");
    Ok(())
}

/// The controller starts over with the same objects; agents come back with their digests.
async fn restart(controller: Controller, config: Config, agents: &mut Agents, last: i64) -> Outcome<()> {
    controller.stop().await?;
    let controller = loop {
        match Controller::start_with(config.clone(), &[SOURCE]).await {
            Ok(controller) => break controller,
            // The old one's last connections let go of the store.
            Err(server::StartError::Store(_)) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(err) => return Err(err.into()),
        }
    };
    let source = publish_all(&controller, last)?;
    source.publish(
        (0..BURST)
            .map(|event| objects::put_policy(&format!("burst-{event}"), &policy(1), SpanChange::Everyone)),
    );
    let started = Instant::now();
    agents.say("connect digest")?;
    let bytes: f64 = agents.hear("synced").await?.trim().parse()?;
    report("transport.resume", "seconds", started.elapsed().as_secs_f64(), "s");
    report("transport.resume", "bytes_per_agent", bytes / agents.count as f64, "B");
    Ok(())
}

fn publish_all(controller: &Controller, tick: i64) -> Outcome<Source> {
    let source = controller.transport().source(SOURCE).ok_or("there is no such source")?;
    let member = |set: usize, n: u8| SetMember {
        kind: 1,
        namespace: "bench".into(),
        name: format!("pod-{set}-{n}"),
        addresses: vec![vec![10, n, (set >> 8) as u8, set as u8]],
        ..SetMember::default()
    };
    source.publish((0..SETS).map(|set| {
        let members = (0..5).map(|n| member(set, n)).collect();
        objects::put_set(
            ObjectKind::AddressSet,
            &format!("set-{set:08}-of-the-bench"),
            members,
            SpanChange::Everyone,
        )
    }));
    source.publish([objects::put_policy("tick", &policy(tick), SpanChange::Everyone)]);
    source.synced();
    Ok(source)
}

fn policy(generation: i64) -> NodePolicy {
    NodePolicy {
        generation,
        source_kind: "NetworkPolicy".into(),
        source_name: "bench".into(),
        ..NodePolicy::default()
    }
}

/// Publishes one small event that carries the time.
fn tick(source: &Source) -> i64 {
    let now = nanoseconds();
    source.publish([objects::put_policy("tick", &policy(now), SpanChange::Everyone)]);
    now
}

fn nanoseconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Milliseconds until half, all but a hundredth, and all of the agents had an event.
#[derive(Clone, Copy)]
struct Latencies {
    p50: f64,
    p99: f64,
    last: f64,
}

impl Latencies {
    fn of(mut nanoseconds: Vec<i64>) -> Self {
        nanoseconds.sort_unstable();
        let at = |share: f64| nanoseconds[((nanoseconds.len() - 1) as f64 * share) as usize] as f64 / 1e6;
        Self { p50: at(0.5), p99: at(0.99), last: at(1.0) }
    }

    fn parse(text: &str) -> Outcome<Self> {
        let numbers: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [p50, p99, last] = numbers[..] else {
            return Err(format!("not three latencies: {text:?}").into());
        };
        Ok(Self { p50, p99, last })
    }

    fn median(mut rounds: Vec<Self>) -> Self {
        rounds.sort_by(|a, b| a.p99.total_cmp(&b.p99));
        rounds[rounds.len() / 2]
    }

    fn report(self, bench: &str) -> Outcome<()> {
        report(bench, "p50_ms", self.p50, "ms");
        report(bench, "p99_ms", self.p99, "ms");
        report(bench, "last_ms", self.last, "ms");
        Ok(())
    }
}

fn resident() -> Outcome<u64> {
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).ok_or("statm has no second field")?.parse()?;
    Ok(pages * 4096)
}

fn note(text: &str) -> Outcome<()> {
    Ok(writeln!(io::stderr(), "{text}")?)
}

fn own_program() -> io::Result<PathBuf> {
    env::current_exe()
}
