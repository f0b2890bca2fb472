//! The orchestrator itself: its parts, its start, and its writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cloud_api::{At, Cloud, CloudError};
use model::{CloudTraits, ResourceName, Segment, Site, Subscriber, TagName};
use parking_lot::Mutex;
use store::{Expected, Key, Store, Transaction};
use tokio::sync::{Notify, watch};
use tracing::warn;

use super::{
    Deployments, OrchestratorError, Standing, TagBook,
    driver::Failure,
    facts::{self, Fact},
    state::State,
};
use crate::plan::{Intent, Plan, Pools, Verdicts, plan};

#[derive(Clone, Debug)]
pub struct Options {
    pub pools: Pools,
    /// How long a cloud may take to answer one call.
    pub call_timeout: Duration,
    /// How long the tunnels of a new link may take to come up before the step is begun anew.
    pub link_patience: Duration,
    /// Pauses after a failed step: the first, and the longest.
    pub retry_first: Duration,
    pub retry_longest: Duration,
    /// Steps under way at once.
    pub parallel: usize,
    /// How often the clouds are compared with the records; none: only when asked.
    pub check_every: Option<Duration>,
    /// Nothing is planned before somebody has told what network policies say.
    pub awaits_policies: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pools: Pools::default(),
            // The slowest thing a public cloud does in one call is a gateway, up to 45 minutes.
            call_timeout: Duration::from_secs(3600),
            link_patience: Duration::from_secs(120),
            retry_first: Duration::from_millis(200),
            retry_longest: Duration::from_secs(60),
            parallel: 64,
            check_every: None,
            awaits_policies: false,
        }
    }
}

/// What network policies say, by resource.
type Told = Arc<BTreeMap<ResourceName, Verdicts>>;
/// A cloud and the bounds it keeps.
type Known = (Arc<dyn Cloud>, CloudTraits);

pub struct Orchestrator {
    pub(super) options: Options,
    pub(super) store: Store,
    pub(super) tags: Arc<dyn TagBook>,
    pub(super) deployments: Arc<dyn Deployments>,
    pub(super) clouds: Mutex<BTreeMap<Segment, Known>>,
    pub(super) state: Mutex<State>,
    /// By object: what went wrong last, and when it is tried again.
    pub(super) failures: Mutex<BTreeMap<String, Failure>>,
    /// Subscriptions that were made for rules.
    pub(super) subscribed: Mutex<BTreeSet<(TagName, Subscriber)>>,
    /// What network policies say; none before it is known.
    pub(super) verdicts: Mutex<Option<Told>>,
    /// Where the last plan found things.
    pub(super) standing: watch::Sender<Arc<Standing>>,
    /// Something changed: plan again.
    pub(super) wake: Notify,
    /// Counts changes of jobs, for those who wait.
    pub(super) changes: watch::Sender<u64>,
    /// Requests that choose spaces take turns: two must not choose the same.
    pub(super) choosing: tokio::sync::Mutex<()>,
    /// Commits share it; whoever reads everything anew has it alone.
    committing: tokio::sync::RwLock<()>,
}

async fn read(store: &Store) -> Result<State, OrchestratorError> {
    let listing = store.list(&facts::prefix()).await.map_err(OrchestratorError::Read)?;
    let mut state = State::default();
    for entry in listing.entries {
        match Fact::read(&entry.key, &entry.value) {
            Some(fact) => state.apply(fact, entry.modified),
            None => warn!(key = entry.key.as_str(), "a stored object cannot be read and is left out"),
        }
    }
    Ok(state)
}

impl Orchestrator {
    /// Reads what is stored. [`Orchestrator::run`] then makes it true.
    pub async fn load(
        store: Store,
        tags: Arc<dyn TagBook>,
        deployments: Arc<dyn Deployments>,
        options: Options,
    ) -> Result<Arc<Self>, OrchestratorError> {
        let state = read(&store).await?;
        let verdicts = (!options.awaits_policies).then(Told::default);
        Ok(Arc::new(Self {
            options,
            verdicts: Mutex::new(verdicts),
            standing: watch::Sender::default(),
            store,
            tags,
            deployments,
            clouds: Mutex::default(),
            state: Mutex::new(state),
            failures: Mutex::default(),
            subscribed: Mutex::default(),
            wake: Notify::new(),
            changes: watch::Sender::new(0),
            choosing: tokio::sync::Mutex::default(),
            committing: tokio::sync::RwLock::default(),
        }))
    }

