//! A controller, certificates for nodes, and agents whose part writes down what it is told.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use agent::{
    Agent, Config, Uplink,
    held::{Content, Key},
    part::{Changed, Outcome, Part, View},
};
use model::Secret;
use server::{Controller, transport::objects};
use tempfile::TempDir;
use tonic::{
    Request,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use transport::{Change, Source, SpanChange};
use wire::trestle::v1::{
    IssueCertificateRequest, NodePolicy, ObjectKind, RevokeCertificateRequest, Role, SetMember,
    access_client::AccessClient, node_apply::Body,
};

/// The source the tests are.
const SOURCE: &str = "test";

pub struct Harness {
    pub controller: Controller,
    pub source: Source,
    pub dir: Arc<TempDir>,
    token: Secret,
    ca: String,
}

impl Harness {
    pub async fn unsynced() -> Self {
        Self::start(Arc::new(tempfile::tempdir().unwrap()), 0).await
    }

    pub async fn synced() -> Self {
        let harness = Self::unsynced().await;
        harness.source.synced();
        harness
    }

    async fn start(dir: Arc<TempDir>, port: u16) -> Self {
        let mut config = server::Config::in_dir(dir.path().join("controller"));
        config.listen.http = "127.0.0.1:0".parse().unwrap();
        config.listen.grpc = ([127, 0, 0, 1], port).into();
        config.listen.watch = "127.0.0.1:0".parse().unwrap();
        let controller = Controller::start_with(config, &[SOURCE]).await.unwrap();
        let source = controller.transport().source(SOURCE).unwrap();
        let token = Secret::new(std::fs::read_to_string(controller.token_path()).unwrap());
        let ca = std::fs::read_to_string(controller.ca_path()).unwrap();
        Self { controller, source, dir, token, ca }
    }

    /// Another controller on the same data and the same port; not in sync.
    pub async fn restart(self) -> Self {
        let (dir, port) = (Arc::clone(&self.dir), self.controller.grpc_addr().port());
        self.controller.stop().await.expect("no task is missing");
        Self::start(dir, port).await
    }

    pub fn publish(&self, changes: impl IntoIterator<Item = Change>) {
        self.source.publish(changes);
    }

    /// A node with a certificate, and nothing on its disk.
    pub async fn node(&self, name: &str) -> Node {
        let request =
            IssueCertificateRequest { name: name.into(), role: Role::Node.into(), ..Default::default() };
        let reply = self.access().await.issue_certificate(self.as_admin(request)).await.unwrap().into_inner();
        let dir = self.dir.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("cert"), &reply.certificate_pem).unwrap();
        std::fs::write(dir.join("key"), &reply.key_pem).unwrap();
        std::fs::write(dir.join("ca"), &self.ca).unwrap();
        let server = format!("https://localhost:{}", self.controller.grpc_addr().port());
        Node {
            name: name.to_owned(),
            dir,
            server,
            serial: reply.info.unwrap().serial,
            part: Recorder::default(),
        }
    }

    pub async fn revoke(&self, serial: &str) {
        let request = RevokeCertificateRequest { serial: serial.into() };
        self.access().await.revoke_certificate(self.as_admin(request)).await.unwrap();
    }

    async fn access(&self) -> AccessClient<Channel> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca));
        let url = format!("https://localhost:{}", self.controller.grpc_addr().port());
        let endpoint = Endpoint::from_shared(url).unwrap().tls_config(tls).unwrap();
        AccessClient::new(endpoint.connect().await.unwrap())
    }

    fn as_admin<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let bearer = format!("Bearer {}", self.token.expose());
        request.metadata_mut().insert("authorization", bearer.parse().unwrap());
        request
    }

    /// What the controller knows of a node's stream.
    pub fn session(&self, name: &str) -> Option<transport::SessionView> {
        self.controller.transport().hub.session(name)
    }
}

/// A node's disk and identity, which outlive its agents.
#[derive(Clone)]
pub struct Node {
    pub name: String,
    pub dir: PathBuf,
    pub server: String,
    pub serial: String,
    pub part: Recorder,
}

