//! A store in memory, for stories in virtual time: it takes no thread and no disk, and fails when told to.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use cloud_api::Dice;
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use store::{
    Backend, Committed, CompactError, Entry, Event, Health, Key, Lease, LeaseError, LeaseId, Listing,
    Operation, Outcome, Prefix, ReadError, Revision, Snapshot, TransactError, Transaction, Watch, WatchError,
    WatchFrom,
};
use tokio::sync::watch;

/// What goes wrong, in parts of a thousand writes.
#[derive(Clone, Copy, Default)]
pub struct StoreFaults {
    /// Refused, and nothing was written.
    pub before: u32,
    /// Written, but the answer was lost.
    pub after: u32,
    /// Reads that fail.
    pub read: u32,
    /// Events of a watch in whose stead it is lost.
    pub watch: u32,
    /// The longest a write takes.
    pub latency: Duration,
}

pub struct Memory {
    inner: Mutex<Inner>,
}

/// The handle that goes into a store; the test keeps the other.
pub struct MemoryStore(pub Arc<Memory>);

struct Inner {
    entries: BTreeMap<Key, Entry>,
    revision: u64,
    /// What each transaction changed, oldest first.
    log: Vec<Vec<Event>>,
    /// The newest revision, for watches.
    head: watch::Sender<u64>,
    faults: StoreFaults,
    dice: Dice,
}

fn lost() -> Arc<dyn std::error::Error + Send + Sync> {
    Arc::new(std::io::Error::other("the connection broke"))
}

fn unavailable(outcome: Outcome) -> TransactError {
    TransactError::Unavailable { place: "memory".to_owned(), outcome, source: lost() }
}

impl Memory {
    pub fn new(seed: u64) -> Self {
        Self {
            inner: Mutex::new(Inner {
                entries: BTreeMap::new(),
                revision: 0,
                log: Vec::new(),
                head: watch::Sender::new(0),
                faults: StoreFaults::default(),
                dice: Dice::new(seed),
            }),
        }
    }

    pub fn set_faults(&self, faults: StoreFaults) {
        self.inner.lock().faults = faults;
    }

    pub fn keys(&self) -> Vec<Key> {
        self.inner.lock().entries.keys().cloned().collect()
    }

    /// The state, or the next transaction after what was seen, with what is seen then.
    async fn after(&self, seen: Option<u64>) -> (Vec<Event>, u64) {
        let Some(seen) = seen else {
            let inner = self.inner.lock();
            return (inner.state(), inner.revision);
        };
        let mut head = self.inner.lock().head.subscribe();
        head.wait_for(|head| *head > seen).await.unwrap();
        let index = usize::try_from(seen).unwrap();
        (self.inner.lock().log[index].clone(), seen + 1)
    }

    fn watch_fails(&self) -> bool {
        let mut inner = self.inner.lock();
        let chance = inner.faults.watch;
        inner.dice.hits(chance)
    }

    fn read_fails(&self) -> Result<(), ReadError> {
        let mut inner = self.inner.lock();
        let chance = inner.faults.read;
        match inner.dice.hits(chance) {
            true => Err(ReadError::Unavailable { place: "memory".to_owned(), source: lost() }),
            false => Ok(()),
        }
    }
}

impl Inner {
    fn apply(&mut self, transaction: Transaction) -> Result<Committed, TransactError> {
        for compare in &transaction.compares {
            let found = self.entries.get(&compare.key).map(|entry| entry.modified);
            if !compare.expected.accepts(found) {
                return Err(TransactError::Conflict { key: compare.key.clone(), found });
            }
        }
        let revision = Revision(self.revision + 1);
        let mut events = Vec::new();
        for operation in transaction.operations {
            match operation {
                Operation::Put { key, value, lease } => {
                    let created = self.entries.get(&key).map_or(revision, |entry| entry.created);
                    let entry = Entry { key: key.clone(), value, created, modified: revision, lease };
                    self.entries.insert(key, entry.clone());
                    events.push(Event::Apply(entry));
                }
                Operation::Delete { key } if self.entries.remove(&key).is_some() => {
                    events.push(Event::Delete { key, revision });
                }
                Operation::Delete { .. } => {}
                Operation::DeletePrefix { .. } => panic!("nobody here deletes prefixes"),
            }
        }
        if events.is_empty() {
            return Ok(Committed { revision: Revision(self.revision) });
        }
        self.revision = revision.0;
        self.log.push(events);
        self.head.send_replace(revision.0);
        Ok(Committed { revision })
    }

