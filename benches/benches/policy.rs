//! The policy engine at full scale: the six published scenarios, one change in a large group, churn,
//! explain, who reaches whom.
//!
//! Each scenario runs in a process of its own, because the peak of one would hide that of the next. The input exists
//! before the clock starts and stays until it stops: seconds and memory are ours. The clock stops when the last frame is
//! encoded: the engine takes objects in and is drained every so many, as a controller does that starts; a second thread
//! makes of each update the protobuf frames that watchers get (of an AppliedToGroup one per node) and drops them, as a
//! socket would. `policy.p1.watch` is the same through the cache that watchers read, with everything kept.

#[path = "policy/scenarios.rs"]
mod scenarios;

use std::{
    fs,
    process::Command,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use benches::report;
use model::policy::{
    Object, ObjectId,
    output::{MemberKind, Protocol, Update},
};
use policy::{
    Engine, Event,
    explain::{Endpoint, Query},
    survey::Party,
};
use watch::{Cache, Encoding, Resource, Start, View};

type MakeObjects = fn() -> Vec<Object>;

/// Objects taken in between two drains, as the controller does.
const BATCH: usize = 16_384;
/// Updates handed to the encoder at once.
const PARCEL: usize = 512;
/// Parcels that wait for the encoder at most: a drain or two, so that it works while the next objects are taken in.
const WAITING: usize = 2 * BATCH / PARCEL;

/// Set for processes that tell their memory.
const MEMORY: &str = "TRESTLE_BENCH_MEMORY";

const SCENARIOS: [(&str, MakeObjects); 7] = [
    ("p1", scenarios::small_namespaces),
    ("p2", scenarios::large_namespaces),
    ("p3", scenarios::one_namespace),
    ("p4", scenarios::policy_per_pod),
    ("p5", scenarios::policy_per_external_entity),
    ("p6", scenarios::cluster_scoped),
    ("large", scenarios::five_thousand_nodes),
];

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match arguments.as_slice() {
        [case] if case == "change" => change(),
        [case] if case == "p1.watch" => through_the_cache(),
        [case] if case == "churn" => churn(),
        [case] if case == "explain" => explain(),
        [case] if case == "reach" => reach(),
        [case] => scenario(case),
        _ => {
            let names = SCENARIOS.iter().map(|(name, _)| *name);
            for case in names.chain(["p1.watch"]) {
                run_alone(case, false);
                run_alone(case, true);
            }
            ["change", "churn", "explain", "reach"].into_iter().for_each(|case| run_alone(case, false));
        }
    }
}

/// Time and memory in processes of their own: only an allocator that gives back at once what the generator freed shows
/// what the engine takes, and that costs time.
fn run_alone(case: &str, memory: bool) {
    let own = std::env::current_exe().expect("a running program has a path");
    let mut again = Command::new(own);
    again.arg(case);
    if memory {
        again.env(MEMORY, "1").env("MIMALLOC_PURGE_DELAY", "0");
    }
    let status = again.status().expect("this program starts again");
    assert!(status.success(), "{case} failed: {status}");
}

/// Whether this process is there to tell its memory, and nothing else.
fn tells_memory() -> bool {
    std::env::var_os(MEMORY).is_some()
}

fn figure(bench: &str, metric: &str, value: f64, unit: &str) {
    report(&format!("policy.{bench}"), metric, value, unit);
}

fn scenario(case: &str) {
    let make = SCENARIOS.iter().find(|(name, _)| *name == case).map(|(_, make)| make);
    let objects = make.unwrap_or_else(|| panic!("no scenario `{case}`"))();
    let mut sizes = (0_usize, 0_usize);
    let encode = |parcels: mpsc::Receiver<Vec<Update>>| {
        for update in parcels.iter().flatten() {
            watch::frames(&update, Encoding::Protobuf, |frame| {
                sizes = (sizes.0 + 1, sizes.1 + frame.len());
            });
        }
    };
    measure(case, &objects, encode);
    if tells_memory() {
        return;
    }
    figure(case, "frames", sizes.0 as f64, "count");
    figure(case, "frame_mib", sizes.1 as f64 / f64::from(1 << 20), "MiB");
}

