//! A lab: a controller, hosts with agents, and Pods.
//!
//! ```text
//!   fabric: br0 10.99.0.254, fd99::fe, the controller
//!     ├── host 1: up0 10.99.0.1, fd99::1 ── forwards ── p1 ── eth0 of a Pod: 10.0.1.1, fd00:0:1::1
//!     │                                             └── p2 ── …
//!     └── host 2: …
//! ```

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use testkit::namespaces::Namespace;

use super::{
    clocks::Clocks,
    probe::{Port, serve},
};

const TRESTLE: &str = env!("CARGO_BIN_EXE_trestle");
/// Where controllers listen for nodes, in the fabric.
pub const CONTROLLER: &str = "10.99.0.254";

/// Longest wait for anything that should come true; a busy machine needs some of it.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Host {
    pub namespace: Namespace,
    pub name: String,
    number: usize,
    dir: PathBuf,
    agent: Option<Child>,
    links: usize,
}

pub struct Pod {
    pub namespace: Namespace,
    /// Index of its host.
    pub host: usize,
    pub interface: String,
    pub addresses: [IpAddr; 2],
    labels: String,
}

/// Everything of one lab. Fields are dropped in this order: processes before the namespaces they are in.
pub struct World {
    controller: Option<Child>,
    pub hosts: Vec<Host>,
    pub pods: BTreeMap<String, Pod>,
    pub fabric: Namespace,
    pub dir: TempDir,
    /// What agents are told of controllers.
    pub servers: Vec<String>,
    clocks: Option<Clocks>,
}

impl World {
    /// A controller and hosts with agents; no Pods.
    pub fn new(hosts: usize) -> Self {
        Self::with_clocks(hosts, None)
    }

    /// As [`Self::new`], with a clock for the controller and one for each host.
    pub fn with_clocks(hosts: usize, clocks: Option<Clocks>) -> Self {
        let mut world = Self::without_controller(hosts, clocks);
        world.start_controller();
        (0..hosts).for_each(|index| world.admit(index));
        world
    }

    /// The fabric and hosts, and nothing that runs on them.
    pub fn without_controller(hosts: usize, clocks: Option<Clocks>) -> Self {
        let mut world = Self {
            controller: None,
            hosts: Vec::new(),
            pods: BTreeMap::new(),
            fabric: Namespace::new("fabric"),
            dir: tempfile::tempdir().unwrap(),
            servers: vec![format!("https://{CONTROLLER}:8081")],
            clocks,
        };
        world.fabric.run(&format!(
            "ip link add br0 type bridge forward_delay 0; ip link set br0 up
             ip addr add {CONTROLLER}/24 dev br0; ip addr add fd99::fe/64 dev br0 nodad"
        ));
        for number in 1..=hosts {
            world.add_host(number);
        }
        world
    }

    /// Gives a host its certificate, and starts its agent.
    pub fn admit(&mut self, index: usize) {
        let name = self.hosts[index].name.clone();
        self.ok(&["cert", "issue", &name, "--role", "node", "--out", &name]);
        self.start_agent(index);
    }

    fn add_host(&mut self, number: usize) {
        let namespace = Namespace::new("host");
        let host = &namespace.name;
        self.fabric.run(&format!(
            "ip link add h{number} type veth peer name up0 netns {host}
             ip link set h{number} master br0 up"
        ));
        namespace.run(&format!(
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 \
                net.ipv4.conf.default.rp_filter=0 net.ipv6.conf.default.accept_dad=0
             ip link set up0 up; ip addr add 10.99.0.{number}/24 dev up0; ip addr add fd99::{number}/64 dev up0 nodad"
        ));
        // Everybody knows the way to everybody's Pods.
        for other in &self.hosts {
            let other_number = other.number;
            namespace.run(&route(other_number));
            other.namespace.run(&route(number));
        }
        self.fabric.run(&route(number));
        let name = format!("host-{number}");
        let dir = self.dir.path().join(&name);
        std::fs::create_dir(&dir).unwrap();
        self.hosts.push(Host { namespace, name, number, dir, agent: None, links: 0 });
    }

    pub fn clocks(&self) -> &Clocks {
        self.clocks.as_ref().expect("the lab was made with clocks")
    }

