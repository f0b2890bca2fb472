//! Agents against a controller, without a kernel: their part writes down what it is told, or falls.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use agent::{
    Agent, Config, Uplink,
    held::{Content, Key},
    part::{Changed, Holding, Outcome, Part, View},
};
use wire::trestle::v1::{ObjectKind, node_apply::Body};

use super::nodes::Harness;

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
    /// A node with a certificate, and nothing on its disk.
    pub async fn new(harness: &Harness, name: &str) -> Self {
        let credential = harness.node(name).await;
        let dir = harness.dir.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("cert"), &credential.certificate).unwrap();
        std::fs::write(dir.join("key"), &credential.key).unwrap();
        std::fs::write(dir.join("ca"), &harness.ca).unwrap();
        let server = format!("https://localhost:{}", harness.controller.grpc_addr().port());
        let (name, serial) = (name.to_owned(), credential.serial);
        Self { name, dir, server, serial, part: Recorder::default() }
    }

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
            joined: false,
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

/// A part that falls: when it is told to, or when it is looked after for the second time.
#[derive(Clone, Default)]
pub struct Falls {
    falls: Arc<AtomicBool>,
    by_itself: bool,
}

impl Falls {
    /// It holds once, when it begins, and not again.
    pub fn by_itself() -> Self {
        Self { by_itself: true, ..Self::default() }
    }

    /// From now on.
    pub fn fall(&self) {
        self.falls.store(true, Relaxed);
    }
}

impl Part for Falls {
    fn name(&self) -> &'static str {
        "falls"
    }

    fn kinds(&self) -> &'static [ObjectKind] {
        &[]
    }

    fn apply(&mut self, _: &View<'_>, _: Changed<'_>) -> Outcome {
        Outcome::default()
    }

    fn hold(&mut self, _: &View<'_>) -> Holding {
        let falls = self.falls.swap(self.by_itself, Relaxed);
        assert!(!falls, "the part has fallen");
        Holding::default()
    }

    fn mend(&mut self, _: &View<'_>) -> Option<Outcome> {
        None
    }
}
