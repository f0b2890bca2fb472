//! Clouds of this machine from the command line, as a new user meets them, with real packets. Needs root.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may fail where it stands, and tells how it went"
)]

#[path = "../harness/mod.rs"]
mod harness;

mod allow;
mod forwarding;
mod machine;
mod steps;

use std::{
    fs,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use harness::{TRESTLE, Up, text};
use tempfile::TempDir;

const SECONDS: Duration = Duration::from_secs(30);

/// A controller with Linux clouds. When it is dropped nothing of it is left on the machine, whatever happened.
struct Lab {
    up: Option<Up>,
    flags: Vec<String>,
    prefix: Vec<String>,
    mark: String,
}

impl Lab {
    fn new(flags: &[&str]) -> Self {
        Self::with(&[], flags)
    }

    fn with(prefix: &[&str], flags: &[&str]) -> Self {
        assert!(rustix::process::geteuid().is_root(), "network namespaces need root: run the tests as root");
        for tool in ["charon-systemd", "bird", "ping", "nc", "nsenter"] {
            let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().unwrap();
            assert!(found.status.success(), "{tool} is missing; scripts/test-deps installs it");
        }
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("data/linux");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&state).unwrap();
        let sum = sh(&format!("printf %s \"$(realpath {})\" | sha256sum", state.display()));
        let mut lab = Self {
            up: None,
            flags: flags.iter().map(ToString::to_string).collect(),
            prefix: prefix.iter().map(ToString::to_string).collect(),
            mark: sum[..8].to_owned(),
        };
        lab.start(dir);
        lab
    }

    fn start(&mut self, dir: TempDir) {
        let words = |list: &[String]| list.to_vec();
        let (prefix, flags) = (words(&self.prefix), words(&self.flags));
        let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.up = Some(Up::start_as(&prefix, dir, &flags));
    }

    fn up(&self) -> &Up {
        self.up.as_ref().unwrap()
    }

    #[track_caller]
    fn ok(&self, words: &str) -> String {
        self.up().ok(&words.split_whitespace().collect::<Vec<_>>())
    }

    /// Kill -9, and a new controller in the same directory.
    fn crash(&mut self) {
        let dir = self.up.take().unwrap().kill();
        self.start(dir);
    }

    fn address(&self, resource: &str) -> String {
        let listed: serde_json::Value =
            serde_json::from_str(&self.ok(&format!("resource get {resource} -o json"))).unwrap();
        listed["ip"].as_str().unwrap().to_owned()
    }

    fn pings(&self, from: &str, address: &str) -> bool {
        self.up().run(&["resource", "exec", from, "--", "ping", "-c1", "-W1", address]).status.success()
    }

    #[track_caller]
    fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) -> Duration {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < SECONDS, "{what}: not within {SECONDS:?}");
            thread::sleep(Duration::from_millis(50));
        }
        start.elapsed()
    }

    /// Whether a TCP server in one resource hears what a client in another says.
    fn carries_tcp(&self, from: &str, to: &str, port: u16) -> bool {
        let server = self
            .up()
            .command(&["resource", "exec", to, "--", "timeout", "3", "nc", "-l", "-N", &port.to_string()])
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(300));
        let client = format!("echo through the tunnel | timeout 2 nc -N -w1 {} {port}", self.address(to));
        let _ = self.up().run(&["resource", "exec", from, "--", "sh", "-c", &client]);
        // One that nobody has spoken to ends by itself.
        text(&server.wait_with_output().unwrap().stdout) == "through the tunnel\n"
    }

    /// Everything that is on the machine because of this controller.
    fn left(&self) -> Vec<String> {
        let links = format!("{} ip -o link", self.prefix.join(" "));
        let tables = format!("{} nft list tables", self.prefix.join(" "));
        let files = format!("find /run/trestle/{} 2>/dev/null || true", self.mark);
        let daemons =
            format!("grep -lsa /run/trestle/{} /proc/[0-9]*/environ /proc/[0-9]*/cmdline || true", self.mark);
        let of_mark = |listed: String| {
            listed.lines().filter(|line| line.contains(&self.mark)).map(str::to_owned).collect::<Vec<_>>()
        };
        let mut left: Vec<String> = [sh("ip netns list"), sh(&links), sh(&tables), sh(&files)]
            .into_iter()
            .flat_map(of_mark)
            .collect();
        // The search names the files too; it has ended, so its own entry cannot be read any more.
        left.extend(
            sh(&daemons)
                .lines()
                .filter(|path| fs::read(path).is_ok_and(|it| !it.is_empty()))
                .map(str::to_owned),
        );
        left
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.up.take());
        let mark = &self.mark;
        let _ = sh(&format!(
            "for ns in $(ip netns list | grep -o '[^ ]*{mark}[^ ]*'); do
               for pid in $(ip netns pids $ns); do kill -9 $pid; done; ip netns delete $ns
             done; {} ip link delete tru{mark} 2>/dev/null; {} nft delete table ip trestle-{mark} 2>/dev/null
             rm -rf /run/trestle/{mark}; rmdir /run/trestle 2>/dev/null; true",
            self.prefix.join(" "),
            self.prefix.join(" "),
        ));
    }
}

