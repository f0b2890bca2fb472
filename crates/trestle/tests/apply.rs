//! Kubernetes-style YAML, applied as a user would; and asking why.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
};

use harness::{Up, text};

const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/shop.yaml");
const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/tests.yaml");

fn write(up: &Up, name: &str, text: &str) -> String {
    std::fs::write(up.path(name), text).unwrap();
    name.to_owned()
}

#[test]
fn apply_is_idempotent_and_a_dry_run_changes_nothing() {
    let up = Up::start(&[]);
    let dry = up.ok(&["apply", "-f", SHOP, "--dry-run"]);
    assert!(dry.contains("NetworkPolicy shop/db created (dry run)"), "{dry}");
    assert!(dry.contains("    + spec.ingress[0].ports[0].port: 5432"), "{dry}");
    assert_eq!(up.ok(&["get", "all"]).lines().count(), 1);

    let applied = up.ok(&["apply", "-f", SHOP]);
    assert_eq!(applied.lines().count(), 6);
    assert!(applied.lines().all(|line| line.ends_with(" created")), "{applied}");
    let again = up.ok(&["apply", "-f", SHOP]);
    assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");

    let changed = std::fs::read_to_string(SHOP).unwrap().replace("port: 5432", "port: 5433");
    let file = write(&up, "changed.yaml", &changed);
    let dry = up.ok(&["apply", "-f", &file, "--dry-run"]);
    assert!(
        dry.contains(
            "    - spec.ingress[0].ports[0].port: 5432\n    + spec.ingress[0].ports[0].port: 5433\n"
        ),
        "{dry}"
    );
    let configured = up.ok(&["apply", "-f", &file]);
    assert_eq!(configured.lines().filter(|line| line.ends_with(" configured")).count(), 1, "{configured}");
    let policy = up.ok(&["get", "netpol", "db", "-n", "shop", "-o", "json"]);
    let policy: serde_json::Value = serde_json::from_str(&policy).unwrap();
    assert_eq!(policy["metadata"]["generation"], 2);
    assert_eq!(policy["metadata"]["uid"].as_str().unwrap().len(), 36);
}

