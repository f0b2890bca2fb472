//! Ten thousand agents at once: a fleet that comes back after an outage.

use std::{sync::Arc, time::Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Semaphore;

use crate::{
    client::{apply, pod, shop},
    harness::Fixture,
    restart::open,
};

const AGENTS: usize = 10_000;

/// Both ends of every connection are in this process.
fn allow_open_files(count: u64) {
    let has = getrlimit(Resource::Nofile);
    if has.current.is_some_and(|current| current < count) {
        let maximum = has.maximum.map(|maximum| maximum.max(count));
        setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum })
            .unwrap_or_else(|err| panic!("{count} open files are needed and not allowed here: {err}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "ten thousand TLS handshakes take half a minute; make lab runs it"]
#[allow(clippy::print_stdout, reason = "what it took is worth telling")]
async fn ten_thousand_agents_connect_at_once_and_all_hear_of_a_change() {
    allow_open_files(2 * AGENTS as u64 + 1_000);
    let fixture = Fixture::start().await;
    apply(&fixture, &shop()).await;
    let (ca, token) = (Arc::<str>::from(fixture.ca.as_str()), Arc::<str>::from(fixture.token.as_str()));
    let addr = fixture.controller.watch_addr();
    let (synced, heard) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let started = Instant::now();
    let mut agents = tokio::task::JoinSet::new();
    for _ in 0..AGENTS {
        let (ca, token, synced, heard) =
            (Arc::clone(&ca), Arc::clone(&token), Arc::clone(&synced), Arc::clone(&heard));
        agents.spawn(async move {
            // Who is turned away tries again, as agents do.
            let mut frames = loop {
                match open(&ca, addr, &token, "node-2").await {
                    Some(frames) => break frames,
                    None => tokio::time::sleep(std::time::Duration::from_millis(200)).await,
                }
            };
            frames.expect("ADDED", "AddressGroup").await;
            frames.expect("BOOKMARK", "AddressGroup").await;
            synced.add_permits(1);
            frames.expect("MODIFIED", "AddressGroupPatch").await;
            heard.add_permits(1);
        });
    }
    let _ = synced.acquire_many(AGENTS as u32).await.unwrap();
    println!("{AGENTS} agents in sync after {:?}", started.elapsed());
    let started = Instant::now();
    apply(&fixture, &[pod("web-2", "web", "node-1", "10.10.1.6")]).await;
    let _ = heard.acquire_many(AGENTS as u32).await.unwrap();
    println!("one change to all of them in {:?}", started.elapsed());
    while let Some(agent) = agents.join_next().await {
        agent.unwrap();
    }
    fixture.stop().await;
}
