//! The reconciler: storage is made to match the records.
//!
//! In: wake-ups (a hint that something changed, not what) and a timer. Out: steps on the backend, phases in the
//! records. Holds: nothing that a restart would miss: the first thing it does is to look at every consumer.
//!
//! Killed between any two steps, the next run reads the record and the storage again and plans the rest. The record
//! goes last on the way out and first on the way in, so storage without a record never comes from a crash.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::StreamExt as _;
use storage_provider::{
    Consumer, ConsumerId, Data, Event, Loss, Mark, NetworkState, Observed, Phase, Plan, Reached, Step,
    VaultId, plan,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    backend::{Backend, BackendError},
    network::NetworkError,
    records::{Change, CommitError, Records, RecordsError, Stored},
    service::{Provider, TRIES},
};

/// Consumers worked on at once. A backend step mostly waits: for a disk, or for Ceph's monitors.
const WORKERS: usize = 8;
/// First wait after a failure; doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What one look at a consumer came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// Storage matches; `steps` were needed.
    Ready { steps: usize },
    /// Nothing is left of it.
    Gone { steps: usize },
    /// It leaves, and its data is kept for a while.
    Kept { steps: usize },
    /// A step failed and the record says so; to be tried again.
    Failed { reason: String },
}

/// The records could not be read or written; the storage is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error("the records could not be read")]
    Read(#[source] RecordsError),
    #[error("the outcome could not be written")]
    Write(#[source] CommitError),
}

/// What is written into a consumer's record after a look at it.
enum Entry {
    /// Its storage matches, and this is its data.
    Ready(Data),
    Failed {
        reason: String,
    },
    /// The record goes.
    Removed,
    Nothing,
}

/// A step failed, or what is there could not be seen.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Lost(Loss),
}

impl<R: Records, B: Backend> Provider<R, B> {
    /// Looks at one consumer and does what is missing.
    pub async fn reconcile(&self, id: ConsumerId) -> Result<Reconciled, ReconcileError> {
        let _worker = self.work_on(id).await;
        for _ in 0..TRIES {
            let Some(stored) = self.records.consumer(id).await.map_err(ReconcileError::Read)? else {
                return Ok(Reconciled::Gone { steps: 0 });
            };
            let (entry, result) = self.follow(&stored.value).await;
            match self.write_down(stored, entry).await {
                Ok(()) => return Ok(result),
                // The intent changed while the steps ran: look again.
                Err(CommitError::Conflict) => {}
                Err(error @ CommitError::Failed { .. }) => return Err(ReconcileError::Write(error)),
            }
        }
        Err(ReconcileError::Write(CommitError::Conflict))
    }

    /// Runs the plan of one consumer. Steps stop at the first failure: each stands on the one before. Also says which
    /// data is there, if it is whole.
    async fn follow(&self, consumer: &Consumer) -> (Entry, Reconciled) {
        let done = async {
            let vault = self.backend.vault().await?;
            let mut observed = self.backend.observe(consumer.id).await?;
            let network = self.network_state(consumer).await?;
            let Plan { steps, then } = plan(consumer, vault, &observed, network, self.now());
            for step in &steps {
                self.apply(consumer, *step).await?;
            }
            if let Reached::Lost(loss) = then {
                if !consumer.is_deleting() {
                    self.backend.withhold(consumer.id).await?;
                }
                return Err(StepError::Lost(self.placed(loss).await));
            }
            if steps.iter().any(|step| step.touches_data()) && then == Reached::Ready {
                observed = self.backend.observe(consumer.id).await?;
            }
            Ok::<_, StepError>((steps.len(), then, observed.data()))
        };
        match done.await {
            Ok((steps, Reached::Gone, _)) => {
                self.reports.lock().remove(&consumer.id);
                (Entry::Removed, Reconciled::Gone { steps })
            }
            Ok((steps, Reached::Kept, _)) => (Entry::Nothing, Reconciled::Kept { steps }),
            Ok((steps, _, data)) => (Entry::Ready(data), Reconciled::Ready { steps }),
            // The storage as a whole is out of reach, which says nothing of this consumer.
            Err(StepError::Backend(error @ BackendError::Degraded { .. })) => {
                (Entry::Nothing, Reconciled::Failed { reason: error.to_string() })
            }
            Err(error) => {
                let reason = error.to_string();
                (Entry::Failed { reason: reason.clone() }, Reconciled::Failed { reason })
            }
        }
    }

