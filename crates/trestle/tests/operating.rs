//! What operators are handed: alerts and a dashboard that speak of metrics there are, a status that tells the truth, a
//! live view in a terminal.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use harness::{TRESTLE, Up, text};
use serde_json::Value;

/// The names a scrape may have, as `/metrics` declares them.
fn metrics(up: &Up) -> BTreeSet<String> {
    // Calls are declared once there was one.
    up.ok(&["whoami"]);
    let token = fs::read_to_string(up.path("data/admin.token")).unwrap();
    let output = Command::new("curl")
        .args(["-s", "--cacert", "data/pki/ca.pem", "-H", &format!("authorization: Bearer {}", token.trim())])
        .arg(format!("https://{}/metrics", up.http))
        .current_dir(up.dir.path())
        .output()
        .unwrap();
    let mut names = BTreeSet::new();
    for line in text(&output.stdout).lines() {
        let Some(rest) = line.strip_prefix("# TYPE ") else { continue };
        let (name, kind) = rest.split_once(' ').unwrap();
        match kind {
            "counter" => drop(names.insert(format!("{name}_total"))),
            "histogram" => names.extend(["bucket", "sum", "count"].map(|part| format!("{name}_{part}"))),
            _ => drop(names.insert(name.to_owned())),
        }
    }
    assert!(names.len() > 20, "{names:?}");
    names
}

/// Every metric of ours that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.len() > 8 && word.starts_with("trestle_")).map(str::to_owned).collect()
}

#[test]
fn alerts_and_dashboard_speak_of_metrics_there_are() {
    let up = Up::start(&[]);
    let known = metrics(&up);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let read = |name: &str| fs::read_to_string(docs.join(name)).unwrap();
    let dashboard: Value = serde_json::from_str(&read("monitoring/grafana.json")).unwrap();
    let alerts: Value = serde_saphyr::from_str(&read("monitoring/alerts.yaml")).unwrap();
    let _: Value = serde_saphyr::from_str(&read("monitoring/prometheus.yaml")).unwrap();
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    for rule in rules {
        for key in ["/alert", "/expr", "/labels/severity", "/annotations/summary", "/annotations/description"]
        {
            assert!(rule.pointer(key).is_some_and(Value::is_string), "{key} of {rule}");
        }
    }
    let expressions =
        dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions: String =
        expressions.chain(rules).map(|one| format!("{}\n", one["expr"].as_str().unwrap())).collect();
    let asked = named(&expressions);
    assert!(asked.len() > 20, "{asked:?}");
    let unknown: Vec<_> = asked.difference(&known).collect();
    assert_eq!(unknown, Vec::<&String>::new(), "these metrics do not exist");
    // And the table for people.
    let told = named(&read("operating.md"));
    let unknown: Vec<_> =
        told.iter().filter(|name| !known.iter().any(|one| one.starts_with(*name))).collect();
    assert_eq!(unknown, Vec::<&String>::new(), "docs/operating.md names metrics that do not exist");
}

#[test]
fn status_says_what_runs_and_what_to_do() {
    let up = Up::start(&["--cloud", "a=fake"]);
    up.ok(&["resource", "create", "a.web", "--description", "west"]);
    let said = up.ok(&["status"]);
    assert!(said.contains("ready") && said.contains("Nothing needs attention."), "{said}");
    assert!(said.contains("1 ready") && !said.contains('\x1b'), "no colour where no terminal reads: {said}");
    let report: Value = serde_json::from_str(&up.ok(&["status", "-o", "json"])).unwrap();
    assert_eq!((&report["ready"], &report["troubles"]), (&true.into(), &Value::Array(Vec::new())));
}

/// The mode of a file or directory.
fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_holds_a_secret_is_its_owner_s_alone() {
    let up = Up::start(&[]);
    up.ok(&["store", "backup", "b"]);
    up.ok(&["cert", "issue", "ci", "--role", "operator", "--ttl", "1h", "--out", "ci"]);
    let private = [
        "store/store.redb",
        "store/store.lock",
        "sealing.key",
        "pki/ca.key",
        "pki/server.key",
        "admin.token",
    ];
    let private = private.map(|name| format!("data/{name}"));
    for name in private.iter().map(String::as_str).chain([
        "b",
        "ci.key",
        "data/audit.log",
        "data/kubeconfig",
        "context.json",
    ]) {
        assert_eq!(mode(&up.path(name)), 0o600, "{name}");
    }
    assert_eq!((mode(&up.path("data")), mode(&up.path("data/store"))), (0o700, 0o700));

    // A directory that others enter is refused with the command that mends it; what is open in it is closed.
    let dir = up.stop();
    let loosen =
        |name: &str, mode| fs::set_permissions(dir.path().join(name), Permissions::from_mode(mode)).unwrap();
    loosen("data", 0o755);
    loosen("data/store/store.redb", 0o644);
    let mends = format!("chmod 700 {}", dir.path().join("data").display());
    let any = "127.0.0.1:0";
    let refused = Command::new(TRESTLE)
        .args(["up", "--data-dir", "data", "--http", any, "--grpc", any, "--watch", any, "--nbd", any])
        .env("TRESTLE_CONTEXT", dir.path().join("context.json"))
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(!refused.status.success() && text(&refused.stderr).contains(&mends), "{}", text(&refused.stderr));
    loosen("data", 0o700);
    let up = Up::start_in(dir, &[]);
    assert_eq!(mode(&up.path("data/store/store.redb")), 0o600);
}

#[test]
fn what_a_terminal_would_obey_is_shown() {
    let up = Up::start(&[]);
    let evil =
        r#"{"apiVersion": "v1\u001b]0;owned\u0007", "kind": "Po\u009b2Jd", "metadata": {"name": "a"}}"#;
    fs::write(up.path("evil.json"), evil).unwrap();
    let (_, error) = up.fails(&["apply", "-f", "evil.json"]);
    assert!(error.contains("\\u001b]0;owned\\u0007") && error.contains("\\u009b2J"), "{error:?}");
    assert!(!error.contains(|c: char| c.is_control() && c != '\n'), "{error:?}");
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "annotations": {"n": "\u001b[2J\u009b0m"}}}"#;
    fs::write(up.path("pod.json"), pod).unwrap();
    for said in [up.ok(&["apply", "-f", "pod.json", "--dry-run"]), {
        up.ok(&["apply", "-f", "pod.json"]);
        up.ok(&["get", "pod", "a", "-o", "json"]) + &up.ok(&["get", "pod", "a", "-o", "yaml"])
    }] {
        assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
    }
}

#[test]
fn top_draws_follows_and_gives_the_terminal_back() {
    let up = Up::start(&["--cloud", "a=fake"]);
    let refused = up.run(&["top"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("trestle status"));
    // `script` gives it a terminal.
    let mut child = Command::new("script")
        .args(["-qec", &format!("stty rows 24 cols 100; {TRESTLE} top"), "/dev/null"])
        .env("TRESTLE_CONTEXT", up.path("context.json"))
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = child.stdin.take().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    up.ok(&["resource", "create", "a.web", "--description", "west"]);
    keys.write_all(b"\t\t").unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    keys.write_all(b"q").unwrap();
    let output = child.wait_with_output().unwrap();
    let drawn = text(&output.stdout);
    assert!(output.status.success(), "{drawn}");
    for part in
        ["Nothing needs attention.", "[nodes]", "[resources]", "default.a.web", "\x1b[?1049h", "\x1b[?1049l"]
    {
        assert!(drawn.contains(part), "{part:?} is missing in {drawn:?}");
    }
}