fn sh(script: &str) -> String {
    text(&Command::new("sh").args(["-c", script]).output().unwrap().stdout)
}

/// The README's story: two clouds, one rule each by tag, packets; and back to an empty machine.
#[test]
fn a_new_user_connects_two_clouds() {
    let lab = Lab::new(&["--cloud", "a=linux", "--cloud", "b=linux"]);
    lab.ok("resource create a.web");
    lab.ok("resource create b.db");
    let (web, db) = (lab.address("a.web"), lab.address("b.db"));
    assert!(!lab.pings("a.web", &db) && !lab.pings("b.db", &web), "closed at first");
    lab.ok("tag set shop --children default.a.web,default.b.db");
    let half = lab.up().run(&["rule", "add", "a.web", "--ping", "shop"]);
    let told = text(&half.stderr);
    assert!(half.status.success() && told.contains("default.b.db, does not permit it yet"), "{told}");
    assert!(lab.ok("status").contains("does not permit it yet"));
    assert_eq!(lab.ok("link list -o json"), "[]\n", "one end is no reason to build");
    let start = Instant::now();
    lab.ok("rule add b.db --ping shop");
    assert!(lab.pings("a.web", &db) && lab.pings("b.db", &web), "the job has ended, so it works");
    println!("two clouds talk {:?} after the second rule", start.elapsed());
    assert!(!lab.carries_tcp("a.web", "b.db", 7000), "only ping was permitted");
    lab.ok("rule add a.web --name tcp-out --out --protocol tcp --port 7000 --peer shop");
    lab.ok("rule add b.db --name tcp-in --in --protocol tcp --port 7000 --peer shop");
    assert!(lab.carries_tcp("a.web", "b.db", 7000));
    let links = lab.ok("link list");
    assert!(links.contains("ready") && links.contains("2/2 2/2"), "{links}");
    let link = lab.ok("link get default.a default.b -o json");
    let link: serde_json::Value = serde_json::from_str(&link).unwrap();
    let end = &link["ends"][0]["status"];
    assert_eq!(end["routes"].as_array().unwrap().len(), 1, "{link}");
    assert!(end["bytes_in"].as_u64().unwrap() > 0);
    lab.ok("link rotate default.a default.b");
    assert!(lab.pings("a.web", &db));
    assert_eq!(lab.ok("check"), "Everything is as it was made.\n");
    // Exit codes and output of commands inside are those of the commands.
    let run = lab.up().run(&["resource", "exec", "a.web", "--", "sh", "-c", "echo out; exit 7"]);
    assert_eq!((run.status.code(), text(&run.stdout).as_str()), (Some(7), "out\n"));
    lab.ok("rule delete a.web --rule ping-in-shop,ping-out-shop,tcp-out");
    assert!(!lab.pings("a.web", &db) && !lab.pings("b.db", &web), "closed again");
    lab.ok("rule delete b.db --rule ping-in-shop,ping-out-shop,tcp-in");
    lab.until("nobody asks for the link", |lab| lab.ok("link list -o json") == "[]\n");
    allow::one_line_is_both_ends(&lab);
    lab.ok("resource delete b.db");
    lab.until("the link goes when nothing uses it", |lab| lab.ok("link list -o json") == "[]\n");
    lab.ok("resource delete a.web");
    lab.until("nothing is left", |lab| lab.left().is_empty());
}