    /// The loss with the words for where another vault is.
    async fn placed(&self, loss: Loss) -> Loss {
        match loss {
            Loss::Elsewhere { vault, .. } => {
                Loss::Elsewhere { vault, place: self.records.place_of(vault).await.unwrap_or_default() }
            }
            loss => loss,
        }
    }

    async fn network_state(&self, consumer: &Consumer) -> Result<NetworkState, NetworkError> {
        let Some(network) = &self.network else { return Ok(NetworkState::Unmanaged) };
        Ok(match network.permits_exactly(consumer.id, &consumer.permitted()).await? {
            true => NetworkState::AsPermitted,
            false => NetworkState::Differs,
        })
    }

    async fn apply(&self, consumer: &Consumer, step: Step) -> Result<(), StepError> {
        let id = consumer.id;
        let done = match step {
            Step::MarkStorage => {
                info!(consumer = %id, "its data was made before there were marks: it is adopted and marked now");
                self.backend.adopt_storage(id, Mark::FIRST_GENERATION).await
            }
            Step::EnsureStorage { bytes, encrypted } => {
                self.backend.ensure_storage(id, bytes, encrypted).await
            }
            Step::KeepStorage { bytes } => self.backend.keep_storage(id, bytes).await,
            Step::SetQuota { bytes } => self.backend.set_quota(id, bytes).await,
            Step::SetRates { rates } => self.backend.set_rates(id, rates).await,
            Step::EnsureCredentials => self.backend.ensure_credentials(id).await,
            Step::TidyVolumes => self.backend.tidy_volumes(id).await,
            Step::Revoke => self.backend.revoke(id).await,
            Step::Trash => self.backend.trash(id).await,
            Step::Purge => self.backend.purge(id).await,
            Step::Permit | Step::Withdraw => {
                if let Some(network) = &self.network {
                    network.permit(id, &consumer.permitted()).await?;
                }
                Ok(())
            }
        };
        Ok(done?)
    }

    /// Writes what came of it into the record. A consumer is never Ready before the record says what its data is; when
    /// it is gone, so is its grant.
    async fn write_down(&self, stored: Stored<Consumer>, entry: Entry) -> Result<(), CommitError> {
        let Stored { value: mut consumer, version: expected } = stored;
        let (event, data) = match entry {
            Entry::Ready(data) => (Event::Applied, Some(data)),
            Entry::Failed { reason } => (Event::Failed { reason }, None),
            Entry::Removed => return self.forget(&consumer, expected).await,
            Entry::Nothing => return Ok(()),
        };
        let failed = matches!(event, Event::Failed { .. });
        let before = consumer.data.clone();
        match consumer.handle(event) {
            Ok(moved) => {
                consumer.data = data.unwrap_or(consumer.data);
                if !moved && consumer.data == before {
                    return Ok(());
                }
            }
            // It was put off while we made it ready: the next look takes it down.
            Err(_) => return Err(CommitError::Conflict),
        }
        let (id, phase) = (consumer.id, consumer.phase.name());
        self.records.commit(vec![Change::PutConsumer { expected, value: consumer }]).await?;
        if failed {
            warn!(consumer = %id, phase, "storage does not follow");
        } else {
            info!(consumer = %id, phase, "storage follows");
        }
        Ok(())
    }

    async fn forget(
        &self,
        consumer: &Consumer,
        expected: crate::records::Version,
    ) -> Result<(), CommitError> {
        let _books = self.books.lock().await;
        let unreadable = |error: RecordsError| CommitError::Failed { reason: error.to_string() };
        let ledger = self.records.ledger().await.map_err(unreadable)?;
        let books = ledger.value.moved(consumer.granted, 0);
        let value = books.map_err(|error| CommitError::Failed { reason: error.to_string() })?;
        let changes = vec![
            Change::DeleteConsumer { expected, id: consumer.id },
            Change::PutLedger { expected: ledger.version, value },
        ];
        self.records.commit(changes).await?;
        self.forget_heard(consumer.id);
        info!(consumer = %consumer.id, "consumer is gone");
        Ok(())
    }

