//! Storage for other clusters: from the ticket to bytes on a volume, with clients nobody here wrote.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use std::{
    path::Path,
    process::{Command, Output},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use harness::{Serve, Up, text};

fn tool(up: &Up, program: &str, args: &[&str]) -> Output {
    let run = Command::new(program).args(args).current_dir(up.dir.path()).output();
    run.unwrap_or_else(|err| panic!("{program}: {err}; scripts/test-deps installs it"))
}

fn onboard(up: &Up, capacity: &str, out: &str) -> String {
    onboard_with(up, &[], capacity, out)
}

fn onboard_with(up: &Up, ticket: &[&str], capacity: &str, out: &str) -> String {
    std::fs::write(up.path("ticket"), up.ok(&[&["ticket", "create"], ticket].concat())).unwrap();
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

    up.ok(&["consumer", "name", id, "shop"]);
    up.ok(&["consumer", "offboard", id]);
    assert!(up.ok(&["consumer", "list"]).contains("its data is kept until"), "it can be taken back");
    up.ok(&["consumer", "offboard", id, "--now"]);
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
fn a_ticket_may_also_stand_on_the_command_line_or_come_in_by_a_pipe() {
    let up = Up::start(&[]);
    let onboard = |args: &[&str]| {
        up.run(&[&["consumer", "onboard", "--capacity", "1Mi", "--out", "storage"], args].concat())
    };
    let ticket = up.ok(&["ticket", "create"]);
    assert!(onboard(&["--ticket", ticket.trim()]).status.success());
    std::fs::write(up.path("ticket"), &ticket).unwrap();
    let piped = up
        .command(&["consumer", "onboard", "--ticket", "-", "--capacity", "1Mi", "--out", "storage"])
        .stdin(std::fs::File::open(up.path("ticket")).unwrap())
        .output()
        .unwrap();
    assert!(piped.status.success(), "{}", text(&piped.stderr));
    assert_eq!(consumers(&up).len(), 1, "the same ticket is the same consumer");
    for wrong in [&[][..], &["--ticket", "x", "--ticket-file", "ticket"]] {
        assert_eq!(onboard(wrong).status.code(), Some(2), "one of the two, and not both");
    }
    let empty = onboard(&["--ticket", " "]);
    assert!(text(&empty.stderr).contains("ticket create"), "{}", text(&empty.stderr));
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
fn a_python_client_from_the_originals_text_onboards() {
    let dir = Up::start(&[]);
    rsa_ticket(&dir);
    let dir = dir.stop();
    // Trust in another provider's tickets comes from the configuration.
    let config = "storage: {backend: {nbd: {listen: 127.0.0.1:0}}, trusted_ticket_keys: [rsa.pub]}\n";
    let serve = Serve::start(dir, config);
    std::fs::write(serve.dir.path().join("ticket"), serve.ok(&["ticket", "create"])).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/original/provider.py");
    let output = Command::new("/usr/bin/python3")
        .arg(script)
        .args([serve.grpc.as_str(), "data/pki/ca.pem", "ticket", "rsa.ticket", "rsa.key"])
        .current_dir(serve.dir.path())
        .output()
        .expect("Debian's python3 is there; scripts/test-deps installs it");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}{}", serve.log());
    assert_eq!(serve.ok(&["consumer", "list", "-o", "json"]).trim(), "[]", "all it onboarded has left");
    for ticket in ["ticket", "rsa.ticket"] {
        let ticket = std::fs::read_to_string(serve.dir.path().join(ticket)).unwrap();
        assert!(!serve.log().contains(ticket.trim()), "tickets are never logged");
    }
}

/// What `mount-info` prints can be pasted: every command that needs no kernel module is run as it stands.
#[test]
fn the_commands_of_mount_info_work_as_they_are_printed() {
    let up = Up::start(&[]);
    onboard(&up, "16Mi", "storage");
    std::fs::write(up.path("image.raw"), vec![7; 1 << 20]).unwrap();
    let info: serde_json::Value =
        serde_json::from_str(&up.ok(&["consumer", "mount-info", "storage", "-o", "json"])).unwrap();
    let commands = info["commands"].as_array().unwrap();
    let mut tried = 0;
    for command in commands.iter().map(|command| command.as_str().unwrap()) {
        // There is no NBD device in every kernel that runs tests.
        if command.starts_with("nbd-client") || command.contains("/dev/nbd") {
            continue;
        }
        let run = tool(&up, "sh", &["-c", command]);
        assert!(run.status.success(), "{command}: {}{}", text(&run.stdout), text(&run.stderr));
        tried += 1;
    }
    assert!(tried >= 3, "{commands:?}");
    // Also from elsewhere: the paths are whole.
    let elsewhere = up.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let command = commands[0].as_str().unwrap();
    assert!(Command::new("sh").args(["-c", command]).current_dir(elsewhere).status().unwrap().success());
    assert_eq!(consumers(&up)[0]["used_bytes"], 1 << 20);

    // The file system: its lines one after the other, with a directory of the test's in the place of /mnt.
    let recipes = info["recipes"].as_array().unwrap();
    let recipe = recipes.iter().find(|recipe| recipe["title"].as_str().unwrap().starts_with("A file system"));
    let mut lines: Vec<&str> =
        recipe.unwrap()["commands"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    lines.insert(lines.len() - 1, "echo hello > /mnt/file && sync /mnt/file && cat /mnt/file");
    std::fs::create_dir(up.path("mnt")).unwrap();
    let script = lines.join("\n").replace("/mnt", up.path("mnt").to_str().unwrap());
    let run = tool(&up, "timeout", &["60", "sh", "-ec", &script]);
    assert!(run.status.success(), "{script}: {}{}", text(&run.stdout), text(&run.stderr));
    assert!(text(&run.stdout).contains("hello"));
}

/// The namespaces of a Linux cloud, gone when this is, also after a failure.
struct Namespaces(String);

impl Drop for Namespaces {
    fn drop(&mut self) {
        let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
        for line in text(&listed.stdout).lines() {
            let name = line.split_whitespace().next().unwrap_or_default();
            // After the kind comes the mark of the controller's directory.
            let ours = name.starts_with("trn.") || name.starts_with("trr.");
            if ours && name.split('.').nth(2) == Some(self.0.as_str()) {
                let _ = Command::new("ip").args(["netns", "delete", name]).status();
            }
        }
    }
}

/// Storage behind a resource of the Linux cloud: packets of the consumer pass from the grant to its end and no longer.
#[test]
fn packets_reach_the_storage_from_the_grant_to_its_end() {
    let cloud = format!("st{}", std::process::id());
    let _namespaces = Namespaces(cloud.clone());
    let endpoint = format!("{{resource: default.{cloud}.gateway}}");
    let config = format!(
        "clouds: [{{name: {cloud}, linux: {{}}}}]\nstorage:\n  backend: {{nbd: {{listen: 127.0.0.1:0}}}}\n  permit: {{endpoint: {endpoint}, ports: [10809]}}\n"
    );
    let serve = Serve::start(tempfile::tempdir().unwrap(), &config);
    let west = r#"{"region":"west"}"#;
    let made = |name: &str| {
        let name = format!("{cloud}.{name}");
        serve.ok(&["resource", "create", &name, "--description", west]);
        let made = serve.ok(&["resource", "get", &name, "-o", "json"]);
        let made: serde_json::Value = serde_json::from_str(&made).unwrap();
        let namespace = made["uri"].as_str().unwrap().strip_prefix("netns:").unwrap().to_owned();
        (namespace, made["ip"].as_str().unwrap().to_owned())
    };
    let ((gateway, address), (client, from)) = (made("gateway"), made("client"));
    serve.ok(&[
        "rule",
        "add",
        &format!("{cloud}.client"),
        "--out",
        "--protocol",
        "tcp",
        "--port",
        "10809",
        "--peer",
        &address,
    ]);
    // Any server of storage will do behind the gateway's address.
    let mut storage = Command::new("ip")
        .args(["netns", "exec", &gateway, "nbdkit", "-f", "-p", "10809", "memory", "1M"])
        .spawn()
        .unwrap();
    let uri = format!("nbd://{address}:10809");
    let reached = || {
        let info = ["netns", "exec", &client, "timeout", "2", "nbdinfo", "--size", &uri];
        let output = Command::new("ip").args(info).output().unwrap();
        output.status.success()
    };
    let tries = |wanted: bool| (0..20).any(|_| reached() == wanted);
    assert!(!reached(), "nothing is permitted yet");
    std::fs::write(serve.dir.path().join("ticket"), serve.ok(&["ticket", "create", "--from", &from]))
        .unwrap();
    let onboard = ["consumer", "onboard", "--ticket-file", "ticket", "--capacity", "1Mi", "--out", "storage"];
    let beyond = serve.run(&[&onboard[..], &["--from", "10.0.0.0/8"]].concat());
    assert!(
        text(&beyond.stderr).contains("does not allow access from 10.0.0.0/8"),
        "{}",
        text(&beyond.stderr)
    );
    serve.ok(&onboard);
    assert!(tries(true), "the grant opens the network");
    serve.ok(&["consumer", "leave", "storage"]);
    let closed = tries(false);
    let _ = storage.kill();
    let _ = storage.wait();
    assert!(closed, "its end closes it");
    for name in ["client", "gateway"] {
        serve.ok(&["resource", "delete", &format!("{cloud}.{name}")]);
    }
}

/// A command of the consumer whose credentials are in `dir`, with those and nothing else.
fn own(up: &Up, dir: &str, args: &[&str]) -> Output {
    let file = |name: &str| up.path(dir).join(name).display().to_string();
    let (ca, cert, key) = (file("ca-cert.pem"), file("client-cert.pem"), file("client-key.pem"));
    let server = format!("https://{}", up.grpc.trim_start_matches("https://"));
    up.run(&[&["--server", &server, "--ca", &ca, "--cert", &cert, "--key", &key, "volume"], args].concat())
}

/// The same, which must succeed; what it printed.
fn own_ok(up: &Up, dir: &str, args: &[&str]) -> String {
    let output = own(up, dir, args);
    assert!(output.status.success(), "volume {args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn volumes(up: &Up, dir: &str) -> Vec<serde_json::Value> {
    serde_json::from_str(&own_ok(up, dir, &["list", "-o", "json"])).unwrap()
}

#[test]
fn a_consumer_has_volumes_snapshots_and_images_of_its_own() {
    let up = Up::start(&[]);
    let data = onboard(&up, "64Mi", "storage");
    onboard(&up, "8Mi", "other");
    let uri = |volume: &str| data.replace("/data", &format!("/{volume}"));
    let image: Vec<u8> = (0..3 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(up.path("image"), &image).unwrap();

    own_ok(&up, "storage", &["create", "logs", "--size", "8Mi"]);
    own_ok(&up, "storage", &["create", "logs", "--size", "8Mi"]);
    assert!(tool(&up, "nbdcopy", &["image", &uri("logs")]).status.success());
    own_ok(&up, "storage", &["snapshot", "logs@one"]);
    std::fs::write(up.path("zeroes"), vec![0; 3 << 20]).unwrap();
    assert!(tool(&up, "nbdcopy", &["zeroes", &uri("logs")]).status.success());
    let same = |volume: &str| {
        let _ = std::fs::remove_file(up.path("back"));
        assert!(tool(&up, "nbdcopy", &[&uri(volume), "back"]).status.success());
        std::fs::read(up.path("back")).unwrap().starts_with(&image)
    };
    assert!(same("logs@one") && !same("logs"), "the snapshot has what was there");
    own_ok(&up, "storage", &["create", "copy", "--from", "logs@one"]);
    own_ok(&up, "storage", &["restore", "logs", "--from", "logs@one"]);
    assert!(same("copy") && same("logs"));

    // Deleted, it is out of reach; taken back, it is as it was.
    own_ok(&up, "storage", &["delete", "copy"]);
    assert!(!tool(&up, "nbdinfo", &[&uri("copy")]).status.success());
    own_ok(&up, "storage", &["keep", "copy"]);
    assert!(same("copy"));
    own_ok(&up, "storage", &["resize", "copy", "16Mi"]);
    let refused = own(&up, "storage", &["resize", "copy", "1Mi"]);
    assert!(text(&refused.stderr).contains("holds data up to"), "{}", text(&refused.stderr));
    assert_eq!(own(&up, "storage", &["delete", "data"]).status.code(), Some(1));

    // Out as an image and in again, with the same digest, as the administrator too.
    let told = own_ok(&up, "storage", &["export", "logs", "--out", "logs.img"]);
    let digest = told.trim().rsplit(' ').next().unwrap().to_owned();
    assert!(std::fs::read(up.path("logs.img")).unwrap().starts_with(&image));
    own_ok(&up, "storage", &["import", "again", "logs.img"]);
    assert!(same("again"));
    let id = consumers(&up).iter().find(|one| one["granted_bytes"] == 64 << 20).unwrap()["id"].to_string();
    let id = id.trim_matches('"');
    up.ok(&["consumer", "name", id, "shop"]);
    let piped = up.run(&["volume", "export", "again", "-c", "shop"]);
    assert!(piped.status.success() && text(&piped.stderr).contains(&digest), "{}", text(&piped.stderr));
    assert!(piped.stdout == std::fs::read(up.path("logs.img")).unwrap());
    let there = |up: &Up| -> Vec<String> {
        volumes(up, "storage").iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    let expected = ["again", "copy", "data", "logs", "logs@one"];
    let settled = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        there(&up) == expected
    });
    assert!(settled, "nothing is left of the exports: {:?}", there(&up));

    // Nobody else's.
    let foreign = own(&up, "other", &["list", "-c", id]);
    assert!(text(&foreign.stderr).contains("PERMISSION_DENIED"), "{}", text(&foreign.stderr));
    assert_eq!(volumes(&up, "other").len(), 1);
    up.ok(&["consumer", "label", id, "team=web", "tier=gold"]);
    up.ok(&["consumer", "label", id, "tier-"]);
    let shop = consumers(&up).into_iter().find(|one| one["name"] == "shop").unwrap();
    assert_eq!(shop["labels"], serde_json::json!({ "team": "web" }));
    assert!(shop["last_seen"].as_u64().is_some_and(|at| at > 0), "{shop}");

    // All of it is there after a restart, and the old certificate opens nothing once the consumer was put off.
    let up = Up::start_in(up.kill(), &[]);
    assert_eq!(there(&up), expected);
    up.ok(&["consumer", "offboard", id]);
    up.ok(&["consumer", "keep", id]);
    let ready = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        consumers(&up).iter().any(|one| one["name"] == "shop" && one["phase"] == "Ready")
    });
    assert!(ready, "{:?}", consumers(&up));
    let old = own(&up, "storage", &["list"]);
    assert!(text(&old.stderr).contains("does not open"), "{}", text(&old.stderr));
}

/// The paths of all files below a directory.
fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn what_is_stored_encrypted_is_nobodys_who_has_the_disk() {
    let up = Up::start(&[]);
    let data = onboard_with(&up, &["--encrypted"], "64Mi", "storage");
    onboard(&up, "8Mi", "plain");
    let uri = |volume: &str| data.replace("/data", &format!("/{volume}"));
    let image = b"what only its owner is to read. ".repeat(1 << 15);
    std::fs::write(up.path("image"), &image).unwrap();
    for volume in ["data", "logs"] {
        if volume == "logs" {
            own_ok(&up, "storage", &["create", "logs", "--size", "8Mi"]);
        }
        assert!(tool(&up, "nbdcopy", &["image", &uri(volume)]).status.success());
    }
    own_ok(&up, "storage", &["snapshot", "logs@one"]);
    own_ok(&up, "storage", &["create", "copy", "--from", "logs@one"]);
    own_ok(&up, "storage", &["export", "logs", "--out", "logs.img"]);
    assert!(std::fs::read(up.path("logs.img")).unwrap().starts_with(&image));
    own_ok(&up, "storage", &["import", "again", "logs.img"]);
    let encrypted = |up: &Up, dir: &str| -> Vec<bool> {
        volumes(up, dir).iter().map(|volume| volume["encrypted"] == true).collect()
    };
    assert_eq!(encrypted(&up, "storage"), [true; 5]);
    // One volume of a consumer whose others are not; a copy of those is none.
    own_ok(&up, "plain", &["create", "secret", "--size", "4Mi", "--encrypted"]);
    assert_eq!(encrypted(&up, "plain"), [false, true]);
    let refused = own(&up, "plain", &["create", "copy", "--from", "data", "--encrypted"]);
    assert!(text(&refused.stderr).contains("not encrypted"), "{}", text(&refused.stderr));
    let all = files(&up.path("data/volumes"));
    assert!(all.iter().any(|path| path.ends_with("data")), "{all:?}");
    for path in all {
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(32).any(|part| part == &image[..32]), "{}", path.display());
    }

    // With another sealing key nothing of it is served, and the reason is told; with its own, all of it.
    let dir = up.kill();
    let sealing = dir.path().join("data/sealing.key");
    let key = std::fs::read_to_string(&sealing).unwrap();
    std::fs::write(&sealing, "ab".repeat(32)).unwrap();
    let up = Up::start_in(dir, &[]);
    let one = |up: &Up| consumers(up).into_iter().find(|one| one["encrypted"] == true).unwrap();
    let mut failed = serde_json::Value::Null;
    let told = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        failed = one(&up);
        failed["phase"] == "Failed"
    });
    let reason = failed["reason"].as_str().unwrap_or_default();
    assert!(told && reason.contains("encrypted") && reason.contains("sealed with the key"), "{failed}");
    assert!(own(&up, "storage", &["list"]).status.code() != Some(0));
    let dir = up.kill();
    std::fs::write(&sealing, key).unwrap();
    let up = Up::start_in(dir, &[]);
    let ready = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        one(&up)["phase"] == "Ready"
    });
    assert!(ready, "{}", one(&up));
    own_ok(&up, "storage", &["export", "logs@one", "--out", "again.img"]);
    assert!(std::fs::read(up.path("again.img")).unwrap().starts_with(&image));
}

