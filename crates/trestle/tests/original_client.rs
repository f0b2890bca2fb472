//! A client in another language, built from nothing but the published text of Paraglider.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use std::{path::Path, process::Command};

use harness::{Up, text};

#[test]
fn a_python_client_from_the_seeds_text_calls_the_tag_service() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/original/client.py");
    let up = Up::start(&[]);
    up.ok(&["cert", "issue", "python", "--role", "operator", "--out", "python"]);
    let output = Command::new("/usr/bin/python3")
        .arg(script)
        .args([&up.grpc, "python.ca.pem", "python.pem", "python.key"])
        .current_dir(up.dir.path())
        .output()
        .expect("Debian's python3 is there; scripts/test-deps installs it");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.ends_with("all calls answered as documented\n"), "{stdout}{stderr}");
}