/// A machine inside a namespace, with an internet beyond it: what a user's own machine is to them.
struct Host {
    name: String,
    internet: String,
}

impl Host {
    fn new(name: &str) -> Self {
        let (name, internet) =
            (format!("{name}-host-{}", std::process::id()), format!("{name}-inet-{}", std::process::id()));
        sh(&format!(
            "ip netns add {name}; ip netns add {internet}
             ip -n {name} link set lo up; ip -n {internet} link set lo up
             ip link add eth0 netns {name} type veth peer name eth0 netns {internet}
             ip -n {name} address add 198.51.100.2/24 dev eth0; ip -n {name} link set eth0 up
             ip -n {internet} address add 198.51.100.1/24 dev eth0; ip -n {internet} link set eth0 up
             ip -n {internet} address add 1.1.1.1/32 dev lo; ip -n {internet} address add 2.2.2.2/32 dev lo
             ip -n {name} route add default via 198.51.100.1
             ip netns exec {name} sysctl -qw net.ipv4.ip_forward=0"
        ));
        Self { name, internet }
    }

    fn enter(&self) -> Vec<String> {
        vec!["nsenter".to_owned(), format!("--net=/run/netns/{}", self.name)]
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        sh(&format!("ip netns delete {}; ip netns delete {}", self.name, self.internet));
    }
}

/// With real addresses: a rule on a parent tag, whose new members are reached as soon as they are in.
#[test]
fn a_tag_of_public_addresses_grows_and_shrinks() {
    let host = Host::new("e5");
    let enter = host.enter();
    let enter: Vec<&str> = enter.iter().map(String::as_str).collect();
    let lab = Lab::with(&enter, &["--cloud", "lab=linux"]);
    let before = (
        sh(&format!("{} ip -o link", enter.join(" "))),
        sh(&format!("{} nft list ruleset", enter.join(" "))),
    );
    lab.ok("resource create lab.web");
    lab.ok("tag set iptag --ip 1.1.1.1");
    lab.ok("tag set parenttag --children iptag");
    lab.ok("rule add lab.web --name out --out --protocol icmp --peer parenttag");
    assert!(lab.pings("lab.web", "1.1.1.1") && !lab.pings("lab.web", "2.2.2.2"));
    lab.ok("tag set iptag2 --ip 2.2.2.2");
    lab.ok("tag set parenttag --children iptag2");
    lab.until("a new member is reached", |lab| lab.pings("lab.web", "2.2.2.2"));
    assert!(lab.pings("lab.web", "1.1.1.1"));
    lab.ok("tag delete parenttag --member iptag");
    lab.until("one that left is not", |lab| !lab.pings("lab.web", "1.1.1.1"));
    assert!(lab.pings("lab.web", "2.2.2.2"));
    assert!(!lab.pings("lab.web", "198.51.100.2"), "the machine itself was not permitted");
    lab.ok("rule delete lab.web --rule out");
    assert!(!lab.pings("lab.web", "2.2.2.2"));
    lab.ok("resource delete lab.web");
    lab.until("nothing is left", |lab| lab.left().is_empty());
    let after = (
        sh(&format!("{} ip -o link", enter.join(" "))),
        sh(&format!("{} nft list ruleset", enter.join(" "))),
    );
    assert_eq!(before, after, "the machine is as it was");
    let forwarding = sh(&format!("{} sysctl -n net.ipv4.ip_forward", enter.join(" ")));
    assert_eq!(forwarding.trim(), "0", "forwarding is switched off again");
}