    pub fn start_controller(&mut self) {
        let mut command = self.fabric.command(TRESTLE);
        self.clocks.iter().for_each(|clocks| clocks.wear(&mut command, "controller"));
        let mut child = command
            .args(["up", "--data-dir", "controller", "--http", "127.0.0.1:8080"])
            .args([
                "--grpc",
                &format!("{CONTROLLER}:8081"),
                "--watch",
                "127.0.0.1:8443",
                "--nbd",
                "127.0.0.1:10809",
            ])
            .env("TRESTLE_CONTEXT", self.dir.path().join("context.json"))
            .env("TRESTLE_LOG", "info,rustls=error")
            .current_dir(self.dir.path())
            .stdout(Stdio::piped())
            .stderr(appended(&self.controller_log_file()))
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let up = stdout.lines().map_while(Result::ok).any(|line| line == "Trestle is up.");
        self.controller = Some(child);
        assert!(up, "the controller did not start: {}", self.controller_log());
    }

    fn controller_log_file(&self) -> PathBuf {
        self.dir.path().join("controller.log")
    }

    pub fn controller_log(&self) -> String {
        std::fs::read_to_string(self.controller_log_file()).unwrap_or_default()
    }

    /// As a power cut does.
    pub fn kill_controller(&mut self) {
        kill(self.controller.take());
    }

    pub fn start_agent(&mut self, index: usize) {
        self.start_agent_with(index, &[]);
    }

    pub fn start_agent_with(&mut self, index: usize, flags: &[&str]) {
        let dir = self.dir.path().to_owned();
        let host = &self.hosts[index];
        let file = |suffix: &str| dir.join(format!("{}.{suffix}", host.name));
        let mut command = host.namespace.command(TRESTLE);
        command
            .args(["agent", "--node", &host.name])
            .args(self.servers.iter().flat_map(|server| ["--server", server]))
            .arg("--ca")
            .arg(file("ca.pem"))
            .arg("--cert")
            .arg(file("pem"))
            .arg("--key")
            .arg(file("key"))
            .arg("--data-dir")
            .arg(host.dir.join("data"))
            .arg("--socket")
            .arg(host.dir.join("socket"))
            .args(flags);
        self.run_agent(index, command);
    }

    /// Joins a host with a token of its own, with these labels, and starts its agent.
    pub fn join(&mut self, index: usize, labels: &[&str]) {
        let labels = labels.iter().flat_map(|label| ["--label", label]);
        let create: Vec<&str> = ["token", "create", "--join"].into_iter().chain(labels).collect();
        let token = self.ok(&create);
        let host = &self.hosts[index];
        let etc = host.dir.join("etc");
        let joined = host
            .namespace
            .command(TRESTLE)
            .args(["join", &self.servers[0], token.trim(), "--name", &host.name, "--no-service"])
            .arg("--etc")
            .arg(&etc)
            .arg("--data-dir")
            .arg(host.dir.join("data"))
            .arg("--socket")
            .arg(host.dir.join("socket"))
            .output()
            .unwrap();
        must(&["join"], &joined);
        let mut command = host.namespace.command(TRESTLE);
        command.args(["agent", "--config"]).arg(etc.join("agent.yaml"));
        self.run_agent(index, command);
    }

    fn run_agent(&mut self, index: usize, mut command: Command) {
        let host = &mut self.hosts[index];
        assert!(host.agent.is_none(), "an agent runs already");
        self.clocks.iter().for_each(|clocks| clocks.wear(&mut command, &host.name));
        let mut child = command
            .env("TRESTLE_LOG", "info,rustls=error")
            .stdout(Stdio::piped())
            .stderr(appended(&host.dir.join("log")))
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        host.agent = Some(child);
        assert!(line.contains("runs"), "an agent did not start: {}", self.log(index));
    }

    pub fn kill_agent(&mut self, index: usize) {
        kill(self.hosts[index].agent.take());
    }

    /// Sends the agent a signal: `HUP`, `TERM`.
    pub fn signal_agent(&self, index: usize, signal: &str) {
        let pid = self.hosts[index].agent.as_ref().expect("an agent runs").id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status().unwrap();
        assert!(sent.success(), "kill -s {signal} {pid}");
    }

    pub fn data_dir(&self, index: usize) -> PathBuf {
        self.hosts[index].dir.join("data")
    }

    pub fn socket(&self, index: usize) -> PathBuf {
        self.hosts[index].dir.join("socket")
    }

    pub fn log(&self, index: usize) -> String {
        std::fs::read_to_string(self.hosts[index].dir.join("log")).unwrap_or_default()
    }

