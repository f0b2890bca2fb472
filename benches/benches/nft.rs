//! nftables over netlink: large sets cold, one member changed, read back, and a node's policies, beside `nft -f` of the
//! same. `floor` is the time within the kernel.
//!
//! In a network namespace of its own, so it needs root.

#[path = "nft/field.rs"]
mod field;
#[path = "nft/policies.rs"]
mod policies;
#[path = "nft/ranges.rs"]
mod ranges;
#[path = "nft/switch.rs"]
mod switch;

use benches::report;
use std::{
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use nix::sched::{CloneFlags, unshare};
use node_kernel::nft::{Nft, TableId};
use node_nft::{Element, Family, FieldType, Key, Limits, Live, Op, Plan, Set, SetSchema, Table, Transaction};

const MEMBERS: u32 = 100_000;
const CHANGES: u32 = 200;
const NAME: &str = "trestle-bench";

fn main() -> io::Result<()> {
    // A namespace belongs to a thread.
    thread::spawn(run).join().expect("the bench does not fall")
}

fn run() -> io::Result<()> {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        return writeln!(io::stderr(), "nft.* NOT MEASURED: no network namespace ({error}); run as root");
    }
    if std::env::args().any(|argument| argument == "field") {
        field::run();
        return Ok(());
    }
    let member = |number| (address(number), Element::member());
    let range = |number| (address(number * 2), Element::member().until(address(number * 2)));
    ours("nft.set", SetSchema::set([FieldType::Ipv4]), member)?;
    ours("nft.ranges", SetSchema::set([FieldType::Ipv4]).interval(), range)?;
    if Command::new("nft").arg("--version").output().is_err() {
        return writeln!(io::stderr(), "nft.*.peer NOT MEASURED: install the Debian package nftables");
    }
    peer("nft.set", "", |number| ip(number).to_string())?;
    peer("nft.ranges", "flags interval;", |number| ip(number * 2).to_string())?;
    let (policies, members) = (1_000, 100);
    for (name, mixed, peers) in [("policies", false, MEMBERS), ("policies_mixed", true, 2_000)] {
        policies::run(&policies::Scene { name, policies, members, peers, mixed })?;
    }
    let one =
        policies::Scene { name: "members", policies: 1, members: MEMBERS, peers: MEMBERS, mixed: false };
    policies::run(&one)?;
    switch::run();
    ranges::run();
    field::run();
    Ok(())
}

fn ours(bench: &str, schema: SetSchema, element: impl Fn(u32) -> (Key, Element)) -> io::Result<()> {
    let mut nft = Nft::open().expect("the kernel has nftables");
    let mut table = Table::new(Family::Ip, NAME);
    let mut set = Set::new(schema.clone());
    for (key, element) in (0..MEMBERS).map(&element) {
        set.insert(key, element);
    }
    table.set("members", set);
    let id = TableId::of(&table);
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let plan = Plan::new(&table, None, Live::Chunked, Limits::default()).expect("no table is there");
    let applied = nft.apply(&id, &plan).expect("the kernel takes the set");
    report(bench, "seconds", started.elapsed().as_secs_f64(), "s");
    report(bench, "cpu_seconds", cpu_seconds() - cpu, "s");
    report(&format!("{bench}.floor"), "seconds", applied.in_kernel.as_secs_f64(), "s");
    report(bench, "lock_ms", millis(applied.longest), "ms");

    let mut took = Vec::new();
    for number in MEMBERS..MEMBERS + CHANGES {
        let (key, new) = element(number);
        let elements = vec![(key.into_boxed(), new)];
        let ops = vec![Op::AddElements { set: "members".into(), schema: schema.clone(), elements }];
        let started = Instant::now();
        nft.commit(&id, &Transaction { ops }).expect("the kernel takes the member");
        took.push(started.elapsed());
    }
    report(&format!("{bench}.member"), "ms", millis(median(took)), "ms");

    let started = Instant::now();
    nft.read(&id).expect("the kernel can be read");
    report(&format!("{bench}.read"), "seconds", started.elapsed().as_secs_f64(), "s");
    nft.delete(&id).expect("the table can go");
    Ok(())
}

fn report_peer(bench: &str, took: &Took) {
    report(&format!("{bench}.peer"), "seconds", took.wall.as_secs_f64(), "s");
    report(&format!("{bench}.peer"), "cpu_seconds", took.cpu_seconds, "s");
}

fn peer(bench: &str, flags: &str, member: impl Fn(u32) -> String) -> io::Result<()> {
    let mut rules = format!("table ip {NAME} {{ set members {{ type ipv4_addr; {flags} elements = {{");
    for number in 0..MEMBERS {
        rules.push_str(&member(number));
        rules.push(',');
    }
    rules.push_str("}\n}\n}\n");
    report_peer(bench, &load(&rules)?);
    let mut took = Vec::new();
    for number in MEMBERS..MEMBERS + 10 {
        took.push(load(&format!("add element ip {NAME} members {{ {} }}\n", member(number)))?.wall);
    }
    report(&format!("{bench}.member.peer"), "ms", millis(median(took)), "ms");
    load(&format!("delete table ip {NAME}\n")).map(drop)
}

/// Of this thread, in the kernel and outside: what the wall clock would show on an idle machine.
fn cpu_seconds() -> f64 {
    seconds(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime))
}

/// What `nft` took: on the clock, and of the processor.
struct Took {
    wall: Duration,
    cpu_seconds: f64,
}

fn load(rules: &str) -> io::Result<Took> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), rules)?;
    let started = Instant::now();
    let output = Command::new("sh").args(["-c", "nft -f \"$0\" && times"]).arg(file.path()).output()?;
    let wall = started.elapsed();
    if output.status.success() {
        Ok(Took { wall, cpu_seconds: children_seconds(&String::from_utf8_lossy(&output.stdout)) })
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

/// The second line of the shell's `times`: user and system time of what it started, as `0m1.250000s 0m0.5s`.
fn children_seconds(times: &str) -> f64 {
    let seconds = |text: &str| -> Option<f64> {
        let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    times.lines().nth(1).into_iter().flat_map(str::split_whitespace).filter_map(seconds).sum()
}

fn seconds(time: rustix::time::Timespec) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a bench runs for minutes, not for ages")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds
}

fn ip(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + number)
}

fn address(number: u32) -> Key {
    Key::new().address(IpAddr::V4(ip(number)))
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}