/// What exists is attached after a look at what would change; a command runs as long as its resource is there.
#[test]
fn what_exists_is_attached_and_commands_run() {
    let host = Host::new("brown");
    let lab = Lab::new(&["--cloud", "lab=linux"]);
    let old = format!("netns:{}", host.internet);
    // It has another way out, which a permit list would not close.
    let (code, error) = lab.up().fails(&["resource", "attach", "lab.old", &old, "--dry-run"]);
    assert!(code == 1 && error.contains("eth0"), "{error}");
    sh(&format!("ip -n {} link set eth0 down", host.internet));
    let plan = lab.ok(&format!("resource attach lab.old {old} --dry-run"));
    assert!(plan.contains("attach resource default.lab.old") && plan.contains("trestle0"), "{plan}");
    assert_eq!(lab.ok("resource list -o json"), "[]\n", "nothing has changed");
    lab.ok(&format!("resource attach lab.old {old}"));
    lab.up().ok(&[
        "resource",
        "create",
        "lab.api",
        "--region",
        "west",
        "--command",
        "while :; do echo hello | nc -l -N 80; done",
    ]);
    lab.ok("rule add lab.old --name out --out --protocol tcp --port 80 --peer default.lab.api");
    lab.ok("rule add lab.api --name in --in --protocol tcp --port 80 --peer default.lab.old");
    let address = lab.address("lab.api");
    let answer = lab.up().run(&["resource", "exec", "lab.old", "--", "nc", "-w2", &address, "80"]);
    assert_eq!(text(&answer.stdout), "hello\n");
    let run = lab.up().run(&["resource", "exec", "lab.old", "--", "no-such-program"]);
    assert!(!run.status.success());
    lab.ok("resource delete lab.old");
    lab.ok("resource delete lab.api");
    lab.until("nothing is left", |lab| lab.left().is_empty());
    assert!(sh("ip netns list").contains(&host.internet), "what was attached is still there");
}

/// Without root there is a message, and everything else works.
#[test]
fn without_root_a_linux_cloud_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    // The copy can be run by anybody.
    let copy = dir.path().join("trestle");
    fs::copy(TRESTLE, &copy).unwrap();
    let data = dir.path().join("data");
    fs::DirBuilder::new().mode(0o700).create(&data).unwrap();
    sh(&format!("chmod 755 {} {}; chown 65534 {}", dir.path().display(), copy.display(), data.display()));
    let run = |flags: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--clear-groups", "timeout", "10"])
            .arg(&copy)
            .args(["up", "--data-dir"])
            .arg(&data)
            .args([
                "--http",
                "127.0.0.1:0",
                "--grpc",
                "127.0.0.1:0",
                "--watch",
                "127.0.0.1:0",
                "--nbd",
                "127.0.0.1:0",
            ])
            .args(flags)
            .env("TRESTLE_CONTEXT", data.join("context.json"))
            .env("HOME", &data)
            .output()
            .unwrap()
    };
    let refused = run(&["--cloud", "a=linux"]);
    assert_eq!(refused.status.code(), Some(1));
    let error = text(&refused.stderr);
    assert!(error.contains("needs root") && error.contains("cloud a"), "{error}");
    let works = run(&[]);
    assert!(text(&works.stdout).contains("Trestle is up."), "{}", text(&works.stderr));
    assert!(Path::new(&data).exists());
}

/// Many at once ask for the same: one link.
#[test]
#[ignore = "long; `make lab` runs it"]
fn fifty_rules_at_once_make_one_link() {
    let lab = Lab::new(&["--cloud", "a=linux", "--cloud", "b=linux"]);
    lab.ok("resource create a.web");
    lab.ok("resource create b.db");
    thread::scope(|scope| {
        for which in 0..50 {
            let lab = &lab;
            scope.spawn(move || {
                let (on, peer) =
                    if which % 2 == 0 { ("a.web", "default.b.db") } else { ("b.db", "default.a.web") };
                let direction = if which / 2 % 2 == 0 { "--in" } else { "--out" };
                lab.ok(&format!(
                    "rule add {on} --name r{which} {direction} --protocol tcp --port {} --peer {peer}",
                    1000 + which
                ));
            });
        }
    });
    for resource in ["a.web", "b.db"] {
        let rules: serde_json::Value =
            serde_json::from_str(&lab.ok(&format!("rule list {resource} -o json"))).unwrap();
        assert_eq!(rules.as_array().unwrap().len(), 25);
    }
    let links: serde_json::Value = serde_json::from_str(&lab.ok("link list -o json")).unwrap();
    assert_eq!(links.as_array().unwrap().len(), 1, "{links}");
    let daemons = sh(&format!("grep -lsa /run/trestle/{} /proc/[0-9]*/environ | wc -l", lab.mark));
    assert_eq!(daemons.trim(), "4", "two tunnels have four daemons of IKE");
    lab.ok("resource delete a.web");
    lab.ok("resource delete b.db");
    lab.until("nothing is left", |lab| lab.left().is_empty());
}

