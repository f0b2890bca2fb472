//! Network namespaces that live as long as a test, and commands in them. All of it needs root.
//!
//! [`in_namespace`] is for a test that needs one of its own, [`Namespace`] for tests of several machines.

use std::{
    fs::File,
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use nix::sched::{CloneFlags, setns, unshare};

const ROOT: &str = "network namespaces need root: run the tests as root";

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Runs a test in a network namespace of its own, on a thread of its own. Commands it starts are in there too. The
/// namespace goes when the last of them does.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let test = move || {
        enter_new();
        test();
    };
    if let Err(panic) = thread::spawn(test).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Moves this thread, and what it will start, into a network namespace that goes when they do.
pub fn enter_new() {
    unshare(CloneFlags::CLONE_NEWNET).expect(ROOT);
    run("ip link set lo up");
}

/// Starts a thread in the namespace that has this name. Sockets that are opened there stay there.
pub fn spawn_within<T: Send + 'static>(
    name: &str,
    act: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let file = File::open(format!("/run/netns/{name}")).expect("the namespace has a name");
    thread::spawn(move || {
        setns(file, CloneFlags::CLONE_NEWNET).expect(ROOT);
        act()
    })
}

/// A namespace with a name of its own on this machine.
pub struct Namespace {
    pub name: String,
}

impl Namespace {
    pub fn new(role: &str) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ta{}-{number}-{role}", process::id());
        run(&format!("ip netns add {name}; ip -n {name} link set lo up"));
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
        spawn_within(&self.name, act)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// Standard output of a shell script that must succeed.
#[track_caller]
pub fn run(script: &str) -> String {
    output(Command::new("sh").args(["-ec", script]), script)
}

#[track_caller]
fn output(command: &mut Command, what: &str) -> String {
    let output = command.output().expect("sh and ip can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{what}\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}
