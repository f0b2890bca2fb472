//! A house to test in: a store, tags, namespaces and fake clouds.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use cloud_api::{Cloud, FakeCloud, reaches};
use model::{
    Direction, Leaf, Packet, PermitRule, Ports, Protocol, ResourceName, Segment, Site, Subscriber, TagName,
    Traffic,
};
use parking_lot::Mutex;
use store::{Store, embedded};
use tags::{Graph, Request};
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    execute::{
        Deployments, Job, JobState, Options, Orchestrator, OrchestratorError, Outcome, TagBook, facts,
        state::State,
    },
    kinds::fake,
};

pub const PING: Packet = Packet { protocol: 1, src_port: 0, dst_port: 0 };

/// Tags in memory, kept across restarts of the orchestrator.
pub struct Book {
    graph: Mutex<Graph>,
    revision: watch::Sender<u64>,
    seen: Mutex<u64>,
}

impl Default for Book {
    fn default() -> Self {
        Self { graph: Mutex::default(), revision: watch::Sender::new(0), seen: Mutex::new(0) }
    }
}

impl Book {
    pub fn request(&self, request: &Request) -> Result<(), String> {
        let mut graph = self.graph.lock();
        let plan = graph.plan(request).map_err(|err| err.to_string())?;
        graph.apply(plan.writes);
        drop(graph);
        self.revision.send_modify(|revision| *revision += 1);
        Ok(())
    }

    pub fn group(&self, tag: &str, members: &[&str]) {
        let members = members.iter().map(|member| member.parse().unwrap()).collect();
        self.request(&Request::SetGroup { tag: tag.parse().unwrap(), members }).unwrap();
    }

    pub fn remove(&self, tag: &str, member: &str) {
        let members = [member.parse().unwrap()].into();
        self.request(&Request::DeleteMembers { tag: tag.parse().unwrap(), members }).unwrap();
    }

    pub fn subscribers(&self, tag: &str) -> usize {
        self.graph.lock().subscribers(&tag.parse().unwrap()).map_or(0, Iterator::count)
    }
}

#[async_trait]
impl TagBook for Book {
    fn graph(&self) -> Option<Graph> {
        Some(self.graph.lock().clone())
    }

    async fn changed(&self) {
        let mut revision = self.revision.subscribe();
        let seen = *self.seen.lock();
        let now = *revision.wait_for(|now| *now > seen).await.unwrap();
        *self.seen.lock() = now;
    }

    async fn set_leaf(&self, tag: &TagName, leaf: Leaf) -> Result<(), String> {
        self.request(&Request::SetLeaf { tag: tag.clone(), leaf })
    }

    async fn delete(&self, tag: &TagName) -> Result<(), String> {
        match self.request(&Request::DeleteTag { tag: tag.clone() }) {
            Err(message) if !message.contains("there is no tag") => Err(message),
            _ => Ok(()),
        }
    }

    async fn subscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<(), String> {
        self.request(&Request::Subscribe { tag: tag.clone(), subscriber: subscriber.clone() })
    }

    async fn unsubscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<(), String> {
        self.request(&Request::Unsubscribe { tag: tag.clone(), subscriber: subscriber.clone() })
    }
}

pub struct Namespaces;

#[async_trait]
impl Deployments for Namespaces {
    async fn deployment(&self, site: &Site) -> Result<Option<String>, String> {
        Ok(Some(format!("projects/{site}")))
    }

    async fn has_namespace(&self, namespace: &Segment) -> Result<bool, String> {
        Ok(namespace.as_str() != "nowhere")
    }
}

pub struct House {
    pub store: Store,
    pub book: Arc<Book>,
    pub clouds: Vec<Arc<FakeCloud>>,
    pub orchestrator: Arc<Orchestrator>,
    options: Options,
    running: JoinHandle<()>,
    /// Where the store is; none if it is in memory.
    _dir: Option<Arc<TempDir>>,
}

pub fn options() -> Options {
    Options {
        call_timeout: Duration::from_secs(5),
        retry_first: Duration::from_millis(2),
        retry_longest: Duration::from_millis(20),
        ..Options::default()
    }
}

