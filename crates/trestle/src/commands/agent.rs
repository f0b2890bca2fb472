//! `trestle agent`: the node agent, and what it is asked on its own node.

mod kubernetes;
mod services;

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use agent::{
    Agent, Config, HostStatus, Patience, PolicySettings, StatusView, Uplink,
    cni::chain,
    endpoints::{Attachment, Endpoint, Pod},
    host::{FAIL_SAFE, FAIL_SAFE_OUT, FailSafe, FailSafes, INNER},
    local::{Client, SOCKET, ServicesView},
    part::Part,
    renewal::Proof,
    services::Services,
    watcher::Watcher,
    worker::HeldObject,
};
use anyhow::{Context as _, bail};
use clap::Subcommand;
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};
use wire::trestle::v1::ObjectKind;

use super::serve::log_to_stderr;
use crate::{
    client::ConnectionArgs,
    output::{Format, Rows, print},
};

pub use kubernetes::CONTAINERD;

pub const DATA_DIR: &str = "/var/lib/trestle/agent";
const HEALTH: &str = "127.0.0.1:8082";
/// What links of Pods are called by: most plugins; Calico; Cilium; those of Amazon, Azure and Google.
const POD_INTERFACES: [&str; 6] = ["veth", "cali", "lxc", "eni", "azv", "gke"];
const PENDING_LIMIT: u64 = 30;

/// Flags of `trestle agent`.
#[derive(Debug, clap::Args)]
#[command(
    subcommand_negates_reqs = true,
    after_help = "Examples. On the controller, once per node:
  trestle cert issue node-1 --role node --out node-1      # node-1.pem, node-1.key, node-1.ca.pem
On the node, as root:
  trestle agent --node node-1 --server https://controller:8081 \\
    --ca node-1.ca.pem --cert node-1.pem --key node-1.key
  trestle agent … --server https://one:8081 --server https://two:8081    # goes over when one does not answer
  trestle agent attach shop/web-1 --interface veth1 --address 10.0.0.7
  trestle agent status
As a Pod of its node's cluster; `trestle install kubernetes` makes them:
  trestle agent --kubernetes --server https://controller:8081 --cni
What it was told last is kept on disk and in force before the controller is reached. See docs/agent.md."
)]
pub struct AgentArgs {
    #[command(subcommand)]
    command: Option<AgentCommand>,
    /// YAML file with any of: node, servers, ca, cert, key, joined, data_dir, socket, health, guard, pod_interfaces, inner_interfaces, pending_limit, open_pending, cut_established, fail_safe, fail_safe_out, observe, no_flows, services; flags outrank it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The node's name, as in its certificate (default: the host's name)
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Where the state and the local registry are kept
    #[arg(long, value_name = "DIR", help = format!("Where the state and the local registry are kept [default: {DATA_DIR}]"))]
    data_dir: Option<PathBuf>,
    /// Socket of the local API
    #[arg(long, global = true, env = "TRESTLE_AGENT_SOCKET", value_name = "FILE", help = format!("Socket of the local API [default: {SOCKET}]"))]
    socket: Option<PathBuf>,
    /// Where health and metrics are served, or `none`
    #[arg(long, value_name = "ADDR", help = format!("Where /healthz, /readyz and /metrics are served, or none [default: {HEALTH}]"))]
    health: Option<String>,
    /// Interfaces whose name begins so are Pods': one that is not attached gets nothing through; once per prefix
    #[arg(long, value_name = "PREFIX")]
    guard: Vec<String>,
    /// Links into other network namespaces whose name begins so are looked for and reported if nobody has attached them
    #[arg(long, value_name = "PREFIX", help = format!("Links into other network namespaces whose name begins so are Pods': they are attached by their address where the controller knows it, and reported otherwise; once per prefix, or none [default: {}]", POD_INTERFACES.join(" ")))]
    pod_interfaces: Vec<String>,
    /// Links whose name begins so lead to containers and virtual machines on this node, or `none`
    #[arg(long, value_name = "PREFIX", help = format!("Links whose name begins so lead to containers and virtual machines on this node, which are not the node; once per prefix, or none [default: {}]", INNER.join(" ")))]
    inner_interfaces: Vec<String>,
    /// Seconds after which a Pod that no controller covers is reported as overdue; it stays closed
    #[arg(long, value_name = "SECONDS", help = format!("Seconds after which an attached Pod that no controller covers is reported as overdue; it stays closed [default: {PENDING_LIMIT}]"))]
    pending_limit: Option<u64>,
    /// Open a Pod that no controller covers when that time is over, although nobody has said what applies to it
    #[arg(long)]
    open_pending: bool,
    /// Cut established connections that a new policy forbids
    #[arg(long)]
    cut_established: bool,
    /// A port of this node that stays open whatever policies say, or `none`
    #[arg(long, value_name = "PORT", help = format!("A port of this node that stays open whatever policies say, like tcp:22, udp:5000-5010 or tcp:22@192.0.2.0/24; once per port, or none [default: {FAIL_SAFE}]"))]
    fail_safe: Vec<String>,
    /// A port elsewhere that this node may always use, or `none`
    #[arg(long, value_name = "PORT", help = format!("A port elsewhere that this node may always use; once per port, or none [default: {}]", FAIL_SAFE_OUT.join(" ")))]
    fail_safe_out: Vec<String>,
    /// Refuse nothing: count what policies would refuse
    #[arg(long)]
    observe: bool,
    /// Record no flows: which connections there are, and which are refused and by what rule
    #[arg(long)]
    no_flows: bool,
    #[command(flatten)]
    services: services::ServiceArgs,
    #[command(flatten)]
    kubernetes: kubernetes::KubernetesArgs,
    /// Enforce what is known from disk, then exit: for the moment before the network opens
    #[arg(long)]
    boot: bool,
}

