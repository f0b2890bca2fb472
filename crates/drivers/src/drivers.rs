//! All drivers of a controller, wired: who tells whom.

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use ::services::allot::Ranges;
use life::Life;
use orchestrator::{execute::Orchestrator, plan::Pools};
use store::Store;
use tokio::sync::watch;
use tracing::error;

use crate::{
    clusters::Clusters,
    config::{CloudConfig, ClusterConfig, NodesConfig, StoreKind},
    enforcer::{Enforcer, Followed, Rooms},
    flows::{Flows, FlowsConfig},
    hosts::Hosts,
    namespaces::{NamespaceError, Namespaces},
    objects::{Objects, ObjectsError},
    orchestration::{self, CloudsError},
    peers::{self, Peers},
    permissions::{Permissions, Told},
    pki::Pki,
    policy::{Consumer, ObjectFollower, Policy, WatchFeed},
    services::Services,
    storage::{Keeping, Storage, StorageConfig},
    tags::Tags,
    transport::Transport,
    trials::Trials,
};

/// What drivers are told at start.
pub struct Options<'a> {
    pub data_dir: PathBuf,
    pub store: Store,
    pub kind: StoreKind,
    pub pki: Arc<Pki>,
    pub pools: Pools,
    pub ranges: Ranges,
    pub nodes: NodesConfig,
    /// Further sources of objects for nodes, which somebody else drives.
    pub sources: &'a [&'a str],
    /// Kubernetes clusters whose API servers are read.
    pub clusters: &'a [ClusterConfig],
    pub storage: Option<StorageConfig>,
    pub flows: FlowsConfig,
    /// Names and addresses this controller is reached by, for certificates.
    pub names: Vec<String>,
}