/// P1 with the state that watchers are served from, and a watcher of everything for each resource.
fn through_the_cache() {
    let objects = scenarios::small_namespaces();
    let mut bytes = 0;
    // The cache is part of the peak, so it must outlive the measurement.
    let cache = Cache::new(1);
    cache.set_synced();
    let mut watchers =
        [Resource::NetworkPolicies, Resource::AppliedToGroups, Resource::AddressGroups].map(|resource| {
            let (view, start) = (View::default(), Start::Everything);
            cache.watch(resource, view, start, Encoding::Protobuf, false).expect("it starts with everything")
        });
    measure("p1.watch", &objects, |parcels| {
        for parcel in parcels {
            cache.apply(parcel);
            for watcher in &mut watchers {
                while let Some(frames) = watcher.take_frames() {
                    bytes += frames.len();
                }
            }
        }
    });
    if tells_memory() {
        return;
    }
    figure("p1.watch", "frame_mib", bytes as f64 / f64::from(1 << 20), "MiB");
}

/// From the first object handed in until the consumer has done with the last update.
fn measure(case: &str, objects: &[Object], consume: impl FnOnce(mpsc::Receiver<Vec<Update>>) + Send) {
    reset_peak();
    let before = resident("VmRSS");
    let (started, cpu_before) = (Instant::now(), cpu_seconds());
    let mut engine = Engine::new();
    let mut updates = 0;
    let consumer_cpu = thread::scope(|scope| {
        let (parcels, inbox) = mpsc::sync_channel(WAITING);
        let consumer = scope.spawn(|| {
            consume(inbox);
            cpu_seconds()
        });
        for batch in objects.chunks(BATCH) {
            batch.iter().for_each(|object| engine.handle_event(Event::Apply(object)));
            updates += hand_on(&mut engine, &parcels);
        }
        drop(parcels);
        consumer.join().expect("the consumer finishes")
    });
    let seconds = started.elapsed();
    let peak = resident("VmHWM");
    let engine_cpu = cpu_seconds() - cpu_before;
    if tells_memory() {
        return figure(case, "rss_mib", (peak - before) / 1024.0, "MiB");
    }
    figure(case, "seconds", seconds.as_secs_f64(), "s");
    figure(case, "engine_cpu_seconds", engine_cpu, "s");
    figure(case, "consumer_cpu_seconds", consumer_cpu, "s");
    figure(case, "updates", updates as f64, "count");
    figure(case, "objects", objects.len() as f64, "count");
}

fn hand_on(engine: &mut Engine, parcels: &mpsc::SyncSender<Vec<Update>>) -> usize {
    let mut updates = 0;
    loop {
        let mut parcel = Vec::with_capacity(PARCEL);
        parcel.extend(std::iter::from_fn(|| engine.poll_update()).take(PARCEL));
        if parcel.is_empty() {
            return updates;
        }
        updates += parcel.len();
        parcels.send(parcel).expect("the consumer takes all there is");
    }
}

fn drain(engine: &mut Engine) -> usize {
    let mut updates = 0;
    while let Some(update) = engine.poll_update() {
        std::hint::black_box(&update);
        updates += 1;
    }
    updates
}

/// One Pod comes to and goes from a group of 10,000 on 1,000 nodes, named by 10,000 policies.
fn change() {
    let objects = scenarios::one_namespace();
    let mut engine = Engine::new();
    objects.iter().for_each(|object| engine.handle_event(Event::Apply(object)));
    drain(&mut engine);
    let mut pod = scenarios::pod("ns-0", "newcomer", &[("app", "scale")], 7, 1);
    let mut times = Vec::new();
    for round in 0..2_000 {
        scenarios::set_address(&mut pod, round);
        let started = Instant::now();
        engine.handle_event(Event::Apply(&pod));
        assert!(drain(&mut engine) > 0);
        times.push(started.elapsed());
        let id = pod.id();
        engine.handle_event(Event::Delete(&id));
        drain(&mut engine);
    }
    times.sort_unstable();
    figure("change.engine", "p50_us", micros(times[times.len() / 2]), "us");
    figure("change.engine", "p99_us", micros(times[times.len() * 99 / 100]), "us");
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Label changes that move Pods from one group to another, each drained on its own, in the world of `p1`.
fn churn() {
    let objects = scenarios::small_namespaces();
    let mut engine = Engine::new();
    objects.iter().for_each(|object| engine.handle_event(Event::Apply(object)));
    drain(&mut engine);
    let mut pods: Vec<Object> =
        objects.into_iter().filter(|object| matches!(object, Object::Pod(_))).collect();
    let started = Instant::now();
    let mut changes = 0_u64;
    'done: loop {
        for at in (0..pods.len()).step_by(7) {
            scenarios::swap_label(&mut pods[at]);
            engine.handle_event(Event::Apply(&pods[at]));
            drain(&mut engine);
            changes += 1;
            if started.elapsed() > Duration::from_secs(2) {
                break 'done;
            }
        }
    }
    figure("churn", "label_changes_per_s", changes as f64 / started.elapsed().as_secs_f64(), "1/s");
}

