//! Real etcd members for tests: on free loopback ports, with data in a temporary directory.
//!
//! Each member runs under a shell that ends it when this process lets go of the shell's standard input, so that no
//! member outlives a test, however the test ends.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Members that know each other; gone, with their data, when this is dropped.
pub struct Cluster {
    members: Vec<Member>,
    _dir: TempDir,
}

struct Member {
    shell: Child,
    pid: u32,
    client: String,
}

/// Runs etcd until standard input ends; writes its process id first.
const SCRIPT: &str = r#""$@" >>"$LOG" 2>&1 & etcd=$!; echo $etcd; cat >/dev/null; { kill -CONT $etcd; kill -KILL $etcd; } 2>/dev/null"#;

impl Cluster {
    pub fn start(size: usize) -> Self {
        Self::start_with(size, "http", &[], &[])
    }

    /// With further arguments for etcd, and for curl to reach it.
    pub fn start_with(size: usize, scheme: &str, etcd: &[String], curl: &[String]) -> Self {
        assert!(
            Command::new("etcd").arg("--version").output().is_ok_and(|version| version.status.success()),
            "these tests need a real etcd: install the Debian package etcd-server (scripts/test-deps does)"
        );
        let dir = tempfile::tempdir().unwrap();
        let ports = free_ports(2 * size);
        let peers: Vec<_> = (0..size).map(|n| format!("m{n}=http://127.0.0.1:{}", ports[size + n])).collect();
        let peers = peers.join(",");
        let member = |n: usize| {
            let client = format!("{scheme}://127.0.0.1:{}", ports[n]);
            Member::start(&dir, n, client, ports[size + n], &peers, etcd)
        };
        let members = (0..size).map(member).collect();
        let cluster = Self { members, _dir: dir };
        cluster.wait_until_healthy(curl);
        cluster
    }

    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.client.clone()).collect()
    }

    /// Where the first member is for clients.
    pub fn url(&self) -> &str {
        &self.members[0].client
    }

    /// `-STOP` and `-CONT`, `-KILL`.
    pub fn signal(&self, member: usize, signal: &str) {
        let pid = self.members[member].pid.to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        // A thread that runs just now stops a little later, and could still answer.
        while signal == "-STOP" && !all_stopped(&pid) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The index of the member that leads, asked of the given one.
    pub fn leader(&self, asked: usize) -> Option<usize> {
        let leader = |index: usize| {
            let url = format!("{}/v3/maintenance/status", self.members[index].client);
            let answer = Command::new("curl").args(["-sS", "-m", "2", "-d", "{}", &url]).output().ok()?;
            let status: serde_json::Value = serde_json::from_slice(&answer.stdout).ok()?;
            Some((status["leader"].as_str()?.to_owned(), status["header"]["member_id"].as_str()?.to_owned()))
        };
        let (leads, _) = leader(asked)?;
        (0..self.members.len()).find(|index| leader(*index).is_some_and(|(_, id)| id == leads))
    }

    fn wait_until_healthy(&self, curl: &[String]) {
        let give_up = Instant::now() + Duration::from_secs(30);
        for member in &self.members {
            let url = format!("{}/health", member.client);
            loop {
                let answer = Command::new("curl").args(["-sS", "-m", "2", &url]).args(curl).output();
                let answer = answer.expect("these tests need curl: install the Debian package curl");
                if String::from_utf8_lossy(&answer.stdout).contains("\"true\"") {
                    break;
                }
                assert!(Instant::now() < give_up, "etcd at {url} does not become healthy: {answer:?}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

impl Member {
    fn start(dir: &TempDir, n: usize, client: String, peer: u16, peers: &str, more: &[String]) -> Self {
        let peer = format!("http://127.0.0.1:{peer}");
        let data = dir.path().join(format!("m{n}"));
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "sh", "etcd", "--name", &format!("m{n}")])
            .arg("--data-dir")
            .arg(&data)
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", peers, "--initial-cluster-state", "new"])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(more)
            .env("LOG", dir.path().join(format!("m{n}.log")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(shell.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        Self { shell, pid: line.trim().parse().unwrap(), client }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

fn all_stopped(pid: &str) -> bool {
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().all(|task| {
        let status = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        status.rsplit(") ").next().is_none_or(|after_name| after_name.starts_with('T'))
    })
}

fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}