#[test]
fn an_import_that_breaks_off_is_nobodys_volume() {
    let up = Up::start(&[]);
    let data = onboard(&up, "4Mi", "storage");
    // More than the grant: refused before anything is sent.
    std::fs::write(up.path("large"), vec![1; 5 << 20]).unwrap();
    let large = own(&up, "storage", &["import", "large", "large"]);
    assert!(text(&large.stderr).contains("RESOURCE_EXHAUSTED"), "{}", text(&large.stderr));
    // As large as the grant, which others fill: it breaks off, and is seen by nobody.
    std::fs::write(up.path("image"), vec![1; 3 << 20]).unwrap();
    assert!(tool(&up, "nbdcopy", &["image", &data]).status.success());
    let full = own(&up, "storage", &["import", "in", "image"]);
    assert!(text(&full.stderr).contains("grant is used up"), "{}", text(&full.stderr));
    assert!(!tool(&up, "nbdinfo", &[&data.replace("/data", "/in")]).status.success());
    let listed = volumes(&up, "storage");
    assert_eq!(listed[1]["importing"], true, "{listed:?}");
    // Given room, it is imported again from its beginning.
    let id = consumers(&up)[0]["id"].as_str().unwrap().to_owned();
    up.ok(&["consumer", "resize", &id, "8Mi"]);
    own_ok(&up, "storage", &["import", "in", "image"]);
    assert!(tool(&up, "nbdinfo", &[&data.replace("/data", "/in")]).status.success());
}
