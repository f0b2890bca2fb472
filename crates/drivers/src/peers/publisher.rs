//! The task that writes what this controller tells the others.
//!
//! In: the controller's rooms, looked at once a second. Out: transactions with what differs, on a lease. Holds: the lease.
//! A lease that is lost has taken everything along: all is written anew, on another. What was refused is tried again.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use store::{Lease, LeaseError, Revision, Store, TransactError, Transaction};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Peers,
    board::{Change, Limits},
    telling::Telling,
    words::{self, About},
};

/// How often is looked for changes.
const LOOK: Duration = Duration::from_secs(1);
/// How long others go by the words of a controller that is gone.
const TERM: Duration = Duration::from_secs(6);
/// When the lease is renewed.
const RENEW: Duration = Duration::from_millis(1500);

pub(super) struct Publisher {
    peers: Arc<Peers>,
    store: Store,
    limits: Limits,
    name: String,
    telling: Telling,
    lease: Option<Held>,
    is_failing: bool,
}

#[derive(Clone, Copy)]
struct Held {
    lease: Lease,
    renewed: Instant,
}

#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("cannot get or keep a lease")]
    Lease(#[from] LeaseError),
    #[error("cannot write")]
    Write(#[from] TransactError),
}

impl Publisher {
    pub fn new(peers: Arc<Peers>, store: Store, id: &str, limits: Limits, name: String) -> Self {
        let telling = Telling::new(id.to_owned());
        Self { peers, store, limits, name, telling, lease: None, is_failing: false }
    }

    pub async fn run(mut self, stop: CancellationToken) {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(look.tick()).await.is_some() {
            let Some(outcome) = stop.run_until_cancelled(self.turn()).await else { break };
            self.tell_operators(outcome);
        }
        if let Some(Held { lease, .. }) = self.lease {
            // The others need not wait. Without an answer the lease ends by itself.
            let _ = tokio::time::timeout(LOOK, self.store.revoke_lease(lease.id)).await;
        }
    }

    async fn turn(&mut self) -> Result<(), PublishError> {
        self.peers.note_mark();
        // Before the hub is looked at: what the engine had taken in by then is in the hub, so a node that is caught up
        // after that has it.
        let Some(reached) = self.peers.rooms.policy.progress().reached() else { return Ok(()) };
        self.look(reached);
        self.keep_lease().await?;
        self.write().await
    }

    fn look(&mut self, reached: Revision) {
        let rooms = &self.peers.rooms;
        let (sessions, now) = (rooms.hub.sessions(), words::seconds(SystemTime::now()));
        let heard = self.peers.heard.read();
        self.telling.nodes(&sessions, now, |word, name| {
            heard.claim(name).is_some_and(|claim| claim.word.rank() > word.rank())
        });
        drop(heard);
        self.telling.reports(rooms.watch.take_changed_reports());
        self.telling.about(&About { name: self.name.clone(), reached });
    }

    /// Renews the lease if it is time, and gets another one if it is lost.
    async fn keep_lease(&mut self) -> Result<Lease, PublishError> {
        let asked = Instant::now();
        if let Some(Held { lease, renewed }) = self.lease {
            if renewed + RENEW > asked {
                return Ok(lease);
            }
            match self.store.keep_alive(lease.id).await {
                Ok(lease) => {
                    self.lease = Some(Held { lease, renewed: asked });
                    return Ok(lease);
                }
                Err(LeaseError::NotFound { .. }) => self.lease = None,
                Err(err) => return Err(err.into()),
            }
        }
        let lease = self.store.grant_lease(TERM).await?;
        self.telling.board.begin_anew();
        self.lease = Some(Held { lease, renewed: asked });
        Ok(lease)
    }

    async fn write(&mut self) -> Result<(), PublishError> {
        for batch in self.telling.board.batches(self.limits) {
            let lease = self.lease.map(|held| held.lease.id);
            // All that is written belongs to one lease: on another one, the next turn begins anew.
            let kept = self.keep_lease().await?;
            if lease != Some(kept.id) {
                return Ok(());
            }
            match self.store.transact(transaction(&batch, kept)).await {
                Ok(_) => {}
                Err(err @ TransactError::TooLarge { .. }) if batch.len() == 1 => {
                    let key = batch[0].key.as_str();
                    warn!(key, error = common::chain(&err), "other controllers are not told of this");
                }
                Err(err) => {
                    if matches!(err, TransactError::LeaseNotFound { .. }) {
                        self.lease = None;
                    }
                    return Err(err.into());
                }
            }
            self.telling.board.written(&batch);
        }
        Ok(())
    }

    fn tell_operators(&mut self, outcome: Result<(), PublishError>) {
        match &outcome {
            Ok(()) if self.is_failing => info!("other controllers are told again how far nodes are"),
            Err(err) if !self.is_failing => {
                warn!(
                    error = common::chain(err),
                    "other controllers are not told how far nodes are; it is tried again"
                );
            }
            Ok(()) | Err(_) => {}
        }
        self.is_failing = outcome.is_err();
    }
}

fn transaction(batch: &[Change], lease: Lease) -> Transaction {
    batch.iter().cloned().fold(Transaction::new(), |transaction, Change { key, value }| match value {
        Some(value) => transaction.put_with_lease(key, value, lease.id),
        None => transaction.delete(key),
    })
}
