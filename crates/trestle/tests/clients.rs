//! Clients in other languages, against a controller as `trestle up` starts it: their examples run, and do what they say.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use std::{path::Path, process::Command};

use harness::{Up, text};

#[test]
fn the_python_example_does_what_it_says() {
    let up = Up::start(&[]);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python/example.py");
    let run = Command::new("python3")
        .arg("-B")
        .arg(example)
        .env("TRESTLE_CONTEXT", up.path("context.json"))
        .current_dir(up.dir.path())
        .output()
        .expect("python3 runs; scripts/test-deps installs it");
    let told = text(&run.stdout);
    assert!(run.status.success(), "{told}\n{}", text(&run.stderr));
    for part in [
        "namespace:example/ci to namespace:example/db would be closed",
        "namespace:example/web to namespace:example/db would be tcp 5432",
        "stored: created",
        "ci to db: denied",
        "tag: ['example']",
        "refused: NOT_FOUND",
    ] {
        assert!(told.contains(part), "{part} is not in:\n{told}");
    }
    assert!(up.ok(&["get", "networkpolicy", "db", "-n", "example", "-o", "name"]).contains("example/db"));
}
