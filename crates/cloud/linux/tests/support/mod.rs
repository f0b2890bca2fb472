//! What the tests of the Linux cloud share: clouds of their own, packets, and what is left on the machine.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use cloud_api::{At, ResourceSpec, prelude::*};
use cloud_linux::{LinuxCloud, Options};
use model::{
    BgpPair, ConnectionSpec, Direction, EntryName, PermitEntry, Ports, Protocol, ResourceState, Secret,
    Segment, Traffic,
};

/// Says what is missing rather than passing without having tried.
pub fn require_tools(more: &[&str]) {
    assert!(rustix::process::geteuid().is_root(), "these tests make network namespaces and must run as root");
    for tool in ["nft", "ip", "ping"].iter().chain(more) {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().unwrap();
        assert!(
            found.status.success(),
            "{tool} is not installed; scripts/test-deps.d/cloud-linux lists what is needed"
        );
    }
}

/// A directory in which clouds live, and what is on the machine because of it.
pub struct Site {
    dir: tempfile::TempDir,
    mark: String,
}

impl Default for Site {
    fn default() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The mark is the beginning of the digest of the path; computed here by another program.
        let sum = Command::new("sh")
            .args(["-c", &format!("printf %s \"$(realpath {})\" | sha256sum", dir.path().display())])
            .output()
            .unwrap();
        let mark = String::from_utf8(sum.stdout).unwrap()[..8].to_owned();
        Self { dir, mark }
    }
}

impl Site {
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub async fn open(&self, name: &str) -> LinuxCloud {
        self.open_with(name, Options::default()).await
    }

    pub async fn open_with(&self, name: &str, options: Options) -> LinuxCloud {
        LinuxCloud::open(name.parse().unwrap(), self.dir.path().to_owned(), options).await.unwrap()
    }

    /// The names of namespaces that were made here.
    pub fn namespaces(&self) -> Vec<String> {
        lines(&["ip", "netns", "list"]).into_iter().filter(|name| name.contains(&self.mark)).collect()
    }

    pub fn namespace(&self, kind: &str, rest: &str) -> String {
        format!("{kind}.{}.{rest}", self.mark)
    }

    /// The interface at the far end of the way out.
    pub fn uplink(&self) -> String {
        format!("tru{}", self.mark)
    }

    /// Who does ESP, for each tunnel.
    pub fn esp(&self) -> Vec<String> {
        let files = lines(&["find", &format!("/run/trestle/{}", self.mark), "-name", "esp"]);
        files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
    }

    /// Everything that is on the machine because of this directory, but for the directory itself.
    pub fn left(&self) -> Vec<String> {
        let mut left = self.namespaces();
        left.extend(lines(&["ip", "-o", "link"]).into_iter().filter(|line| line.contains(&self.mark)));
        left.extend(lines(&["nft", "list", "tables"]).into_iter().filter(|line| line.contains(&self.mark)));
        let files = format!("/run/trestle/{}", self.mark);
        if Path::new(&files).exists() {
            left.extend(lines(&["find", &files]));
        }
        left.extend(self.processes().into_iter().map(|(pid, words)| format!("process {pid}: {words}")));
        let state = fs::read_dir(self.dir.path()).unwrap().flatten().map(|entry| entry.file_name());
        let known = |name: &str| name.ends_with(".lock") || name.ends_with(".json");
        left.extend(state.filter_map(|name| name.into_string().ok()).filter(|name| !known(name)));
        left
    }

    /// Processes whose arguments or environment name our files.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let files = format!("/run/trestle/{}", self.mark);
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
            let (words, environment) = (read("cmdline"), read("environ"));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\0', " ");
            if text(&words).contains(&files) || text(&environment).contains(&files) {
                found.push((pid, text(&words)));
            }
        }
        found
    }

    /// The process of this program that has this in its arguments or environment.
    pub fn daemon(&self, program: &str, namespace: &str) -> i32 {
        let inside: Vec<i32> =
            lines(&["ip", "netns", "pids", namespace]).iter().filter_map(|pid| pid.parse().ok()).collect();
        let found =
            self.processes().into_iter().find(|(pid, words)| inside.contains(pid) && words.contains(program));
        found.unwrap_or_else(|| panic!("no {program} in {namespace}")).0
    }
}

