//! Several controllers on one etcd, by mistake or on purpose: one leads, the others follow, and take over.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may fail where it stands, and tells how it went"
)]

mod harness;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::DirBuilderExt as _,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use harness::{Running, Serve, TRESTLE, Up, text};
use testkit::etcd::Cluster;

struct Lab {
    etcd: Cluster,
    plugin: String,
    token: Option<String>,
    _plugin: Running,
}

impl Lab {
    fn new() -> Self {
        let mut plugin = Command::new(TRESTLE)
            .args(["plugin", "fake", "--name", "far", "--listen", "127.0.0.1:0", "--plaintext-loopback"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(plugin.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { etcd: Cluster::start(1), plugin: address, token: None, _plugin: Running(plugin) }
    }

    /// A further controller. Those after the first are given the first one's token.
    fn controller(&mut self) -> Serve {
        let dir = tempfile::tempdir().unwrap();
        if let Some(token) = &self.token {
            fs::DirBuilder::new().mode(0o700).create(dir.path().join("data")).unwrap();
            fs::write(dir.path().join("data/admin.token"), token).unwrap();
        }
        let config = format!(
            "store: {{etcd: {{endpoints: [\"{}\"]}}}}\nclouds: [{{name: far, remote: {{url: \"http://{}\"}}}}]\n",
            self.etcd.url(),
            self.plugin
        );
        let serve = Serve::start(dir, &config);
        self.token
            .get_or_insert_with(|| fs::read_to_string(serve.dir.path().join("data/admin.token")).unwrap());
        serve
    }
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        thread::sleep(Duration::from_millis(50));
    }
    start.elapsed()
}

fn creates(serve: &Serve, name: &str) -> bool {
    serve.run(&["resource", "create", name, "--description", "west"]).status.success()
}

fn lists(serve: &Serve, name: &str) -> bool {
    text(&serve.run(&["resource", "list"]).stdout).contains(name)
}

#[test]
fn one_controller_leads_and_another_takes_over() {
    let mut lab = Lab::new();
    let first = lab.controller();
    until("the first leads", || creates(&first, "far.one"));
    let second = lab.controller();
    until("the other sees what the leader made", || lists(&second, "default.far.one"));
    let refused = second.run(&["resource", "create", "far.two", "--description", "west"]);
    let error = text(&refused.stderr);
    assert!(!refused.status.success() && error.contains("ask the one that leads"), "{error}");
    assert!(error.contains(&first.grpc), "it says where: {error}");

    // Kill -9 in the midst of work: the other one goes on with it.
    first.ok(&["resource", "create", "far.three", "--description", "west", "--detach"]);
    let dir = first.kill();
    let took = until("the other takes over", || creates(&second, "far.four"));
    println!("the other leads {took:?} after kill -9");
    until("what was begun is finished", || {
        text(&second.run(&["resource", "get", "far.three"]).stdout).contains("ready")
    });
    assert_eq!(second.ok(&["check"]), "Everything is as it was made.\n");

    // A leader that is halted does not know that it leads no more; when it wakes up it cannot write.
    drop(dir);
    let third = lab.controller();
    until("the third sees everything", || lists(&third, "default.far.four"));
    second.signal("STOP");
    let took = until("the third takes over", || creates(&third, "far.five"));
    println!("the third leads {took:?} after the second was halted");
    second.signal("CONT");
    assert!(!creates(&second, "far.six"), "it follows now");
    until("and sees what the leader made", || lists(&second, "default.far.five"));
    assert!(!lists(&third, "default.far.six"));
    // A leader that stops says so: the next one need not wait.
    drop(third);
    let took = until("the second takes over", || creates(&second, "far.six"));
    println!("the second leads {took:?} after the third was stopped");
    for name in ["one", "three", "four", "five", "six"] {
        second.ok(&["resource", "delete", &format!("far.{name}")]);
    }
    assert_eq!(second.ok(&["check"]), "Everything is as it was made.\n");
}

/// The same directory: the second process is refused, and the first goes on.
#[test]
fn a_second_controller_on_the_same_directory_is_refused() {
    let up = Up::start(&["--cloud", "a=fake"]);
    let second = Command::new("timeout")
        .args(["20", TRESTLE, "up", "--data-dir", "data", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"])
        .args(["--watch", "127.0.0.1:0", "--nbd", "127.0.0.1:0"])
        .current_dir(up.dir.path())
        .env("TRESTLE_CONTEXT", up.path("other.json"))
        .output()
        .unwrap();
    let error = text(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{error}");
    assert!(error.contains("store") && error.contains("process"), "{error}");
    up.ok(&["resource", "create", "a.web", "--description", "west"]);
}
