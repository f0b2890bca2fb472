//! The keeper: the one task through which what is stored changes, and through which memory does.
//!
//! In: transactions, and the store's watch. Out: memory as a function of the watch, in every rank; answers to those who
//! still wait for them. Holds: the follower, what is on its way to the store, and who waits. Not here: what a fact means
//! ([`super::state`]), what to write (`requests`, `perform`).
//!
//! ```text
//!   request or step ── transaction ──► keeper ──► store
//!         ▲                                         │ watch
//!         └── answer, once memory has it ── keeper ◄┘ ──► memory ──► planner
//! ```
//!
//! A caller that goes away only stops waiting: its transaction is carried out, taken in and planned for all the same.
//! Transactions that do not touch each other are on their way together and share the store's writes; that two do, the
//! store finds out by the revisions they expect.
//!
//! If the store's answer to a transaction is lost, memory is in [`doubt`] until it has all that is stored. Nothing is
//! planned meanwhile: what would be chosen may be taken.

mod doubt;

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::Arc,
};

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use store::{
    Committed, Compare, Expected, Key, Operation, Revision, Store, TransactError, Transaction,
    follow::{Follower, Step},
};
use tokio::sync::{Notify, mpsc, oneshot, watch};

pub(super) use doubt::mark;

use doubt::Doubt;

use super::{
    Fence, OrchestratorError,
    facts::{self, Fact},
    lead::Rank,
    state::State,
};

/// Transactions on their way at once, and as many that wait for it. Whoever comes then waits for a place.
pub(super) const PLACES: usize = 1024;

type Answer = Result<(), OrchestratorError>;

/// A transaction for the keeper.
pub(super) struct Commit {
    pub transaction: Transaction,
    /// What it writes, one for each of its operations.
    pub facts: Vec<Fact>,
    /// What it expects of the election, among its compares.
    pub fence: Option<Fence>,
    pub answer: oneshot::Sender<Answer>,
}

/// What the keeper shares with the orchestrator.
#[derive(Clone, Default)]
pub(super) struct Shared {
    pub state: Arc<Mutex<State>>,
    /// Something changed: plan again.
    pub wake: Arc<Notify>,
    /// Counts changes, for those who wait.
    pub changes: watch::Sender<u64>,
    /// Memory may lack what is stored: an answer of the store was lost.
    pub in_doubt: watch::Sender<bool>,
    pub rank: watch::Sender<Rank>,
}

/// A transaction that the store has answered.
struct Answered {
    compares: Vec<Compare>,
    fence: Option<Fence>,
    /// Whether it has a revision of its own.
    changes: bool,
    result: Result<Committed, TransactError>,
    answer: oneshot::Sender<Answer>,
}

pub(super) struct Keeper {
    store: Store,
    shared: Shared,
    follower: Follower,
    /// The state that is being told, until it is complete.
    loading: Option<State>,
    /// The transaction that is being told, until it is complete.
    told: Vec<(Key, Option<Bytes>)>,
    /// What is on its way, by key, with how it is written: what the watch brings so written need not be read.
    written: HashMap<Key, (Bytes, Fact)>,
    reached: Revision,
    commits: mpsc::Receiver<Commit>,
    under_way: FuturesUnordered<BoxFuture<'static, Answered>>,
    /// Who is answered when memory has reached a revision.
    waiting: BTreeMap<Revision, Vec<(oneshot::Sender<Answer>, Answer)>>,
    /// Who is answered when memory has no longer this revision of a key, which the store has not.
    refused: Vec<(Key, Revision, oneshot::Sender<Answer>)>,
    doubt: Doubt,
    /// The key of the mark, which is no fact.
    mark: Key,
}

impl Keeper {
    pub(super) fn new(
        store: Store,
        follower: Follower,
        shared: Shared,
        commits: mpsc::Receiver<Commit>,
    ) -> Self {
        Self {
            doubt: Doubt::new(store.clone(), shared.rank.subscribe()),
            mark: facts::mark(),
            store,
            shared,
            follower,
            loading: None,
            told: Vec::new(),
            written: HashMap::new(),
            reached: Revision(0),
            commits,
            under_way: FuturesUnordered::new(),
            waiting: BTreeMap::new(),
            refused: Vec::new(),
        }
    }

    /// Takes in the first whole state.
    pub(super) async fn load(&mut self) {
        while self.follower.progress().reached().is_none() {
            let step = self.follower.next().await;
            self.take(step);
        }
    }

