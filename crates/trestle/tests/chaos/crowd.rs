//! Agents without a kernel, in this process: their streams, their state on disk, and nothing behind it.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use agent::{
    Agent, AgentError, Config, Uplink,
    part::{Changed, Outcome, Part, View},
    worker::{HeldObject, LoadError},
};
use wire::trestle::v1::{IssueCertificateRequest, ObjectKind, Role};

use super::client::Clients;

/// A node's disk and identity, which outlive its agents.
#[derive(Clone)]
pub struct Node {
    pub name: String,
    dir: PathBuf,
    servers: Vec<String>,
}

impl Node {
    /// With a certificate, and nothing on its disk.
    pub async fn new(name: String, dir: &Path, servers: &[String], clients: &Clients) -> Self {
        let dir = dir.join(&name);
        std::fs::create_dir_all(&dir).unwrap();
        let request =
            IssueCertificateRequest { name: name.clone(), role: Role::Node.into(), ..Default::default() };
        let issued = clients.access(0).issue_certificate(request).await.unwrap().into_inner();
        std::fs::write(dir.join("cert"), &issued.certificate_pem).unwrap();
        std::fs::write(dir.join("key"), &issued.key_pem).unwrap();
        std::fs::write(dir.join("ca"), &issued.ca_pem).unwrap();
        Self { name, dir, servers: servers.to_vec() }
    }

    /// The same node that knows nothing, and one controller only.
    pub fn afresh(&self, server: &str) -> (Self, PathBuf) {
        (Self { servers: vec![server.to_owned()], ..self.clone() }, self.dir.join("fresh"))
    }

    pub async fn start(&self) -> Agent {
        self.start_in(self.dir.join("data")).await
    }

    /// An agent that went without a word may take a moment to let go of its directory.
    pub async fn start_in(&self, data_dir: PathBuf) -> Agent {
        let file = |name: &str| self.dir.join(name);
        let config = Config {
            uplink: Uplink {
                node: self.name.clone(),
                servers: self.servers.clone(),
                ca: Some(file("ca")),
                identity: Some((file("cert"), file("key"))),
            },
            data_dir,
            socket: file("socket"),
            health: None,
            services: None,
            services_health: None,
            joined: false,
            patience: agent::Patience::default(),
        };
        for _ in 0..3000 {
            match Agent::start(config.clone(), vec![Box::new(Nothing)]).await {
                Err(AgentError::Load(LoadError::Taken { .. })) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                started => return started.unwrap(),
            }
        }
        panic!("the directory of {} is never free", self.name)
    }

    /// Starts and ends agents of the node at random, and leaves the last one running.
    pub async fn live(self, until: Instant, seed: u64) -> Agent {
        let mut random = fastrand::Rng::with_seed(seed);
        loop {
            let agent = self.start().await;
            let pause = Duration::from_millis(random.u64(500..40_000));
            if Instant::now() + pause >= until {
                tokio::time::sleep_until(until.into()).await;
                return agent;
            }
            tokio::time::sleep(pause).await;
            // Half of them go properly, half just go.
            if random.bool() { agent.stop().await.unwrap() } else { drop(agent) }
        }
    }
}

/// What an agent holds, sorted.
pub async fn held(agent: &Agent) -> Vec<HeldObject> {
    let mut objects = agent.local().worker.objects().await.unwrap();
    objects.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    objects
}

/// A part for which everything is in force at once.
struct Nothing;

impl Part for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn kinds(&self) -> &'static [ObjectKind] {
        use ObjectKind::{AddressSet, AppliedToSet, EndpointSlice, NodeFacts, Policy, Service};
        &[AppliedToSet, AddressSet, Policy, NodeFacts, EndpointSlice, Service]
    }

    fn apply(&mut self, _: &View<'_>, _: Changed<'_>) -> Outcome {
        Outcome { transactions: 1, ..Outcome::default() }
    }

    fn mend(&mut self, _: &View<'_>) -> Option<Outcome> {
        None
    }
}
