//! Services: ten thousand of them into nftables, and what one change costs then, beside kube-proxy's layout.
//!
//! All in a network namespace of its own, so it needs root. "Cold" begins with a full state in memory and ends when
//! the kernel holds it. The peer is a ruleset as kube-proxy lays it out (a chain and an anonymous map per service),
//! loaded by `nft -f`, in the same namespace after ours is gone.

#[path = "services/agent.rs"]
mod agent_alone;
#[path = "services/ipvs.rs"]
mod ipvs;
#[path = "services/peer.rs"]
mod peer;
#[path = "services/sticky.rs"]
mod sticky;

use benches::report;
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr},
    thread,
    time::{Duration, Instant},
};

use nix::sched::{CloneFlags, unshare};
use node_kernel::services::NftablesProxy;
use node_nft::Limits;
use node_services::{
    Node, Protocol, Service, ServiceName, ServicePort, Slice, SliceEndpoint, SlicePort, Store,
    nftables::Config,
};

pub const SERVICES: u32 = 10_000;
const CHANGES: u32 = 200;

fn main() -> io::Result<()> {
    // A namespace belongs to a thread.
    thread::spawn(run).join().expect("the bench does not fall")
}

fn run() -> io::Result<()> {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        return writeln!(
            io::stderr(),
            "services.* NOT MEASURED: no network namespace ({error}); run as root"
        );
    }
    if std::env::args().any(|arg| arg == agent_alone::WORD) {
        return agent_alone::run();
    }
    // `cargo bench --bench services -- sticky`: that alone.
    if std::env::args().any(|arg| arg == "sticky") {
        return sticky::measure();
    }
    // `cargo bench --bench services -- ipvs`: that alone.
    if !std::env::args().any(|arg| arg == "ipvs") {
        load("services.cold", 2)?;
        load("services.cold10", 10)?;
        agent_alone::measure()?;
        sticky::measure()?;
        peer::measure()?;
    }
    ipvs::measure()
}

fn load(bench: &str, endpoints: u32) -> io::Result<()> {
    let state = (0..SERVICES).map(|number| (service(number), slice(number, endpoints, 0)));
    let (services, slices): (Vec<_>, Vec<_>) = state.unzip();
    let mut store = Store::new(Node { name: "here".into(), ..Node::default() });
    let (started, cpu) = (Instant::now(), cpu_seconds());
    store.replace(services, slices);
    store.patches();
    let (mut proxy, applied) = start(&store);
    report(bench, "seconds", started.elapsed().as_secs_f64(), "s");
    report(bench, "cpu_seconds", cpu_seconds() - cpu, "s");
    report(bench, "lock_ms", millis(applied.longest), "ms");
    report(bench, "elements", applied.weight as f64, "");

    let endpoint = changes(|number| {
        store.set_slice(&key(number), slice(number, endpoints, 1).1);
        let patches = store.patches();
        proxy.update(&store, &patches).expect("the kernel takes the patch");
    });
    let scaled = changes(|number| {
        store.set_slice(&key(number), slice(number, endpoints + 1, 1).1);
        let patches = store.patches();
        proxy.update(&store, &patches).expect("the kernel takes the patch");
    });
    let added = changes(|number| {
        let (name, more) = service(SERVICES + number);
        let (key, slice) = slice(SERVICES + number, endpoints, 0);
        store.set_service(name, more);
        store.set_slice(&key, slice);
        let patches = store.patches();
        proxy.update(&store, &patches).expect("the kernel takes the patch");
    });
    let suffix = bench.strip_prefix("services.cold").unwrap_or_default();
    for (name, took) in [("endpoint", endpoint), ("scale", scaled), ("add", added)] {
        report(&format!("services.{name}{suffix}"), "ms", millis(took.0), "ms");
        report(&format!("services.{name}{suffix}"), "p99_ms", millis(took.1), "ms");
    }
    report(&format!("services.memory{suffix}"), "rss_mib", status("VmRSS:")?, "MiB");
    drop(proxy);

    let started = Instant::now();
    let (proxy, applied) = start(&store);
    report(&format!("services.restart{suffix}"), "seconds", started.elapsed().as_secs_f64(), "s");
    report(&format!("services.restart{suffix}"), "writes", applied.operations as f64, "");
    proxy.stop().expect("the table can go");
    Ok(())
}

fn start(store: &Store) -> (NftablesProxy, node_kernel::nft::Applied) {
    NftablesProxy::start(false, Config::default(), Limits::default(), store)
        .expect("the kernel takes the table")
}

/// Median and 99th percentile.
fn changes(mut change: impl FnMut(u32)) -> (Duration, Duration) {
    let mut took: Vec<_> = (0..CHANGES)
        .map(|number| {
            let started = Instant::now();
            change(number);
            started.elapsed()
        })
        .collect();
    took.sort_unstable();
    (took[took.len() / 2], took[took.len() * 99 / 100])
}

pub fn cluster_ip(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a60_0000 + number)
}

pub fn endpoint_ip(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a80_0000 + number)
}

fn name(number: u32) -> ServiceName {
    ServiceName::new("bench", format!("service-{number}"))
}

fn key(number: u32) -> String {
    format!("bench/service-{number}-slice")
}

fn service(number: u32) -> (ServiceName, Service) {
    let ports = vec![ServicePort { name: "http".into(), protocol: Protocol::Tcp, port: 80, node_port: 0 }];
    let service = Service { cluster_ips: vec![IpAddr::V4(cluster_ip(number))], ports, ..Service::default() };
    (name(number), service)
}

/// `shift` exchanges the first endpoint.
fn slice(number: u32, endpoints: u32, shift: u32) -> (String, Slice) {
    let endpoint = |index: u32| {
        let address = if index == 0 { 500_000 * shift } else { index } + 20 * number;
        SliceEndpoint { addresses: vec![IpAddr::V4(endpoint_ip(address))], ..SliceEndpoint::default() }
    };
    let ports = vec![SlicePort { name: Some("http".into()), protocol: Protocol::Tcp, port: Some(8080) }];
    let endpoints = (0..endpoints).map(endpoint).collect();
    (key(number), Slice { service: name(number), ports, endpoints, labels: BTreeMap::new(), triggered: None })
}

/// Of this thread, in the kernel and outside: what the wall clock would show on an idle machine.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A figure of this process, in MiB.
pub fn status(figure: &str) -> io::Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix(figure)?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(kib.unwrap_or(0.0) / 1024.0)
}

pub fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}
