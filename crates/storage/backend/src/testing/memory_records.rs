//! Records in memory, with the same promise as the store: whole transactions, versions that never repeat.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use storage_provider::{Consumer, ConsumerId, Ledger, TicketHash, TicketRecord};

use crate::records::{Change, CommitError, Records, RecordsError, Stored, Version};

#[derive(Default)]
pub struct MemoryRecords {
    tables: Mutex<Tables>,
    /// This many of the next commits fail without effect.
    pub failing_commits: AtomicUsize,
}

#[derive(Clone, Default)]
struct Tables {
    last: u64,
    consumers: BTreeMap<ConsumerId, Stored<Consumer>>,
    tickets: BTreeMap<TicketHash, Stored<TicketRecord>>,
    ledger: Option<Stored<Ledger>>,
}

impl MemoryRecords {
    /// A copy of all records: what a restart would find.
    pub fn snapshot(&self) -> Self {
        Self { tables: Mutex::new(self.tables.lock().clone()), failing_commits: AtomicUsize::new(0) }
    }
}

impl Tables {
    fn apply(&mut self, change: Change) -> Result<(), CommitError> {
        self.last += 1;
        let version = Version(self.last);
        match change {
            Change::PutConsumer { expected, value } => {
                check(expected, self.consumers.get(&value.id))?;
                self.consumers.insert(value.id, Stored { value, version });
            }
            Change::DeleteConsumer { expected, id } => {
                check(expected, self.consumers.get(&id))?;
                self.consumers.remove(&id);
            }
            Change::PutTicket { expected, value } => {
                check(expected, self.tickets.get(&value.hash))?;
                self.tickets.insert(value.hash.clone(), Stored { value, version });
            }
            Change::DeleteTicket { expected, hash } => {
                check(expected, self.tickets.get(&hash))?;
                self.tickets.remove(&hash);
            }
            Change::PutLedger { expected, value } => {
                check(expected, self.ledger.as_ref())?;
                self.ledger = Some(Stored { value, version });
            }
        }
        Ok(())
    }
}

fn check<T>(expected: Version, current: Option<&Stored<T>>) -> Result<(), CommitError> {
    let current = current.map_or(Version::ABSENT, |stored| stored.version);
    if current == expected { Ok(()) } else { Err(CommitError::Conflict) }
}

#[async_trait]
impl Records for MemoryRecords {
    async fn consumer(&self, id: ConsumerId) -> Result<Option<Stored<Consumer>>, RecordsError> {
        Ok(self.tables.lock().consumers.get(&id).cloned())
    }

    async fn consumers(&self) -> Result<Vec<Stored<Consumer>>, RecordsError> {
        Ok(self.tables.lock().consumers.values().cloned().collect())
    }

    async fn ticket(&self, hash: &TicketHash) -> Result<Option<Stored<TicketRecord>>, RecordsError> {
        Ok(self.tables.lock().tickets.get(hash).cloned())
    }

    async fn tickets(&self) -> Result<Vec<Stored<TicketRecord>>, RecordsError> {
        Ok(self.tables.lock().tickets.values().cloned().collect())
    }

    async fn ledger(&self) -> Result<Stored<Ledger>, RecordsError> {
        let empty = Stored { value: Ledger::default(), version: Version::ABSENT };
        Ok(self.tables.lock().ledger.clone().unwrap_or(empty))
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<(), CommitError> {
        // Gives other tasks a turn, as a disk would.
        tokio::task::yield_now().await;
        let failing = |left: usize| left.checked_sub(1);
        if self.failing_commits.fetch_update(Ordering::SeqCst, Ordering::SeqCst, failing).is_ok() {
            return Err(CommitError::Failed { reason: "injected".to_owned() });
        }
        let mut tables = self.tables.lock();
        let mut next = tables.clone();
        changes.into_iter().try_for_each(|change| next.apply(change))?;
        *tables = next;
        Ok(())
    }
}