    /// Takes a host off the fabric, or puts it back.
    pub fn plug(&self, index: usize, connected: bool) {
        let state = if connected { "up" } else { "down" };
        self.fabric.run(&format!("ip link set h{} {state}", self.hosts[index].number));
    }

    /// Makes a Pod `namespace/name` on a host, served on these ports: its link, its object, its attachment.
    pub fn add_pod(&mut self, name: &str, host: usize, labels: &str, ports: &[Port]) {
        self.hosts[host].links += 1;
        let last = self.hosts[host].links;
        let number = self.hosts[host].number;
        let addresses = [format!("10.0.{number}.{last}"), format!("fd00:0:{number}::{last:x}")]
            .map(|text| text.parse().unwrap());
        self.link_pod(name, host, labels, addresses);
        serve(&self.pods[name].namespace, ports);
        self.declare_pods(&[name]);
        self.attach(name);
    }

    /// The Pod's namespace and link, and nothing that tells anybody of it.
    pub fn link_pod(&mut self, name: &str, host: usize, labels: &str, addresses: [IpAddr; 2]) {
        let namespace = Namespace::new("pod");
        namespace.run("sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0");
        let [v4, v6] = addresses;
        let interface = format!("p{}", namespace.name.split('-').nth(1).unwrap());
        let pod = &namespace.name;
        self.hosts[host].namespace.run(&format!(
            "ip link add {interface} type veth peer name eth0 netns {pod}
             ip link set {interface} up; ip addr add 169.254.1.1/32 dev {interface}
             ip -6 addr add fe80::1/64 dev {interface} nodad
             ip route replace {v4}/32 dev {interface}; ip -6 route replace {v6}/128 dev {interface}"
        ));
        namespace.run(&format!(
            "ip link set eth0 up; ip addr add {v4}/32 dev eth0; ip -6 addr add {v6}/128 dev eth0 nodad
             ip route add 169.254.1.1 dev eth0; ip route add default via 169.254.1.1 src {v4}
             ip -6 route add default via fe80::1 dev eth0"
        ));
        let labels = labels.to_owned();
        self.pods.insert(name.to_owned(), Pod { namespace, host, interface, addresses, labels });
    }

    /// The Pod's object, and its namespace's, to the controller.
    pub fn declare_pods(&self, names: &[&str]) {
        let mut documents = String::new();
        for name in names {
            let (namespace, short) = name.split_once('/').unwrap();
            let pod = &self.pods[*name];
            let [v4, v6] = pod.addresses;
            documents.push_str(&format!(
                "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}, labels: {{ns: {namespace}}}}}\n\
                 ---\napiVersion: v1\nkind: Pod\nmetadata: {{namespace: {namespace}, name: {short}, labels: {{pod: {short}{}}}}}\n\
                 spec:\n  nodeName: {}\n  containers:\n  - name: c\n    ports: [{{name: web, containerPort: 80}}, \
                 {{name: alt, containerPort: 81}}]\n\
                 status: {{podIP: \"{v4}\", podIPs: [{{ip: \"{v4}\"}}, {{ip: \"{v6}\"}}]}}\n",
                if pod.labels.is_empty() { String::new() } else { format!(", {}", pod.labels) },
                self.hosts[pod.host].name,
            ));
        }
        let mut seen = std::collections::BTreeSet::new();
        let unique: Vec<_> = documents.split("---\n").filter(|part| seen.insert(part.to_string())).collect();
        self.apply(&unique.join("---\n"));
    }

    /// `NAMESPACE/NAME key=value …`: gives a Pod these labels.
    pub fn label(&mut self, change: &str) {
        let (name, labels) = change.split_once(' ').unwrap_or((change, ""));
        let labels: Vec<_> = labels.split_whitespace().map(|label| label.replace('=', ": ")).collect();
        self.pods.get_mut(name).expect("a Pod of the lab").labels = labels.join(", ");
        self.declare_pods(&[name]);
    }

    pub fn attach(&self, name: &str) {
        let pod = &self.pods[name];
        let [v4, v6] = pod.addresses.map(|address| address.to_string());
        self.agent_ok(
            pod.host,
            &["attach", name, "--interface", &pod.interface, "--address", &v4, "--address", &v6],
        );
    }

    pub fn apply(&self, documents: &str) {
        let path = self.dir.path().join("apply.yaml");
        std::fs::write(&path, documents).unwrap();
        self.ok(&["apply", "-f", "apply.yaml"]);
    }