impl Site {
    /// Takes away what does not survive a reboot.
    pub fn reboot(&self) {
        for (pid, _) in self.processes() {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).output();
        }
        for namespace in self.namespaces() {
            for pid in lines(&["ip", "netns", "pids", &namespace]) {
                let _ = Command::new("kill").args(["-KILL", &pid]).output();
            }
            let _ = Command::new("ip").args(["netns", "delete", &namespace]).output();
        }
        let _ = Command::new("ip").args(["link", "delete", &format!("tru{}", self.mark)]).output();
        let _ =
            Command::new("nft").args(["delete", "table", "ip", &format!("trestle-{}", self.mark)]).output();
        let _ = fs::remove_dir_all(format!("/run/trestle/{}", self.mark));
    }
}

impl Drop for Site {
    /// Also after a failure nothing is left.
    fn drop(&mut self) {
        self.reboot();
    }
}

/// A namespace that plays the internet: it has a public address and answers.
pub struct Internet(pub String);

impl Internet {
    pub const ADDRESS: &str = "8.8.8.8";

    pub fn new(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        for command in [
            format!("ip netns add {name}"),
            format!("ip -n {name} link set lo up"),
            format!("ip -n {name} address add {}/32 dev lo", Self::ADDRESS),
        ] {
            assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
        }
        Self(name)
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).output();
    }
}

pub fn lines(words: &[&str]) -> Vec<String> {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // A line of `ip netns` is `name` or `name (id: 0)`.
    let name = |line: &str| line.split(" (id:").next().unwrap_or_default().trim().to_owned();
    text.lines().map(name).filter(|line| !line.is_empty()).collect()
}

pub fn at(namespace: &str, cloud: &str) -> At {
    At { site: format!("{namespace}.{cloud}").parse().unwrap(), deployment: String::new() }
}

pub fn segment(text: &str) -> Segment {
    text.parse().unwrap()
}

pub async fn make(cloud: &LinuxCloud, at: &At, name: &str, region: &str, space: &str) -> ResourceState {
    cloud.ensure_network(at, &segment(region), space.parse().unwrap()).await.unwrap();
    let description = format!("{{\"region\":\"{region}\"}}");
    let spec = ResourceSpec { name: segment(name), region: segment(region), description };
    cloud.create_resource(at, &spec).await.unwrap()
}

pub fn entry(direction: Direction, protocol: Protocol, ports: Ports, peer: &ResourceState) -> PermitEntry {
    entry_to(direction, protocol, ports, &peer.address.to_string())
}

pub fn entry_to(direction: Direction, protocol: Protocol, ports: Ports, peer: &str) -> PermitEntry {
    let traffic = Traffic::new(direction, protocol, Ports::Any, ports).unwrap();
    let name = EntryName::reported(format!("{direction}-{protocol}-{peer}"));
    PermitEntry::new(name, traffic, [peer.parse().unwrap()].into(), Default::default()).unwrap()
}

/// Permits everything between two resources, at one end.
pub async fn permit(cloud: &LinuxCloud, at: &At, of: &ResourceState, peer: &ResourceState) {
    let both = [Direction::Inbound, Direction::Outbound]
        .map(|direction| entry(direction, Protocol::Any, Ports::Any, peer));
    cloud.put_list(at, &of.uri, &[], &both).await.unwrap();
}

pub fn inside(resource: &ResourceState) -> &str {
    resource.uri.strip_prefix("netns:").unwrap()
}

/// A command inside a resource.
pub fn exec(resource: &ResourceState, words: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", inside(resource)]).args(words);
    command
}

/// Whether a ping from one resource to another is answered.
pub fn pings(from: &ResourceState, to: &ResourceState) -> bool {
    pings_address(from, &to.address.to_string())
}

pub fn pings_address(from: &ResourceState, to: &str) -> bool {
    exec(from, &["ping", "-c1", "-W1", to]).output().unwrap().status.success()
}

