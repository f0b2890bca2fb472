//! Network namespaces that live as long as one test.

use std::{process::Command, thread};

use nix::sched::{CloneFlags, unshare};

/// Runs a test in a network namespace of its own, on a thread of its own. Commands it starts are in there too. The
/// namespace goes when the last of them does.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("network namespaces need root: run the tests as root");
        run("ip link set lo up");
        test();
    };
    if let Err(panic) = thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Standard output of a shell command that must succeed.
pub fn run(command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).output().expect("sh can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command}\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}
