//! Storage for other clusters: from the ticket to bytes on a volume, with clients nobody here wrote.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use std::{
    path::Path,
    process::{Command, Output},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use harness::{TRESTLE, Up, signal, text};

fn tool(up: &Up, program: &str, args: &[&str]) -> Output {
    let run = Command::new(program).args(args).current_dir(up.dir.path()).output();
    run.unwrap_or_else(|err| panic!("{program}: {err}; scripts/test-deps installs it"))
}

fn onboard(up: &Up, capacity: &str, out: &str) -> String {
    std::fs::write(up.path("ticket"), up.ok(&["ticket", "create"])).unwrap();
    let said =
        up.ok(&["consumer", "onboard", "--ticket-file", "ticket", "--capacity", capacity, "--out", out]);
    assert!(said.starts_with("Storage is ready."), "{said}");
    let info = up.ok(&["consumer", "mount-info", out, "-o", "json"]);
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    info["uri"].as_str().unwrap().to_owned()
}

fn consumers(up: &Up) -> Vec<serde_json::Value> {
    serde_json::from_str(&up.ok(&["consumer", "list", "-o", "json"])).unwrap()
}

#[test]
fn a_consumer_reads_and_writes_grows_and_is_put_off() {
    let up = Up::start(&[]);
    let uri = onboard(&up, "16Mi", "storage");
    let info = tool(&up, "nbdinfo", &["--json", &uri]);
    assert!(info.status.success(), "{}", text(&info.stderr));
    let image: Vec<u8> = (0..8 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(up.path("image"), &image).unwrap();
    assert!(tool(&up, "nbdcopy", &["image", &uri]).status.success());
    let back = tool(&up, "nbdcopy", &[&uri, "back"]);
    assert!(back.status.success(), "{}", text(&back.stderr));
    assert!(std::fs::read(up.path("back")).unwrap().starts_with(&image));

    let listed = consumers(&up);
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0]["phase"].as_str(), listed[0]["used_bytes"].as_u64()),
        (Some("Ready"), Some(8 << 20))
    );
    let id = listed[0]["id"].as_str().unwrap();
    let (code, error) = up.fails(&["consumer", "resize", id, "4Mi"]);
    assert_eq!((code, error.contains("in use")), (1, true), "{error}");
    up.ok(&["consumer", "resize", id, "32Mi"]);
    assert!(up.ok(&["consumer", "list"]).contains("###......."), "the bar shows a quarter");

    // Another consumer's certificate opens nothing of the first.
    let other = onboard(&up, "1Mi", "other");
    assert!(tool(&up, "nbdinfo", &[&other]).status.success());
    assert_eq!(consumers(&up).len(), 2);

    up.ok(&["consumer", "offboard", id]);
    let gone = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        consumers(&up).len() == 1
    });
    assert!(gone, "an offboarded consumer goes");
    assert!(!tool(&up, "nbdinfo", &[&uri]).status.success(), "its credentials open nothing");
    assert!(tool(&up, "nbdinfo", &[&other]).status.success(), "others are not touched");
    up.ok(&["consumer", "leave", "other"]);
}

#[test]
fn data_and_grants_survive_kill_nine() {
    let up = Up::start(&[]);
    onboard(&up, "8Mi", "storage");
    let before = consumers(&up);
    let up = Up::start_in(up.kill(), &[]);
    assert_eq!(consumers(&up)[0]["id"], before[0]["id"]);
    // The port is another one now; the consumer asks again with the same ticket and gets the same storage.
    let again =
        up.ok(&["consumer", "onboard", "--ticket-file", "ticket", "--capacity", "8Mi", "--out", "storage"]);
    assert!(again.starts_with("Storage is ready."), "{again}");
    assert_eq!(consumers(&up).len(), 1);
}