/// Questions about random pairs of Pods: in the world of `p1` (three policies per Pod), and in that of `p3`, where each
/// answer reads ten thousand policies.
fn explain() {
    for (name, objects) in
        [("explain", scenarios::small_namespaces()), ("explain.p3", scenarios::one_namespace())]
    {
        let mut engine = Engine::new();
        objects.iter().for_each(|object| engine.handle_event(Event::Apply(object)));
        drain(&mut engine);
        let pods: Vec<_> =
            objects.iter().filter(|object| matches!(object, Object::Pod(_))).map(Object::id).collect();
        let endpoint = |at: usize| Endpoint::Workload {
            kind: MemberKind::Pod,
            namespace: pods[at % pods.len()].namespace.clone(),
            name: pods[at % pods.len()].name.clone(),
        };
        let started = Instant::now();
        let mut questions = 0_usize;
        while started.elapsed() < Duration::from_secs(1) {
            let query = Query {
                source: endpoint(questions * 7),
                destination: endpoint(questions * 7 + questions % 4),
                protocol: Some(Protocol::Tcp),
                port: Some(80),
                source_port: None,
                icmp: None,
                family: None,
            };
            std::hint::black_box(engine.explain(&query).expect("both ends exist"));
            questions += 1;
        }
        figure(name, "per_s", questions as f64 / started.elapsed().as_secs_f64(), "1/s");
    }
}

/// Every pair of 10,000 Pods of one namespace that all differ: each has a policy of its own, on both ways. `hold_seconds`
/// is how long the engine is read; the rest is worked out beside it.
fn reach() {
    let objects = scenarios::policy_per_pod();
    let mut engine = Engine::new();
    objects.iter().for_each(|object| engine.handle_event(Event::Apply(object)));
    drain(&mut engine);
    let pods = objects.iter().filter(|object| matches!(object, Object::Pod(_))).map(Object::id);
    let party = |id: ObjectId| Party {
        endpoint: Endpoint::Workload { kind: MemberKind::Pod, namespace: id.namespace, name: id.name },
        resource: None,
    };
    let parties: Vec<Party> = pods.map(party).collect();
    let all: Vec<usize> = (0..parties.len()).collect();
    reset_peak();
    let before = resident("VmHWM:");
    let started = Instant::now();
    let survey = engine.survey(&parties);
    let held = started.elapsed();
    let tallies = survey.count(&[&all], &[&all]).expect("they are few enough");
    figure("reach", "seconds", started.elapsed().as_secs_f64(), "s");
    figure("reach", "hold_seconds", held.as_secs_f64(), "s");
    figure("reach", "pairs", tallies[0][0].iter().map(|(_, pairs)| *pairs as f64).sum(), "count");
    figure("reach", "peak", (resident("VmHWM:") - before) / 1024.0, "MiB");
}

fn resident(field: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find(|line| line.starts_with(field)).expect("the kernel gives this field");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("the value is in KiB")
}

/// Time of this thread on a processor, which tells more than `seconds` on a machine that does other things.
fn cpu_seconds() -> f64 {
    let schedule = fs::read_to_string("/proc/thread-self/schedstat").expect("/proc is mounted");
    schedule
        .split_whitespace()
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .expect("the first value is in ns")
        / 1e9
}

/// Sets the high-water mark back to what is resident now.
fn reset_peak() {
    fs::write("/proc/self/clear_refs", "5").expect("a process may reset its own peak");
}
