//! Who leads: of several controllers on one etcd one makes the clouds as wanted, and the others follow.
//!
//! In: the shared store. Out: the orchestrator is told to lead, with a fence, or to follow. Holds: a lease, and a key
//! that lives as long as the lease. Not here: what leading and following mean (`orchestrator::execute`).
//!
//! ```text
//!   stand ── the key is absent: put it with a lease ──► lead, renewing ── lease lost ──┐
//!     ▲  └── it is there ──► follow, and look again ──┐                                │
//!     └───────────────────────────────────────────────┴────────────────────────────────┘
//! ```
//!
//! A leader whose lease was not renewed stops before the lease can have ended at the store. Should it not notice (its
//! process was halted), the fence refuses its writes: every write expects the key as this term made it. And it makes no
//! call to a cloud: the term says until when it lasts, counted from before the lease was last renewed.
//!
//! The embedded store needs none of this: its file is locked, and a second process does not start.

use std::{sync::Arc, time::Duration};

use orchestrator::execute::{Fence, Orchestrator, Term};
use store::{Key, Lease, LeaseError, Store, TransactError, Transaction};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How long a leader that is gone blocks the others, at most.
const TERM: Duration = Duration::from_secs(4);
/// How often the lease is renewed, and a follower looks.
const BEAT: Duration = Duration::from_millis(800);
/// Without a renewal for so long a leader stops; the rest of the term is for what is on its way.
const PATIENCE: Duration = Duration::from_millis(2500);

pub struct Leader {
    store: Store,
    orchestrator: Arc<Orchestrator>,
    /// What followers tell those who ask for changes.
    name: String,
}

impl Leader {
    /// Nobody leads before [`Leader::run`] has won: until then nothing is written.
    pub fn new(store: Store, orchestrator: Arc<Orchestrator>, name: String) -> Self {
        orchestrator.follow(None);
        Self { store, orchestrator, name }
    }

    /// Stands, leads and follows until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            match self.stand().await {
                Ok(Standing::Won(lease, term)) => {
                    self.lead(&lease, &term, &stop).await;
                    // The next one need not wait. Without an answer the lease ends by itself.
                    let _ = tokio::time::timeout(BEAT, self.store.revoke_lease(lease.id)).await;
                }
                Ok(Standing::Lost(leader)) => {
                    self.orchestrator.follow(Some(leader));
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = self.until_vacant() => {}
                    }
                }
                Err(err) => {
                    warn!(error = common::chain(&err), "who leads cannot be found out; it is tried again");
                    stop.run_until_cancelled(tokio::time::sleep(BEAT)).await;
                }
            }
        }
    }

    async fn stand(&self) -> Result<Standing, StandError> {
        if let Some(leader) = self.leader().await? {
            return Ok(Standing::Lost(leader));
        }
        // Counted from before the call: the store began the term after that.
        let asked = Instant::now();
        let lease = self.store.grant_lease(TERM).await?;
        let put = Transaction::new().expect_absent(key()).put_with_lease(key(), self.name.clone(), lease.id);
        match self.store.transact(put).await {
            Ok(committed) => {
                let fence = Fence { key: key(), revision: committed.revision };
                Ok(Standing::Won(lease, Term::new(fence, asked + PATIENCE)))
            }
            Err(err) => {
                // Perhaps it was put: then it goes with the lease, and the next turn is anybody's.
                let _ = self.store.revoke_lease(lease.id).await;
                match (err, self.leader().await?) {
                    (TransactError::Conflict { .. }, Some(leader)) => Ok(Standing::Lost(leader)),
                    (err, _) => Err(StandError::Write(err)),
                }
            }
        }
    }

    async fn leader(&self) -> Result<Option<String>, StandError> {
        let entry = self.store.get(&key()).await?;
        Ok(entry.map(|entry| String::from_utf8_lossy(&entry.value).into_owned()))
    }

    async fn until_vacant(&self) {
        loop {
            tokio::time::sleep(BEAT).await;
            if let Ok(None) = self.leader().await {
                return;
            }
        }
    }

    async fn lead(&self, lease: &Lease, term: &Term, stop: &CancellationToken) {
        let over = stop.child_token();
        let work = async {
            match over.run_until_cancelled(self.orchestrator.lead(term.clone())).await {
                Some(Ok(())) => {
                    info!(name = self.name, "this controller leads");
                    Arc::clone(&self.orchestrator).run(over.clone()).await;
                }
                Some(Err(err)) => {
                    warn!(
                        error = common::chain(&err),
                        "what was written before cannot be taken in; another may lead"
                    );
                }
                None => {}
            }
            over.cancel();
        };
        let renewals = async {
            tokio::select! {
                () = over.cancelled() => {}
                () = self.renew(lease, term) => warn!("this controller leads no more"),
            }
            self.orchestrator.follow(None);
            over.cancel();
        };
        tokio::join!(work, renewals);
    }

    /// Returns when the lease is lost, or may be.
    async fn renew(&self, lease: &Lease, term: &Term) {
        while !term.is_over() {
            tokio::time::sleep(BEAT).await;
            let asked = Instant::now();
            match tokio::time::timeout(BEAT, self.store.keep_alive(lease.id)).await {
                Ok(Ok(_)) => term.extend(asked + PATIENCE),
                Ok(Err(LeaseError::NotFound { .. })) => return,
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }
}

enum Standing {
    Won(Lease, Term),
    /// With the name of who leads.
    Lost(String),
}

#[derive(Debug, thiserror::Error)]
enum StandError {
    #[error("cannot read who leads")]
    Read(#[from] store::ReadError),
    #[error("cannot get a lease")]
    Lease(#[from] LeaseError),
    #[error("cannot write who leads")]
    Write(#[source] TransactError),
}

fn key() -> Key {
    "leader/orchestrator".parse().expect("a fixed path is a legal key")
}
