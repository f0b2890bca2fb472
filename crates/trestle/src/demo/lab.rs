//! Two nodes with their Pods, as network namespaces of this machine, and the agents on them.
//!
//! ```text
//!   node-1  up0 192.168.50.1 ──────────── up0 192.168.50.2  node-2
//!     pod1 ── eth0 10.244.1.10  web-1       pod1 ── eth0 10.244.2.10  web-2
//!     pod2 ── eth0 10.244.1.20  client      pod2 ── eth0 10.244.2.20  db
//! ```
//!
//! None of it touches the machine's own network: the agents' way to the controller is a listener inside their namespace.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use cloud_linux::{
    namespace,
    shell::{ip_in, veth},
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    task::JoinHandle,
    time::timeout,
};

use super::{
    home::Home,
    net,
    story::{NODES, PODS, Pod},
};

/// How long an agent may take to start, and to stop.
const PATIENCE: Duration = Duration::from_secs(15);
/// The nodes' end of every Pod's link.
const ROUTER: &str = "169.254.1.1";

#[derive(Default)]
pub struct Lab {
    servers: Vec<JoinHandle<()>>,
    agents: Vec<Child>,
}

impl Lab {
    /// Makes nodes, Pods and their servers.
    pub async fn build(&mut self, home: &Home, controller: SocketAddr) -> anyhow::Result<()> {
        for (node, ..) in NODES {
            let name = home.namespace(node);
            namespace::ensure(&name).await?;
            namespace::forward(&name).await?;
            self.servers.push(net::lead_out(&name, controller).await?);
        }
        let names = NODES.map(|(node, ..)| home.namespace(node));
        veth((&names[0], "up0"), (&names[1], "up0")).await?;
        for (index, (_, address, _)) in NODES.into_iter().enumerate() {
            let (_, other, pods) = NODES[1 - index];
            let lines = [
                format!("address replace {address}/24 dev up0"),
                "link set up0 up".to_owned(),
                format!("route replace {pods} via {other} dev up0 onlink"),
            ];
            ip_in(&names[index], &lines).await?;
        }
        for pod in PODS {
            self.add(home, pod).await?;
        }
        Ok(())
    }

    async fn add(&mut self, home: &Home, pod: Pod) -> anyhow::Result<()> {
        let (node, name) = (home.namespace(pod.node), home.namespace(pod.name));
        let (interface, address) = (pod.interface, Ipv4Addr::from(pod.address));
        namespace::ensure(&name).await?;
        veth((&node, interface), (&name, "eth0")).await?;
        let lines = [
            format!("address replace {ROUTER}/32 dev {interface}"),
            format!("link set {interface} up"),
            format!("route replace {address}/32 dev {interface}"),
        ];
        ip_in(&node, &lines).await?;
        let lines = [
            "link set eth0 up".to_owned(),
            format!("address replace {address}/32 dev eth0"),
            format!("route replace {ROUTER}/32 dev eth0"),
            format!("route replace default via {ROUTER} dev eth0 onlink src {address}"),
        ];
        ip_in(&name, &lines).await?;
        if let Some(port) = pod.port {
            self.servers.push(net::answer(&name, port, pod.name).await?);
        }
        Ok(())
    }

    /// Starts an agent inside a node; returns when it runs.
    pub async fn start_agent(
        &mut self,
        namespace: &str,
        program: &Path,
        words: &[String],
        log: &Path,
    ) -> anyhow::Result<()> {
        let failed = || format!("cannot start the agent; see {}", log.display());
        let errors = std::fs::File::create(log).with_context(failed)?;
        let mut child = Command::new("ip")
            .args(["netns", "exec", namespace])
            .arg(program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            // Ctrl-C is for the demonstration, which stops the agents in its turn.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(failed)?;
        let stdout = child.stdout.take().with_context(failed)?;
        self.agents.push(child);
        let mut lines = BufReader::new(stdout).lines();
        match timeout(PATIENCE, lines.next_line()).await {
            Ok(Ok(Some(_))) => Ok(()),
            _ => bail!("the agent did not start; see {}", log.display()),
        }
    }

    /// Stops agents and servers. The namespaces go with the demonstration's directory.
    pub async fn stop(&mut self) {
        for agent in &self.agents {
            let pid = agent.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
            if let Some(pid) = pid {
                // One that has just ended is fine.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        for agent in &mut self.agents {
            if timeout(PATIENCE, agent.wait()).await.is_err() {
                let _ = agent.kill().await;
            }
        }
        self.agents.clear();
        self.servers.drain(..).for_each(|server| server.abort());
    }
}