#[test]
fn what_a_cluster_exports_is_taken_back_unchanged() {
    let up = Up::start(&[]);
    up.ok(&["apply", "-f", SHOP]);
    let exported = up.ok(&["get", "all", "-o", "yaml"]);
    assert!(exported.contains("uid:"), "{exported}");
    // A list of documents is not what `apply` takes; a List is.
    let items: String = exported.lines().map(|line| format!("  {line}\n")).collect();
    let list = write(&up, "list.yaml", &format!("apiVersion: v1\nkind: List\nitems:\n{items}"));
    let again = up.ok(&["apply", "-f", &list]);
    assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
    let mut piped =
        up.command(&["apply", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(&std::fs::read(up.path("list.yaml")).unwrap()).unwrap();
    assert!(text(&piped.wait_with_output().unwrap().stdout).contains("Pod shop/db-0 unchanged"));
}

#[test]
fn one_bad_document_keeps_all_out_and_its_field_is_named() {
    let up = Up::start(&[]);
    let shop = std::fs::read_to_string(SHOP).unwrap();
    for (from, to, part) in [
        ("port: 5432", "port: 99999", "spec.ingress[0].ports[0].port"),
        ("podIP: 10.10.2.7", "podIP: 10.10.2.777", "document 5"),
        ("kind: NetworkPolicy", "kind: NetworkPolicyy", "NetworkPolicyy"),
        ("name: db\n", "name: DB_\n", "metadata.name"),
        ("policyTypes: [Ingress]", "policyTypes: [Sideways]", "spec.policyTypes[0]"),
        ("matchLabels: {app: db}", "matchLabels: {app: [db]}", "document 6"),
    ] {
        assert!(shop.contains(from), "{from}");
        let file = write(&up, "bad.yaml", &shop.replace(from, to));
        let (code, error) = up.fails(&["apply", "-f", &file]);
        assert_eq!((code, error.contains(part)), (1, true), "{to}: {error}");
        assert_eq!(up.ok(&["get", "all"]).lines().count(), 1, "{to}");
    }
    let (_, error) = up.fails(&["apply", "-f", &write(&up, "broken.yaml", "a: [1\nb: 2\n")]);
    assert!(error.contains("broken.yaml") && error.contains("line"), "{error}");
    let twice = write(&up, "twice.yaml", &format!("{shop}---\n{shop}"));
    assert!(up.fails(&["apply", "-f", &twice]).1.contains("given twice"));
    let foreign = write(
        &up,
        "foreign.yaml",
        &format!("{shop}---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: x}}\n"),
    );
    assert!(up.fails(&["apply", "-f", &foreign]).1.contains("Deployment"));
    assert_eq!(up.ok(&["apply", "-f", &foreign, "--skip-unknown"]).lines().count(), 6);
}

#[test]
fn a_set_is_pruned_to_what_its_files_hold() {
    let up = Up::start(&[]);
    let pod = |name: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n---\n");
    std::fs::create_dir(up.path("set")).unwrap();
    write(&up, "set/a.yaml", &pod("a"));
    write(&up, "set/b.yaml", &pod("b"));
    write(&up, "other.yaml", &pod("other"));
    up.ok(&["apply", "-f", "other.yaml"]);
    up.ok(&["apply", "-f", "set", "--set", "mine"]);
    std::fs::remove_file(up.path("set/a.yaml")).unwrap();
    let dry = up.ok(&["apply", "-f", "set", "--set", "mine", "--prune", "--dry-run"]);
    assert!(dry.contains("Pod default/a deleted (dry run)"), "{dry}");
    let pruned = up.ok(&["apply", "-f", "set", "--set", "mine", "--prune"]);
    assert_eq!(pruned, "Pod default/b unchanged\nPod default/a deleted\n");
    assert_eq!(up.ok(&["get", "pods"]).lines().count(), 3, "what is not of the set stays");
    assert_eq!(up.fails(&["apply", "-f", "set", "--prune"]).0, 2);
    // An address that moves from what goes to what comes.
    let service = |name: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{clusterIP: 10.96.7.7, ports: [{{port: 80}}]}}\n---\n"
        )
    };
    write(&up, "set/service.yaml", &service("old"));
    up.ok(&["apply", "-f", "set", "--set", "mine"]);
    write(&up, "set/service.yaml", &service("new"));
    let told = up.ok(&["apply", "-f", "set", "--set", "mine", "--prune", "--dry-run"]);
    assert_eq!(told.matches("Service default/old deleted").count(), 1, "{told}");
    let told = up.ok(&["apply", "-f", "set", "--set", "mine", "--prune"]);
    assert!(
        told.contains("Service default/old deleted\n") && told.contains("Service default/new created"),
        "{told}"
    );
}

