//! One transaction against the tables: judge all of it, then change.
//!
//! In: a transaction and the open tables of the batch's write transaction, which already hold the effects of the
//! transactions before it. Out: the change to log and publish, or why it was refused; a refused one has touched
//! nothing, so the batch goes on. Only an [`EngineError`] spoils the batch.

use std::time::Duration;

use bytes::Bytes;
use redb::{ReadableTable as _, Table, WriteTransaction};

use super::{
    database::EngineError,
    tables::{
        Change, LEASE_KEYS, LEASES, LOG, META, META_STATE, OBJECTS, ObjectHead, State, decode_head,
        encode_object,
    },
};
use crate::api::{
    Compare, Entry, Event, Key, LeaseId, Operation, Prefix, Revision, TransactError, Transaction,
};

pub(super) struct Tables<'t> {
    objects: Table<'t, &'static str, &'static [u8]>,
    log: Table<'t, u64, &'static [u8]>,
    leases: Table<'t, u64, u64>,
    lease_keys: Table<'t, (u64, &'static str), ()>,
    meta: Table<'t, &'static str, &'static [u8]>,
    pub(super) state: State,
    /// Whether a commit is needed.
    pub(super) dirty: bool,
}

/// A refusal that leaves the batch alone.
pub(super) type Judged<T> = Result<T, TransactError>;

