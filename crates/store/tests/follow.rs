//! A follower whose watch is lost, again and again, ends with what is stored, and is never told half of a change.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use store::{
    Backend, Committed, CompactError, Entry, Health, Key, Lease, LeaseError, LeaseId, Listing, Prefix,
    ReadError, Revision, Snapshot, Store, TransactError, Transaction, Watch, WatchError, WatchFrom, embedded,
    follow::{Follower, Step},
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A store whose watches end when told to.
struct Breaking {
    inner: Store,
    line: Arc<Mutex<Cut>>,
}

#[derive(Default)]
struct Cut {
    /// Ends the watches that there are.
    now: CancellationToken,
    /// New watches end at once.
    down: bool,
}

#[async_trait]
impl Backend for Breaking {
    fn watch(&self, prefix: &Prefix, from: WatchFrom) -> Watch {
        let broken = || Err(WatchError::Closed);
        let line = self.line.lock();
        if line.down {
            return Watch::new(stream::iter([broken()]));
        }
        let cut = line.now.clone();
        let events = self.inner.watch(prefix, from).take_until(cut.cancelled_owned());
        Watch::new(events.chain(stream::iter([broken()])))
    }
    async fn transact(&self, transaction: Transaction) -> Result<Committed, TransactError> {
        self.inner.transact(transaction).await
    }
    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        self.inner.get(key).await
    }
    async fn list(&self, prefix: &Prefix) -> Result<Listing, ReadError> {
        self.inner.list(prefix).await
    }
    async fn snapshot(&self, prefix: &Prefix) -> Result<Snapshot, ReadError> {
        self.inner.snapshot(prefix).await
    }
    async fn revision(&self) -> Result<Revision, ReadError> {
        self.inner.revision().await
    }
    async fn grant_lease(&self, ttl: Duration) -> Result<Lease, LeaseError> {
        self.inner.grant_lease(ttl).await
    }
    async fn keep_alive(&self, lease: LeaseId) -> Result<Lease, LeaseError> {
        self.inner.keep_alive(lease).await
    }
    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.inner.revoke_lease(lease).await
    }
    async fn compact(&self, revision: Revision) -> Result<(), CompactError> {
        self.inner.compact(revision).await
    }
    async fn health(&self) -> Result<Health, ReadError> {
        self.inner.health().await
    }
}

/// The wire to a store, to be cut.
struct Wire(Arc<Mutex<Cut>>);

impl Wire {
    /// Ends all watches; with `down`, also those to come.
    fn cut(&self, down: bool) {
        let mut line = self.0.lock();
        std::mem::take(&mut line.now).cancel();
        line.down = down;
    }

    fn mend(&self) {
        self.0.lock().down = false;
    }
}

fn fresh(options: impl FnOnce(&mut embedded::Options)) -> (Store, Wire, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut with = embedded::Options::new(dir.path());
    options(&mut with);
    let line = Arc::new(Mutex::default());
    let store = Store::new(Breaking { inner: with.open().unwrap(), line: Arc::clone(&line) });
    (store, Wire(line), dir)
}

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

async fn put(store: &Store, name: &str) -> Revision {
    store.transact(Transaction::new().put(key(name), "v")).await.unwrap().revision
}

/// What a follower makes of the steps: a map that is replaced by each whole state.
struct Memory {
    follower: Follower,
    entries: BTreeMap<Key, Entry>,
    loading: Option<BTreeMap<Key, Entry>>,
    told: BTreeSet<Revision>,
    loads: usize,
}

impl Memory {
    fn of(store: &Store) -> Self {
        let follower = Follower::new(store.clone(), "f/".parse().unwrap());
        Self { follower, entries: BTreeMap::new(), loading: None, told: BTreeSet::new(), loads: 0 }
    }

    /// Takes one step in; the revision that is whole then.
    fn take(&mut self, step: Step) -> Option<Revision> {
        match step {
            Step::Begin => self.loading = Some(BTreeMap::new()),
            Step::Apply(entry) => {
                let map = self.loading.as_mut().unwrap_or(&mut self.entries);
                assert!(map.get(&entry.key).is_none_or(|before| before.modified < entry.modified), "twice");
                map.insert(entry.key.clone(), entry);
            }
            Step::Delete { key, .. } => {
                assert!(self.loading.is_none(), "a state has no deletions");
                self.entries.remove(&key).expect("it is deleted once, and was there");
            }
            Step::Complete { revision } => {
                match self.loading.take() {
                    Some(entries) => (self.entries, self.loads) = (entries, self.loads + 1),
                    None => assert!(self.told.insert(revision), "revision {revision} was told twice"),
                }
                self.follower.took_in(revision);
                return Some(revision);
            }
        }
        None
    }

