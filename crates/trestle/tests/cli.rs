//! The command line, tried as a user would.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use harness::{TRESTLE, Up, text};

#[test]
fn tags_from_the_first_command_to_the_last() {
    let up = Up::start(&[]);
    assert_eq!(up.ok(&["tag", "set", "db1", "--ip", "10.0.0.5"]), "Created/updated tag: db1\n");
    up.ok(&["tag", "set", "databases", "--children", "db1,192.0.2.0/24"]);
    assert_eq!(
        up.ok(&["tag", "resolve", "databases"]),
        "NAME  IP            URI  MEMBERS\n-     192.0.2.0/24\ndb1   10.0.0.5\n"
    );
    assert_eq!(up.ok(&["tag", "get", "databases", "--resolve"]), up.ok(&["tag", "resolve", "databases"]));
    assert_eq!(
        up.ok(&["tag", "list", "-o", "yaml"]),
        "- name: databases\n  child_tags:\n  - 192.0.2.0/24\n  - db1\n  from: \"\"\n  rules: 0\n  named_by: 0\n  message: \"\"\n\
         - name: db1\n  ip: \"10.0.0.5\"\n  from: \"\"\n  rules: 0\n  named_by: 0\n  message: \"\"\n"
    );
    let json: serde_json::Value = serde_json::from_str(&up.ok(&["tag", "get", "db1", "-o", "json"])).unwrap();
    assert_eq!(json, serde_json::json!({"name": "db1", "ip": "10.0.0.5"}));
    up.ok(&["tag", "delete", "databases", "--member", "192.0.2.0/24"]);
    assert_eq!(
        up.ok(&["tag", "list"]),
        "NAME       OF  IP        URI  MEMBERS  RULES  NAMED BY  TROUBLE\n\
         databases                     db1      0      0\n\
         db1            10.0.0.5                0      0\n"
    );
    up.ok(&["tag", "subscribe", "databases", "me"]);
    assert_eq!(up.ok(&["tag", "subscribers", "databases"]), "SUBSCRIBER\nme\n");
    up.ok(&["tag", "unsubscribe", "databases", "me"]);
    assert_eq!(up.ok(&["tag", "delete", "databases"]), "Deleted tag: databases\n");
}

#[test]
fn failures_have_exit_codes_and_say_what_to_do() {
    let up = Up::start(&[]);
    let (code, error) = up.fails(&["tag", "get", "nope"]);
    assert_eq!((code, error.contains("NOT_FOUND") && error.contains("nope")), (3, true), "{error}");
    up.ok(&["tag", "set", "g", "--children", "10.0.0.1"]);
    let (code, error) = up.fails(&["tag", "set", "g", "--children", "g"]);
    assert_eq!((code, error.contains("g > g")), (1, true), "{error}");
    assert_eq!(up.fails(&["tag", "set", "g"]).0, 2);
    assert_eq!(up.fails(&["tag", "set", "g", "--children", "a", "--ip", "10.0.0.1"]).0, 2);
    assert_eq!(up.fails(&["frobnicate"]).0, 2);

    let viewer = up.ok(&["token", "create", "eve", "--role", "viewer"]);
    std::fs::write(up.path("viewer.token"), viewer).unwrap();
    let (code, error) = up.fails(&["--token-file", "viewer.token", "tag", "delete", "g"]);
    assert_eq!((code, error.contains("viewer/eve")), (4, true), "{error}");
    std::fs::write(up.path("viewer.token"), "trestle-00-00").unwrap();
    assert_eq!(up.fails(&["--token-file", "viewer.token", "tag", "list"]).0, 4);

    let (code, error) =
        up.fails(&["--server", "https://127.0.0.1:1", "--ca", "data/pki/ca.pem", "tag", "list"]);
    assert_eq!((code, error.contains("127.0.0.1:1")), (5, true), "{error}");
    let nowhere = Command::new(TRESTLE)
        .args(["tag", "list"])
        .env("TRESTLE_CONTEXT", "/nonexistent/c")
        .output()
        .unwrap();
    assert!(text(&nowhere.stderr).contains("trestle up"), "{}", text(&nowhere.stderr));
}

/// As cron and systemd run things.
#[test]
fn who_has_no_home_says_where_the_controller_is() {
    let up = Up::start(&[]);
    let homeless = |words: &[&str]| Command::new(TRESTLE).args(words).env_clear().output().unwrap();
    let [ca, token] =
        ["data/pki/ca.pem", "data/admin.token"].map(|file| up.path(file).to_str().unwrap().to_owned());
    let server = format!("https://{}", up.grpc);
    let told = homeless(&[
        "whoami",
        "--server",
        &server,
        "--ca",
        &ca,
        "--token-file",
        &token,
        "-o",
        "jsonpath={.name}",
    ]);
    assert_eq!(text(&told.stdout), "admin\n", "{}", text(&told.stderr));
    let refused = text(&homeless(&["whoami"]).stderr);
    assert!(refused.contains("name one with --server"), "{refused}");
}

