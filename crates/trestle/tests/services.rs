//! Services as a user meets them: YAML in, lists and explanations out, and a KPNG backend's client.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use std::{path::Path, process::Command};

use harness::{Up, text};

fn example() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/services.yaml").display().to_string()
}

#[test]
fn the_example_is_applied_listed_and_explained() {
    let up = Up::start(&[]);
    up.ok(&["apply", "-f", &example()]);
    let list = up.ok(&["service", "list"]);
    assert!(list.contains("legacy-db") && list.contains("2/3 Pods"), "{list}");
    let get = up.ok(&["service", "get", "web", "-n", "shop", "-o", "json"]);
    let get: serde_json::Value = serde_json::from_str(&get).unwrap();
    assert_eq!((&get["ready"], &get["total"], &get["from_pods"]), (&2.into(), &3.into(), &true.into()));
    let pods = ["--pods", "10.244.0.0/16"];
    let near = up.ok(&[&["service", "explain", "10.96.0.10:80", "--node", "node-1"][..], &pods].concat());
    assert!(near.starts_with("balanced to 10.244.1.10:8080\n"), "hints keep it in zone a: {near}");
    let local =
        up.ok(&["service", "explain", "192.168.0.2:30080", "--node", "node-2", "--from", "203.0.113.7"]);
    assert!(local.starts_with("balanced to 10.244.2.10:8080\n"), "{local}");
    assert!(local.contains("external traffic policy is Local"), "{local}");
    let nobody = up.ok(&["service", "explain", "10.96.0.99:80", "--plane", "ipvs"]);
    assert!(nobody.starts_with("passed\n"), "{nobody}");
    let slices = up.ok(&["get", "endpointslices"]);
    assert!(slices.contains("legacy-db-1"), "{slices}");
    up.ok(&["delete", "endpointslice", "legacy-db-1", "-n", "shop"]);
    let gone = up.ok(&["service", "explain", "10.96.0.20:5432"]);
    assert!(gone.starts_with("rejected\n"), "{gone}");
}

#[test]
fn a_python_client_from_kpngs_text_follows_a_node() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kpng/client.py");
    let up = Up::start(&[]);
    up.ok(&["apply", "-f", &example()]);
    up.ok(&["cert", "issue", "node-1", "--role", "node", "--out", "node"]);
    let output = Command::new("/usr/bin/python3")
        .arg(script)
        .args([&up.grpc, "node.ca.pem", "node.pem", "node.key", "node-1"])
        .current_dir(up.dir.path())
        .output()
        .expect("Debian's python3 is there; scripts/test-deps installs it");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.ends_with("the view of node-1 is whole\n"), "{stdout}{stderr}");
}