    async fn until(&mut self, revision: Revision) {
        let reached = async {
            loop {
                let step = self.follower.next().await;
                if self.take(step).is_some_and(|at| at >= revision) {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), reached).await.expect("the follower gets there");
    }

    fn revisions(&self) -> Revisions {
        self.entries.iter().map(|(key, entry)| (key.clone(), entry.modified)).collect()
    }

    fn names(&self) -> Vec<&str> {
        self.entries.keys().map(Key::as_str).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_deleted_while_the_watch_was_lost_is_gone_after_it() {
    let (store, wire, _dir) = fresh(|_| {});
    put(&store, "f/kept").await;
    let at = put(&store, "f/gone").await;
    let mut memory = Memory::of(&store);
    let progress = memory.follower.progress();
    memory.until(at).await;
    assert_eq!(memory.names(), ["f/gone", "f/kept"]);
    wire.cut(true);
    store.transact(Transaction::new().delete(key("f/gone"))).await.unwrap();
    let at = put(&store, "f/new").await;
    // It tries, and says that it is lost; what was known stays meanwhile.
    let waiting = tokio::time::timeout(Duration::from_millis(300), memory.follower.next());
    assert!(waiting.await.is_err());
    assert!(progress.broken_since().is_some_and(|since| since.elapsed() >= Duration::from_millis(200)));
    assert_eq!(memory.names(), ["f/gone", "f/kept"]);
    wire.mend();
    memory.until(at).await;
    assert_eq!((memory.names(), memory.loads), (vec!["f/kept", "f/new"], 2));
    assert_eq!((progress.broken_since(), progress.reached()), (None, Some(at)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_history_has_left_behind_starts_over() {
    let (store, _wire, _dir) = fresh(|options| (options.ring_changes, options.log_revisions) = (2, 4));
    let at = put(&store, "f/first").await;
    let mut memory = Memory::of(&store);
    memory.until(at).await;
    let mut last = at;
    for n in 0..40 {
        last = put(&store, &format!("f/{n:02}")).await;
    }
    store.transact(Transaction::new().delete(key("f/first"))).await.unwrap();
    last = put(&store, "f/00").await.max(last);
    memory.until(last).await;
    assert_eq!((memory.loads, memory.entries.len()), (2, 40));
    assert!(!memory.entries.contains_key(&key("f/first")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_was_cut_off_counts_for_nothing() {
    let (store, wire, _dir) = fresh(|_| {});
    let mut last = Revision(0);
    for n in 0..10 {
        last = put(&store, &format!("f/{n}")).await;
    }
    let mut memory = Memory::of(&store);
    for _ in 0..5 {
        let step = memory.follower.next().await;
        assert_eq!(memory.take(step), None);
    }
    wire.cut(false);
    memory.until(last).await;
    assert_eq!((memory.loads, memory.entries.len()), (1, 10));
}

/// Random transactions, and cuts amid them: after each `Complete` memory is what was stored at that revision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_cut_memory_is_a_state_that_was() {
    const CUTS: [u32; 6] = [1, 50, 333, 900, 1500, 2500];
    let (store, wire, _dir) = fresh(|_| {});
    let writer = tokio::spawn(write(store.clone()));
    let mut memory = Memory::of(&store);
    let (mut seen, mut steps) = (Vec::<(Revision, Revisions)>::new(), 0);
    while !seen.last().is_some_and(|(_, state)| state.contains_key(&key("f/end"))) {
        let step = tokio::time::timeout(Duration::from_secs(30), memory.follower.next()).await;
        let whole = memory.take(step.expect("the follower goes on"));
        seen.extend(whole.map(|at| (at, memory.revisions())));
        steps += 1;
        if CUTS.contains(&steps) {
            wire.cut(false);
        }
    }
    let history = writer.await.unwrap();
    for (at, state) in &seen {
        assert_eq!(history.get(at), Some(state), "at {at}");
    }
    assert_eq!(seen.last().map(|(at, _)| at), history.keys().last());
    assert!(memory.loads > 3, "it was cut {} times", memory.loads);
}

type Revisions = BTreeMap<Key, Revision>;

/// Writes at random, and `f/end` at last. Answers what was stored at each revision.
async fn write(store: Store) -> BTreeMap<Revision, Revisions> {
    let mut history = BTreeMap::from([(Revision(0), Revisions::new())]);
    let mut random = 88_172_645_463_325_252_u64;
    for _ in 0..1500 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let touched: BTreeSet<u64> = (0..=random % 5).map(|n| (random >> (8 * n)) % 24).collect();
        let mut state = history.last_key_value().unwrap().1.clone();
        let (mut change, mut puts) = (Transaction::new(), Vec::new());
        for n in touched {
            let key = key(&format!("f/{n}"));
            if random >> n & 1 == 0 && state.remove(&key).is_some() {
                change = change.delete(key);
            } else {
                puts.push(key.clone());
                change = change.put(key, "v");
            }
        }
        let revision = store.transact(change).await.unwrap().revision;
        state.extend(puts.into_iter().map(|key| (key, revision)));
        history.insert(revision, state);
    }
    let mut state = history.last_key_value().unwrap().1.clone();
    let revision = put(&store, "f/end").await;
    state.insert(key("f/end"), revision);
    history.insert(revision, state);
    history
}