#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Say which interface of this node is a Pod's; answers when that is true in the kernel
    #[command(
        after_help = "Calling it again changes nothing. An address or interface of another Pod goes to this one."
    )]
    Attach {
        /// NAMESPACE/NAME
        pod: Pod,
        /// The node's end of the Pod's link
        #[arg(long, value_name = "NAME")]
        interface: String,
        /// An address of the Pod, once per address
        #[arg(long, value_name = "IP")]
        address: Vec<IpAddr>,
        /// The Pod's UID: then an earlier or later Pod of the same name is not taken for this one
        #[arg(long, value_name = "UID")]
        uid: Option<String>,
    },
    /// Say that a Pod is gone; no error if it was not attached
    Detach {
        /// NAMESPACE/NAME
        pod: Pod,
        /// Only if it is attached by this interface: guards a Pod that has come back
        #[arg(long, value_name = "NAME")]
        interface: Option<String>,
    },
    /// The Pods attached to this node
    List,
    /// How this node's agent is
    Status,
    /// What this node was told
    Objects,
    /// How services are proxied on this node; with a mode, go over to it without dropping connections
    #[command(after_help = "A restart goes back to the mode that flags or configuration name.

Examples:
  trestle agent services
  trestle agent services ipvs")]
    Services {
        /// nftables, ipvs or none
        mode: Option<String>,
    },
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    node: Option<String>,
    servers: Vec<String>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    /// The host has joined: the agent renews its certificate. `trestle join` writes it.
    joined: bool,
    data_dir: Option<PathBuf>,
    socket: Option<PathBuf>,
    health: Option<String>,
    guard: Vec<String>,
    pod_interfaces: Vec<String>,
    inner_interfaces: Vec<String>,
    pending_limit: Option<u64>,
    open_pending: bool,
    cut_established: bool,
    fail_safe: Vec<String>,
    fail_safe_out: Vec<String>,
    observe: bool,
    no_flows: bool,
    services: services::ServicesFile,
}

impl AgentArgs {
    /// Whether it stays and works, and does not only ask one that does.
    pub fn is_service(&self) -> bool {
        self.command.is_none()
    }
}

