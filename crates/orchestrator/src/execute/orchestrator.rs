//! The orchestrator itself: its parts, its start, and its writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cloud_api::{At, Cloud, CloudError};
use model::{CloudTraits, ResourceName, Segment, Site, Subscriber, TagName};
use parking_lot::Mutex;
use store::{Expected, Key, Revision, Store, TransactError, Transaction};
use tokio::sync::{Notify, watch};
use tracing::warn;

use super::{
    Deployments, OrchestratorError, Standing, TagBook,
    driver::Failure,
    facts::{self, Fact},
    lead::Rank,
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
    /// How long an address space stays promised that nobody makes a network of.
    pub promise: Duration,
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
            // A plugin makes its network right after it asked; an hour outlasts the slowest gateway before it.
            promise: Duration::from_secs(3600),
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
    /// Subscriptions that were made for rules; none before those of an earlier life are known.
    pub(super) subscribed: Mutex<Option<BTreeSet<(TagName, Subscriber)>>>,
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
    pub(super) committing: tokio::sync::RwLock<()>,
    /// Memory may not be what is stored: an answer of the store was lost, or somebody else wrote.
    pub(super) stale: AtomicBool,
    /// Whether this orchestrator may write.
    pub(super) rank: watch::Sender<Rank>,
}

pub(super) async fn read(store: &Store) -> Result<State, OrchestratorError> {
    let listing = store.list(&facts::prefix()).await.map_err(OrchestratorError::Read)?;
    let mut state = State::default();
    for entry in listing.entries {
        match Fact::read(&entry.key, Some(&entry.value)) {
            Some(fact) => state.apply(fact, entry.modified),
            None => warn!(key = entry.key.as_str(), "a stored object cannot be read and is left out"),
        }
    }
    Ok(state)
}

/// What a write expects of a key that is known at a revision, or not at all.
pub(super) fn expected(known: Option<&Revision>) -> Expected {
    known.map_or(Expected::Absent, |revision| Expected::ModifiedAt(*revision))
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
            stale: AtomicBool::new(false),
            rank: watch::Sender::default(),
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
        self.commit_if(facts, |_| Vec::new()).await
    }

    /// The same, and only if what `guards` names is as it says too. It is asked with the state on which the
    /// transaction is made.
    pub(super) async fn commit_if(
        &self,
        facts: Vec<Fact>,
        guards: impl FnOnce(&State) -> Vec<(Key, Expected)>,
    ) -> Result<(), OrchestratorError> {
        self.refresh().await?;
        let committed = self.try_commit(facts, guards).await;
        let unsure = match &committed {
            Err(OrchestratorError::Superseded) => true,
            Err(OrchestratorError::Write(err)) => err.may_be_applied(),
            _ => false,
        };
        if unsure {
            self.stale.store(true, Ordering::SeqCst);
            // Whoever plans tries again, also if this one cannot read.
            self.wake.notify_one();
            if let Err(err) = self.refresh().await {
                warn!(
                    error = super::error::chain(&err),
                    "what is stored is read before anything else is done"
                );
            }
        }
        self.changes.send_modify(|count| *count += 1);
        committed
    }

    /// Reads what is stored, if memory may be something else. Nothing is planned or written before that.
    pub(super) async fn refresh(&self) -> Result<(), OrchestratorError> {
        if !self.stale.load(Ordering::SeqCst) {
            return Ok(());
        }
        let _alone = self.committing.write().await;
        if self.stale.load(Ordering::SeqCst) {
            let state = read(&self.store).await?;
            *self.state.lock() = state;
            self.stale.store(false, Ordering::SeqCst);
            self.wake.notify_one();
        }
        Ok(())
    }

    async fn try_commit(
        &self,
        facts: Vec<Fact>,
        guards: impl FnOnce(&State) -> Vec<(Key, Expected)>,
    ) -> Result<(), OrchestratorError> {
        let _shared = self.committing.read().await;
        let fence = self.fence()?;
        let mut transaction = Transaction::new();
        if let Some(fence) = &fence {
            transaction = transaction.expect_modified_at(fence.key.clone(), fence.revision);
        }
        {
            let state = self.state.lock();
            let guards = guards(&state);
            let guarded: BTreeSet<Key> = guards.iter().map(|(key, _)| key.clone()).collect();
            for (key, expected) in guards {
                transaction = transaction.expect(key, expected);
            }
            for fact in &facts {
                let key = fact.key();
                if !guarded.contains(&key) {
                    transaction = transaction.expect(key.clone(), expected(state.revisions.get(&key)));
                }
                transaction = match fact.value() {
                    Some(value) => transaction.put(key, value),
                    None => transaction.delete(key),
                };
            }
        }
        let committed = match self.store.transact(transaction).await {
            Err(TransactError::Conflict { key, .. }) if fence.is_some_and(|fence| fence.key == key) => {
                return Err(self.deposed());
            }
            committed => committed?,
        };
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
