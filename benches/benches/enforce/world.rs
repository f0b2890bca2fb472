//! The network, a controller, agents, and Pods that answer. All of it goes when this is dropped.

use std::{
    env,
    fmt::Write as _,
    fs,
    io::{self, BufRead as _, BufReader},
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use benches::report;
use serde_json::Value;
use tempfile::TempDir;
use testkit::namespaces::{Namespace, spawn_within};
use tokio::{net::UdpSocket, runtime::Runtime, task::JoinSet};
use tonic::{
    metadata::MetadataValue,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use wire::trestle::v1::{
    ApplyObjectsRequest, DeleteObjectsRequest, EnforcementRequest, IssueCertificateRequest, ObjectRef, Role,
    access_client::AccessClient, enforcement_client::EnforcementClient, objects_client::ObjectsClient,
};

use super::shape::{Policy, Shape, host_name, octet};

pub const CONTROLLER: &str = "10.99.0.254:8081";
/// What `trestle apply` sends in one request.
const DOCUMENTS: usize = 400;
const PATIENCE: Duration = Duration::from_secs(600);

/// A process of this program: it ends when its input does.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

pub struct World {
    /// Dropped in this order: processes before the namespaces they are in.
    agents: Vec<Process>,
    controller: Option<Process>,
    runtime: Runtime,
    channel: Channel,
    token: String,
    pub fabric: Namespace,
    _hosts: Vec<Namespace>,
    _pods: Vec<Namespace>,
    _dir: TempDir,
}

impl Process {
    fn start(namespace: &Namespace, arguments: &[&str], log: PathBuf) -> anyhow::Result<Self> {
        let program = env::current_exe()?;
        let mut command = namespace.command(program.to_str().context("a path that can be written")?);
        let mut child = command
            .args(arguments)
            .env("MIMALLOC_PURGE_DELAY", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(log)?)
            .spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("it has one")?);
        Ok(Self { child, input, output })
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("a process ended before it said what it should");
        }
        Ok(line.trim().to_owned())
    }

    /// Its last line, and its end.
    fn stop(mut self, last: bool) -> anyhow::Result<String> {
        drop(self.input.take());
        let line = if last { self.line()? } else { String::new() };
        let status = self.child.wait()?;
        if status.success() { Ok(line) } else { bail!("a process ended with {status}") }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl World {
    pub fn start(shape: &Shape) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let (fabric, hosts, pods) = network(shape)?;
        for (host, namespace) in pods.iter().enumerate() {
            answer(namespace, shape, host)?;
        }
        let data = dir.path().join("controller");
        fs::create_dir(&data)?;
        let arguments = ["controller", data.to_str().context("a path that can be written")?];
        let mut controller = Process::start(&fabric, &arguments, dir.path().join("controller.log"))?;
        let files = controller.line()?;
        let (ca, token) = files.split_once(' ').context("the controller says where its files are")?;
        let (ca, token) = (fs::read_to_string(ca)?, fs::read_to_string(token)?.trim().to_owned());
        let name = fabric.name.clone();
        let pem = ca.clone();
        // Sockets belong to the namespace of the thread that opens them, and threads to that of the one that starts them.
        let connected = spawn_within(&name, move || -> anyhow::Result<(Runtime, Channel)> {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
            let endpoint = Endpoint::from_shared(format!("https://{CONTROLLER}"))?.tls_config(tls)?;
            let channel = runtime.block_on(endpoint.connect())?;
            Ok((runtime, channel))
        });
        let (runtime, channel) = connected.join().map_err(|_| anyhow::anyhow!("the client fell"))??;
        let mut world = Self {
            agents: Vec::new(),
            controller: Some(controller),
            runtime,
            channel,
            token,
            fabric,
            _hosts: Vec::new(),
            _pods: pods,
            _dir: dir,
        };
        world.apply(&shape.pods())?;
        for (index, namespace) in hosts.iter().enumerate() {
            let agent = world.admit(&ca, namespace, &host_name(index), &shape.pods_of(index))?;
            world.agents.push(agent);
        }
        world._hosts = hosts;
        Ok(world)
    }

    /// Gives a node its certificate, and starts its agent, which attaches the Pods.
    fn admit(
        &self,
        ca: &str,
        namespace: &Namespace,
        name: &str,
        pods: &[(String, String, Ipv4Addr)],
    ) -> anyhow::Result<Process> {
        let request =
            IssueCertificateRequest { name: name.into(), role: Role::Node as i32, ttl_seconds: None };
        let issue = async {
            AccessClient::new(self.channel.clone()).issue_certificate(self.with_token(request)).await
        };
        let issued = self.runtime.block_on(issue)?.into_inner();
        let dir = self._dir.path().join(name);
        fs::create_dir(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
        for (file, text) in [("ca", ca), ("cert", &issued.certificate_pem), ("key", &issued.key_pem)] {
            fs::write(dir.join(file), text)?;
        }
        fs::set_permissions(dir.join("key"), fs::Permissions::from_mode(0o600))?;
        fs::write(dir.join("pods"), serde_json::to_vec(pods)?)?;
        let path: &Path = &dir;
        let arguments = ["agent", name, path.to_str().context("a path that can be written")?];
        let mut agent = Process::start(namespace, &arguments, dir.join("log"))?;
        agent.line()?;
        Ok(agent)
    }

    fn with_token<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        let value: MetadataValue<_> = format!("Bearer {}", self.token).parse().expect("a token is text");
        request.metadata_mut().insert("authorization", value);
        request
    }

    /// Applies documents, and waits until every agent that they concern has them in force.
    pub fn apply(&self, documents: &[Value]) -> anyhow::Result<()> {
        let texts: Vec<Vec<u8>> =
            documents.iter().map(|document| document.to_string().into_bytes()).collect();
        let changes = self.store(&texts)?;
        self.in_force(changes)
    }

    /// Applies policies, and waits for nothing but the calls.
    pub fn send(&self, policies: &[Policy]) -> anyhow::Result<()> {
        let texts: Vec<Vec<u8>> = policies.iter().map(|one| one.document.to_string().into_bytes()).collect();
        self.store(&texts).map(drop)
    }

    fn store(&self, texts: &[Vec<u8>]) -> anyhow::Result<Vec<String>> {
        let mut changes = Vec::new();
        for part in texts.chunks(DOCUMENTS) {
            let documents = part.to_vec();
            let request = ApplyObjectsRequest { documents, no_differences: true, ..Default::default() };
            let call = async {
                ObjectsClient::new(self.channel.clone()).apply_objects(self.with_token(request)).await
            };
            changes.extend(name_of(&self.runtime.block_on(call)?));
        }
        Ok(changes)
    }

    /// Deletes policies, and waits until that is in force.
    pub fn delete(&self, policies: &[Policy]) -> anyhow::Result<()> {
        let mut changes = Vec::new();
        for part in policies.chunks(DOCUMENTS) {
            let object = |one: &Policy| ObjectRef {
                kind: "NetworkPolicy".into(),
                namespace: one.namespace.clone(),
                name: one.name.clone(),
            };
            let request = DeleteObjectsRequest {
                objects: part.iter().map(object).collect(),
                ..DeleteObjectsRequest::default()
            };
            let call = async {
                ObjectsClient::new(self.channel.clone()).delete_objects(self.with_token(request)).await
            };
            changes.extend(name_of(&self.runtime.block_on(call)?));
        }
        self.in_force(changes)
    }

    fn in_force(&self, changes: Vec<String>) -> anyhow::Result<()> {
        if changes.is_empty() || self.agents.is_empty() {
            return Ok(());
        }
        let watched = async {
            let request = self.with_token(EnforcementRequest { changes });
            let mut client = EnforcementClient::new(self.channel.clone());
            let mut states = client.watch_enforcement(request).await?.into_inner();
            let mut last = None;
            while let Some(state) = states.message().await? {
                last = Some(state);
            }
            last.filter(|state| state.state == "enforced").context("it did not come into force")
        };
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, watched).await })??;
        Ok(())
    }

    /// Ends everything, and tells what agents took.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let mut most = [0.0_f64; 3];
        for agent in self.agents.drain(..) {
            let line = agent.stop(true)?;
            let numbers = line.split(' ').map(str::parse::<f64>).collect::<Result<Vec<_>, _>>()?;
            for (most, number) in most.iter_mut().zip(numbers) {
                *most = most.max(number);
            }
        }
        let [rss, peak, lock] = most;
        report("enforce.agent", "rss_mib", rss / 1024.0, "MiB");
        report("enforce.agent", "peak_rss_mib", peak / 1024.0, "MiB");
        report("enforce.agent", "lock_ms", lock / 1e3, "ms");
        match self.controller.take() {
            Some(controller) => controller.stop(false).map(drop),
            None => Ok(()),
        }
    }
}

