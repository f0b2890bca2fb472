//! Leading and following: of several controllers on one store one works, and the others watch.
//!
//! In: who leads, from the server, which holds the election. Out: writes that a leader of the past cannot make, and calls
//! to clouds that it does not make. Holds: the rank. Not here: the election (`server`), how memory follows what is stored,
//! which is the same in every rank ([`super::keeper`]).
//!
//! ```text
//!   Alone (a store of its own) ── always writes
//!   Following ── lead(term) ──► Leading ── every write expects the fence ── it is gone ──► Following
//!                                        ── every call to a cloud asks the clock
//! ```

use std::sync::Arc;

use parking_lot::Mutex;
use store::{Key, Revision};
use tokio::{sync::oneshot, time::Instant};
use tracing::info;

use super::{
    Orchestrator, OrchestratorError,
    keeper::{self, Commit},
};

/// What a leader's writes expect: the key of the election, as it was when this term began. Whoever leads next has
/// written it anew, so that writes of the term before fail, however late they come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub key: Key,
    pub revision: Revision,
}

/// A term of office. Clones share how long it is known to last.
#[derive(Clone, Debug)]
pub struct Term {
    pub fence: Fence,
    /// By this process's own clock, which goes on while the process is halted: nobody else can lead before then.
    until: Arc<Mutex<Instant>>,
}

impl Term {
    pub fn new(fence: Fence, until: Instant) -> Self {
        Self { fence, until: Arc::new(Mutex::new(until)) }
    }

    /// The lease was renewed: the term lasts until then.
    pub fn extend(&self, until: Instant) {
        let mut known = self.until.lock();
        *known = until.max(*known);
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= *self.until.lock()
    }
}

#[derive(Clone, Debug, Default)]
pub(super) enum Rank {
    /// Nobody else can use the store.
    #[default]
    Alone,
    Leading(Term),
    /// Who leads, as far as it is known.
    Following(Option<String>),
}

impl Rank {
    fn works(&self) -> bool {
        !matches!(self, Self::Following(_))
    }

    /// A write found that the term with this fence is over. True if that is the rank.
    pub(super) fn end(&mut self, fence: Option<&Fence>) -> bool {
        let is_over = matches!(self, Self::Leading(term) if Some(&term.fence) == fence);
        if is_over {
            info!("another controller leads now");
            *self = Self::Following(None);
        }
        is_over
    }
}

impl Orchestrator {
    /// From now on this one works, once it has taken in all that the leaders before it wrote.
    pub async fn lead(&self, term: Term) -> Result<(), OrchestratorError> {
        // What an earlier term subscribed to may have changed hands.
        *self.subscribed.lock() = None;
        self.failures.lock().clear();
        let (answer, answered) = oneshot::channel();
        // Nobody of a term before can write any more, so what is written after the mark is ours.
        let (transaction, fence) = (keeper::mark(Some(&term.fence)), Some(term.fence.clone()));
        let sent = self.commits.send(Commit { transaction, facts: Vec::new(), fence, answer }).await;
        sent.map_err(|_| OrchestratorError::Ended)?;
        answered.await.unwrap_or(Err(OrchestratorError::Ended))?;
        self.shared.rank.send_replace(Rank::Leading(term));
        self.shared.changes.send_modify(|count| *count += 1);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// From now on this one does not write. Whoever asks for a change is told who leads.
    pub fn follow(&self, leader: Option<String>) {
        self.shared.rank.send_replace(Rank::Following(leader));
    }

    /// Refuses what only one may do at a time: to act on a cloud. It is asked right before each call, so that a process
    /// that was halted finds on waking that its term is over, before it has heard of it.
    pub(super) fn may_act(&self) -> Result<(), OrchestratorError> {
        match &*self.shared.rank.borrow() {
            Rank::Leading(term) if term.is_over() => Err(OrchestratorError::NotLeading { leader: None }),
            Rank::Following(leader) => Err(OrchestratorError::NotLeading { leader: leader.clone() }),
            Rank::Alone | Rank::Leading(_) => Ok(()),
        }
    }

    /// Whether this one works: it leads, or nobody else can use the store.
    pub fn leads(&self) -> bool {
        self.shared.rank.borrow().works()
    }

    /// Whether nobody else can use the store.
    pub fn alone(&self) -> bool {
        matches!(*self.shared.rank.borrow(), Rank::Alone)
    }

    /// Returns once [`Self::leads`] says `leads`. Others whose work only one may do wait for their turn with it.
    pub async fn until_leads(&self, leads: bool) {
        // The sender is ours: it cannot be gone.
        let _ = self.shared.rank.subscribe().wait_for(|rank| rank.works() == leads).await;
    }

    /// What writes expect; none if nobody else can write. Refuses while another one leads.
    pub(super) fn fence(&self) -> Result<Option<Fence>, OrchestratorError> {
        match &*self.shared.rank.borrow() {
            Rank::Alone => Ok(None),
            Rank::Leading(term) => Ok(Some(term.fence.clone())),
            Rank::Following(leader) => Err(OrchestratorError::NotLeading { leader: leader.clone() }),
        }
    }
}
