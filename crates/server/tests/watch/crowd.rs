//! Ten thousand agents at once: a fleet that comes back after an outage.
//!
//! The agents are in a process of their own, this test started again, so that each process has one end of every connection.

use std::{net::SocketAddr, process::Stdio, sync::Arc, time::Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{ChildStdout, Command},
    sync::Semaphore,
};

use testkit_controllers::controller::Fixture;

use crate::{
    client::{apply, pod, shop},
    restart::open,
};

const AGENTS: usize = 10_000;
/// Set for the process of the agents: where the controller listens, the CA's certificate, the token.
const CROWD: &str = "TRESTLE_CROWD";
const NAME: &str = "crowd::ten_thousand_agents_connect_at_once_and_all_hear_of_a_change";

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
    allow_open_files(AGENTS as u64 + 1_000);
    if let Ok(where_to) = std::env::var(CROWD) {
        let (addr, ca, token) = serde_json::from_str(&where_to).unwrap();
        return crowd(addr, ca, token).await;
    }
    let fixture = Fixture::start().await;
    apply(&fixture, &shop()).await;
    let where_to = (fixture.controller.watch_addr(), &fixture.ca, &fixture.token);
    let started = Instant::now();
    let mut agents = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", NAME])
        .env(CROWD, serde_json::to_string(&where_to).unwrap())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut told = BufReader::new(agents.stdout.take().unwrap()).lines();
    until(&mut told, "in sync").await;
    println!("{AGENTS} agents in sync after {:?}", started.elapsed());
    let started = Instant::now();
    apply(&fixture, &[pod("web-2", "web", "node-1", "10.10.1.6")]).await;
    until(&mut told, "heard").await;
    println!("one change to all of them in {:?}", started.elapsed());
    assert!(agents.wait().await.unwrap().success());
    fixture.stop().await;
}

async fn until(told: &mut Lines<BufReader<ChildStdout>>, what: &str) {
    while let Some(line) = told.next_line().await.unwrap() {
        if line == what {
            return;
        }
    }
    panic!("the agents ended before they were {what}");
}

#[allow(clippy::print_stdout, reason = "the other process waits for it")]
async fn crowd(addr: SocketAddr, ca: String, token: String) {
    let (ca, token) = (Arc::<str>::from(ca), Arc::<str>::from(token));
    let (synced, heard) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
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
    println!("in sync");
    let _ = heard.acquire_many(AGENTS as u32).await.unwrap();
    println!("heard");
    while let Some(agent) = agents.join_next().await {
        agent.unwrap();
    }
}
