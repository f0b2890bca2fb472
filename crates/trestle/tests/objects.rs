//! Objects from files: what is refused, what is stored with a warning, and answers of any length.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use harness::{Up, text};

const PODS: &str = "
---
{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {app: web}}, spec: {nodeName: n1}, status: {podIP: 10.0.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, labels: {app: db}}, spec: {nodeName: n1}, status: {podIP: 10.0.0.2}}
";

/// A policy that opens the database to everybody if its misspelt field is not looked at.
const TYPING: &str = "
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - form: [{podSelector: {matchLabels: {app: nobody}}}]
";

const MEANT: &str = "spec.ingress[0].form: unknown field; did you mean \"from\"?";

fn write(up: &Up, name: &str, text: &str) {
    std::fs::write(up.path(name), text).unwrap();
}

fn is_open(up: &Up) -> bool {
    up.ok(&["explain", "default/web", "default/db", "--port", "5432"]).contains("allowed")
}

#[test]
fn objects_are_chosen_by_labels_and_shown_wide_or_by_name() {
    let up = Up::start(&[]);
    write(&up, "pods.yaml", PODS);
    up.ok(&["apply", "-f", "pods.yaml"]);
    assert_eq!(up.ok(&["get", "pods", "-A", "-l", "app=web", "-o", "name"]).trim(), "default/web");
    assert_eq!(up.ok(&["get", "pods", "-l", "app!=web", "-o", "name"]).trim(), "default/db");
    assert_eq!(up.ok(&["get", "pods", "-l", "app,app=none", "-o", "json"]).trim(), "[]");
    let wide = up.ok(&["get", "pods", "-o", "wide"]);
    assert!(wide.contains("ADDRESS") && wide.contains("10.0.0.1") && wide.contains("n1"), "{wide}");
    assert!(!up.ok(&["get", "pods"]).contains("ADDRESS"));
    let (code, error) = up.fails(&["get", "pods", "-l", "app in (web)"]);
    assert_eq!((code, error.contains("app in (web)")), (2, true), "{error}");
}

#[test]
fn a_field_that_is_not_known_is_refused_with_what_was_meant() {
    let up = Up::start(&[]);
    write(&up, "typing.yaml", &format!("{PODS}{TYPING}"));
    for flags in [&["apply", "-f", "typing.yaml"][..], &["apply", "-f", "typing.yaml", "--validate=strict"]] {
        let (code, error) = up.fails(flags);
        assert_eq!((code, error.contains(MEANT)), (1, true), "{error}");
    }
    assert_eq!(up.ok(&["get", "all", "-o", "json"]).trim(), "[]");
    for (name, document, part) in [
        (
            "version.yaml",
            "{apiVersion: crd.antrea.io/v9, kind: Tier, metadata: {name: a}, spec: {priority: 5}}",
            "crd.antrea.io/v9",
        ),
        ("twice.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: a, name: b}}", "name"),
        ("pod.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodename: n}}", "nodeName"),
    ] {
        write(&up, name, document);
        let (code, error) = up.fails(&["apply", "-f", name]);
        assert_eq!((code, error.contains(part)), (1, true), "{error}");
    }
}

#[test]
fn a_policy_that_is_not_known_as_a_whole_closes_what_it_selects_and_is_told() {
    let up = Up::start(&[]);
    write(&up, "pods.yaml", PODS);
    write(&up, "typing.yaml", TYPING);
    up.ok(&["apply", "-f", "pods.yaml"]);
    assert!(is_open(&up));
    let warned = up.run(&["apply", "-f", "typing.yaml", "--validate=warn"]);
    assert!(warned.status.success() && text(&warned.stderr).contains(MEANT), "{}", text(&warned.stderr));
    assert!(!is_open(&up), "a condition that is not known must not open anything");
    let status = up.ok(&["status"]);
    assert!(status.contains(MEANT) && status.contains("closes all that it selects"), "{status}");
    // It is there as it was written, and goes like any other.
    assert!(up.ok(&["get", "networkpolicy", "db", "-o", "yaml"]).contains("form:"));
    let ignored = up.run(&["apply", "-f", "typing.yaml", "--validate=ignore"]);
    assert!(ignored.status.success() && ignored.stderr.is_empty(), "{}", text(&ignored.stderr));
    assert!(!is_open(&up));
    write(&up, "mended.yaml", &TYPING.replace("form:", "from:"));
    up.ok(&["apply", "-f", "mended.yaml"]);
    assert!(!up.ok(&["status"]).contains(MEANT));
    up.ok(&["delete", "-f", "typing.yaml"]);
    assert!(is_open(&up));
}

#[test]
fn the_answer_to_a_deletion_may_be_long() {
    const PODS: usize = 450;
    let up = Up::start(&[]);
    let note = "x".repeat(12 << 10);
    let pods: Vec<String> = (0..PODS)
        .map(|i| {
            format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p{i}, annotations: {{note: {note}}}}}}}")
        })
        .collect();
    write(&up, "pods.yaml", &pods.join("\n---\n"));
    up.ok(&["apply", "-f", "pods.yaml"]);
    let deleted = up.ok(&["delete", "-f", "pods.yaml", "-o", "json"]);
    assert!(deleted.len() > 4 << 20, "the answer is meant to be longer than 4 MiB: {}", deleted.len());
    assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&deleted).unwrap().len(), PODS);
}