fn name_of<T>(reply: &tonic::Response<T>) -> Option<String> {
    reply.metadata().get("trestle-change")?.to_str().ok().map(str::to_owned)
}

/// A bridge, hosts at it, and behind each host a namespace that has the addresses of all its Pods.
fn network(shape: &Shape) -> anyhow::Result<(Namespace, Vec<Namespace>, Vec<Namespace>)> {
    let fabric = Namespace::new("fabric");
    let address = CONTROLLER.split_once(':').context("an address and a port")?.0;
    fabric.run(&format!(
        "ip link add br0 type bridge forward_delay 0; ip link set br0 up; ip addr add {address}/24 dev br0
         ip route add local 11.0.0.0/8 dev lo"
    ));
    let (mut hosts, mut pods) = (Vec::new(), Vec::new());
    for index in 0..shape.hosts {
        let (number, host, behind) = (octet(index + 1), Namespace::new("host"), Namespace::new("pods"));
        fabric.run(&format!(
            "ip link add h{number} type veth peer name up0 netns {}; ip link set h{number} master br0 up",
            host.name
        ));
        host.run(&format!(
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
             ip link set up0 up; ip addr add 10.99.0.{number}/24 dev up0; ip route add default via {address}"
        ));
        link_pods(&host, &behind, &shape.pods_of(index))?;
        fabric.run(&format!("ip route add 10.{number}.0.0/16 via 10.99.0.{number}"));
        hosts.push(host);
        pods.push(behind);
    }
    Ok((fabric, hosts, pods))
}

