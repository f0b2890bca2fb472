//! kubectl, unmodified, reads the watch API of a `trestle up`.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Output, Stdio},
};

use harness::{Up, text};

const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/shop.yaml");

fn command(up: &Up, args: &[&str]) -> Command {
    let mut command = Command::new("kubectl");
    let (kubeconfig, cache) = (up.path("data/kubeconfig"), up.path("kube-cache"));
    command.arg("--kubeconfig").arg(kubeconfig).arg("--cache-dir").arg(cache);
    command.args(["--request-timeout", "20s"]).args(args);
    command
}

fn kubectl(up: &Up, args: &[&str]) -> Output {
    command(up, args).output().expect("kubectl is installed: scripts/test-deps")
}

#[track_caller]
fn ok(up: &Up, args: &[&str]) -> String {
    let output = kubectl(up, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn kubectl_gets_lists_and_describes_what_is_there() {
    let up = Up::start(&[]);
    up.ok(&["apply", "-f", SHOP]);
    let resources = ok(&up, &["api-resources"]);
    assert!(resources.contains("addressgroups") && resources.contains("AddressGroup"), "{resources}");

    let table = ok(&up, &["get", "networkpolicies.controlplane.antrea.io"]);
    assert!(table.starts_with("NAME") && table.contains("K8sNetworkPolicy:shop/db"), "{table}");
    let table = ok(&up, &["get", "addressgroups"]);
    let name = table.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    assert_eq!(table.lines().count(), 2, "{table}");
    assert!(ok(&up, &["get", "addressgroup", &name]).contains(&name));

    let json: serde_json::Value =
        serde_json::from_str(&ok(&up, &["get", "addressgroups", &name, "-o", "json"])).unwrap();
    assert_eq!(json["groupMembers"][0]["ips"][0], "AAAAAAAAAAAAAP//CgoBBQ==");
    assert!(ok(&up, &["get", "appliedtogroups", "-o", "yaml"]).contains("name: db-0"));
    let fields = |node: &str| ok(&up, &["get", "addressgroups", "-o", "name", "--field-selector", node]);
    assert!(fields("nodeName=node-2").contains(&name));
    assert_eq!(fields("nodeName=node-1"), "");
    assert_eq!(ok(&up, &["get", "--raw", "/readyz"]), "ok");

    let wrong = kubectl(&up, &["get", "addressgroups", "--field-selector", "foo=bar"]);
    assert!(text(&wrong.stderr).contains("field label not supported"), "{}", text(&wrong.stderr));
    let none = kubectl(&up, &["get", "addressgroups", "nonesuch"]);
    assert!(text(&none.stderr).contains("(NotFound)"), "{}", text(&none.stderr));
}

#[test]
fn kubectl_follows_changes() {
    let up = Up::start(&[]);
    up.ok(&["apply", "-f", SHOP]);
    let mut child = command(&up, &["get", "addressgroups", "--watch", "-o", "json", "--output-watch-events"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut events = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut next = || serde_json::from_str::<serde_json::Value>(&events.next().unwrap()).unwrap();
    assert_eq!(next()["type"], "ADDED");
    let more =
        std::fs::read_to_string(SHOP).unwrap().replace("web-1", "web-2").replace("10.10.1.5", "10.10.1.6");
    std::fs::write(up.path("more.yaml"), more).unwrap();
    up.ok(&["apply", "-f", "more.yaml"]);
    let patch = next();
    assert_eq!((&patch["type"], &patch["object"]["kind"]), (&"MODIFIED".into(), &"AddressGroupPatch".into()));
    assert_eq!(patch["object"]["addedGroupMembers"][0]["pod"]["name"], "web-2");
    up.ok(&["delete", "netpol", "db", "-n", "shop"]);
    assert_eq!(next()["type"], "DELETED");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn kubectl_asks_who_is_in_a_group_and_which_rule_decides() {
    let up = Up::start(&[]);
    up.ok(&["apply", "-f", SHOP]);
    let group = "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterGroup\nmetadata: {name: web}\n\
                 spec: {podSelector: {matchLabels: {app: web}}}\n";
    std::fs::write(up.path("group.yaml"), group).unwrap();
    up.ok(&["apply", "-f", "group.yaml"]);
    let members = ok(&up, &["get", "clustergroupmembers", "web", "-o", "yaml"]);
    assert!(members.contains("name: web-1") && members.contains("totalMembers: 1"), "{members}");
    assert!(ok(&up, &["get", "clustergroupmembers", "web"]).contains("web"));
    let groups = ok(&up, &["get", "groupassociations", "-n", "shop", "web-1", "-o", "json"]);
    assert!(groups.contains("\"name\": \"web\""), "{groups}");
    assert!(ok(&up, &["get", "ipgroupassociations", "10.10.1.5", "-o", "yaml"]).contains("name: web"));
    let question = "apiVersion: controlplane.antrea.io/v1beta2\nkind: NetworkPolicyEvaluation\nrequest:\n  \
                    source: {pod: {namespace: shop, name: web-1}}\n  destination: {pod: {namespace: shop, name: db-0}}\n";
    std::fs::write(up.path("question.yaml"), question).unwrap();
    let path = up.path("question.yaml");
    let asked = ["create", "--validate=false", "-o", "yaml", "-f", path.to_str().unwrap()];
    let answer = ok(&up, &asked);
    assert!(answer.contains("action: Allow") && answer.contains("K8sNetworkPolicy"), "{answer}");
}
