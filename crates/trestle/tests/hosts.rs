//! `trestle join` and `trestle leave` as a user runs them, in directories of their own.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

#[allow(dead_code, reason = "the lab uses the rest of it")]
#[path = "lab/clocks.rs"]
mod clocks;
mod harness;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use clocks::Clocks;
use harness::{TRESTLE, Up};

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

/// The clouds' side, simulated; ends with its input.
struct Clouds {
    program: Child,
    url: String,
    plugins: serde_json::Value,
}

impl Clouds {
    fn start() -> Self {
        let path = Path::new(TRESTLE).with_file_name("trestle-clouds");
        assert!(path.exists(), "{} is missing: cargo build -p trestle-clouds", path.display());
        let command = Command::new(path)
            .args(["--plugins", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut program = command.unwrap();
        let mut line = String::new();
        BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap();
        Self { program, url: said["url"].as_str().unwrap().to_owned(), plugins: said["plugins"].clone() }
    }

    fn get(&self, path: &str) -> String {
        let output = Command::new("curl").args(["-sf", &format!("{}/{path}", self.url)]).output().unwrap();
        assert!(output.status.success(), "curl is needed, and {path} must be there");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Clouds {
    fn drop(&mut self) {
        drop(self.program.stdin.take());
        let _ = self.program.wait();
    }
}

/// A controller that is configured by a file.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One machine in each cloud, of which its metadata service says what it is.
#[test]
fn machines_join_by_what_their_clouds_sign() {
    let clouds = Clouds::start();
    let flags: Vec<String> = ["aws", "azure", "gcp", "ibm"]
        .iter()
        .flat_map(|name| ["--cloud".to_owned(), format!("{name}={}", clouds.plugins[name].as_str().unwrap())])
        .collect();
    let up = Up::start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    // The keys, as an administrator gets them from where each cloud publishes them.
    for (file, path) in [("aws.pem", "keys/aws"), ("azure.pem", "keys/azure"), ("jwks", "oauth2/v3/certs")] {
        fs::write(up.path(file), clouds.get(path)).unwrap();
    }
    let ports: Vec<u16> = (0..3)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap())
        .collect::<Vec<_>>()
        .iter()
        .map(|listener| listener.local_addr().unwrap().port())
        .collect();
    let url = format!("https://127.0.0.1:{}", ports[1]);
    let config = format!(
        "data_dir: other\nlisten: {{http: \"127.0.0.1:{}\", grpc: \"127.0.0.1:{}\", watch: \"127.0.0.1:{}\"}}\n\
         hosts:\n  identities:\n\
         \x20 - {{name: aws, kind: aws, keys: aws.pem, admit: [{{when: {{accountId: \"123456789012\"}}, name_from: instanceId, tags: [web]}}]}}\n\
         \x20 - {{name: azure, kind: azure, keys: azure.pem, admit: [{{when: {{subscriptionId: demo}}, name_from: vmId}}]}}\n\
         \x20 - name: gcp\n\x20   issuer: https://accounts.google.com\n\x20   audience: {url}\n\x20   keys: jwks\n\
         \x20   admit: [{{when: {{google.compute_engine.zone: \"*-*\"}}, name_from: google.compute_engine.instance_name}}]\n\
         \x20 - name: ibm\n\x20   kind: ibm\n\x20   issuer: https://iam.cloud.ibm.com/identity\n\x20   keys: jwks\n\
         \x20   admit: [{{when: {{sub: Profile-7}}, names: 'vm-*'}}]\n",
        ports[0], ports[1], ports[2]
    );
    fs::write(up.path("serve.yaml"), config).unwrap();
    let _serving = Serving(up.command(&["serve", "--config", "serve.yaml"]).spawn().unwrap());
    let ca = up.path("other/pki/ca.pem");
    let ready = || ca.exists() && std::net::TcpStream::connect(("127.0.0.1", ports[1])).is_ok();
    for _ in 0..600 {
        if ready() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(ready(), "the controller serves");
    let digest = "openssl x509 -outform der -in \"$1\" | openssl sha256 -r | cut -d' ' -f1";
    let digest = Command::new("sh").args(["-c", digest, "sh"]).arg(&ca).output().unwrap();
    let digest = String::from_utf8(digest.stdout).unwrap().trim().to_owned();

    let join = |cloud: &str, machine: &str, etc: &str, more: &[&str]| {
        let (etc, data) = (up.path(etc), up.path(&format!("{etc}-data")));
        let (etc, data) = (etc.to_str().unwrap().to_owned(), data.to_str().unwrap().to_owned());
        let metadata = format!("{}/as/{machine}", clouds.url);
        let args = ["join", &url, "--identity", cloud, "--fingerprint", &digest, "--metadata", &metadata];
        up.run(&[&args[..], &["--etc", &etc, "--data-dir", &data, "--no-service"], more].concat())
    };
    let mut machines = std::collections::BTreeMap::new();
    for cloud in ["aws", "azure", "gcp", "ibm"] {
        let name = format!("{cloud}.vm");
        let file = format!("{}/../../docs/examples/clouds/{cloud}-vm.json", env!("CARGO_MANIFEST_DIR"));
        up.ok(&["resource", "create", &name, "--file", &file]);
        let told: serde_json::Value =
            serde_json::from_str(&up.ok(&["resource", "get", &name, "-o", "json"])).unwrap();
        let uri = told["uri"].as_str().unwrap();
        let mut parts = uri.split('/');
        let instance = parts.clone().find(|part| part.starts_with("i-"));
        let machine = instance.or_else(|| parts.next_back()).unwrap().to_owned();
        let more: &[&str] = if cloud == "ibm" { &["--profile", "Profile-7", "--name", "vm-1"] } else { &[] };
        let output = join(cloud, &machine, cloud, more);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{cloud} {uri}: {}", String::from_utf8_lossy(&output.stderr));
        let is_named = match cloud {
            "aws" => said.contains(&format!("Joined as {machine}:")) && said.contains("web"),
            "ibm" => said.contains("Joined as vm-1:"),
            _ => said.contains("Joined as "),
        };
        assert!(is_named, "{cloud} {uri}: {said}");
        machines.insert(cloud, machine);
    }
    // What anybody who has seen it can show lets a machine in once; one machine is not another; and nobody is asked for nothing.
    let refused = |cloud: &str, machine: &str, etc: &str, more: &[&str], why: &str| {
        let output = join(cloud, machine, etc, more);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(why), "{cloud}: {told}");
    };
    refused("aws", &machines["aws"], "again", &[], "has joined before, as host i-");
    refused(
        "ibm",
        &machines["ibm"],
        "again",
        &["--profile", "Profile-7", "--name", "vm-2"],
        "has joined before",
    );
    refused("ibm", &machines["ibm"], "again", &["--profile", "Profile-8", "--name", "vm-2"], "no rule of");
    refused("gcp", &machines["gcp"], "again", &["--audience", "https://elsewhere"], "it is not for");
    refused("azure", &machines["azure"], "again", &["--name", "other"], "is for hosts named");
    refused("aws", "i-nobody", "again", &[], "does not say what this machine is");
    refused("cluster", "x", "again", &[], "say with --from");
}

/// The clock of a host is off when it joins: by a day it is told so, by more no token is spent.
#[test]
fn a_wrong_clock_is_told_and_one_that_is_too_wrong_joins_nothing() {
    let (up, clocks) = (Up::start(&[]), Clocks::new());
    let url = format!("https://{}", up.grpc);
    let token = up.ok(&["token", "create", "--join", "--uses", "5"]);
    let join = |name: &str, seconds: i64| {
        clocks.set(name, seconds);
        let (etc, data) = (up.path(name), up.path(&format!("{name}-data")));
        let mut command = up.command(&["join", &url, token.trim(), "--name", name, "--no-service", "--etc"]);
        clocks.wear(command.arg(etc).arg("--data-dir").arg(data), name);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    const DAY: i64 = 86_400;
    for (name, seconds, told) in [
        ("a", -DAY + 600, "23 hours behind"),
        ("b", DAY, "24 hours ahead of"),
        ("c", 5 * DAY, "5 days ahead of"),
    ] {
        let (joined, said) = join(name, seconds);
        assert!(joined && said.contains(told), "{name}: {said}");
    }
    for (name, seconds, told) in [("d", -2 * DAY - 60, "2 days behind"), ("e", 8 * DAY, "8 days ahead of")] {
        let (joined, said) = join(name, seconds);
        assert!(!joined && said.contains(told) && said.contains("timedatectl"), "{name}: {said}");
    }
    assert!(up.ok(&["token", "list"]).contains("2 of 5"));
}
