//! The reconciler: storage is made to match the records.
//!
//! In: wake-ups (a hint that something changed, not what) and a timer. Out: steps on the backend, phases in the
//! records. Holds: nothing that a restart would miss: the first thing it does is to look at every consumer.
//!
//! Killed between any two steps, the next run reads the record and the storage again and plans the rest. The record
//! goes last on the way out and first on the way in, so storage without a record never comes from a crash.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::StreamExt as _;
use storage_provider::{
    Consumer, ConsumerId, Event, NetworkState, Observed, Outcome, Phase, Plan, Step, plan,
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

/// A step failed, or what is there could not be seen.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Network(#[from] NetworkError),
}

impl<R: Records, B: Backend> Provider<R, B> {
    /// Looks at one consumer and does what is missing.
    pub async fn reconcile(&self, id: ConsumerId) -> Result<Reconciled, ReconcileError> {
        let _worker = self.work_on(id).await;
        for _ in 0..TRIES {
            let Some(stored) = self.records.consumer(id).await.map_err(ReconcileError::Read)? else {
                return Ok(Reconciled::Gone { steps: 0 });
            };
            let (outcome, result) = self.follow(&stored.value).await;
            match self.write_down(stored, outcome).await {
                Ok(()) => return Ok(result),
                // The intent changed while the steps ran: look again.
                Err(CommitError::Conflict) => {}
                Err(error @ CommitError::Failed { .. }) => return Err(ReconcileError::Write(error)),
            }
        }
        Err(ReconcileError::Write(CommitError::Conflict))
    }

    /// Runs the plan of one consumer. Steps stop at the first failure: each stands on the one before.
    async fn follow(&self, consumer: &Consumer) -> (Option<Event>, Reconciled) {
        let done = async {
            let observed = self.backend.observe(consumer.id).await?;
            let Plan { steps, then } = plan(consumer, &observed, self.network_state(consumer).await?);
            for step in &steps {
                self.apply(consumer, *step).await?;
            }
            Ok::<_, StepError>((steps.len(), then))
        };
        match done.await {
            Ok((steps, Outcome::Ready)) => (Some(Event::Applied), Reconciled::Ready { steps }),
            Ok((steps, Outcome::Gone)) => (None, Reconciled::Gone { steps }),
            Err(error) => {
                let reason = error.to_string();
                (Some(Event::Failed { reason: reason.clone() }), Reconciled::Failed { reason })
            }
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
            Step::EnsureStorage { bytes } => self.backend.ensure_storage(id, bytes).await,
            Step::SetQuota { bytes } => self.backend.set_quota(id, bytes).await,
            Step::EnsureCredentials => self.backend.ensure_credentials(id).await,
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

    /// Writes the phase an event leads to; no event means that the consumer is gone, and its grant with it.
    async fn write_down(&self, stored: Stored<Consumer>, event: Option<Event>) -> Result<(), CommitError> {
        let Stored { value: mut consumer, version: expected } = stored;
        let Some(event) = event else { return self.forget(&consumer, expected).await };
        let failed = matches!(event, Event::Failed { .. });
        match consumer.handle(event) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
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
        info!(consumer = %consumer.id, "consumer is gone");
        Ok(())
    }

    /// Looks at every consumer once. One look at the whole storage finds those that need nothing, which is nearly all of
    /// them, so that it costs about as much for ten thousand as for one.
    pub async fn reconcile_all(self: &Arc<Self>) -> Result<(), ReconcileError> {
        // Storage that cannot be seen as a whole is looked at one by one, where each failure gets its reason.
        let observed = self.backend.observe_all().await.unwrap_or_default();
        let consumers = self.records.consumers().await.map_err(ReconcileError::Read)?;
        let mut due = Vec::new();
        for Stored { value: consumer, .. } in consumers {
            let seen = observed.get(&consumer.id).copied().unwrap_or_default();
            if !self.is_settled(&consumer, &seen).await {
                due.push((consumer.id, 0));
            }
        }
        self.look_at(due).await;
        Ok(())
    }

    async fn is_settled(&self, consumer: &Consumer, observed: &Observed) -> bool {
        let network = self.network_state(consumer).await.unwrap_or(NetworkState::Differs);
        consumer.phase == Phase::Ready && plan(consumer, observed, network).steps.is_empty()
    }

    /// Works until told to stop: everything first, then what is woken, and everything again from time to time.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut next_resync = Instant::now();
        loop {
            if Instant::now() >= next_resync {
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
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    async fn look_at(self: &Arc<Self>, ids: impl IntoIterator<Item = (ConsumerId, u32)>) {
        let looks = futures::stream::iter(ids).for_each_concurrent(WORKERS, |(id, failures)| async move {
            let failed = match self.reconcile(id).await {
                Ok(Reconciled::Ready { .. } | Reconciled::Gone { .. }) => return,
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