/// Why drivers did not start.
#[derive(Debug, thiserror::Error)]
pub enum DriversError {
    #[error("cannot set up the clouds")]
    Clouds(#[from] CloudsError),
    #[error("cannot enter the addresses and node ports that Services have")]
    Allotments(#[source] ObjectsError),
    #[error("cannot make the default namespace")]
    Namespace(#[source] NamespaceError),
}

/// Handles on everything that runs.
pub struct Drivers {
    pub store: Store,
    pub tags: Arc<Tags>,
    pub namespaces: Namespaces,
    pub hosts: Arc<Hosts>,
    pub orchestrator: Arc<Orchestrator>,
    pub objects: Objects,
    pub policy: Arc<Policy>,
    pub clusters: Arc<Clusters>,
    /// How far the policy engine knows the resources, in the orchestrator's count of changes.
    pub enforced: watch::Receiver<u64>,
    /// How far clouds have what the engine says of them.
    pub followed: Followed,
    /// How far permissions are worked out.
    pub permitted: watch::Receiver<Told>,
    pub services: Arc<Services>,
    pub watch: Arc<::watch::Cache>,
    pub transport: Arc<Transport>,
    pub peers: Arc<Peers>,
    /// None: nobody records them.
    pub flows: Option<Arc<Flows>>,
    pub storage: Option<Arc<Storage>>,
    /// Why there is none although it was asked for.
    pub storage_failure: Option<String>,
    enforcer: Enforcer,
    permitting: watch::Sender<Told>,
    trials: Arc<Trials>,
    kind: StoreKind,
    data_dir: PathBuf,
}

impl Drivers {
    /// Starts to follow what is stored. Nothing is made true before [`Self::run`].
    pub async fn start(options: Options<'_>, life: &Life) -> Result<Self, DriversError> {
        let Options {
            data_dir,
            store,
            kind,
            pki,
            pools,
            ranges,
            nodes,
            sources,
            clusters,
            storage,
            flows,
            names,
        } = options;
        let writing = store.clone();
        life.spawn("store", async move { writing.failed().await });
        let tags = Tags::start(store.clone(), life);
        let namespaces = Namespaces::new(store.clone());
        let hosts = Hosts::start(store.clone(), Arc::clone(&tags), life);
        let orchestrator =
            orchestration::load(pools, store.clone(), Arc::clone(&tags), namespaces.clone()).await?;
        let objects = Objects::new(store.clone(), ranges);
        objects.adopt_allotments().await.map_err(DriversError::Allotments)?;
        let storage = match storage {
            Some(config) => {
                let (store, orchestrator) = (store.clone(), Arc::clone(&orchestrator));
                let keeping = Keeping { store, seals: crate::sealing::seals(&kind) };
                let started = Storage::start(&config, &data_dir, names, keeping, pki, orchestrator, life);
                match started.await {
                    Ok(storage) => Some(Ok(Arc::new(storage))),
                    Err(err) => {
                        let why = common::chain(&err);
                        error!(
                            why,
                            "storage cannot be provided until this is mended and the controller restarted"
                        );
                        Some(Err(why))
                    }
                }
            }
            None => None,
        };
        let storage_failure = storage.as_ref().and_then(|started| started.as_ref().err().cloned());
        let storage = storage.and_then(Result::ok);
        let cache = Arc::new(::watch::Cache::new(first_revision()));
        let transport = Transport::start(&nodes, &data_dir, sources, life);
        let (enforcer, permitting) = (Enforcer::default(), watch::Sender::default());
        let consumers: Vec<Box<dyn Consumer>> = vec![
            Box::new(WatchFeed(Arc::clone(&cache))),
            transport.policy_consumer(),
            Box::new(enforcer.feed()),
        ];
        let (services, trials) = (Services::new(), Arc::<Trials>::default());
        let followers: Vec<Box<dyn ObjectFollower>> =
            vec![services.follower(transport.services_source()), trials.follower()];
        let policy = Policy::start(&objects, !clusters.is_empty(), consumers, followers, life);
        let clusters = Clusters::start(clusters, &policy, life);
        let rooms = peers::Rooms {
            policy: Arc::clone(&policy),
            hub: Arc::clone(&transport.hub),
            watch: Arc::clone(&cache),
        };
        Ok(Self {
            flows: Flows::start(&flows, &data_dir, Arc::clone(&policy), Arc::clone(&tags), life),
            peers: Peers::start(&store, &kind, rooms, life),
            policy,
            clusters,
            enforced: enforcer.reached(),
            followed: enforcer.followed(),
            permitted: permitting.subscribe(),
            permitting,
            store,
            tags,
            namespaces,
            hosts,
            orchestrator,
            objects,
            services,
            watch: cache,
            transport,
            storage,
            storage_failure,
            enforcer,
            trials,
            kind,
            data_dir,
        })
    }

    /// Permissions, for callers.
    pub fn permissions(&self) -> Permissions {
        Permissions {
            orchestrator: Arc::clone(&self.orchestrator),
            policy: Arc::clone(&self.policy),
            tags: Arc::clone(&self.tags),
            namespaces: self.namespaces.clone(),
        }
    }

    /// Starts to make things true, once everything is loaded. `name` is what people know this controller by.
    pub async fn run(
        &mut self,
        clouds: &[CloudConfig],
        pki: &Pki,
        name: String,
        life: &Life,
    ) -> Result<(), DriversError> {
        self.namespaces.ensure_default().await.map_err(DriversError::Namespace)?;
        let rooms = Rooms {
            orchestrator: Arc::clone(&self.orchestrator),
            tags: Arc::clone(&self.tags),
            policy: Arc::clone(&self.policy),
            watch: Arc::clone(&self.watch),
        };
        std::mem::take(&mut self.enforcer).start(rooms, life).await;
        self.hosts.start_telling(Arc::clone(&self.policy), life).await;
        self.permissions().start(self.permitting.clone(), life).await;
        orchestration::add_clouds(&self.orchestrator, clouds, &self.data_dir, pki, life).await?;
        self.peers.publish(name.clone(), life);
        let leader = format!("the controller on {name}");
        orchestration::run(Arc::clone(&self.orchestrator), &self.store, &self.kind, leader, life);
        self.trials.run(self.objects.clone(), Arc::clone(&self.orchestrator), life);
        if let Some(storage) = &self.storage {
            storage.run(life);
        }
        Ok(())
    }
}

/// Where revisions of the watch API start: later than any of an earlier process, as long as the clock does not go back.
fn first_revision() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX / 2)
}