pub async fn run(args: AgentArgs, output: Format, connection: ConnectionArgs) -> anyhow::Result<()> {
    let AgentArgs {
        command,
        config: path,
        node,
        data_dir,
        socket,
        health,
        guard,
        pod_interfaces,
        inner_interfaces,
        pending_limit,
        open_pending,
        cut_established,
        fail_safe,
        fail_safe_out,
        observe,
        no_flows,
        services,
        kubernetes,
        boot,
    } = args;
    let file = path.as_deref().map(load).transpose()?.unwrap_or_default();
    let socket = socket.or(file.socket).unwrap_or_else(|| SOCKET.into());
    if let Some(command) = command {
        return ask(command, output, &Client { socket }).await;
    }
    let node = node.or(file.node);
    let servers = if connection.server.is_empty() { file.servers } else { connection.server };
    let ca = connection.ca.or(file.ca);
    let (uplink, proof) = match kubernetes.uplink(node.clone(), servers.clone(), ca.clone())? {
        Some((uplink, proof)) => (uplink, Some(proof)),
        None => {
            let identity = connection.cert.or(file.cert).zip(connection.key.or(file.key));
            let node = node.unwrap_or_else(host_name);
            (Uplink { node, servers, ca, identity }, file.joined.then_some(Proof::Key))
        }
    };
    let health = match health.or(file.health).unwrap_or_else(|| HEALTH.to_owned()).as_str() {
        "none" => None,
        text => Some(text.parse::<SocketAddr>().with_context(|| format!("--health {text}"))?),
    };
    let data_dir = data_dir.or(file.data_dir).unwrap_or_else(|| DATA_DIR.into());
    log_to_stderr("info,rustls=error");
    let (service_settings, services_health) = services::settings(services, file.services)?;
    let (service_part, services) = agent::services(service_settings);
    let patience = Patience {
        limit: Duration::from_secs(pending_limit.or(file.pending_limit).unwrap_or(PENDING_LIMIT)),
        then_open: open_pending || file.open_pending,
    };
    let services = Some(services);
    let config = Config {
        uplink,
        data_dir,
        socket,
        health,
        services,
        services_health,
        patience,
        joined: proof.is_some(),
    };
    let settings = PolicySettings {
        guard: if guard.is_empty() { file.guard } else { guard },
        pods: prefixes(pod_interfaces, file.pod_interfaces, &POD_INTERFACES),
        inner: prefixes(inner_interfaces, file.inner_interfaces, &INNER),
        cut_established: cut_established || file.cut_established,
        fail_safes: FailSafes {
            input: ports(fail_safe, file.fail_safe, &[FAIL_SAFE])?,
            output: ports(fail_safe_out, file.fail_safe_out, &FAIL_SAFE_OUT)?,
        },
        observe: observe || file.observe,
        log_refused: !(no_flows || file.no_flows) && agent::flows::rules_may_log(),
    };
    let watch = settings.log_refused && !boot;
    let mut parts = agent::parts(&config.uplink.node, &settings)
        .context("cannot enforce policies here: the agent needs root, and a kernel with nftables")?;
    parts.push(service_part);
    if boot {
        return enforce_once(&config, parts);
    }
    serve(config, parts, Company { watch, file: path, proof, cni: kubernetes.cni, cri: kubernetes.cri }).await
}

/// None where the kernel cannot tell, or tells somebody else: policies are in force all the same.
fn watcher() -> Option<Watcher> {
    let watcher = Watcher::open().inspect_err(|error| {
        let why = "no flows are recorded: the kernel does not tell of connections, or of what is refused";
        tracing::warn!(error = %error, "{why}");
    });
    watcher.ok()
}

fn prefixes(flags: Vec<String>, file: Vec<String>, default: &[&str]) -> Vec<String> {
    let named = if flags.is_empty() { file } else { flags };
    if named.is_empty() {
        return default.iter().map(|prefix| (*prefix).to_owned()).collect();
    }
    named.into_iter().filter(|prefix| prefix != "none").collect()
}

fn ports(flags: Vec<String>, file: Vec<String>, default: &[&str]) -> anyhow::Result<Vec<FailSafe>> {
    let named = if flags.is_empty() { file } else { flags };
    let named =
        if named.is_empty() { default.iter().map(|text| (*text).to_owned()).collect() } else { named };
    named.iter().filter(|text| *text != "none").map(|text| Ok(text.parse()?)).collect()
}

fn enforce_once(config: &Config, parts: Vec<Box<dyn Part>>) -> anyhow::Result<()> {
    let state = agent::boot(config, parts)?;
    if state.holding {
        let known = "Nothing is known of what applies: guarded interfaces and the Pods that could be found are closed";
        return print(&format!("{known}; {} of {} Pods attached are closed.", state.closed, state.endpoints));
    }
    print(&format!("In force: {} objects, {} Pods.", state.objects, state.endpoints))
}

/// What an agent that stays has beside it.
#[derive(Default)]
struct Company {
    /// Flows are recorded.
    watch: bool,
    /// The configuration, read again when that is asked for.
    file: Option<PathBuf>,
    /// What proves the node when its certificate does not; none: somebody else renews it.
    proof: Option<Proof>,
    /// Network configurations that are to name the CNI plugin.
    cni: Option<PathBuf>,
    /// The container runtime, asked for Pods that were here before.
    cri: Option<PathBuf>,
}

