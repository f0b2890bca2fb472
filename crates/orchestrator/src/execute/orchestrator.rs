//! The orchestrator itself: its parts, its start, and its writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cloud_api::{At, Cloud, CloudError};
use model::{CloudTraits, Segment, Site, Subscriber, TagName};
use parking_lot::Mutex;
use store::{Expected, Revision, Store, Transaction};
use tokio::sync::{Notify, watch};
use tracing::warn;

use super::{
    Deployments, OrchestratorError, TagBook,
    driver::Failure,
    facts::{self, Fact},
    state::State,
};
use crate::plan::{Intent, Plan, Pools, plan};

#[derive(Clone, Debug)]
pub struct Options {
    pub pools: Pools,
    /// How long a cloud may take to answer one call.
    pub call_timeout: Duration,
    /// Pauses after a failed step: the first, and the longest.
    pub retry_first: Duration,
    pub retry_longest: Duration,
    /// Steps under way at once.
    pub parallel: usize,
    /// How often the clouds are compared with the records; none: only when asked.
    pub check_every: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pools: Pools::default(),
            // The slowest thing a public cloud does in one call is a gateway, up to 45 minutes.
            call_timeout: Duration::from_secs(3600),
            retry_first: Duration::from_millis(200),
            retry_longest: Duration::from_secs(60),
            parallel: 64,
            check_every: None,
        }
    }
}

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
    /// Something changed: plan again.
    pub(super) wake: Notify,
    /// Counts changes of jobs, for those who wait.
    pub(super) changes: watch::Sender<u64>,
    /// Requests that choose spaces take turns: two must not choose the same.
    pub(super) choosing: tokio::sync::Mutex<()>,
}

impl Orchestrator {
    /// Reads what is stored. [`Orchestrator::run`] then makes it true.
    pub async fn load(
        store: Store,
        tags: Arc<dyn TagBook>,
        deployments: Arc<dyn Deployments>,
        options: Options,
    ) -> Result<Arc<Self>, OrchestratorError> {
        let listing = store.list(&facts::prefix()).await.map_err(OrchestratorError::Read)?;
        let mut state = State::default();
        for entry in listing.entries {
            match Fact::read(&entry.key, &entry.value) {
                Some(fact) => state.apply(fact, entry.modified),
                None => warn!(key = entry.key.as_str(), "a stored object cannot be read and is left out"),
            }
        }
        Ok(Arc::new(Self {
            options,
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

    pub(super) async fn at(&self, site: &Site) -> Result<At, OrchestratorError> {
        let found = self.deployments.deployment(site).await;
        let found = found.map_err(|message| OrchestratorError::Namespaces { message })?;
        let unknown = || OrchestratorError::UnknownNamespace { namespace: site.namespace.clone() };
        Ok(At { site: site.clone(), deployment: found.ok_or_else(unknown)? })
    }

    /// Stores facts, all or none, and only if nobody else changed them since they were last seen here.
    pub(super) async fn commit(&self, facts: Vec<Fact>) -> Result<(), OrchestratorError> {
        let mut transaction = Transaction::new();
        {
            let state = self.state.lock();
            for fact in &facts {
                let key = fact.key();
                let expected = match state.revisions.get(&key) {
                    Some(revision) => Expected::ModifiedAt(*revision),
                    None => Expected::Absent,
                };
                transaction = transaction.expect(key.clone(), expected);
                transaction = match fact.value() {
                    Some(value) => transaction.put(key, value),
                    None => transaction.delete(key),
                };
            }
        }
        let committed = match self.store.transact(transaction).await.map_err(OrchestratorError::from) {
            Ok(committed) => committed,
            Err(err) => {
                if matches!(err, OrchestratorError::Superseded) {
                    self.read_again(&facts).await;
                }
                return Err(err);
            }
        };
        let mut state = self.state.lock();
        for fact in facts {
            state.apply(fact, committed.revision);
        }
        drop(state);
        self.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Takes in what the store has, where it is not what was believed: a write whose answer was lost, or one of a
    /// controller that ended a moment ago. Without this the same write would be refused for ever.
    async fn read_again(&self, facts: &[Fact]) {
        for fact in facts {
            let key = fact.key();
            let believed = self.state.lock().revisions.get(&key).copied();
            let Ok(found) = self.store.get(&key).await else { continue };
            let mut state = self.state.lock();
            if state.revisions.get(&key).copied() != believed {
                continue;
            }
            match found {
                Some(entry) if believed != Some(entry.modified) => {
                    if let Some(fact) = Fact::read(&entry.key, &entry.value) {
                        state.apply(fact, entry.modified);
                    }
                }
                None if believed.is_some() => state.apply(fact.absent(), Revision(0)),
                _ => {}
            }
        }
        self.wake.notify_one();
    }

    /// The intent with tags and clouds as they are now; none before the tags are loaded.
    pub(super) fn complete(&self, intent: &Arc<Intent>) -> Option<Intent> {
        let mut intent = Intent::clone(intent);
        intent.graph = self.tags.graph()?;
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
