//! The orchestrator itself: its parts, its start, and its writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cloud_api::{At, Cloud, CloudError};
use ipnet::Ipv4Net;
use model::{Address, CloudTraits, ResourceName, Segment, Site, Subscriber, TagName, allow::End};
use parking_lot::Mutex;
use store::{
    Expected, Key, Revision, Store, Transaction,
    follow::{Follower, Progress},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

use super::{
    CloudView, Deployments, OrchestratorError, Standing, TagBook,
    driver::Failure,
    facts::{self, Fact},
    jobs,
    keeper::{self, Commit, Keeper, Shared},
    state::State,
};
use crate::plan::{Intent, Plan, Pools, UnreadableRecord, Verdicts, plan};

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
/// The addresses of who is at an end, by end.
pub type Elsewhere = Arc<BTreeMap<End, BTreeSet<Address>>>;
/// A cloud and the bounds it keeps.
type Known = (Arc<dyn Cloud>, CloudTraits);

pub struct Orchestrator {
    pub(super) options: Options,
    pub(super) tags: Arc<dyn TagBook>,
    pub(super) deployments: Arc<dyn Deployments>,
    pub(super) clouds: Mutex<BTreeMap<Segment, Known>>,
    /// What is stored; changed by the keeper alone, but for the steps that are started.
    pub(super) state: Arc<Mutex<State>>,
    pub(super) shared: Shared,
    /// To the keeper.
    pub(super) commits: mpsc::Sender<Commit>,
    keeper: Mutex<Option<JoinHandle<()>>>,
    /// Closed when the keeper is gone.
    kept: watch::Receiver<()>,
    progress: Progress,
    /// How far running jobs are. It is for watching, and not worth a write.
    pub(super) job_progress: Mutex<BTreeMap<String, jobs::Progress>>,
    /// By object: what went wrong last, and when it is tried again.
    pub(super) failures: Mutex<BTreeMap<String, Failure>>,
    /// Subscriptions that were made for rules; none before those of an earlier life are known.
    pub(super) subscribed: Mutex<Option<BTreeSet<(TagName, Subscriber)>>>,
    /// What network policies say; none before it is known.
    pub(super) verdicts: Mutex<Option<Told>>,
    /// Who is at ends of permissions that are no resources, tags or addresses.
    pub(super) elsewhere: Mutex<Elsewhere>,
    /// Where the last plan found things.
    pub(super) standing: watch::Sender<Arc<Standing>>,
    /// How each cloud is that is to be there.
    pub(super) cloud_states: Mutex<BTreeMap<Segment, CloudView>>,
    /// Spaces that plugins say they use which choose networks by themselves.
    pub(super) told_spaces: Mutex<BTreeMap<Site, Vec<Ipv4Net>>>,
}

/// What a write expects of a key that is known at a revision, or not at all.
pub(super) fn expected(known: Option<&Revision>) -> Expected {
    known.map_or(Expected::Absent, |revision| Expected::ModifiedAt(*revision))
}

impl Orchestrator {
    /// Reads what is stored, and follows it from then on. [`Orchestrator::run`] then makes it true.
    pub async fn load(
        store: Store,
        tags: Arc<dyn TagBook>,
        deployments: Arc<dyn Deployments>,
        options: Options,
    ) -> Result<Arc<Self>, OrchestratorError> {
        // The follower waits for a store that does not answer; whoever starts a controller wants to hear of it.
        store.get(&facts::mark()).await.map_err(OrchestratorError::Read)?;
        let shared = Shared::default();
        let (commits, to_keeper) = mpsc::channel(keeper::PLACES);
        let follower = Follower::new(store.clone(), facts::prefix());
        let progress = follower.progress();
        let mut keeper = Keeper::new(store, follower, shared.clone(), to_keeper);
        keeper.load().await;
        let (runs, kept) = watch::channel(());
        let keeper = tokio::spawn(async move {
            keeper.run().await;
            drop(runs);
        });
        let verdicts = (!options.awaits_policies).then(Told::default);
        Ok(Arc::new(Self {
            options,
            verdicts: Mutex::new(verdicts),
            elsewhere: Mutex::default(),
            standing: watch::Sender::default(),
            tags,
            deployments,
            clouds: Mutex::default(),
            state: Arc::clone(&shared.state),
            shared,
            commits,
            keeper: Mutex::new(Some(keeper)),
            kept,
            progress,
            job_progress: Mutex::default(),
            failures: Mutex::default(),
            subscribed: Mutex::default(),
            cloud_states: Mutex::default(),
            told_spaces: Mutex::default(),
        }))
    }

    /// Returns when nobody keeps memory as the store is any more: after [`Self::end`], or because the keeper panicked.
    pub fn unkept(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut kept = self.kept.clone();
        async move { while kept.changed().await.is_ok() {} }
    }

    /// Lets go of the store. What was handed to it may still be written; nothing else is.
    pub async fn end(&self) {
        let keeper = self.keeper.lock().take();
        if let Some(keeper) = keeper {
            keeper.abort();
            // It was told to end, and has.
            let _ = keeper.await;
        }
    }

    /// How far memory is with what is stored, and since when it may have missed something.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Stored records that cannot be read, by key. What they are about is left as it is.
    pub fn unreadable(&self) -> Vec<UnreadableRecord> {
        let inventory = Arc::clone(&self.state.lock().inventory);
        let mut records: Vec<_> = inventory.unreadable.iter().map(|(_, record)| record.clone()).collect();
        records.sort_by(|a, b| a.record.cmp(&b.record));
        records
    }

    /// Makes a cloud known. Until then, what is in it is left as it is.
    pub async fn add_cloud(&self, name: Segment, cloud: Arc<dyn Cloud>) -> Result<(), CloudError> {
        self.add_cloud_of(name, cloud, None).await
    }

    /// The same, with what its plugin turned out to be.
    pub async fn add_cloud_of(
        &self,
        name: Segment,
        cloud: Arc<dyn Cloud>,
        plugin: Option<String>,
    ) -> Result<(), CloudError> {
        let traits = cloud.describe().await?;
        self.clouds.lock().insert(name.clone(), (cloud, traits));
        self.cloud_is_ready(&name, plugin);
        self.learn_spaces(&name).await;
        self.shared.wake.notify_one();
        Ok(())
    }

    pub fn cloud_names(&self) -> Vec<Segment> {
        self.clouds.lock().keys().cloned().collect()
    }

    pub(super) fn cloud(&self, name: &Segment) -> Result<Arc<dyn Cloud>, OrchestratorError> {
        let found = self.clouds.lock().get(name).map(|(cloud, _)| Arc::clone(cloud));
        found.ok_or_else(|| self.no_cloud(name))
    }

    /// What a cloud said of itself; none if it is not known.
    pub(super) fn traits(&self, cloud: &Segment) -> Option<CloudTraits> {
        self.clouds.lock().get(cloud).map(|(_, traits)| traits.clone())
    }

    pub(super) async fn at(&self, site: &Site) -> Result<At, OrchestratorError> {
        let found = self.deployments.deployment(site).await;
        let found = found.map_err(|err| OrchestratorError::Namespaces { message: common::chain(&err) })?;
        let unknown = || OrchestratorError::UnknownNamespace { namespace: site.namespace.clone() };
        Ok(At { site: site.clone(), deployment: found.ok_or_else(unknown)? })
    }

    /// Stores facts, all or none, and only if nobody else changed them since they were last seen here. Returns when memory
    /// has them. If somebody did, memory has what they stored. A caller that goes away takes nothing back.
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
        let place = self.commits.reserve().await.map_err(|_| OrchestratorError::Ended)?;
        let fence = self.fence()?;
        let transaction = {
            let state = self.state.lock();
            let guards = guards(&state);
            transaction_of(keeper::fenced(fence.as_ref()), &facts, guards, &state)
        };
        let (answer, answered) = oneshot::channel();
        place.send(Commit { transaction, facts, fence, answer });
        answered.await.unwrap_or(Err(OrchestratorError::Ended))
    }

    /// Waits until it is known what is stored. Whoever chooses what must be nobody else's asks first.
    pub(super) async fn settled(&self) {
        // The sender is ours: it cannot be gone.
        let _ = self.shared.in_doubt.subscribe().wait_for(|in_doubt| !*in_doubt).await;
    }

    /// The intent with tags, policies and clouds as they are now; none before these are loaded.
    pub(super) fn complete(&self, intent: &Arc<Intent>) -> Option<Intent> {
        let mut intent = Intent::clone(intent);
        intent.graph = self.tags.graph()?;
        intent.verdicts = self.verdicts.lock().clone()?;
        intent.elsewhere = Arc::clone(&self.elsewhere.lock());
        intent.pools = self.options.pools.clone();
        intent.taken = self.told_spaces.lock().values().flatten().copied().collect();
        intent.clouds =
            self.clouds.lock().iter().map(|(name, (_, traits))| (name.clone(), traits.clone())).collect();
        Some(intent)
    }

    /// What is still to be done.
    pub fn plan(&self) -> Result<Plan, OrchestratorError> {
        let (intent, inventory) = {
            let mut state = self.state.lock();
            (Arc::clone(&state.intent), state.ahead())
        };
        let intent = self.complete(&intent).ok_or(OrchestratorError::NotLoaded)?;
        Ok(plan(&intent, &inventory))
    }
}

impl Drop for Orchestrator {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.get_mut().take() {
            keeper.abort();
        }
    }
}

fn transaction_of(
    mut transaction: Transaction,
    facts: &[Fact],
    guards: Vec<(Key, Expected)>,
    state: &State,
) -> Transaction {
    let guarded: BTreeSet<Key> = guards.iter().map(|(key, _)| key.clone()).collect();
    for (key, expected) in guards {
        transaction = transaction.expect(key, expected);
    }
    for fact in facts {
        let key = fact.key();
        if !guarded.contains(&key) {
            transaction = transaction.expect(key.clone(), expected(state.revisions.get(&key)));
        }
        transaction = match fact.value() {
            Some(value) => transaction.put(key, value),
            None => transaction.delete(key),
        };
    }
    transaction
}