#[test]
fn get_delete_and_watch() {
    let up = Up::start(&[]);
    up.ok(&["apply", "-f", SHOP]);
    let pods = up.ok(&["get", "pods", "-n", "shop"]);
    assert_eq!(
        pods,
        "KIND  NAMESPACE  NAME   GENERATION  LABELS\nPod   shop       db-0   1           app=db\nPod   shop       web-1  1           app=web\n"
    );
    assert_eq!(up.ok(&["get", "po", "-n", "elsewhere"]).lines().count(), 1);
    let mut watch = up.command(&["get", "pods", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first: Vec<_> = lines.by_ref().take(3).collect();
    assert_eq!(first, ["applied Pod shop/db-0", "applied Pod shop/web-1", "synced"]);
    up.ok(&["delete", "pod", "web-1", "-n", "shop"]);
    assert_eq!(lines.next().unwrap(), "deleted Pod shop/web-1");
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert_eq!(up.fails(&["delete", "pod", "web-1", "-n", "shop"]).0, 3);
    assert_eq!(up.fails(&["get", "pod", "web-1", "-n", "shop"]).0, 3);
    assert_eq!(up.fails(&["delete", "-f", SHOP]).0, 3, "web-1 is gone, so nothing is deleted");
    assert_eq!(up.ok(&["get", "all"]).lines().count(), 6);
}

#[test]
fn explain_names_the_deciding_rule_and_what_to_change() {
    let up = Up::start(&[]);
    up.ok(&["apply", "-f", SHOP]);
    let allowed = up.ok(&["explain", "shop/web-1", "shop/db-0", "--port", "5432"]);
    assert!(allowed.starts_with("allowed\n") && allowed.contains("of NetworkPolicy shop/db"), "{allowed}");
    for args in
        [&["10.10.1.5", "shop/db-0", "--port", "22"][..], &["192.0.2.9", "10.10.2.7", "--port", "5432"]]
    {
        let denied = up.ok(&[&["explain"], args].concat());
        assert!(
            denied.starts_with("denied\n") && denied.contains("isolated by NetworkPolicy shop/db"),
            "{denied}"
        );
        assert!(denied.contains("to permit it:"), "{denied}");
    }
    let json = up.ok(&["explain", "shop/web-1", "shop/db-0", "--port", "53", "--proto", "udp", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["allowed"], false);
    assert_eq!(up.fails(&["explain", "shop/nobody", "shop/db-0"]).0, 3);
    assert_eq!(up.fails(&["explain", "a/b/c/d", "shop/db-0"]).0, 1);
    assert_eq!(up.fails(&["explain", "shop/web-1", "shop/db-0", "--port", "0"]).0, 2);

    // Without a port every port is answered for; nobody is told to open all of them.
    let some = up.ok(&["explain", "shop/web-1", "shop/db-0"]);
    assert!(some.starts_with("allowed in part\n  tcp    5432\n"), "{some}");
    assert!(some.contains("  udp    none\n") && !some.contains("to permit it:"), "{some}");
    let json = up.ok(&["explain", "shop/web-1", "shop/db-0", "--proto", "tcp", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["verdict"], &json["openings"][0]["ports"]), (&"some".into(), &"5432".into()));

    // The answer as the exit code, and failures that do not look like one.
    for (more, code) in [
        (&["--port", "5432"][..], 0),
        (&["--port", "22"], 1),
        (&["--port", "5432", "--proto", "udp"], 1),
        (&[], 6),
        (&["--proto", "tcp"], 6),
        (&["--proto", "carrier-pigeon"], 2),
    ] {
        let ran = up.run(&[&["explain", "shop/web-1", "shop/db-0", "--exit-code"], more].concat());
        assert_eq!(ran.status.code(), Some(code), "{more:?}: {}", String::from_utf8_lossy(&ran.stderr));
        assert_eq!(ran.stderr.is_empty(), code != 2, "an answer is no error");
    }
    assert_eq!(up.fails(&["explain", "shop/nobody", "shop/db-0", "--exit-code"]).0, 3);

    // The change is in force when the command returns.
    up.ok(&["delete", "netpol", "db", "-n", "shop"]);
    assert!(up.ok(&["explain", "shop/web-1", "shop/db-0", "--port", "22"]).starts_with("allowed"));
    let up = Up::start_in(up.kill(), &[]);
    up.ok(&["apply", "-f", SHOP]);
    assert!(up.ok(&["explain", "shop/web-1", "shop/db-0", "--port", "22"]).starts_with("denied"));
    let listed = up.ok(&["policy", "list"]);
    assert!(listed.contains("NetworkPolicy  shop       db    1           1"), "{listed}");
}

/// Changes that would break what somebody relies on, and changes that wait.
#[test]
fn tests_guard_what_is_applied_and_staged_changes_wait() {
    let up = Up::start(&[]);
    let missing = up.run(&["test", "-f", TESTS]);
    assert_eq!(missing.status.code(), Some(6), "nobody is there yet: {}", text(&missing.stdout));
    assert!(up.ok(&["test", "-f", SHOP, "-f", TESTS]).contains("3 passed, 0 failed"));
    // All at once in one set, and pruned: held against the tests as a whole.
    up.ok(&["apply", "-f", SHOP, "-f", TESTS, "--set", "shop", "--prune"]);
    assert_eq!(up.ok(&["test"]).trim(), "3 passed, 0 failed");

    let changed = std::fs::read_to_string(SHOP).unwrap().replace("port: 5432", "port: 5433");
    let file = write(&up, "changed.yaml", &changed);
    for args in
        [&["apply", "-f", &file][..], &["apply", "-f", &file, "-f", TESTS, "--set", "shop", "--prune"]]
    {
        let refused = up.run(args);
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{told}");
        assert!(told.contains("shop/web-1 to shop/db-0 tcp 5432: denied"), "{told}");
        assert!(told.contains("--despite-tests"), "{told}");
    }
    let failed = up.run(&["test", "-f", &file]);
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed.stdout));

    let staged = up.ok(&["apply", "-f", &file, "--stage"]);
    assert!(staged.contains("NetworkPolicy shop/db configured (staged)"), "{staged}");
    let told = up.ok(&["staged"]);
    assert!(told.contains("breaks test shop/shop, line 1"), "{told}");
    assert!(told.contains("changes namespace:shop/web to namespace:shop/db"), "{told}");
    assert!(up.ok(&["status"]).contains("staged"), "{}", up.ok(&["status"]));
    let explain = ["explain", "shop/web-1", "shop/db-0", "--port", "5433", "--exit-code"];
    assert_eq!(up.run(&explain).status.code(), Some(1));
    up.ok(&[&explain[..], &["--staged"]].concat());
    assert_eq!(up.run(&["promote", "shop/db"]).status.code(), Some(1));
    assert_eq!(up.run(&["promote", "shop/nothing"]).status.code(), Some(3));
    assert!(up.ok(&["promote", "shop/db", "--despite-tests"]).contains("shop/db configured"));
    up.ok(&explain);
    assert!(up.ok(&["discard", "--all"]).contains("Discarded: "));
    assert_eq!(up.ok(&["staged"]).trim(), "Nothing is staged");
}

#[test]
fn what_was_seen_becomes_policies_that_can_be_staged() {
    let up = Up::start(&[]);
    up.ok(&["apply", "-f", SHOP]);
    let flows = r#"[{"from": {"namespace": "shop", "labels": {"app": "web"}},
        "to": {"namespace": "shop", "labels": {"app": "db"}}, "port": 5432, "count": 2}]"#;
    let flows = write(&up, "flows.json", flows);
    let suggested = up.ok(&["suggest", "-f", &flows]);
    assert!(suggested.contains("# shop/app=web to shop/app=db tcp 5432, 2 times"), "{suggested}");
    let file = write(&up, "suggested.yaml", &suggested);
    assert!(up.ok(&["apply", "--stage", "-f", &file]).contains("created (staged)"));
    assert!(
        up.ok(&["replay", "--staged", "--flows", &flows])
            .contains("0 connections would be decided otherwise")
    );
    let closed = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: db, namespace: shop}, \
                  spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress]}}";
    let closed = write(&up, "closed.yaml", closed);
    let otherwise = up.run(&["replay", "-f", &closed, "--flows", &flows]);
    assert_eq!(otherwise.status.code(), Some(1), "{}", text(&otherwise.stdout));
    assert!(text(&otherwise.stdout).contains("allowed, would be denied"), "{}", text(&otherwise.stdout));
    // The suggestion says what the shop's own policy says.
    up.ok(&["apply", "-f", &file]);
    let found = up.run(&["lint", "--exit-code"]);
    assert_eq!(found.status.code(), Some(1), "{}", text(&found.stdout));
    assert!(text(&found.stdout).contains("redundant"), "{}", text(&found.stdout));
}