    /// `KIND NAMESPACE/NAME`, or `KIND NAME`.
    pub fn delete(&self, object: &str) {
        let (kind, name) = object.split_once(' ').expect("KIND and name");
        match name.split_once('/') {
            Some((namespace, name)) => self.ok(&["delete", kind, name, "--namespace", namespace]),
            None => self.ok(&["delete", kind, name]),
        };
    }

    /// A command of the user's; its standard output.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self
            .fabric
            .command(TRESTLE)
            .args(args)
            .env("TRESTLE_CONTEXT", self.dir.path().join("context.json"))
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        must(args, &output)
    }

    /// Answers of the REST API to these paths, over one connection.
    pub fn rest(&self, paths: &[String]) -> Vec<serde_json::Value> {
        let data = self.dir.path().join("controller");
        let token = std::fs::read_to_string(data.join("admin.token")).unwrap();
        let mut config = format!(
            "silent\ncacert = \"{}\"\nheader = \"Authorization: Bearer {}\"\nwrite-out = \"\\n\"\n",
            data.join("pki/ca.pem").display(),
            token.trim()
        );
        paths.iter().for_each(|path| config.push_str(&format!("url = \"https://127.0.0.1:8080{path}\"\n")));
        let file = self.dir.path().join("curl");
        std::fs::write(&file, config).unwrap();
        let output = self.fabric.command("curl").args(["-g", "-K"]).arg(&file).output().unwrap();
        let text = must(&["curl"], &output);
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|err| panic!("{line}: {err}")))
            .collect()
    }

    pub fn agent_run(&self, index: usize, args: &[&str]) -> Output {
        let socket = self.socket(index);
        Command::new(TRESTLE).arg("agent").args(args).arg("--socket").arg(socket).output().unwrap()
    }

    #[track_caller]
    pub fn agent_ok(&self, index: usize, args: &[&str]) -> String {
        must(args, &self.agent_run(index, args))
    }

    pub fn agent_status(&self, index: usize) -> serde_json::Value {
        serde_json::from_str(&self.agent_ok(index, &["status", "-o", "json"])).unwrap()
    }

    /// Waits until every agent that runs has in force what the controller means for it.
    #[track_caller]
    pub fn settle(&self) {
        for index in 0..self.hosts.len() {
            if self.hosts[index].agent.is_some() {
                self.settle_one(index);
            }
        }
    }

    #[track_caller]
    pub fn settle_one(&self, index: usize) {
        let name = &self.hosts[index].name;
        let what = format!("{name} has in force what the controller says");
        eventually(&what, || {
            let node: serde_json::Value =
                serde_json::from_str(&self.ok(&["node", "get", name, "-o", "json"])).unwrap();
            let status = self.agent_status(index);
            let applied = status["revision"].as_u64();
            let done = status["synced"] == true
                && status["failures"].as_array().unwrap().is_empty()
                && applied.is_some_and(|at| at >= node["revision"].as_u64().unwrap());
            if done { Ok(()) } else { Err(format!("{status:#}\n{}", self.log(index))) }
        });
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hosts =
                self.hosts.iter().enumerate().map(|(index, host)| (host.name.as_str(), self.log(index)));
            for (name, log) in hosts.chain([("controller", self.controller_log())]) {
                let tail: Vec<_> = log.lines().rev().take(20).collect();
                eprintln!("--- {name}:");
                tail.iter().rev().for_each(|line| eprintln!("{line}"));
            }
        }
        for host in &mut self.hosts {
            kill(host.agent.take());
        }
        kill(self.controller.take());
    }
}

fn kill(child: Option<Child>) {
    if let Some(mut child) = child {
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn route(host: usize) -> String {
    format!(
        "ip route add 10.0.{host}.0/24 via 10.99.0.{host}; ip -6 route add fd00:0:{host}::/64 via fd99::{host}"
    )
}

#[track_caller]
fn appended(path: &Path) -> std::fs::File {
    std::fs::File::options().create(true).append(true).open(path).unwrap()
}

fn must(args: &[&str], output: &Output) -> String {
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits for a condition, with a bound; the last reason why not is told.
#[track_caller]
pub fn eventually(what: &str, mut check: impl FnMut() -> Result<(), String>) {
    let started = Instant::now();
    loop {
        match check() {
            Ok(()) => return,
            Err(why) if started.elapsed() > PATIENCE => panic!("not true after {PATIENCE:?}: {what}\n{why}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