#[test]
fn tickets_are_listed_revoked_and_survive_a_rotated_key() {
    let up = Up::start(&[]);
    std::fs::write(up.path("t1"), up.ok(&["ticket", "create", "--limit", "1Mi"])).unwrap();
    std::fs::write(up.path("t2"), up.ok(&["ticket", "create"])).unwrap();
    up.ok(&["ticket", "rotate-key"]);
    std::fs::write(up.path("t3"), up.ok(&["ticket", "create"])).unwrap();
    let tickets: Vec<serde_json::Value> =
        serde_json::from_str(&up.ok(&["ticket", "list", "-o", "json"])).unwrap();
    assert_eq!(tickets.len(), 3);
    let keys: std::collections::BTreeSet<_> =
        tickets.iter().map(|ticket| ticket["key"].to_string()).collect();
    assert_eq!(keys.len(), 2);

    let up = Up::start_in(up.stop(), &[]);
    let use_ticket = |file: &str| {
        up.run(&[
            "consumer",
            "onboard",
            "--ticket-file",
            file,
            "--capacity",
            "2Mi",
            "--out",
            file.trim_start_matches('t'),
        ])
    };
    assert!(use_ticket("t1").status.success(), "signed with the old key");
    assert_eq!(consumers(&up)[0]["granted_bytes"], 1 << 20, "its own limit holds");
    let unused = tickets.iter().find(|ticket| ticket["limit_bytes"].is_null()).unwrap();
    for ticket in tickets.iter().filter(|ticket| ticket["limit_bytes"].is_null()) {
        up.ok(&["ticket", "revoke", ticket["id"].as_str().unwrap()]);
    }
    assert_eq!(use_ticket("t2").status.code(), Some(1));
    assert_eq!(use_ticket("t3").status.code(), Some(1));
    assert_eq!(up.fails(&["ticket", "revoke", "nope"]).0, 3);
    assert!(up.ok(&["ticket", "list"]).contains(unused["id"].as_str().unwrap()));
    let log = std::fs::read_to_string(up.path("data/audit.log")).unwrap();
    for file in ["t1", "t2", "t3"] {
        let ticket = std::fs::read_to_string(up.path(file)).unwrap();
        assert!(!log.contains(ticket.trim()), "tickets are never logged");
    }
}

/// A ticket in the original's format, made with openssl alone.
fn rsa_ticket(up: &Up) {
    let openssl = |args: &[&str]| {
        let output = tool(up, "openssl", args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    openssl(&["genrsa", "-out", "rsa.key", "2048"]);
    openssl(&["rsa", "-in", "rsa.key", "-pubout", "-out", "rsa.pub"]);
    let expires = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3600;
    let payload = format!(r#"{{"id":"6a2f0a1c-7a63-4d3c-9a52-9f0f1d7f0d11","expirationDate":"{expires}"}}"#);
    std::fs::write(up.path("payload"), payload).unwrap();
    openssl(&["dgst", "-sha256", "-sign", "rsa.key", "-out", "signature", "payload"]);
    let base64 = |file: &str| text(&openssl(&["base64", "-A", "-in", file])).trim().to_owned();
    std::fs::write(up.path("rsa.ticket"), format!("{}.{}", base64("payload"), base64("signature"))).unwrap();
}

#[test]
fn a_python_client_from_the_seeds_text_onboards() {
    let dir = Up::start(&[]);
    rsa_ticket(&dir);
    let dir = dir.stop();
    // Trust in another provider's tickets comes from the configuration.
    let config = "data_dir: data\nlisten: {http: 127.0.0.1:0, grpc: PORT, watch: 127.0.0.1:0}\nstorage:\n  backend:\n    nbd: {listen: 127.0.0.1:0}\n  trusted_ticket_keys: [rsa.pub]\n";
    let grpc = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    std::fs::write(dir.path().join("c.yaml"), config.replace("PORT", &grpc)).unwrap();
    let mut serve = Command::new(TRESTLE)
        .args(["serve", "--config", "c.yaml"])
        .current_dir(dir.path())
        .stderr(std::fs::File::create(dir.path().join("log")).unwrap())
        .spawn()
        .unwrap();
    let log = || std::fs::read_to_string(dir.path().join("log")).unwrap();
    let up = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        log().contains("the controller serves")
    });
    assert!(up, "{}", log());
    let trestle = |args: &[&str]| {
        let url = format!("https://{grpc}");
        let connection = ["--server", &url, "--ca", "data/pki/ca.pem", "--token-file", "data/admin.token"];
        Command::new(TRESTLE).args(connection).args(args).current_dir(dir.path()).output().unwrap()
    };
    std::fs::write(dir.path().join("ticket"), trestle(&["ticket", "create"]).stdout).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seed/provider.py");
    let output = Command::new("/usr/bin/python3")
        .arg(script)
        .args([grpc.as_str(), "data/pki/ca.pem", "ticket", "rsa.ticket"])
        .current_dir(dir.path())
        .output()
        .expect("Debian's python3 is there; scripts/test-deps installs it");
    signal(&serve, "TERM");
    serve.wait().unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}{}", log());
    let ticket = std::fs::read_to_string(dir.path().join("ticket")).unwrap();
    assert!(!log().contains(ticket.trim()) && !log().contains("rsa.ticket"));
}