    /// What a watch that begins now is told first.
    fn state(&self) -> Vec<Event> {
        let revision = Revision(self.revision);
        let entries = self.entries.values().cloned().map(Event::Apply);
        [Event::Init { revision }].into_iter().chain(entries).chain([Event::InitDone { revision }]).collect()
    }
}

#[async_trait]
impl Backend for MemoryStore {
    async fn transact(&self, transaction: Transaction) -> Result<Committed, TransactError> {
        let (latency, before, after) = {
            let mut inner = self.0.inner.lock();
            let faults = inner.faults;
            let latency = faults.latency.mul_f64(f64::from(inner.dice.below(1000)) / 1000.0);
            (latency, inner.dice.hits(faults.before), inner.dice.hits(faults.after))
        };
        tokio::time::sleep(latency).await;
        if before {
            return Err(unavailable(Outcome::NotApplied));
        }
        let committed = self.0.inner.lock().apply(transaction)?;
        if after { Err(unavailable(Outcome::Unknown)) } else { Ok(committed) }
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        self.0.read_fails()?;
        Ok(self.0.inner.lock().entries.get(key).cloned())
    }

    async fn list(&self, prefix: &Prefix) -> Result<Listing, ReadError> {
        self.0.read_fails()?;
        let inner = self.0.inner.lock();
        let below = |entry: &&Entry| entry.key.as_str().starts_with(prefix.as_str());
        let entries = inner.entries.values().filter(below).cloned().collect();
        Ok(Listing { entries, revision: Revision(inner.revision) })
    }

    async fn snapshot(&self, prefix: &Prefix) -> Result<Snapshot, ReadError> {
        let listing = self.list(prefix).await?;
        let pages = Box::pin(futures::stream::iter([Ok(listing.entries)]));
        Ok(Snapshot { revision: listing.revision, pages })
    }

    fn watch(&self, prefix: &Prefix, _: WatchFrom) -> Watch {
        let (memory, prefix) = (Arc::clone(&self.0), prefix.clone());
        let batches = stream::unfold(None, move |seen: Option<u64>| {
            let (memory, prefix) = (Arc::clone(&memory), prefix.clone());
            async move {
                let (events, seen) = memory.after(seen).await;
                let is_below = |event: &Event| match event {
                    Event::Apply(entry) => prefix.contains(&entry.key),
                    Event::Delete { key, .. } => prefix.contains(key),
                    Event::Init { .. } | Event::InitDone { .. } => true,
                };
                let events: Vec<_> = events.into_iter().filter(is_below).map(Ok).collect();
                let lost = memory.watch_fails().then_some(Err(WatchError::Closed));
                Some((stream::iter(lost.into_iter().chain(events)), Some(seen)))
            }
        });
        Watch::new(batches.flatten())
    }

    async fn revision(&self) -> Result<Revision, ReadError> {
        Ok(Revision(self.0.inner.lock().revision))
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<Lease, LeaseError> {
        Ok(Lease { id: LeaseId(1), ttl })
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Lease, LeaseError> {
        Err(LeaseError::NotFound { lease })
    }

    async fn revoke_lease(&self, _: LeaseId) -> Result<(), LeaseError> {
        Ok(())
    }

    async fn compact(&self, _: Revision) -> Result<(), CompactError> {
        Ok(())
    }

    async fn health(&self) -> Result<Health, ReadError> {
        Ok(Health {
            place: "memory".to_owned(),
            revision: self.revision().await?,
            compacted: None,
            queued: 0,
            size_bytes: 0,
            refusing_writes: None,
        })
    }
}
