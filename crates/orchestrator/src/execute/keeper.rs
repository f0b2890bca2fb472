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
//! If the store's answer to a transaction is lost, nobody knows whether it was applied. Memory is then *in doubt*: a mark
//! is written, and when the watch brings the mark it has brought whatever was applied before it. Nothing is planned
//! meanwhile: what was chosen may be taken.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use store::{
    Committed, Compare, Expected, Key, Operation, Revision, Store, TransactError, Transaction,
    backoff::Backoff,
    follow::{Follower, Step},
};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tracing::warn;

use super::{
    Fence, OrchestratorError,
    error::chain,
    facts::{self, Fact},
    lead::Rank,
    state::State,
};

/// Transactions on their way at once, and as many that wait for it. Whoever comes then waits for a place.
pub(super) const PLACES: usize = 1024;
/// Pauses before the mark is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

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
    /// The mark on its way: its revision, or none if it is not for this controller to write.
    mark: Option<BoxFuture<'static, Option<Revision>>>,
    /// How many answers were lost since the mark was sent.
    lost: usize,
    /// Where the mark is: memory that has reached it has all that was in doubt.
    marked: Option<Revision>,
}

impl Keeper {
    pub(super) fn new(
        store: Store,
        follower: Follower,
        shared: Shared,
        commits: mpsc::Receiver<Commit>,
    ) -> Self {
        Self {
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
            mark: None,
            lost: 0,
            marked: None,
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
            let mark = async {
                match &mut self.mark {
                    Some(mark) => mark.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                step = self.follower.next() => self.take(step),
                Some(commit) = self.commits.recv(), if self.under_way.len() < PLACES => self.begin(commit),
                Some(answered) = self.under_way.next(), if !self.under_way.is_empty() => self.answered(answered),
                marked = mark => {
                    self.mark = None;
                    self.marked(marked);
                }
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
        match result {
            Ok(committed) if changes => self.answer_at(committed.revision, answer, Ok(())),
            Ok(_) => drop(answer.send(Ok(()))),
            Err(TransactError::Conflict { key, .. }) if fence.as_ref().is_some_and(|it| it.key == key) => {
                self.shared.rank.send_if_modified(|rank| rank.end(fence.as_ref()));
                let _ = answer.send(Err(OrchestratorError::NotLeading { leader: None }));
            }
            // Whoever tries again shall do so on what the store has.
            Err(TransactError::Conflict { key, found }) => {
                self.forget(&compares);
                let expected = compares.into_iter().find(|compare| compare.key == key);
                match (found, expected.map(|compare| compare.expected)) {
                    (Some(found), _) => self.answer_at(found, answer, Err(OrchestratorError::Superseded)),
                    (None, Some(Expected::ModifiedAt(known))) => self.refused.push((key, known, answer)),
                    (None, _) => drop(answer.send(Err(OrchestratorError::Superseded))),
                }
                self.answer_refused();
            }
            Err(err) => {
                self.forget(&compares);
                if err.may_be_applied() {
                    self.doubt();
                }
                let _ = answer.send(Err(OrchestratorError::Write(err)));
            }
        }
    }

    /// What was to be written is perhaps not: should the watch bring it after all, it is read. Every key that is written
    /// is among the compares.
    fn forget(&mut self, compares: &[Compare]) {
        compares.iter().for_each(|compare| drop(self.written.remove(&compare.key)));
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
            Step::Apply(entry) if entry.key == facts::mark() => {}
            Step::Delete { key, .. } if key == facts::mark() => {}
            Step::Apply(entry) => match &mut self.loading {
                Some(state) => drop(state.hear(&entry.key, Some(&entry.value), entry.modified)),
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
                        state.hear_fact(&key, fact, revision)
                    }
                    _ => state.hear(&key, value.as_deref(), revision),
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

    /// An answer was lost.
    fn doubt(&mut self) {
        self.shared.in_doubt.send_replace(true);
        self.lost += 1;
        if self.mark.is_none() {
            self.send_mark();
        }
    }

    fn send_mark(&mut self) {
        self.lost = 0;
        let (store, rank) = (self.store.clone(), self.shared.rank.subscribe());
        self.mark = Some(write_mark(store, rank).boxed());
    }

    fn marked(&mut self, revision: Option<Revision>) {
        self.marked = Some(revision.unwrap_or_default());
        self.settle();
    }

    /// Memory is certain again, if it has the mark and no answer was lost since that was sent.
    fn settle(&mut self) {
        if self.marked.is_none_or(|marked| marked > self.reached) {
            return;
        }
        self.marked = None;
        if self.lost > 0 {
            return self.send_mark();
        }
        self.shared.in_doubt.send_replace(false);
        self.shared.wake.notify_one();
    }
}

/// Writes the mark, however long that takes. None if another one leads: what is in doubt is then not ours, and is read
/// before this one leads again.
async fn write_mark(store: Store, rank: watch::Receiver<Rank>) -> Option<Revision> {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let fence = match &*rank.borrow() {
            Rank::Alone => None,
            Rank::Leading(term) => Some(term.fence.clone()),
            Rank::Following(_) => return None,
        };
        match store.transact(mark(fence.as_ref())).await {
            Ok(committed) => return Some(committed.revision),
            Err(TransactError::Conflict { .. }) => return None,
            Err(err) => {
                warn!(error = chain(&err), "nothing is planned before it is known what is stored");
                tokio::time::sleep(backoff.pause()).await;
            }
        }
    }
}

/// A transaction that changes nothing but the mark.
pub(super) fn mark(fence: Option<&Fence>) -> Transaction {
    fenced(fence).put(facts::mark(), "")
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
