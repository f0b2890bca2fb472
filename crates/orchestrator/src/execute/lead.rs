//! Leading and following: of several controllers on one store one works, and the others watch.
//!
//! In: who leads, from the server, which holds the election. Out: writes that a leader of the past cannot make, and a
//! memory that follows what the leader stores. Holds: the rank. Not here: the election (`server`).
//!
//! ```text
//!   Alone (a store of its own) ── always writes
//!   Following ── lead(fence) ──► Leading ── every write expects the fence ── it is gone ──► Following
//! ```

use std::sync::atomic::Ordering;

use futures::StreamExt as _;
use store::{Event, Key, Revision, WatchError, WatchFrom};
use tracing::{info, warn};

use super::{
    Orchestrator, OrchestratorError,
    facts::{self, Fact},
    state::State,
};

/// What a leader's writes expect: the key of the election, as it was when this term began. Whoever leads next has
/// written it anew, so that writes of the term before fail, however late they come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub key: Key,
    pub revision: Revision,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Rank {
    /// Nobody else can use the store.
    #[default]
    Alone,
    Leading(Fence),
    /// Who leads, as far as it is known.
    Following(Option<String>),
}

impl Rank {
    fn works(&self) -> bool {
        !matches!(self, Self::Following(_))
    }
}

impl Orchestrator {
    /// From now on this one works. What is stored is read anew, because others have written it.
    pub async fn lead(&self, fence: Fence) -> Result<(), OrchestratorError> {
        self.stale.store(true, Ordering::SeqCst);
        // What an earlier term subscribed to may have changed hands.
        *self.subscribed.lock() = None;
        self.failures.lock().clear();
        self.refresh().await?;
        self.rank.send_replace(Rank::Leading(fence));
        self.changes.send_modify(|count| *count += 1);
        self.wake.notify_one();
        Ok(())
    }

    /// From now on this one does not write. Whoever asks for a change is told who leads.
    pub fn follow(&self, leader: Option<String>) {
        self.rank.send_replace(Rank::Following(leader));
    }

    /// Whether this one works: it leads, or nobody else can use the store.
    pub fn leads(&self) -> bool {
        self.rank.borrow().works()
    }

    /// Whether nobody else can use the store.
    pub fn alone(&self) -> bool {
        *self.rank.borrow() == Rank::Alone
    }

    /// Returns once [`Self::leads`] says `leads`. Others whose work only one may do wait for their turn with it.
    pub async fn until_leads(&self, leads: bool) {
        // The sender is ours: it cannot be gone.
        let _ = self.rank.subscribe().wait_for(|rank| rank.works() == leads).await;
    }

    /// What writes expect; none if nobody else can write. Refuses while another one leads.
    pub(super) fn fence(&self) -> Result<Option<Fence>, OrchestratorError> {
        match &*self.rank.borrow() {
            Rank::Alone => Ok(None),
            Rank::Leading(fence) => Ok(Some(fence.clone())),
            Rank::Following(leader) => Err(OrchestratorError::NotLeading { leader: leader.clone() }),
        }
    }

    /// A write found that somebody else leads.
    pub(super) fn deposed(&self) -> OrchestratorError {
        info!("another controller leads now");
        self.follow(None);
        OrchestratorError::NotLeading { leader: None }
    }

    /// Keeps memory as the leader stores it. Returns when the watch ends; whoever still follows begins again.
    pub async fn mirror(&self) {
        let mut watch = self.store.watch(&facts::prefix(), WatchFrom::Start);
        let mut initial = Some(State::default());
        while let Some(event) = watch.next().await {
            match event {
                Ok(event) => self.hear(event, &mut initial),
                Err(WatchError::Compacted { .. }) => return,
                Err(err) => {
                    warn!(error = %err, "what the leader stores cannot be followed; it is tried again");
                    return;
                }
            }
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Takes one event in: into the initial state as long as it is not complete, then into memory.
    fn hear(&self, event: Event, initial: &mut Option<State>) {
        let (fact, revision) = match event {
            Event::Init { .. } => {
                *initial = Some(State::default());
                return;
            }
            Event::InitDone { .. } => {
                if let Some(state) = initial.take() {
                    *self.state.lock() = state;
                }
                return;
            }
            Event::Apply(entry) => (Fact::read(&entry.key, Some(&entry.value)), entry.modified),
            Event::Delete { key, revision } => (Fact::read(&key, None), revision),
        };
        let Some(fact) = fact else { return };
        match initial {
            Some(state) => state.apply(fact, revision),
            None => self.state.lock().apply(fact, revision),
        }
    }
}