async fn serve(config: Config, parts: Vec<Box<dyn Part>>, company: Company) -> anyhow::Result<()> {
    if config.uplink.servers.iter().any(|server| server.starts_with("https://"))
        && config.uplink.identity.is_none()
    {
        bail!("a node proves who it is with a certificate: give --cert and --key (`trestle cert issue`)");
    }
    // Before the start, so that whoever sees it run can also stop it cleanly.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let services = config.services.clone();
    let node = config.uplink.node.clone();
    let Company { watch, file, proof, cni, cri } = company;
    if let Some(proof @ Proof::Statement { .. }) = &proof {
        if config.uplink.identity.as_ref().is_some_and(|(certificate, _)| !certificate.exists()) {
            agent::prepare(&config.data_dir)
                .with_context(|| format!("cannot make {}", config.data_dir.display()))?;
        }
        tokio::select! {
            () = agent::renewal::join(&config.uplink, proof) => {}
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
        }
    }
    let (uplink, socket) = (config.uplink.clone(), config.socket.clone());
    let watcher = if watch { watcher() } else { None };
    let agent = Agent::start_watching(config, parts, watcher).await?;
    let health = agent.health_addr().map(|addr| format!(", health on http://{addr}")).unwrap_or_default();
    print(&format!("Agent of node {node} runs{health}"))?;
    let life = agent.life().clone();
    if let Some(proof) = proof {
        life.spawn("renewal of the certificate", async move {
            match agent::renewal::keep(uplink, proof).await {}
        });
    }
    if let Some(socket) = cri {
        life.spawn("the container runtime", agent::cri::follow(socket, agent.local().worker.clone()));
    }
    if let Some(dir) = cni {
        let plugin = chain::plugin(&socket);
        life.spawn(
            "the node's network configuration",
            async move { match chain::keep(dir, plugin).await {} },
        );
    }
    let mut ends = pin!(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = life.faulted() => {}
        }
    });
    loop {
        tokio::select! {
            () = &mut ends => break,
            _ = hangup.recv() => tokio::select! {
                () = &mut ends => break,
                () = reload(file.as_deref(), services.as_ref()) => {}
            },
        }
    }
    // Whoever started it starts it again.
    agent.stop().await.context("the agent has lost a part of itself and ends; what is in force stays")
}

/// Reads the configuration again, for what may change while the agent runs: the mode of services.
async fn reload(file: Option<&Path>, services: Option<&Services>) {
    let Some((file, services)) = file.zip(services) else { return };
    let wanted = load(file).and_then(|file| file.services.mode());
    let done = match wanted {
        Ok(Some(mode)) => services.switch(mode).await.map(drop).map_err(Into::into),
        Ok(None) => Ok(()),
        Err(err) => Err(err),
    };
    if let Err(err) = done {
        tracing::error!(
            error = format!("{err:#}"),
            "the configuration was not taken over; all stays as it was"
        );
    }
}

async fn ask(command: AgentCommand, output: Format, client: &Client) -> anyhow::Result<()> {
    match command {
        AgentCommand::Attach { pod, interface, address, uid } => {
            let attachment = Attachment { interface, addresses: address, uid, container: None };
            let endpoint = client.attach(&pod, &attachment).await?;
            let closed = if endpoint.closed { ", closed until a controller covers it" } else { "" };
            output.done(&format!("Attached {pod}{closed}"), &endpoint)
        }
        AgentCommand::Detach { pod, interface } => {
            let detached = client.detach(&pod, interface.as_deref()).await?;
            let sentence = match detached {
                true => format!("Detached {pod}"),
                false => format!("{pod} was not attached"),
            };
            output.done(&sentence, &serde_json::json!({ "pod": pod.to_string(), "detached": detached }))
        }
        AgentCommand::List => {
            let endpoints = client.endpoints().await?;
            output.list(&endpoints)
        }
        AgentCommand::Status => output.one(&client.status().await?),
        AgentCommand::Services { mode: None } => output.one(&client.services().await?),
        AgentCommand::Services { mode: Some(mode) } => {
            let services = client.switch_services(&mode).await?;
            let leaving = if services.leaving { "; IPVS goes when its connections are over" } else { "" };
            output.done(&format!("Services go through {}{leaving}", services.mode), &services)
        }
        AgentCommand::Objects => {
            let objects = client.objects().await?;
            output.list(&objects)
        }
    }
}

fn load(path: &Path) -> anyhow::Result<File> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    serde_saphyr::from_str(&text)
        .with_context(|| format!("the configuration {} is not valid", path.display()))
}

pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl Rows for Endpoint {
    const HEADER: &'static [&'static str] = &["pod", "interface", "addresses", "closed"];

    fn row(&self) -> Vec<String> {
        let Endpoint { pod, attachment, closed, since, .. } = self;
        let addresses: Vec<_> = attachment.addresses.iter().map(ToString::to_string).collect();
        let since = jiff::Timestamp::from_second(*since).unwrap_or_default();
        let closed = match closed {
            true => format!("yes, pending since {}", since.strftime("%Y-%m-%dT%H:%M:%SZ")),
            false => "no".to_owned(),
        };
        vec![pod.to_string(), attachment.interface.clone(), addresses.join(" "), closed]
    }
}

