//! A house to test an orchestrator in: a store, tags in memory, and clouds of the test's own. With the feature `testing`, and in the
//! unit tests of this room, which look into its memory: from another crate they would get a second copy of its types.
//!
//! In: clouds, under their names. Out: the orchestrator over them, killed and started again at will.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use cloud_api::Cloud;
use model::{
    Direction, Leaf, Packet, PermitRule, Ports, Protocol, ResourceName, Segment, Subscriber, TagName, Traffic,
};
use parking_lot::Mutex;
use store::Store;
use tags::{Graph, Request, RequestError};
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::execute::{
    Deployments, Job, JobOrPlan, Options, Orchestrator, OrchestratorError, TagBook, TagBookError,
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
    pub fn request(&self, request: &Request) -> Result<(), TagBookError> {
        let mut graph = self.graph.lock();
        let plan = graph.plan(request)?;
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

    async fn set_leaf(&self, tag: &TagName, leaf: Leaf) -> Result<(), TagBookError> {
        self.request(&Request::SetLeaf { tag: tag.clone(), leaf })
    }

    async fn delete(&self, tag: &TagName) -> Result<(), TagBookError> {
        match self.request(&Request::DeleteTag { tag: tag.clone() }) {
            Ok(()) | Err(TagBookError::Refused(RequestError::NotFound(_))) => Ok(()),
            failed => failed,
        }
    }

    async fn subscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<(), TagBookError> {
        self.request(&Request::Subscribe { tag: tag.clone(), subscriber: subscriber.clone() })
    }

    async fn unsubscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<(), TagBookError> {
        self.request(&Request::Unsubscribe { tag: tag.clone(), subscriber: subscriber.clone() })
    }
}

/// Clouds under their names.
pub type Clouds = Vec<(Segment, Arc<dyn Cloud>)>;

pub struct House {
    pub store: Store,
    pub book: Arc<Book>,
    pub orchestrator: Arc<Orchestrator>,
    pub options: Options,
    deployments: Arc<dyn Deployments>,
    running: JoinHandle<()>,
    /// Where the store is; none if it is in memory.
    _dir: Option<TempDir>,
}

/// Nobody waits long for what failed.
pub fn options() -> Options {
    Options {
        call_timeout: Duration::from_secs(5),
        retry_first: Duration::from_millis(2),
        retry_longest: Duration::from_millis(20),
        ..Options::default()
    }
}

impl House {
    /// With a store of its own, on disk.
    pub async fn new(deployments: Arc<dyn Deployments>, options: Options, clouds: Clouds) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = store::embedded::open(dir.path()).unwrap();
        let mut house = Self::in_store(store, deployments, options, clouds).await;
        house._dir = Some(dir);
        house
    }

    pub async fn in_store(
        store: Store,
        deployments: Arc<dyn Deployments>,
        options: Options,
        clouds: Clouds,
    ) -> Self {
        let book = Arc::default();
        let (orchestrator, running) = start(store.clone(), &book, &deployments, &options, clouds).await;
        Self { store, book, orchestrator, options, deployments, running, _dir: None }
    }

    /// Kills the orchestrator where it stands.
    pub async fn kill(&mut self) {
        self.running.abort();
        // The task is gone when it says so; what it was doing is dropped with it. One that has said so is not asked again.
        while !self.running.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    /// Kills the orchestrator and starts another on what it left. Its store and clouds may be wrapped.
    pub async fn restart(&mut self, store: Store, clouds: Clouds) {
        self.kill().await;
        (self.orchestrator, self.running) =
            start(store, &self.book, &self.deployments, &self.options, clouds).await;
    }

    pub async fn finish(&self, outcome: JobOrPlan) -> Result<Job, OrchestratorError> {
        let id = outcome.job().unwrap().id;
        let ended = tokio::time::timeout(Duration::from_secs(120), self.orchestrator.wait(&id)).await;
        ended.expect("the job ends")
    }

    /// Waits until there is nothing left to do.
    pub async fn settle(&self) {
        for _ in 0..4000 {
            if self.orchestrator.plan().unwrap().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let troubles = self.orchestrator.troubles();
        panic!("still not done: {}\n{troubles:?}", self.orchestrator.plan().unwrap());
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn start(
    store: Store,
    book: &Arc<Book>,
    deployments: &Arc<dyn Deployments>,
    options: &Options,
    clouds: Clouds,
) -> (Arc<Orchestrator>, JoinHandle<()>) {
    let tags = Arc::clone(book) as _;
    let loaded = Orchestrator::load(store, tags, Arc::clone(deployments), options.clone()).await;
    let orchestrator = loaded.unwrap();
    // As in a real start, plugins answer while the work has begun.
    let running = tokio::spawn(Arc::clone(&orchestrator).run(CancellationToken::new()));
    for (name, cloud) in clouds {
        tokio::task::yield_now().await;
        orchestrator.add_cloud(name, cloud).await.unwrap();
    }
    (orchestrator, running)
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