    /// Makes a cloud known. Until then, what is in it is left as it is.
    pub async fn add_cloud(&self, name: Segment, cloud: Arc<dyn Cloud>) -> Result<(), CloudError> {
        let traits = cloud.describe().await?;
        self.clouds.lock().insert(name, (cloud, traits));
        self.wake.notify_one();
        Ok(())
    }

    pub fn cloud_names(&self) -> Vec<Segment> {
        self.clouds.lock().keys().cloned().collect()
    }

    pub(super) fn cloud(&self, name: &Segment) -> Result<Arc<dyn Cloud>, OrchestratorError> {
        let found = self.clouds.lock().get(name).map(|(cloud, _)| Arc::clone(cloud));
        found.ok_or_else(|| OrchestratorError::UnknownCloud { cloud: name.clone() })
    }

    /// Whether a site's cloud learns routes.
    pub(super) fn has_bgp(&self, site: &Site) -> bool {
        self.clouds.lock().get(&site.cloud).is_some_and(|(_, traits)| traits.bgp)
    }

    pub(super) async fn at(&self, site: &Site) -> Result<At, OrchestratorError> {
        let found = self.deployments.deployment(site).await;
        let found = found.map_err(|message| OrchestratorError::Namespaces { message })?;
        let unknown = || OrchestratorError::UnknownNamespace { namespace: site.namespace.clone() };
        Ok(At { site: site.clone(), deployment: found.ok_or_else(unknown)? })
    }

    /// Stores facts, all or none, and only if nobody else changed them since they were last seen here. If somebody did,
    /// what they stored is read, so that the next plan starts from it.
    pub(super) async fn commit(&self, facts: Vec<Fact>) -> Result<(), OrchestratorError> {
        self.commit_if(facts, None).await
    }

    /// The same, and only if what has this key is as it was last seen here too.
    pub(super) async fn commit_if(
        &self,
        facts: Vec<Fact>,
        guard: Option<Key>,
    ) -> Result<(), OrchestratorError> {
        let committed = self.try_commit(facts, guard).await;
        if matches!(committed, Err(OrchestratorError::Superseded)) {
            let _alone = self.committing.write().await;
            *self.state.lock() = read(&self.store).await?;
            self.wake.notify_one();
        }
        self.changes.send_modify(|count| *count += 1);
        committed
    }

    async fn try_commit(&self, facts: Vec<Fact>, guard: Option<Key>) -> Result<(), OrchestratorError> {
        let _shared = self.committing.read().await;
        let mut transaction = Transaction::new();
        {
            let state = self.state.lock();
            let expected = |key: &Key| match state.revisions.get(key) {
                Some(revision) => Expected::ModifiedAt(*revision),
                None => Expected::Absent,
            };
            if let Some(guard) = guard {
                transaction = transaction.expect(guard.clone(), expected(&guard));
            }
            for fact in &facts {
                let key = fact.key();
                transaction = transaction.expect(key.clone(), expected(&key));
                transaction = match fact.value() {
                    Some(value) => transaction.put(key, value),
                    None => transaction.delete(key),
                };
            }
        }
        let committed = self.store.transact(transaction).await?;
        let mut state = self.state.lock();
        for fact in facts {
            state.apply(fact, committed.revision);
        }
        Ok(())
    }

    /// The intent with tags, policies and clouds as they are now; none before these are loaded.
    pub(super) fn complete(&self, intent: &Arc<Intent>) -> Option<Intent> {
        let mut intent = Intent::clone(intent);
        intent.graph = self.tags.graph()?;
        intent.verdicts = self.verdicts.lock().clone()?;
        intent.pools = self.options.pools.clone();
        intent.clouds =
            self.clouds.lock().iter().map(|(name, (_, traits))| (name.clone(), traits.clone())).collect();
        Some(intent)
    }

    /// What is still to be done.
    pub fn plan(&self) -> Result<Plan, OrchestratorError> {
        let (intent, inventory) = {
            let state = self.state.lock();
            (Arc::clone(&state.intent), Arc::clone(&state.inventory))
        };
        let intent = self.complete(&intent).ok_or(OrchestratorError::NotLoaded)?;
        Ok(plan(&intent, &inventory))
    }
}