/// What holds for the node itself.
fn host_word(host: Option<&HostStatus>) -> &'static str {
    let Some(host) = host else { return "-" };
    match (host.restricts_input || host.restricts_output, host.observed.is_some()) {
        (false, _) => "open",
        (true, true) => "observed",
        (true, false) => "guarded",
    }
}

impl Rows for StatusView {
    const HEADER: &'static [&'static str] = &[
        "node",
        "ready",
        "connected",
        "synced",
        "revision",
        "objects",
        "pods",
        "closed",
        "host",
        "problems",
    ];

    fn row(&self) -> Vec<String> {
        let answer = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let errors = self.errors.iter().map(|error| format!("{}: {}", error.name, error.message));
        let waiting = self.waiting.iter().map(|source| format!("the controller waits for {source}"));
        let last = self.disconnected_since.as_ref().map(|since| match self.last_error.as_str() {
            "" => format!("no controller was heard since {since}"),
            error => format!("no controller was heard since {since}: {error}"),
        });
        let problems: Vec<_> =
            self.failures.iter().cloned().chain(last).chain(waiting).chain(errors).collect();
        vec![
            self.node.clone(),
            answer(self.ready),
            answer(self.connected),
            answer(self.synced),
            self.revision.map_or_else(|| "-".to_owned(), |revision| revision.to_string()),
            self.objects.to_string(),
            self.endpoints.to_string(),
            self.closed.to_string(),
            host_word(self.host.as_ref()).to_owned(),
            problems.join("; "),
        ]
    }
}

impl Rows for ServicesView {
    const HEADER: &'static [&'static str] = &["mode", "healthy", "leaving", "health check ports"];

    fn row(&self) -> Vec<String> {
        let answer = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let ports: Vec<_> = self.health_check_ports.iter().map(ToString::to_string).collect();
        vec![self.mode.clone(), answer(self.healthy), answer(self.leaving), ports.join(" ")]
    }
}

impl Rows for HeldObject {
    const HEADER: &'static [&'static str] = &["kind", "name", "members", "hash"];

    fn row(&self) -> Vec<String> {
        let HeldObject { kind, name, hash, members } = self;
        let members = members.map(|members| members.to_string()).unwrap_or_default();
        vec![
            ObjectKind::try_from(*kind).unwrap_or_default().word().to_owned(),
            name.clone(),
            members,
            format!("{hash:016x}"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use testkit_controllers::agents::Falls;

    use super::*;

    #[test]
    fn several_controllers_are_named_on_the_command_line() {
        let line =
            ["trestle", "agent", "--server", "https://one:1", "--node", "n", "--server", "https://two:2"];
        let args = crate::args::Args::parse_from(line);
        assert_eq!(args.connection.server, ["https://one:1", "https://two:2"]);
    }

    #[tokio::test]
    async fn a_command_is_for_one_controller() {
        let server = vec!["http://127.0.0.1:1".to_owned(), "http://127.0.0.1:2".to_owned()];
        let refused = ConnectionArgs { server, ..ConnectionArgs::default() }.connect().await;
        assert!(refused.err().unwrap().to_string().contains("one controller"));
    }

    /// It ends, so that it is started again, and says why as its last word.
    #[tokio::test]
    async fn an_agent_whose_worker_has_fallen_ends_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let registry = r#"[{"pod": "ns/a", "interface": "v1", "closed": true}]"#;
        std::fs::create_dir(dir.path().join("data")).unwrap();
        std::fs::write(dir.path().join("data/endpoints.json"), registry).unwrap();
        let config = Config {
            uplink: Uplink { servers: vec!["http://127.0.0.1:1".into()], ..Uplink::default() },
            data_dir: dir.path().join("data"),
            socket: dir.path().join("socket"),
            health: None,
            services: None,
            services_health: None,
            joined: false,
            patience: Patience::default(),
        };
        let ended = tokio::time::timeout(
            Duration::from_secs(30),
            serve(config, vec![Box::new(Falls::by_itself())], Company::default()),
        );
        let error = ended.await.expect("it ends by itself").unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("what is in force stays: worker panicked: the part has fallen, at "), "{text}");
    }

    #[test]
    fn the_example_file_is_read_and_unknown_keys_are_not() {
        let text = include_str!("../../../../docs/examples/agent.yaml");
        let file: File = serde_saphyr::from_str(text).unwrap();
        assert_eq!(file.node.as_deref(), Some("node-1"));
        assert_eq!(file.servers.len(), 1);
        assert!(serde_saphyr::from_str::<File>("nod: x\n").is_err());
    }
}