/// A link for each Pod, as plugins make them; all lead into one namespace, where what a Pod answers goes back by its own.
fn link_pods(
    host: &Namespace,
    behind: &Namespace,
    pods: &[(String, String, Ipv4Addr)],
) -> anyhow::Result<()> {
    const GATEWAY: &str = "169.254.1.1";
    let (mut links, mut outer, mut inner) = (String::new(), String::new(), String::new());
    for (index, (_, _, address)) in pods.iter().enumerate() {
        let (link, table) = (interface(index), 1_000 + index);
        // Neighbours are known: the kernel keeps few that are not.
        let mac = |side: u8| format!("02:00:00:{side:02x}:{:02x}:{:02x}", index / 256, index % 256);
        let (near, far) = (mac(1), mac(2));
        let peer = format!("type veth peer name {link} address {far} netns {}", behind.name);
        writeln!(links, "link add {link} address {near} {peer}")?;
        writeln!(outer, "link set {link} up")?;
        writeln!(outer, "neigh add {address} lladdr {far} dev {link} nud permanent")?;
        writeln!(outer, "route add {address}/32 dev {link}")?;
        writeln!(inner, "link set {link} up")?;
        writeln!(inner, "addr add {address}/32 dev {link}")?;
        writeln!(inner, "neigh add {GATEWAY} lladdr {near} dev {link} nud permanent")?;
        writeln!(inner, "route add {GATEWAY} dev {link} table {table}")?;
        writeln!(inner, "route add default via {GATEWAY} dev {link} table {table}")?;
        writeln!(inner, "rule add from {address}/32 lookup {table}")?;
    }
    batch(host, &links)?;
    batch(host, &outer)?;
    behind.run("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0");
    batch(behind, &inner)
}

/// The node's end of a Pod's link, by the Pod's place among those of its host.
pub fn interface(index: usize) -> String {
    format!("p{index}")
}

fn batch(namespace: &Namespace, lines: &str) -> anyhow::Result<()> {
    let mut command = Command::new("ip");
    command.args(["-n", &namespace.name, "-batch", "-"]).stdin(Stdio::piped());
    let mut child = command.spawn()?;
    io::Write::write_all(&mut child.stdin.take().context("it has one")?, lines.as_bytes())?;
    if child.wait()?.success() { Ok(()) } else { bail!("the Pods have no links") }
}

/// Sends back what is asked of any Pod of a host at the ports that are asked for.
fn answer(namespace: &Namespace, shape: &Shape, host: usize) -> anyhow::Result<()> {
    let here = shape.policies(false).into_iter().filter(|policy| policy.host == host);
    let addresses: Vec<_> = here.map(|policy| (policy.pod, policy.port)).collect();
    let (said, ready) = std::sync::mpsc::channel();
    // It ends with the process.
    namespace.within(move || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut answering = JoinSet::new();
            for address in addresses {
                let socket = UdpSocket::bind(address).await?;
                answering.spawn(async move {
                    let mut buffer = [0; 16];
                    while let Ok((count, peer)) = socket.recv_from(&mut buffer).await {
                        let _ = socket.send_to(&buffer[..count], peer).await;
                    }
                });
            }
            said.send(())?;
            answering.join_all().await;
            Ok(())
        })
    });
    ready.recv().context("the Pods do not answer")
}
