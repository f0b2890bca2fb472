//! `trestle join` and `trestle leave` as a user runs them, in directories of their own.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use std::{fs, os::unix::fs::PermissionsExt as _};

use harness::Up;

#[test]
fn one_line_makes_a_host_and_another_undoes_it() {
    let up = Up::start(&[]);
    let url = format!("https://{}", up.grpc);
    let token = up.ok(&[
        "token",
        "create",
        "--join",
        "--tag",
        "web",
        "--uses",
        "2",
        "--for",
        "1h",
        "--label",
        "tier=front",
    ]);
    let token = token.trim();
    assert!(token.starts_with("trestle-join-") && !token.contains('\n'), "one line: {token}");
    assert!(up.ok(&["token", "list"]).contains("2 of 2"));
    let (etc, data) = (up.path("etc"), up.path("agent"));
    let (etc_flag, data_flag) = (etc.to_str().unwrap(), data.to_str().unwrap());
    let join =
        ["join", &url, token, "--name", "web-1", "--etc", etc_flag, "--data-dir", data_flag, "--no-service"];
    let said = up.ok(&join);
    assert!(said.contains("Joined as web-1") && said.contains("host.web-1, web"), "{said}");
    assert!(
        said.contains("Nothing guards it yet") && said.contains("agent --config"),
        "it says what is so: {said}"
    );
    let mode = fs::metadata(etc.join("host.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let config = fs::read_to_string(etc.join("agent.yaml")).unwrap();
    assert!(config.contains("joined: true") && config.contains("node: web-1"), "{config}");
    let listed = up.ok(&["host", "list"]);
    assert!(listed.contains("web-1") && listed.contains("tier=front"), "{listed}");
    assert!(
        up.fails(&["tag", "set", "host.web-1", "--ip", "10.0.0.1"]).1.contains("which the controller keeps")
    );

    // Cut anywhere, it is repeated: what somebody added to the configuration stays, and no use is spent.
    fs::write(etc.join("agent.yaml"), config + "cut_established: true\n").unwrap();
    fs::remove_file(etc.join("host.pem")).unwrap();
    up.ok(&["join", &url, token, "--etc", etc_flag, "--data-dir", data_flag, "--no-service"]);
    assert!(fs::read_to_string(etc.join("agent.yaml")).unwrap().contains("cut_established: true"));
    assert!(etc.join("host.pem").exists() && up.ok(&["token", "list"]).contains("1 of 2"));
    // By its key alone.
    up.ok(&["join", &url, "--etc", etc_flag, "--data-dir", data_flag, "--no-service"]);

    let said = up.ok(&["leave", "--etc", etc_flag]);
    assert!(said.contains("host web-1 no longer") && said.contains("has forgotten it"), "{said}");
    assert!(!etc.exists(), "nothing is left");
    assert!(!up.ok(&["host", "list"]).contains("web-1"));
    assert!(up.ok(&["leave", "--etc", etc_flag]).contains("nothing to leave"), "twice is once");

    // The controller is replaced: a host of the old one is told, and leaves without it.
    up.ok(&[
        "join",
        &url,
        token,
        "--name",
        "web-2",
        "--etc",
        etc_flag,
        "--data-dir",
        data_flag,
        "--no-service",
    ]);
    let dir = up.stop();
    fs::rename(dir.path().join("data"), dir.path().join("old")).unwrap();
    let anew = Up::start_in(dir, &[]);
    let (url, token) = (format!("https://{}", anew.grpc), anew.ok(&["token", "create", "--join"]));
    let (code, why) = anew.fails(&["join", &url, token.trim(), "--etc", etc_flag, "--no-service"]);
    assert!(
        code == 1 && why.contains("has joined another controller") && why.contains("trestle leave"),
        "{why}"
    );
    let said = anew.ok(&["leave", "--etc", etc_flag]);
    assert!(said.contains("was not told") && said.contains("trestle host remove web-2"), "{said}");
    anew.ok(&[
        "join",
        &url,
        token.trim(),
        "--name",
        "web-2",
        "--etc",
        etc_flag,
        "--data-dir",
        data_flag,
        "--no-service",
    ]);

    // A configuration of somebody else is left alone.
    let other = anew.path("other");
    fs::create_dir(&other).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(other.join("agent.yaml"), "node: mine\n").unwrap();
    let other_flag = other.to_str().unwrap();
    let (_, why) = anew.fails(&["join", &url, token.trim(), "--etc", other_flag]);
    assert!(why.contains("was not written by `trestle join`"), "{why}");
    anew.ok(&["leave", "--etc", other_flag]);
    assert!(other.join("agent.yaml").exists());
    for (bad, why) in [("http://x:1", "is not a URL"), ("https://127.0.0.1:1", "cannot reach")] {
        let words = ["join", bad, token.trim(), "--etc", anew.path("no").to_str().unwrap(), "--no-service"]
            .map(str::to_owned);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert!(anew.fails(&words).1.contains(why), "{bad}");
    }
    assert!(anew.fails(&["join", &url, "not-a-token", "--etc", other_flag]).1.contains("was not written"));
}