impl Node {
    pub fn config(&self) -> Config {
        let uplink = Uplink {
            node: self.name.clone(),
            servers: vec![self.server.clone()],
            ca: Some(self.dir.join("ca")),
            identity: Some((self.dir.join("cert"), self.dir.join("key"))),
        };
        let health = Some("127.0.0.1:0".parse().unwrap());
        Config {
            uplink,
            data_dir: self.dir.join("data"),
            socket: self.dir.join("socket"),
            health,
            services: None,
            services_health: None,
            patience: agent::Patience::default(),
        }
    }

    pub async fn start(&self) -> Agent {
        self.start_with(self.config()).await
    }

    /// An agent that went without a word may take a moment to let go of its directory.
    pub async fn start_with(&self, config: Config) -> Agent {
        for _ in 0..500 {
            let parts: Vec<Box<dyn Part>> = vec![Box::new(self.part.clone())];
            match Agent::start(config.clone(), parts).await {
                Err(agent::AgentError::Load(agent::worker::LoadError::Taken { .. })) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                started => return started.unwrap(),
            }
        }
        panic!("the directory of {} is never free", self.name)
    }
}

/// Objects in words: a set by its members, a policy by its generation.
pub type Objects = BTreeMap<String, BTreeSet<String>>;

/// A part that has the objects in its memory instead of the kernel.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<Objects>>);

impl Recorder {
    pub fn objects(&self) -> Objects {
        self.0.lock().unwrap().clone()
    }

    pub fn members(&self, name: &str) -> Option<Vec<String>> {
        self.objects().get(name).map(|members| members.iter().cloned().collect())
    }
}

impl Part for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn kinds(&self) -> &'static [ObjectKind] {
        &[ObjectKind::AddressSet, ObjectKind::Policy]
    }

    /// Follows differences alone, as a real part does, so that a wrong one shows.
    fn apply(&mut self, view: &View<'_>, changed: Changed<'_>) -> Outcome {
        use agent::held::Difference;
        let mut objects = self.0.lock().unwrap();
        let whole = |key: &Key| match &view.held.get(key).unwrap().content {
            Content::Set(members) => members.values().map(|member| member.name.clone()).collect(),
            Content::Whole(encoded) => match encoded.body() {
                Body::Policy(policy) => BTreeSet::from([policy.generation.to_string()]),
                other => BTreeSet::from([format!("{other:?}")]),
            },
            other => BTreeSet::from([format!("{other:?}")]),
        };
        match changed {
            Changed::All => {
                *objects = view.held.objects().map(|(key, _)| (key.name.clone(), whole(key))).collect();
            }
            Changed::Some { objects: differences, .. } => {
                for (key, difference) in differences {
                    match difference {
                        Difference::Gone => drop(objects.remove(&key.name)),
                        Difference::Whole => drop(objects.insert(key.name.clone(), whole(key))),
                        Difference::Members { put, removed } => {
                            let now = whole(key);
                            let Content::Set(members) = &view.held.get(key).unwrap().content else {
                                panic!()
                            };
                            let had = objects.get_mut(&key.name).expect("a difference has a base");
                            had.retain(|name| !removed.values().any(|member| member.name == *name));
                            had.extend(put.iter().map(|id| members[id].name.clone()));
                            assert_eq!(*had, now);
                        }
                    }
                }
            }
        }
        Outcome { transactions: 1, ..Outcome::default() }
    }

    fn mend(&mut self, _: &View<'_>) -> Option<Outcome> {
        None
    }
}

pub fn nodes(names: &[&str]) -> SpanChange {
    SpanChange::Nodes(names.iter().map(|name| Arc::from(*name)).collect())
}

pub fn member(name: &str) -> SetMember {
    SetMember { name: name.into(), addresses: vec![vec![10, 0, 0, 1]], ..SetMember::default() }
}

pub fn set(name: &str, members: &[&str], span: SpanChange) -> Change {
    objects::put_set(ObjectKind::AddressSet, name, members.iter().map(|name| member(name)).collect(), span)
}

pub fn change(name: &str, put: &[&str], removed: &[&str]) -> Change {
    let members = |names: &[&str]| names.iter().map(|name| member(name)).collect();
    objects::change_set(ObjectKind::AddressSet, name, members(put), members(removed), SpanChange::Keep)
}

pub fn policy(name: &str, generation: i64, span: SpanChange) -> Change {
    objects::put_policy(name, &NodePolicy { generation, ..NodePolicy::default() }, span)
}

/// Waits for a condition, with a bound.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not come true in a minute");
}