/// The controller is killed after this many milliseconds of a link's set-up, and again during its teardown.
fn killed_after(pause: u64) {
    let mut lab = Lab::new(&["--cloud", "a=linux", "--cloud", "b=linux"]);
    lab.ok("resource create a.web");
    lab.ok("resource create b.db");
    let db = lab.address("b.db");
    lab.ok("rule add a.web --ping default.b.db --detach");
    lab.ok("rule add b.db --ping default.a.web --detach");
    thread::sleep(Duration::from_millis(pause));
    lab.crash();
    let took = lab.until("it goes on where it was", |lab| lab.pings("a.web", &db));
    println!("killed after {pause} ms: packets flow {took:?} after the restart");
    lab.until("all tunnels are up", |lab| lab.ok("link list").contains("2/2 2/2"));
    assert_eq!(lab.ok("check"), "Everything is as it was made.\n");
    lab.ok("rule delete a.web --rule ping-in-default-b-db,ping-out-default-b-db");
    lab.ok("resource delete b.db --detach");
    thread::sleep(Duration::from_millis(pause / 4));
    lab.crash();
    lab.until("the link goes", |lab| lab.ok("link list -o json") == "[]\n");
    lab.ok("resource delete a.web");
    lab.until("nothing is left", |lab| lab.left().is_empty());
}

#[test]
fn killed_while_a_link_is_made_it_goes_on() {
    // In the midst of it, and when the jobs are about to end.
    killed_after(400);
    killed_after(1000);
}

#[test]
#[ignore = "long; `make lab` runs it"]
fn killed_at_any_moment_of_a_link_it_goes_on() {
    for pause in (0..2000).step_by(100) {
        killed_after(pause);
    }
}

/// Regions and namespaces: each pair by the path that fits it, and nothing else.
#[test]
#[ignore = "long; `make lab` runs it"]
fn regions_namespaces_and_three_clouds() {
    let lab = Lab::new(&["--cloud", "a=linux", "--cloud", "b=linux", "--cloud", "c=linux"]);
    lab.ok("namespace create other");
    let make = |name: &str, region: &str| {
        let description = format!("{{\"region\":\"{region}\"}}");
        lab.up().ok(&["resource", "create", name, "--description", &description]);
        (name.to_owned(), lab.address(name))
    };
    let all = [
        make("default.a.one", "west"),
        make("default.a.two", "west"),
        make("default.a.three", "east"),
        make("other.a.four", "west"),
        make("default.b.five", "west"),
        make("default.b.six", "east"),
        make("other.c.seven", "west"),
    ];
    let joined = [(0, 1), (0, 2), (0, 3), (0, 4), (2, 5), (4, 6), (3, 6)];
    for (one, other) in joined {
        for (on, peer) in [(one, other), (other, one)] {
            lab.ok(&format!("rule add {} --ping {}", all[on].0, all[peer].0));
        }
    }
    for (which, (from, _)) in all.iter().enumerate() {
        for (other, (_, address)) in all.iter().enumerate().filter(|(other, _)| *other != which) {
            let permitted = joined.contains(&(which, other)) || joined.contains(&(other, which));
            assert_eq!(lab.pings(from, address), permitted, "{from} to {}", all[other].0);
        }
    }
    assert_eq!(lab.ok("check"), "Everything is as it was made.\n");
    for (name, _) in &all {
        lab.ok(&format!("resource delete {name}"));
    }
    lab.until("nothing is left", |lab| lab.left().is_empty());
}
