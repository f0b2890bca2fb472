//! Network namespaces of one lab, and commands in them. Everything goes when the lab does.
//!
//! ```text
//!   fabric: br0 10.99.0.254, fd99::fe, the controller
//!     ├── host 1: up0 10.99.0.1, fd99::1 ── forwards ── p1 ── eth0 of a Pod: 10.0.1.1, fd00:0:1::1
//!     │                                             └── p2 ── …
//!     └── host 2: …
//! ```

use std::{
    fs::File,
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use nix::sched::{CloneFlags, setns};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A namespace with a name of its own on this machine.
pub struct Namespace {
    pub name: String,
}

impl Namespace {
    pub fn new(role: &str) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ta{}-{number}-{role}", process::id());
        sh(&format!("ip netns add {name}; ip -n {name} link set lo up"));
        Self { name }
    }

    /// Runs a shell script in it; its standard output.
    #[track_caller]
    pub fn run(&self, script: &str) -> String {
        let mut command = self.command("sh");
        output(command.args(["-ec", script]), script)
    }

    /// A command that will run in it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs on a thread that has moved into it. Sockets that are opened there stay there.
    pub fn within<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let file = File::open(format!("/run/netns/{}", self.name)).expect("the namespace has a name");
        thread::spawn(move || {
            setns(file, CloneFlags::CLONE_NEWNET)
                .expect("network namespaces need root: run the tests as root");
            act()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

#[track_caller]
pub fn sh(script: &str) -> String {
    output(Command::new("sh").args(["-ec", script]), script)
}

#[track_caller]
fn output(command: &mut Command, what: &str) -> String {
    let output = command.output().expect("sh and ip can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{what}\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}