/// Pings until it is answered; how long that took.
pub fn until_pings(from: &ResourceState, to: &ResourceState, most: Duration) -> Duration {
    let start = Instant::now();
    while !pings(from, to) {
        assert!(start.elapsed() < most, "no answer within {most:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    start.elapsed()
}

/// A ping that goes on; how many of how many were answered.
pub struct Stream(Child);

impl Stream {
    pub fn start(from: &ResourceState, to: &ResourceState, count: u32) -> Self {
        let child =
            exec(from, &["ping", "-q", "-i0.05", "-W1", "-c", &count.to_string(), &to.address.to_string()])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
        Self(child)
    }

    /// Sent and received, and how long the longest silence between two answers can have been.
    pub fn end(self) -> (u32, u32) {
        let output = self.0.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let summary = text.lines().find(|line| line.contains("packets transmitted")).unwrap().to_owned();
        let numbers: Vec<u32> =
            summary.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
        (numbers[0], numbers[1])
    }
}

/// Sends bytes over TCP from one resource to another and answers whether all of them came, unchanged.
pub fn carries_tcp(from: &ResourceState, to: &ResourceState, port: u16, megabytes: u32) -> bool {
    let port = port.to_string();
    let mut server =
        exec(to, &["timeout", "20", "sh", "-c", &format!("nc -l -N {port} </dev/null | sha256sum")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let send = format!(
        "head -c {}M /dev/urandom > /tmp/tcp.$$; sha256sum < /tmp/tcp.$$; timeout 20 nc -N -w5 {} {port} < /tmp/tcp.$$; rm /tmp/tcp.$$",
        megabytes, to.address
    );
    let sent = exec(from, &["sh", "-c", &send]).output().unwrap();
    let _ = exec(from, &["true"]).status();
    let received = {
        // A client that did not connect leaves the server waiting.
        let start = Instant::now();
        while server.try_wait().unwrap().is_none() && start.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(Duration::from_millis(20));
        }
        if server.try_wait().unwrap().is_none() {
            server.kill().unwrap();
            server.wait().unwrap();
            return false;
        }
        server.wait_with_output().unwrap().stdout
    };
    !sent.stdout.is_empty() && sent.stdout == received
}

/// Both ends of a link between two clouds, as the orchestrator asks for it.
pub async fn link(a: (&LinuxCloud, &At), b: (&LinuxCloud, &At), asns: [u32; 2], third: u8, key: &str) {
    let gateways =
        [a.0.create_gateway(a.1, asns[0]).await.unwrap(), b.0.create_gateway(b.1, asns[1]).await.unwrap()];
    let pairs = [1u8, 5]
        .map(|low| BgpPair { a: [169, 254, third, low].into(), b: [169, 254, third, low + 1].into() });
    let spec = |own: usize, site: &At, peer: &At| ConnectionSpec {
        bgp: true,
        site: site.site.clone(),
        peer: peer.site.clone(),
        peer_asn: gateways[1 - own].asn,
        peer_addresses: gateways[1 - own].addresses.clone(),
        local_bgp: pairs.map(|pair| if own == 0 { pair.a } else { pair.b }).to_vec(),
        peer_bgp: pairs.map(|pair| if own == 0 { pair.b } else { pair.a }).to_vec(),
        peer_spaces: Vec::new(),
        shared_key: Secret::new(key),
    };
    let (one, other) = (spec(0, a.1, b.1), spec(1, b.1, a.1));
    let (left, right) =
        futures::join!(a.0.create_connections(a.1, &one), b.0.create_connections(b.1, &other));
    left.unwrap();
    right.unwrap();
}

/// Waits until both tunnels and both sessions of an end are up.
pub async fn until_up(cloud: &LinuxCloud, at: &At, peer: &At, most: Duration) -> Duration {
    let start = Instant::now();
    loop {
        let status = cloud.connection_status(at, &peer.site).await.unwrap();
        if (status.tunnels_up, status.bgp_established) == (2, 2) && !status.routes.is_empty() {
            return start.elapsed();
        }
        assert!(start.elapsed() < most, "after {most:?}: {status:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