impl<'t> Tables<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction) -> Result<Self, EngineError> {
        let meta = transaction.open_table(META)?;
        let state = match meta.get(META_STATE)? {
            Some(row) => State::decode(row.value())?,
            None => return Err(redb::Error::Corrupted("no state".to_owned()).into()),
        };
        Ok(Self {
            objects: transaction.open_table(OBJECTS)?,
            log: transaction.open_table(LOG)?,
            leases: transaction.open_table(LEASES)?,
            lease_keys: transaction.open_table(LEASE_KEYS)?,
            meta,
            state,
            dirty: false,
        })
    }

    pub(super) fn transact(
        &mut self,
        transaction: &Transaction,
    ) -> Result<Judged<Option<Change>>, EngineError> {
        if let Err(refused) = self.judge(transaction)? {
            return Ok(Err(refused));
        }
        let revision = self.state.revision + 1;
        let mut events = Vec::with_capacity(transaction.operations.len());
        for operation in &transaction.operations {
            match operation {
                Operation::Put { key, value, lease } => events.push(self.put(revision, key, value, *lease)?),
                Operation::Delete { key } => events.extend(self.delete(revision, key)?),
                Operation::DeletePrefix { prefix } => {
                    for key in self.keys_below(prefix)? {
                        events.extend(self.delete(revision, &key)?);
                    }
                }
            }
        }
        self.record(revision, events).map(Ok)
    }

    fn judge(&self, transaction: &Transaction) -> Result<Judged<()>, EngineError> {
        for Compare { key, expected } in &transaction.compares {
            let found = self.head(key)?.map(|head| Revision(head.modified));
            if !expected.accepts(found) {
                return Ok(Err(TransactError::Conflict { key: key.clone(), found }));
            }
        }
        for operation in &transaction.operations {
            if let Operation::Put { lease: Some(lease), .. } = operation
                && self.leases.get(lease.0)?.is_none()
            {
                return Ok(Err(TransactError::LeaseNotFound { lease: *lease }));
            }
        }
        Ok(Ok(()))
    }

    fn head(&self, key: &Key) -> Result<Option<ObjectHead>, EngineError> {
        match self.objects.get(key.as_str())? {
            Some(row) => Ok(Some(decode_head(key.as_str(), row.value())?)),
            None => Ok(None),
        }
    }

    fn put(
        &mut self,
        revision: u64,
        key: &Key,
        value: &Bytes,
        lease: Option<LeaseId>,
    ) -> Result<Event, EngineError> {
        let before = self.head(key)?;
        let entry = Entry {
            key: key.clone(),
            value: value.clone(),
            created: Revision(before.map_or(revision, |head| head.created)),
            modified: Revision(revision),
            lease,
        };
        self.objects.insert(key.as_str(), encode_object(&entry).as_slice())?;
        if let Some(head) = before {
            self.detach(head.lease, key)?;
        }
        if let Some(lease) = lease {
            self.lease_keys.insert((lease.0, key.as_str()), ())?;
        }
        Ok(Event::Apply(entry))
    }

    fn delete(&mut self, revision: u64, key: &Key) -> Result<Option<Event>, EngineError> {
        let lease = match self.objects.remove(key.as_str())? {
            Some(row) => decode_head(key.as_str(), row.value())?.lease,
            None => return Ok(None),
        };
        self.detach(lease, key)?;
        Ok(Some(Event::Delete { key: key.clone(), revision: Revision(revision) }))
    }

    fn detach(&mut self, lease: u64, key: &Key) -> Result<(), EngineError> {
        if lease != 0 {
            self.lease_keys.remove((lease, key.as_str()))?;
        }
        Ok(())
    }

    fn keys_below(&self, prefix: &Prefix) -> Result<Vec<Key>, EngineError> {
        let mut keys = Vec::new();
        for row in self.objects.range(prefix.as_str()..)? {
            let (key, _) = row?;
            if !key.value().starts_with(prefix.as_str()) {
                break;
            }
            keys.push(parse_key(key.value())?);
        }
        Ok(keys)
    }

    /// Gives the events their revision and place in the log; no events, no revision.
    fn record(&mut self, revision: u64, events: Vec<Event>) -> Result<Option<Change>, EngineError> {
        if events.is_empty() {
            return Ok(None);
        }
        let change = Change { revision, events };
        let row = change.encode();
        self.log.insert(revision, row.as_slice())?;
        self.state.revision = revision;
        self.state.log_rows += 1;
        self.state.log_bytes += row.len() as u64;
        self.dirty = true;
        Ok(Some(change))
    }

    pub(super) fn grant(&mut self, ttl_ms: u64) -> Result<LeaseId, EngineError> {
        self.state.last_lease += 1;
        self.leases.insert(self.state.last_lease, ttl_ms)?;
        self.dirty = true;
        Ok(LeaseId(self.state.last_lease))
    }

    pub(super) fn lease_ttl(&self, lease: LeaseId) -> Result<Option<Duration>, EngineError> {
        Ok(self.leases.get(lease.0)?.map(|ttl_ms| Duration::from_millis(ttl_ms.value())))
    }

    /// Ends a lease and deletes its keys. `None` if there is no such lease.
    pub(super) fn end_lease(&mut self, lease: LeaseId) -> Result<Option<Option<Change>>, EngineError> {
        if self.leases.remove(lease.0)?.is_none() {
            return Ok(None);
        }
        self.dirty = true;
        let mut keys = Vec::new();
        for row in self.lease_keys.range((lease.0, "")..)? {
            let (row, ()) = row.map(|(key, _)| (key, ()))?;
            let (owner, key) = row.value();
            if owner != lease.0 {
                break;
            }
            keys.push(parse_key(key)?);
        }
        let revision = self.state.revision + 1;
        let mut events = Vec::with_capacity(keys.len());
        for key in keys {
            events.extend(self.delete(revision, &key)?);
        }
        self.record(revision, events).map(Some)
    }

    /// Forgets log rows up to `revision`.
    pub(super) fn compact(&mut self, revision: u64) -> Result<(), EngineError> {
        if revision <= self.state.compacted {
            return Ok(());
        }
        while self.first_log_revision()?.is_some_and(|first| first <= revision) {
            self.drop_first_log_row()?;
        }
        self.state.compacted = revision;
        self.dirty = true;
        Ok(())
    }

    /// Forgets the oldest rows beyond the limits, at most `most` of them, so that no commit pays for many.
    pub(super) fn trim_log(&mut self, max_rows: u64, max_bytes: u64, most: usize) -> Result<(), EngineError> {
        for _ in 0..most {
            let within = self.state.log_rows <= max_rows && self.state.log_bytes <= max_bytes;
            if within || self.state.log_rows <= 1 {
                break;
            }
            let Some(revision) = self.drop_first_log_row()? else { break };
            self.state.compacted = revision;
        }
        Ok(())
    }

    fn first_log_revision(&self) -> Result<Option<u64>, EngineError> {
        Ok(self.log.first()?.map(|(revision, _)| revision.value()))
    }

    fn drop_first_log_row(&mut self) -> Result<Option<u64>, EngineError> {
        let Some((revision, length)) =
            self.log.pop_first()?.map(|(revision, row)| (revision.value(), row.value().len() as u64))
        else {
            return Ok(None);
        };
        self.state.log_rows = self.state.log_rows.saturating_sub(1);
        self.state.log_bytes = self.state.log_bytes.saturating_sub(length);
        Ok(Some(revision))
    }

    pub(super) fn store_state(&mut self) -> Result<(), EngineError> {
        self.meta.insert(META_STATE, self.state.encode().as_slice())?;
        Ok(())
    }
}

fn parse_key(text: &str) -> Result<Key, EngineError> {
    Key::try_from(text).map_err(|_| redb::Error::Corrupted(format!("key {text:?}")).into())
}