#[test]
fn a_second_controller_in_the_same_directory_is_refused() {
    let up = Up::start(&[]);
    let any = "127.0.0.1:0";
    let args = ["up", "--data-dir", "data", "--http", any, "--grpc", any, "--watch", any, "--nbd", any];
    let (code, error) = up.fails(&args);
    assert_eq!((code, error.contains("data")), (1, true), "{error}");
}

#[test]
fn certificates_tokens_and_the_audit_log() {
    let up = Up::start(&[]);
    assert_eq!(up.ok(&["whoami"]), "admin (admin, by token)\n");
    up.ok(&["cert", "issue", "ci", "--role", "operator", "--ttl", "1h", "--out", "ci"]);
    let url = format!("https://{}", up.grpc);
    let with_certificate = ["--server", &url, "--ca", "ci.ca.pem", "--cert", "ci.pem", "--key", "ci.key"];
    let as_machine = |args: &[&str]| up.run(&[&with_certificate[..], args].concat());
    assert_eq!(text(&as_machine(&["whoami"]).stdout), "ci (operator, by certificate)\n");
    let listed = up.ok(&["cert", "list", "-o", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    up.ok(&["cert", "revoke", listed[0]["serial"].as_str().unwrap()]);
    assert_eq!(as_machine(&["whoami"]).status.code(), Some(4));

    up.ok(&["token", "create", "bob", "--role", "viewer", "--ttl", "2h"]);
    let tokens: serde_json::Value = serde_json::from_str(&up.ok(&["token", "list", "-o", "json"])).unwrap();
    let bob = tokens.as_array().unwrap().iter().find(|token| token["name"] == "bob").unwrap();
    up.ok(&["token", "revoke", bob["id"].as_str().unwrap()]);
    let audit = up.ok(&["audit", "--limit", "2"]);
    assert!(audit.contains("trestle.v1.Access/RevokeToken") && audit.contains("admin/admin"), "{audit}");
    assert_eq!(audit.lines().count(), 3);
    let revoked = ["audit", "--operation", "RevokeToken", "--since", "1h", "--caller", "admin", "-o", "json"];
    let revoked: serde_json::Value = serde_json::from_str(&up.ok(&revoked)).unwrap();
    assert_eq!(revoked[0]["changes"][0]["what"], "deleted");
    let shown = up.ok(&["audit", "show", revoked[0]["id"].as_str().unwrap()]);
    assert!(shown.contains(" intent ") && shown.contains(" outcome "), "{shown}");
    assert!(shown.contains("subject.name: bob → (none)"), "{shown}");
    assert_eq!(up.ok(&["audit", "--until", "1h"]).lines().count(), 1, "nothing is an hour old");
    assert_eq!(up.run(&["audit", "show", "nope"]).status.code(), Some(3));
}

#[test]
fn a_log_that_was_tampered_with_is_found_with_and_without_a_controller() {
    let up = Up::start(&[]);
    up.ok(&["tag", "set", "a", "--ip", "10.0.0.1"]);
    up.ok(&["tag", "set", "a", "--ip", "10.0.0.2"]);
    let sound = up.ok(&["audit", "verify"]);
    assert!(sound.contains("The log is as it was written"), "{sound}");
    let head = up.ok(&["audit", "head"]);
    let hash = head.trim().rsplit(' ').next().unwrap();
    assert!(hash.len() == 64 && sound.contains(hash), "{head}");
    let path = up.path("data/audit.log");
    let log = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = log.split_inclusive('\n').collect();
    // Everything but one outcome in the middle.
    let at = lines.iter().position(|line| line.contains("10.0.0.1")).unwrap();
    std::fs::write(&path, [&lines[..at], &lines[at + 1..]].concat().concat()).unwrap();
    let dir = up.path("data");
    for place in [vec![], vec!["--data-dir", dir.to_str().unwrap()], vec![path.to_str().unwrap()]] {
        let found = up.run(&[&["audit", "verify"], &place[..]].concat());
        let told = text(&found.stdout);
        assert_eq!(found.status.code(), Some(1), "{told}");
        let line = format!("audit.log:{}: record {} is missing", at + 1, at + 1);
        assert!(told.contains(&line), "{told}");
    }
}

#[test]
fn namespaces_and_the_one_in_use() {
    let up = Up::start(&[]);
    assert_eq!(up.ok(&["namespace", "list"]), "NAME     DEPLOYMENTS\ndefault\n");
    up.ok(&[
        "namespace",
        "create",
        "shop",
        "--deployment",
        "gcp=projects/p",
        "--deployment",
        "azure=/subscriptions/s",
    ]);
    assert_eq!(
        up.ok(&["namespace", "get", "shop"]),
        "NAME  DEPLOYMENTS\nshop  azure=/subscriptions/s gcp=projects/p\n"
    );
    assert_eq!(up.ok(&["namespace", "current"]), "default\n");
    up.ok(&["namespace", "use", "shop"]);
    assert_eq!(up.ok(&["namespace", "current"]), "shop\n");
    assert_eq!(up.fails(&["namespace", "use", "nope"]).0, 3);
    up.ok(&["namespace", "delete", "shop"]);
    assert_eq!(up.fails(&["namespace", "delete", "default"]).0, 1);
}

#[test]
fn acknowledged_tags_survive_kill_nine_and_a_backup_brings_them_back() {
    let up = Up::start(&[]);
    up.ok(&["tag", "set", "kept", "--ip", "10.0.0.1"]);
    let up = Up::start_in(up.kill(), &[]);
    assert!(up.ok(&["tag", "list"]).contains("kept"));
    let written = up.ok(&["store", "backup", "b"]);
    assert!(written.starts_with("Wrote ") && !up.path("b.partial").exists(), "{written}");
    up.ok(&["tag", "delete", "kept"]);
    let (_, error) = up.fails(&["store", "restore", "b", "--data-dir", "data", "--replace"]);
    assert!(error.contains("data"), "a controller runs on it: {error}");

    let dir = up.stop();
    let restore = |args: &[&str]| {
        let output =
            Command::new(TRESTLE).args(["store", "restore", "b"]).args(args).current_dir(dir.path()).output();
        output.unwrap()
    };
    assert!(!restore(&["--data-dir", "data"]).status.success(), "what is there is not replaced unasked");
    let restored = restore(&["--data-dir", "data", "--replace"]);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    let half = std::fs::read(dir.path().join("b")).unwrap();
    std::fs::write(dir.path().join("b"), &half[..half.len() / 2]).unwrap();
    assert!(!restore(&["--data-dir", "other"]).status.success(), "half a backup is no backup");
    let up = Up::start_in(dir, &[]);
    assert!(up.ok(&["tag", "list"]).contains("kept"));
}

#[test]
fn a_watch_shows_changes_as_they_happen_and_ends_with_the_controller() {
    let up = Up::start(&[]);
    up.ok(&["tag", "set", "web", "--children", "10.0.0.1"]);
    up.ok(&["tag", "subscribe", "web", "me"]);
    let mut watch =
        up.command(&["tag", "watch", "me"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("watching from revision "));
    up.ok(&["tag", "set", "web", "--children", "10.0.0.2"]);
    assert!(lines.next().unwrap().ends_with(" web +10.0.0.2"));
    up.stop();
    assert_eq!(lines.next(), None);
    let output = watch.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
}

#[test]
fn serve_reads_a_file_and_names_what_is_wrong_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let serve = |text: &str| {
        std::fs::write(dir.path().join("c.yaml"), text).unwrap();
        let args = ["serve", "--config", "c.yaml"];
        Command::new(TRESTLE).args(args).current_dir(dir.path()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let wrong = serve("data_dir: data\nlisten:\n  gprc: 127.0.0.1:0\n").wait_with_output().unwrap();
    let error = text(&wrong.stderr);
    assert!(!wrong.status.success() && error.contains("line 3") && error.contains("gprc"), "{error}");

    let mut right =
        serve("data_dir: data\nlisten: {http: 127.0.0.1:0, grpc: 127.0.0.1:0, watch: 127.0.0.1:0}\n");
    let serving = BufReader::new(right.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = serving.into_iter().find(|line| line.contains("callers are served")).expect("it serves");
    assert!(line.starts_with('{'), "logs are JSON when no terminal reads them: {line}");
    harness::signal(&right, "TERM");
    for _ in 0..200 {
        if let Some(status) = right.try_wait().unwrap() {
            assert!(status.success());
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    right.kill().unwrap();
    panic!("SIGTERM did not stop it");
}

#[test]
fn help_version_and_completion_need_no_controller() {
    for args in
        [&["--help"][..], &["tag", "--help"], &["version"], &["completion", "bash"], &["completion", "zsh"]]
    {
        let output =
            Command::new(TRESTLE).args(args).env("TRESTLE_CONTEXT", "/nonexistent/c").output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{args:?}");
    }
    let help = Command::new(TRESTLE).args(["tag", "--help"]).output().unwrap();
    assert!(text(&help.stdout).contains("Examples:"));
}