    /// Looks at every consumer once. One look at the whole storage finds those that need nothing, which is nearly all of
    /// them, so that it costs about as much for ten thousand as for one.
    pub async fn reconcile_all(self: &Arc<Self>) -> Result<(), ReconcileError> {
        // Storage that cannot be seen as a whole is looked at one by one, where each failure gets its reason.
        let (observed, vault) = match (self.backend.observe_all().await, self.backend.vault().await) {
            (Ok(observed), Ok(vault)) => (observed, Some(vault)),
            _ => Default::default(),
        };
        let consumers = self.records.consumers().await.map_err(ReconcileError::Read)?;
        let mut due = Vec::new();
        for Stored { value: consumer, .. } in consumers {
            let nothing = Observed::default();
            let seen = observed.get(&consumer.id).unwrap_or(&nothing);
            if !self.is_settled(&consumer, vault, seen).await {
                due.push((consumer.id, 0));
            }
        }
        self.look_at(due).await;
        Ok(())
    }

    async fn is_settled(&self, consumer: &Consumer, vault: Option<VaultId>, observed: &Observed) -> bool {
        let Some(vault) = vault else { return false };
        let network = self.network_state(consumer).await.unwrap_or(NetworkState::Differs);
        let planned = plan(consumer, vault, observed, network, self.now());
        consumer.phase == Phase::Ready
            && planned == Plan { steps: Vec::new(), then: Reached::Ready }
            && consumer.data == observed.data()
    }

    /// Works until told to stop: everything first, then what is woken, and everything again from time to time.
    /// A step that is under way when it is told is left as it is: each may be repeated.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        stop.run_until_cancelled(self.work()).await;
    }

    async fn work(self: Arc<Self>) {
        let mut next_resync = Instant::now();
        loop {
            if self.again.swap(false, Ordering::AcqRel) || Instant::now() >= next_resync {
                let wait = match self.reconcile_all().await {
                    Ok(()) => self.resync,
                    Err(error) => {
                        warn!(error = %crate::service::provider_fault(error), "consumers could not be looked at");
                        FIRST_WAIT
                    }
                };
                next_resync = Instant::now() + wait;
            }
            let due = self.take_due(Instant::now());
            self.look_at(due).await;
            let next = self.first_retry().map_or(next_resync, |retry| retry.min(next_resync));
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    async fn look_at(self: &Arc<Self>, ids: impl IntoIterator<Item = (ConsumerId, u32)>) {
        let looks = futures::stream::iter(ids).for_each_concurrent(WORKERS, |(id, failures)| async move {
            let failed = match self.reconcile(id).await {
                // Who is kept is looked at with all others, and goes when its time is over.
                Ok(Reconciled::Ready { .. } | Reconciled::Gone { .. } | Reconciled::Kept { .. }) => return,
                Ok(Reconciled::Failed { reason }) => reason,
                Err(error) => error.to_string(),
            };
            let wait = FIRST_WAIT.saturating_mul(1 << failures.min(16)).min(LONGEST_WAIT);
            warn!(consumer = %id, reason = failed, retry_in = ?wait, "reconcile failed");
            self.retry_later(id, failures.saturating_add(1), wait);
        });
        looks.await;
    }

    fn retry_later(&self, id: ConsumerId, failures: u32, wait: Duration) {
        self.retries.lock().insert(id, (Instant::now() + wait, failures));
    }

    fn first_retry(&self) -> Option<Instant> {
        self.retries.lock().values().map(|(at, _)| *at).min()
    }

    /// Who was woken, and whose wait is over, with how often it has failed. Who is woken need not wait.
    fn take_due(&self, now: Instant) -> HashMap<ConsumerId, u32> {
        let mut due: HashMap<_, _> = std::mem::take(&mut *self.due.lock());
        self.retries.lock().retain(|id, (at, failures)| {
            let waits = *at > now && !due.contains_key(id);
            if !waits {
                due.entry(*id).or_insert(*failures);
            }
            waits
        });
        due
    }
}