impl House {
    pub async fn new(clouds: &[&str]) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let store = embedded::open(dir.path()).unwrap();
        let clouds = clouds.iter().map(|name| Arc::new(fake(name))).collect();
        Self::with(store, Arc::default(), clouds, Some(dir), options(), |cloud| cloud).await
    }

    pub async fn with_options(clouds: &[&str], options: Options) -> Self {
        let mut house = Self::new(clouds).await;
        house.options = options;
        house.restart(house.store.clone(), |cloud| cloud).await;
        house
    }

    pub async fn in_store(store: Store, clouds: &[&str]) -> Self {
        let clouds = clouds.iter().map(|name| Arc::new(fake(name))).collect();
        Self::with(store, Arc::default(), clouds, None, options(), |cloud| cloud).await
    }

    async fn with(
        store: Store,
        book: Arc<Book>,
        clouds: Vec<Arc<FakeCloud>>,
        dir: Option<Arc<TempDir>>,
        options: Options,
        wrap: impl Fn(Arc<dyn Cloud>) -> Arc<dyn Cloud>,
    ) -> Self {
        let tags: Arc<dyn TagBook> = Arc::clone(&book) as _;
        let orchestrator =
            Orchestrator::load(store.clone(), tags, Arc::new(Namespaces), options.clone()).await.unwrap();
        // As in a real start, plugins answer while the work has begun.
        let running = tokio::spawn(Arc::clone(&orchestrator).run(CancellationToken::new()));
        for cloud in &clouds {
            tokio::task::yield_now().await;
            let name = cloud.name().clone();
            orchestrator.add_cloud(name, wrap(Arc::clone(cloud) as _)).await.unwrap();
        }
        Self { store, book, clouds, orchestrator, options, running, _dir: dir }
    }

    /// Kills the orchestrator and starts another on what it left. Store and clouds may be wrapped.
    pub async fn restart(&mut self, store: Store, wrap: impl Fn(Arc<dyn Cloud>) -> Arc<dyn Cloud>) {
        self.running.abort();
        // The task is gone when it says so; what it was doing is dropped with it.
        let _ = (&mut self.running).await;
        let (book, clouds) = (Arc::clone(&self.book), self.clouds.clone());
        let next = Self::with(store, book, clouds, self._dir.clone(), self.options.clone(), wrap).await;
        let plain = self.store.clone();
        *self = next;
        self.store = plain;
    }

    pub async fn create(&self, name: &str, region: &str) -> Result<Job, OrchestratorError> {
        let ask = || self.orchestrator.create_resource(resource(name), region.to_owned(), false, false);
        let outcome = match ask().await {
            // A write of an orchestrator that was killed may land after its successor has read the store.
            Err(OrchestratorError::Superseded) => ask().await?,
            asked => asked?,
        };
        self.finish(outcome).await
    }

    pub async fn delete(&self, name: &str) -> Job {
        let outcome = self.orchestrator.delete_resource(resource(name), false).await.unwrap();
        self.finish(outcome).await.unwrap()
    }

    pub async fn put(&self, name: &str, rules: Vec<PermitRule>) -> Result<Job, OrchestratorError> {
        let ask = || self.orchestrator.put_rules(resource(name), rules.clone(), false);
        let outcome = match ask().await {
            Err(OrchestratorError::Superseded) => ask().await?,
            asked => asked?,
        };
        self.finish(outcome).await
    }

    pub async fn join(&self, a: &str, b: &str) {
        for (one, other) in [(a, b), (b, a)] {
            assert_eq!(self.put(one, both(other)).await.unwrap().state, JobState::Done);
        }
    }

    pub async fn finish(&self, outcome: Outcome) -> Result<Job, OrchestratorError> {
        let id = outcome.job().unwrap().id;
        tokio::time::timeout(Duration::from_secs(30), self.orchestrator.wait(&id))
            .await
            .expect("the job ends")
    }

    /// Waits until there is nothing left to do.
    pub async fn settle(&self) {
        for _ in 0..3000 {
            if self.orchestrator.plan().unwrap().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("still not done: {}", self.orchestrator.plan().unwrap());
    }

    pub fn reaches(&self, from: &str, to: &str) -> bool {
        self.passes(&resource(from), &resource(to))
    }

    pub fn passes(&self, from: &ResourceName, to: &ResourceName) -> bool {
        let clouds: Vec<&FakeCloud> = self.clouds.iter().map(|cloud| &**cloud).collect();
        reaches(&clouds, from, to, &PING)
    }

    /// Nothing left to do, and nobody waits.
    pub fn is_at_rest(&self) -> bool {
        let jobs = self.orchestrator.jobs();
        !*self.orchestrator.shared.in_doubt.borrow()
            && jobs.iter().all(|job| job.state != JobState::Running)
            && self.orchestrator.plan().unwrap().is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.clouds.iter().all(|cloud| cloud.is_empty())
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// What is stored, read afresh.
pub async fn read(store: &Store) -> State {
    let mut state = State::default();
    for entry in store.list(&facts::prefix()).await.unwrap().entries {
        if entry.key != facts::mark() {
            state.take_in(&entry.key, Some(&entry.value), entry.modified);
        }
    }
    state
}

pub fn resource(text: &str) -> ResourceName {
    text.parse().unwrap()
}

pub fn rule(name: &str, direction: Direction, peer: &str) -> PermitRule {
    let traffic = Traffic::new(direction, Protocol::Any, Ports::Any, Ports::Any).unwrap();
    PermitRule::new(Some(name.parse().unwrap()), traffic, [peer.parse().unwrap()].into()).unwrap()
}

/// Rules that permit a peer both ways.
pub fn both(peer: &str) -> Vec<PermitRule> {
    let suffix = peer.replace('.', "-");
    vec![
        rule(&format!("in-{suffix}"), Direction::Inbound, peer),
        rule(&format!("out-{suffix}"), Direction::Outbound, peer),
    ]
}
