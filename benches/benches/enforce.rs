//! The field's own workload, with packets as the judge: 24 agents, 240 namespaces of 10 Pods, each closed by a policy that denies
//! everything, then 20 policies for each that open it: 5 ports, 5 ranges of ports, 5 namespaces, 5 Pods, 5 blocks of addresses;
//! once plain, once with 5 exceptions in every block. Twenty policies a second, and all of them at once.
//!
//! ```text
//!   outside (11.0.0.0/8), controller ── bridge ──┬── host 1: agent ── forwards ── the Pods of host 1
//!                                                └── host 2: …
//! ```
//!
//! Each policy opens its own ports to its own blocks. Somebody outside asks one Pod of each by UDP, from an address in one of these
//! blocks, again and again: a policy is in force at the first answer, and the time runs from before the call that applied it. Before
//! that everybody must answer while nothing is closed, and nobody while all is.
//!
//! Controller and agents are those of the product, each in a process and a network namespace of its own, so it needs root.
//! `TRESTLE_BENCH_SHARE=12` takes a twelfth of hosts and namespaces.

#[path = "enforce/outside.rs"]
mod outside;
#[path = "enforce/processes.rs"]
mod processes;
#[path = "enforce/shape.rs"]
mod shape;
#[path = "enforce/world.rs"]
mod world;

use std::{
    env,
    io::{self, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use benches::report;
use rustix::process::geteuid;
use shape::{Policy, Shape};
use testkit::namespaces::spawn_within;
use world::World;

/// Between two policies that are paced.
const PACE: Duration = Duration::from_millis(50);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["controller", dir] => processes::controller(Path::new(dir)),
        ["agent", node, dir] => processes::agent(node, Path::new(dir)),
        _ if !geteuid().is_root() => {
            writeln!(io::stderr(), "enforce.* NOT MEASURED: network namespaces need root")?;
            Ok(())
        }
        _ => measure(),
    }
}

fn measure() -> anyhow::Result<()> {
    let share = env::var("TRESTLE_BENCH_SHARE").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let shape = Shape::new(share);
    outside::allow_sockets()?;
    let world = World::start(&shape)?;
    let fabric = world.fabric.name.clone();
    // Whoever asks is where the controller is.
    let measuring = spawn_within(&fabric, move || measure_in(&shape, world));
    measuring.join().map_err(|_| anyhow::anyhow!("the bench fell"))?
}

fn measure_in(shape: &Shape, world: World) -> anyhow::Result<()> {
    let everything = shape.policies(false);
    outside::must_answer(&everything, "while nothing is closed")?;
    world.apply(&shape.denials())?;
    outside::must_be_silent(&everything, "while all is closed")?;
    for (suffix, except) in [("", false), ("_except", true)] {
        let policies = shape.policies(except);
        report_paced(&format!("enforce.paced{suffix}"), paced(&world, &policies)?);
        world.delete(&policies)?;
        outside::must_be_silent(&policies, "after the policies have gone")?;
        let seconds = at_once(&world, &policies)?;
        report(&format!("enforce.bulk{suffix}"), "seconds", seconds.as_secs_f64(), "s");
        world.delete(&policies)?;
        outside::must_be_silent(&policies, "after the policies have gone")?;
    }
    world.stop()
}

/// One policy after the other; how long each took.
fn paced(world: &World, policies: &[Policy]) -> anyhow::Result<Vec<Duration>> {
    let started = Instant::now();
    let (said, calls) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let said = said;
            for (index, policy) in policies.iter().enumerate() {
                let due = started + PACE * u32::try_from(index).unwrap_or(u32::MAX);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                // From when it was due: who is late because others take long is late too.
                if said.send((index, due)).is_err() || world.send(std::slice::from_ref(policy)).is_err() {
                    return;
                }
            }
        });
        outside::until_answered(policies, &calls)
    })
}

/// All of them in as few calls as a client makes; how long the last took.
fn at_once(world: &World, policies: &[Policy]) -> anyhow::Result<Duration> {
    let called = Instant::now();
    let (said, calls) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let said = said;
            let all = (0..policies.len()).map(|index| (index, called));
            let _ = all.map(|call| said.send(call)).collect::<Result<Vec<_>, _>>();
            // What did not come about is never answered, and said with the policy's name.
            let _ = world.send(policies);
        });
        let took = outside::until_answered(policies, &calls)?;
        took.into_iter().max().ok_or_else(|| anyhow::anyhow!("there is no policy"))
    })
}

fn report_paced(bench: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    report(bench, "p50_ms", at(50), "ms");
    report(bench, "p99_ms", at(99), "ms");
    report(bench, "max_ms", at(100), "ms");
}
