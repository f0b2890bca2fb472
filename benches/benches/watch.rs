//! The watch at full scale: one Pod more in a group of 10,000 that 1,000 nodes watch, and 1,000 watchers at once.
//!
//! A watcher is a task that reads its stream to the end of what there is, as the HTTP layer does, and counts the bytes;
//! sockets and TLS are not in these figures. Time runs from handing the Pod to the engine until the last watcher has
//! its frame. The floor is the same fan-out of one ready frame through a channel per watcher.

#[allow(dead_code, reason = "shared with the engine's bench")]
#[path = "policy/scenarios.rs"]
mod scenarios;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use benches::report;
use bytes::Bytes;
use futures::StreamExt as _;
use model::policy::Object;
use policy::{Engine, Event};
use tokio::{sync::mpsc, task::JoinSet};
use watch::{Cache, Encoding, Resource, Start, View};

const WATCHERS: usize = 1_000;
const ROUNDS: usize = 300;
const WATCHED: [Resource; 3] =
    [Resource::NetworkPolicies, Resource::AppliedToGroups, Resource::AddressGroups];

#[tokio::main]
async fn main() {
    change().await;
    channels().await;
    attach().await;
}

struct World {
    engine: Engine,
    cache: Arc<Cache>,
}

impl World {
    /// 10,000 Pods in one group on 1,000 nodes, and so many policies over it.
    fn new(policies: usize) -> Self {
        let is_policy = |object: &Object| matches!(object, Object::NetworkPolicy(_));
        let (all_policies, others): (Vec<_>, Vec<_>) =
            scenarios::one_namespace().into_iter().partition(is_policy);
        let mut world = World { engine: Engine::new(), cache: Arc::new(Cache::new(1)) };
        for object in others.iter().chain(all_policies.iter().take(policies)) {
            world.engine.handle_event(Event::Apply(object));
        }
        world.drain();
        world.cache.set_synced();
        world
    }

    fn drain(&mut self) {
        let Self { engine, cache } = self;
        cache.apply(std::iter::from_fn(|| engine.poll_update()));
    }
}

/// What all watchers together have received.
#[derive(Default)]
struct Received {
    chunks: AtomicUsize,
    bytes: AtomicU64,
}

fn spawn(
    cache: &Arc<Cache>,
    received: &Arc<Received>,
    resource: Resource,
    node: usize,
) -> impl Future<Output = ()> + use<> {
    let view = View { node: Some(format!("Node-{node}").into()), name: None };
    let watch = cache.watch(resource, view, Start::Everything, Encoding::Protobuf, false);
    let (mut watch, received) = (watch.expect("it starts with everything"), Arc::clone(received));
    async move {
        while let Some(frames) = watch.next().await {
            received.bytes.fetch_add(frames.len() as u64, Ordering::Relaxed);
            received.chunks.fetch_add(1, Ordering::Release);
        }
    }
}

async fn until(counter: &AtomicUsize, count: usize) {
    while counter.load(Ordering::Acquire) < count {
        tokio::task::yield_now().await;
    }
}

/// Until nothing has come for a while; when the last came.
async fn until_quiet(received: &Received) -> Instant {
    let (mut last, mut at) = (0, Instant::now());
    while at.elapsed() < Duration::from_millis(300) {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let now = received.chunks.load(Ordering::Acquire);
        if now != last {
            (last, at) = (now, Instant::now());
        }
    }
    at
}

async fn change() {
    let mut world = World::new(1);
    let received = Arc::new(Received::default());
    let mut tasks = JoinSet::new();
    for node in 0..WATCHERS {
        tasks.spawn(spawn(&world.cache, &received, Resource::AddressGroups, node));
    }
    until_quiet(&received).await;
    let mut pod = scenarios::pod("ns-0", "newcomer", &[("app", "scale")], 7, 1);
    let (mut times, mut bytes) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        scenarios::set_address(&mut pod, round);
        for event in [Event::Apply(&pod), Event::Delete(&pod.id())] {
            let before = received.chunks.load(Ordering::Acquire);
            let bytes_before = received.bytes.load(Ordering::Relaxed);
            let started = Instant::now();
            world.engine.handle_event(event);
            world.drain();
            until(&received.chunks, before + WATCHERS).await;
            times.push(started.elapsed());
            bytes += received.bytes.load(Ordering::Relaxed) - bytes_before;
        }
    }
    times.sort_unstable();
    let millis = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e3;
    report("policy.change", "p50_ms", millis(50), "ms");
    report("policy.change", "p99_ms", millis(99), "ms");
    let per_change = bytes as f64 / times.len() as f64;
    report("policy.change", "bytes_per_watcher", per_change / WATCHERS as f64, "bytes");
    report("policy.change", "bytes_per_change", per_change, "bytes");
}

/// The same frame to as many tasks, through a channel each.
async fn channels() {
    let received = Arc::new(Received::default());
    let (mut senders, mut tasks) = (Vec::new(), JoinSet::new());
    for _ in 0..WATCHERS {
        let (sender, mut receiver) = mpsc::channel::<Bytes>(1_000);
        let received = Arc::clone(&received);
        tasks.spawn(async move {
            while receiver.recv().await.is_some() {
                received.chunks.fetch_add(1, Ordering::Release);
            }
        });
        senders.push(sender);
    }
    let frame = Bytes::from(vec![0; 200]);
    let mut times = Vec::new();
    for round in 0..ROUNDS * 2 {
        let started = Instant::now();
        for sender in &senders {
            sender.try_send(frame.clone()).expect("the channel is empty");
        }
        until(&received.chunks, (round + 1) * WATCHERS).await;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    report("policy.change.floor", "p99_ms", times[times.len() * 99 / 100].as_secs_f64() * 1e3, "ms");
}

/// 1,000 nodes attach to all three resources at once: a group of 10,000 members and 100 policies over it.
async fn attach() {
    let world = World::new(100);
    let received = Arc::new(Received::default());
    let mut tasks = JoinSet::new();
    let started = Instant::now();
    for node in 0..WATCHERS {
        for resource in WATCHED {
            tasks.spawn(spawn(&world.cache, &received, resource, node));
        }
    }
    let last = until_quiet(&received).await;
    report("policy.attach", "seconds", (last - started).as_secs_f64(), "s");
    report("policy.attach", "mib", received.bytes.load(Ordering::Relaxed) as f64 / f64::from(1 << 20), "MiB");
}
