//! Clouds from the command line, on fake clouds.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use harness::{TRESTLE, Up};

#[test]
fn two_clouds_from_the_first_resource_to_the_last() {
    let up = Up::start(&["--cloud", "a=fake", "--cloud", "b=fake"]);
    let made = up.ok(&["resource", "create", "a.web", "--description", "west"]);
    assert!(made.contains("default.a.web") && made.contains("ready"), "{made}");
    up.ok(&["resource", "create", "b.db", "--description", "east"]);
    let half = up.ok(&["rule", "add", "a.web", "--ping", "b.db", "--dry-run"]);
    assert!(half.contains("open default.a.web") && !half.contains("link"), "{half}");
    let plan = up.ok(&["rule", "add", "a.web", "--ping", "b.db", "--build", "--dry-run"]);
    assert!(plan.contains("link default.a and default.b by 2 tunnels"), "{plan}");
    assert!(!up.ok(&["link", "list"]).contains("ready"), "a dry run does nothing");
    up.ok(&["rule", "add", "a.web", "--ping", "b.db"]);
    assert!(!up.ok(&["link", "list"]).contains("ready"), "one end alone builds nothing");
    up.ok(&["rule", "add", "b.db", "--ping", "a.web"]);
    let links = up.ok(&["link", "list"]);
    assert!(links.contains("default.a") && links.contains("ready") && links.contains("2/2"), "{links}");
    let rules = up.ok(&["rule", "list", "a.web"]);
    assert!(rules.contains("ping-in-default-b-db") && rules.contains("icmp"), "{rules}");
    let detached = up.ok(&[
        "rule",
        "add",
        "a.web",
        "--in",
        "--protocol",
        "tcp",
        "--port",
        "80",
        "--peer",
        "8.8.8.8",
        "--detach",
    ]);
    let id = detached.trim().strip_prefix("Job: ").unwrap();
    assert!(up.ok(&["job", "wait", id]).contains("done"));
    assert_eq!(up.ok(&["check", "--exit-code"]), "Everything is as it was made.\n");
    let (code, error) = up.fails(&["rule", "add", "a.web", "--ping", "nobody"]);
    assert_eq!((code, error.contains("there is no tag nobody")), (1, true), "{error}");
    let (code, error) = up.fails(&["resource", "create", "a.web", "--description", "west"]);
    assert_eq!((code, error.contains("exists already")), (1, true), "{error}");
    assert_eq!(up.fails(&["resource", "get", "a.nobody"]).0, 3);
    up.ok(&["rule", "delete", "a.web", "--rule", "ping-in-default-b-db,ping-out-default-b-db"]);
    up.ok(&["resource", "delete", "b.db"]);
    up.ok(&["resource", "delete", "a.web"]);
    assert_eq!(up.ok(&["resource", "list", "-o", "json"]), "[]\n");
    assert_eq!(up.ok(&["link", "list", "-o", "json"]), "[]\n");
}

/// The same cloud in a process of its own, and none the wiser.
#[test]
fn a_plugin_in_its_own_process_is_a_cloud_like_any_other() {
    let mut plugin = Command::new(TRESTLE)
        .args(["plugin", "fake", "--name", "far", "--listen", "127.0.0.1:0", "--plaintext-loopback"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(plugin.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap();
    let up = Up::start(&["--cloud", &format!("far=http://{address}"), "--cloud", "near=fake"]);
    up.ok(&["resource", "create", "far.a", "--description", "west"]);
    up.ok(&["resource", "create", "near.b", "--description", "west"]);
    up.ok(&["rule", "add", "far.a", "--ping", "near.b"]);
    up.ok(&["rule", "add", "near.b", "--ping", "far.a"]);
    let links = up.ok(&["link", "list"]);
    assert!(links.contains("2/2 2/2"), "{links}");
    assert_eq!(up.ok(&["check"]), "Everything is as it was made.\n");
    // A plugin that is gone is an error of the check, not an empty cloud, and the rest goes on.
    plugin.kill().unwrap();
    plugin.wait().unwrap();
    // 1 from `check --exit-code` would say that something has drifted.
    for (args, code) in [(&["check"][..], 1), (&["check", "--exit-code"], 2)] {
        let output = up.run(args);
        let (said, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!((output.status.code(), said.contains("cloud/far")), (Some(code), true), "{said}{error}");
        assert!(error.contains("not compared: far"), "{error}");
    }
    up.ok(&["resource", "list"]);
}

#[test]
fn a_namespace_with_resources_cannot_be_deleted() {
    let up = Up::start(&["--cloud", "a=fake"]);
    up.ok(&["namespace", "create", "shop"]);
    up.ok(&["resource", "create", "shop.a.web", "--description", "west"]);
    let (code, error) = up.fails(&["namespace", "delete", "shop"]);
    assert_eq!((code, error.contains("shop.a.web")), (1, true), "{error}");
    up.ok(&["resource", "delete", "shop.a.web"]);
    up.ok(&["namespace", "delete", "shop"]);
}
