//! An agent and two controllers on one etcd, all of them processes, in a network namespace of their own: a controller
//! that is killed, halted or cut off is left for the other one, and what is in force stays.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may fail where it stands, and tells how it went"
)]

mod harness;

use std::{
    fs,
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use agent::{Agent, Config, PolicySettings, Uplink};
use harness::{Running, Serve, TRESTLE};
use serde_json::Value;
use tempfile::TempDir;
use testkit::{
    etcd::Cluster,
    namespaces::{enter_new, run},
};
use testkit_controllers::agents::Falls;

/// What is promised for a controller that does not say goodbye.
const BOUND: Duration = Duration::from_secs(10);

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(90), "{what}: not within ninety seconds");
        thread::sleep(Duration::from_millis(50));
    }
    start.elapsed()
}

/// Fields are dropped in this order: the agent before its controllers, these before their store.
struct Lab {
    _agent: Running,
    controllers: Vec<Serve>,
    _etcd: Cluster,
    dir: TempDir,
}

impl Lab {
    fn new() -> Self {
        enter_new();
        let dir = tempfile::tempdir().unwrap();
        let etcd = Cluster::start(1);
        let config = format!("store: {{etcd: {{endpoints: [\"{}\"]}}}}\n", etcd.url());
        let first = Serve::start(tempfile::tempdir().unwrap(), &config);
        // The second has the CA and the token of the first.
        let home = tempfile::tempdir().unwrap();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(home.path().join("data/pki")).unwrap();
        for file in ["data/pki/ca.pem", "data/pki/ca.key", "data/admin.token"] {
            fs::copy(first.dir.path().join(file), home.path().join(file)).unwrap();
        }
        let second = Serve::start(home, &config);
        let out = dir.path().join("n1");
        first.ok(&["cert", "issue", "n1", "--role", "node", "--out", out.to_str().unwrap()]);
        let controllers = vec![first, second];
        let agent = start_agent(&dir, &controllers);
        Self { _agent: agent, controllers, _etcd: etcd, dir }
    }

    fn status(&self) -> Value {
        let socket = self.dir.path().join("socket");
        let asked = Command::new(TRESTLE)
            .args(["agent", "status", "-o", "json", "--socket"])
            .arg(socket)
            .output()
            .unwrap();
        serde_json::from_slice(&asked.stdout).unwrap_or_default()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    fn is_synced_with(&self, controller: &Serve) -> bool {
        let status = self.status();
        status["synced"] == true && status["server"] == format!("https://{}", controller.grpc)
    }

    /// The number of the controller that the agent is on.
    fn current(&self) -> usize {
        let mut found = None;
        until("the agent is in sync", || {
            found = self.controllers.iter().position(|controller| self.is_synced_with(controller));
            found.is_some()
        });
        found.unwrap()
    }

    /// Lets something happen to the controller the agent is on, until the agent is on the other one.
    #[track_caller]
    fn leaves<'a, T>(&'a self, what: &str, happens: impl FnOnce(&'a Serve) -> T) {
        let current = self.current();
        let (bad, other) = (&self.controllers[current], &self.controllers[1 - current]);
        until("the other one serves", || other.run(&["status"]).status.success());
        let start = Instant::now();
        let _undone_when_dropped = happens(bad);
        until(what, || self.is_synced_with(other));
        let took = start.elapsed();
        println!("{what}: left after {took:?}");
        assert!(took <= BOUND, "{what}: {took:?}\n{}", self.log());
    }
}

fn start_agent(dir: &TempDir, controllers: &[Serve]) -> Running {
    let file = |suffix: &str| -> PathBuf { dir.path().join(format!("n1{suffix}")) };
    let mut agent = Command::new(TRESTLE);
    agent.args(["agent", "--node", "n1", "--health", "none"]);
    for controller in controllers {
        agent.args(["--server", &format!("https://{}", controller.grpc)]);
    }
    agent.arg("--ca").arg(file(".ca.pem")).arg("--cert").arg(file(".pem")).arg("--key").arg(file(".key"));
    agent.arg("--data-dir").arg(dir.path().join("agent")).arg("--socket").arg(dir.path().join("socket"));
    let log = fs::File::create(dir.path().join("log")).unwrap();
    Running(agent.stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

/// A controller that is halted, for as long as this lives: a halted one cannot be stopped.
struct Halted<'a>(&'a Serve);

impl<'a> Halted<'a> {
    fn new(controller: &'a Serve) -> Self {
        controller.signal("STOP");
        Self(controller)
    }
}

impl Drop for Halted<'_> {
    fn drop(&mut self) {
        self.0.signal("CONT");
    }
}

/// Packets that vanish without a word, for as long as this lives.
struct Hole;

impl Hole {
    fn new(rule: &str) -> Self {
        run(&format!(
            "nft add table inet hole
             nft add chain inet hole in '{{ type filter hook prerouting priority -400; }}'
             nft add rule inet hole in {rule} drop"
        ));
        Self
    }
}

impl Drop for Hole {
    fn drop(&mut self) {
        run("nft delete table inet hole");
    }
}

#[test]
fn controllers_that_die_or_fall_silent_are_left_in_time_and_what_is_in_force_stays() {
    let mut lab = Lab::new();
    let port = |controller: &Serve| controller.grpc.rsplit(':').next().unwrap().to_owned();
    lab.leaves("a controller that is halted", Halted::new);
    lab.leaves("a controller that is not heard", |it| Hole::new(&format!("tcp sport {}", port(it))));
    lab.leaves("a controller that does not hear", |it| Hole::new(&format!("tcp dport {}", port(it))));
    let current = lab.current();
    let killed = lab.controllers.remove(current).kill();
    let start = Instant::now();
    until("the last one", || lab.is_synced_with(&lab.controllers[0]));
    println!("a controller that is killed: left after {:?}", start.elapsed());
    assert!(start.elapsed() <= Duration::from_secs(3), "{:?}", start.elapsed());
    drop(killed);

    lab.controllers.clear();
    until("nobody is heard", || lab.status()["connected"] == false);
    let status = lab.status();
    assert!(status["disconnected_since"].is_string() && status["ready"] == true, "{status}");
    run("nft list table inet trestle-policy");
}

#[test]
fn an_agent_that_loses_a_part_of_itself_leaves_the_table_where_it_is() {
    enter_new();
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    let registry = r#"[{"pod": "ns/a", "interface": "v1", "closed": true}]"#;
    fs::write(dir.path().join("data/endpoints.json"), registry).unwrap();
    let config = Config {
        uplink: Uplink { node: "n1".into(), servers: vec!["http://127.0.0.1:1".into()], ..Uplink::default() },
        data_dir: dir.path().join("data"),
        socket: dir.path().join("socket"),
        health: None,
        services: None,
        services_health: None,
        joined: false,
        patience: agent::Patience::default(),
    };
    let mut parts = agent::parts("n1", &PolicySettings::default()).unwrap();
    parts.push(Box::new(Falls::by_itself()));
    // All on this thread and those it starts, which are in the new network.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(async {
        let agent = Agent::start(config, parts).await.unwrap();
        tokio::time::timeout(Duration::from_secs(30), agent.life().faulted()).await.unwrap();
        agent.stop().await
    });
    assert!(ended.unwrap_err().to_string().contains("the part has fallen"));
    run("nft list table inet trestle-closed | grep -q v1");
}