    /// Goes on until it is dropped.
    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                step = self.follower.next() => self.take(step),
                Some(commit) = self.commits.recv(), if self.under_way.len() < PLACES => self.begin(commit),
                Some(answered) = self.under_way.next(), if !self.under_way.is_empty() => self.answered(answered),
                () = self.doubt.marked() => self.settle(),
            }
        }
    }

    fn begin(&mut self, Commit { transaction, facts, fence, answer }: Commit) {
        for (operation, fact) in transaction.operations.iter().zip(facts) {
            if let Operation::Put { key, value, .. } = operation {
                self.written.insert(key.clone(), (value.clone(), fact));
            }
        }
        let compares = transaction.compares.clone();
        let changes = changes_something(&transaction);
        let store = self.store.clone();
        let sent = async move { store.transact(transaction).await };
        let answered = sent.map(move |result| Answered { compares, fence, changes, result, answer });
        self.under_way.push(answered.boxed());
    }

    fn answered(&mut self, Answered { compares, fence, changes, result, answer }: Answered) {
        if result.is_err() {
            // Should the watch bring it after all, it is read. Every key that is written is among the compares.
            compares.iter().for_each(|compare| drop(self.written.remove(&compare.key)));
        }
        match result {
            Ok(committed) if changes => self.answer_at(committed.revision, answer, Ok(())),
            Ok(_) => drop(answer.send(Ok(()))),
            Err(TransactError::Conflict { key, .. }) if fence.as_ref().is_some_and(|it| it.key == key) => {
                self.shared.rank.send_if_modified(|rank| rank.end(fence.as_ref()));
                let _ = answer.send(Err(OrchestratorError::NotLeading { leader: None }));
            }
            // Whoever tries again shall do so on what the store has.
            Err(TransactError::Conflict { key, found }) => {
                let expected = compares.into_iter().find(|compare| compare.key == key);
                match (found, expected.map(|compare| compare.expected)) {
                    (Some(found), _) => self.answer_at(found, answer, Err(OrchestratorError::Superseded)),
                    (None, Some(Expected::ModifiedAt(known))) => self.refused.push((key, known, answer)),
                    (None, _) => drop(answer.send(Err(OrchestratorError::Superseded))),
                }
                self.answer_refused();
            }
            Err(err) => {
                if err.may_be_applied() {
                    self.shared.in_doubt.send_replace(true);
                    self.doubt.begin();
                }
                let _ = answer.send(Err(OrchestratorError::Write(err)));
            }
        }
    }

    /// Answers once memory has reached a revision.
    fn answer_at(&mut self, revision: Revision, answer: oneshot::Sender<Answer>, with: Answer) {
        if self.reached >= revision {
            // Nobody listens any more if the caller has gone.
            let _ = answer.send(with);
        } else {
            self.waiting.entry(revision).or_default().push((answer, with));
        }
    }

    fn answer_refused(&mut self) {
        if self.refused.is_empty() {
            return;
        }
        let state = self.shared.state.lock();
        let is_known =
            |(key, revision, _): &mut (Key, Revision, _)| state.revisions.get(key) != Some(revision);
        for (_, _, answer) in self.refused.extract_if(.., is_known) {
            let _ = answer.send(Err(OrchestratorError::Superseded));
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Begin => {
                self.told.clear();
                self.loading = Some(State::default());
            }
            Step::Apply(entry) if entry.key == self.mark => {}
            Step::Delete { key, .. } if key == self.mark => {}
            Step::Apply(entry) => match &mut self.loading {
                Some(state) => drop(state.take_in(&entry.key, Some(&entry.value), entry.modified)),
                None => self.told.push((entry.key, Some(entry.value))),
            },
            Step::Delete { key, .. } => self.told.push((key, None)),
            Step::Complete { revision } => self.complete(revision),
        }
    }

    fn complete(&mut self, revision: Revision) {
        let mut is_news = false;
        {
            let mut state = self.shared.state.lock();
            for (key, value) in mem::take(&mut self.told) {
                is_news |= match (self.written.remove(&key), &value) {
                    (Some((written, fact)), Some(value)) if written == *value => {
                        state.take_in_fact(&key, fact, revision)
                    }
                    _ => state.take_in(&key, value.as_deref(), revision),
                };
            }
            if let Some(stored) = self.loading.take() {
                state.replace(stored);
                self.written.clear();
                is_news = true;
            }
        }
        self.reached = revision;
        self.follower.took_in(revision);
        self.shared.changes.send_modify(|count| *count += 1);
        if is_news {
            self.shared.wake.notify_one();
        }
        let later = self.waiting.split_off(&Revision(revision.0 + 1));
        for (answer, with) in mem::replace(&mut self.waiting, later).into_values().flatten() {
            let _ = answer.send(with);
        }
        self.answer_refused();
        self.settle();
    }

    fn settle(&mut self) {
        if self.doubt.ends_at(self.reached) {
            self.shared.in_doubt.send_replace(false);
            self.shared.wake.notify_one();
        }
    }
}

/// A transaction that only this term's leader can make.
pub(super) fn fenced(fence: Option<&Fence>) -> Transaction {
    match fence {
        Some(fence) => Transaction::new().expect_modified_at(fence.key.clone(), fence.revision),
        None => Transaction::new(),
    }
}

/// Whether a transaction that is applied has a revision of its own. It has none if it only deletes what it expects to be
/// absent.
fn changes_something(transaction: &Transaction) -> bool {
    let is_absent = |key: &Key| {
        let mut compares = transaction.compares.iter();
        compares.any(|compare| compare.key == *key && compare.expected == Expected::Absent)
    };
    transaction.operations.iter().any(|operation| match operation {
        Operation::Put { .. } => true,
        Operation::Delete { key } => !is_absent(key),
        Operation::DeletePrefix { .. } => false,
    })
}
