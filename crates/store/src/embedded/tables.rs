//! The tables of the file and the encoding of their rows.
//!
//! ```text
//! objects     key                → created, modified, lease, value
//! log         revision           → the changes of that transaction, in order (for watches that resume)
//! leases      lease id           → time to live in ms
//! lease_keys  (lease id, key)    → ()                    (which keys end with the lease)
//! meta        "format"           → FORMAT, written once when the file is made
//!             "state"            → State, rewritten by each commit
//! ```
//!
//! All numbers are little-endian u64 unless a length says otherwise. A lease of 0 is "none".

use bytes::{Buf, BufMut, Bytes};
use redb::TableDefinition;
use thiserror::Error;

use crate::api::{Entry, Event, Key, LeaseId, Revision};

pub(super) const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
pub(super) const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
pub(super) const LEASES: TableDefinition<'_, u64, u64> = TableDefinition::new("leases");
pub(super) const LEASE_KEYS: TableDefinition<'_, (u64, &str), ()> = TableDefinition::new("lease_keys");
pub(super) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

pub(super) const META_FORMAT: &str = "format";
pub(super) const META_STATE: &str = "state";
/// Raised when a file written by this code could be misread by code that knows only smaller numbers.
pub(super) const FORMAT: u64 = 1;

/// A row does not have the shape this code writes: the file is damaged or not ours.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("malformed {row}")]
pub(super) struct Malformed {
    pub(super) row: String,
}

fn malformed(row: impl Into<String>) -> Malformed {
    Malformed { row: row.into() }
}

/// Where the store stands. Invariant: `compacted <= revision`, and the log holds exactly `compacted+1..=revision`
/// (with gaps where revisions have gaps).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) revision: u64,
    pub(super) compacted: u64,
    pub(super) log_bytes: u64,
    pub(super) log_rows: u64,
    pub(super) last_lease: u64,
}

impl State {
    pub(super) fn encode(self) -> Vec<u8> {
        let Self { revision, compacted, log_bytes, log_rows, last_lease } = self;
        [revision, compacted, log_bytes, log_rows, last_lease].iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    pub(super) fn decode(mut row: &[u8]) -> Result<Self, Malformed> {
        let mut next = || row.try_get_u64_le().map_err(|_| malformed("state of the store"));
        let (revision, compacted) = (next()?, next()?);
        Ok(Self { revision, compacted, log_bytes: next()?, log_rows: next()?, last_lease: next()? })
    }
}

/// What an object's row says beside the value.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectHead {
    pub(super) created: u64,
    pub(super) modified: u64,
    pub(super) lease: u64,
}

const HEAD_LENGTH: usize = 24;

pub(super) fn encode_object(entry: &Entry) -> Vec<u8> {
    let mut row = Vec::with_capacity(HEAD_LENGTH + entry.value.len());
    row.put_u64_le(entry.created.0);
    row.put_u64_le(entry.modified.0);
    row.put_u64_le(entry.lease.map_or(0, |lease| lease.0));
    row.put_slice(&entry.value);
    row
}

pub(super) fn decode_head(key: &str, mut row: &[u8]) -> Result<ObjectHead, Malformed> {
    let mut next = || row.try_get_u64_le().map_err(|_| malformed(format!("object {key}")));
    Ok(ObjectHead { created: next()?, modified: next()?, lease: next()? })
}

pub(super) fn decode_object(key: &str, row: &[u8]) -> Result<Entry, Malformed> {
    let head = decode_head(key, row)?;
    Ok(Entry {
        key: Key::try_from(key).map_err(|_| malformed(format!("key {key:?}")))?,
        value: Bytes::copy_from_slice(&row[HEAD_LENGTH..]),
        created: Revision(head.created),
        modified: Revision(head.modified),
        lease: lease_from(head.lease),
    })
}

fn lease_from(number: u64) -> Option<LeaseId> {
    (number != 0).then_some(LeaseId(number))
}

/// All changes of one transaction, as the watches and the log see them. Only `Apply` and `Delete` events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) events: Vec<Event>,
}

const TAG_APPLY: u8 = 1;
const TAG_DELETE: u8 = 2;

impl Change {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(self.weight());
        for event in &self.events {
            match event {
                Event::Apply(entry) => {
                    row.put_u8(TAG_APPLY);
                    put_bytes(&mut row, entry.key.as_str().as_bytes());
                    row.put_u64_le(entry.created.0);
                    row.put_u64_le(entry.lease.map_or(0, |lease| lease.0));
                    put_bytes(&mut row, &entry.value);
                }
                Event::Delete { key, .. } => {
                    row.put_u8(TAG_DELETE);
                    put_bytes(&mut row, key.as_str().as_bytes());
                }
                Event::Init { .. } | Event::InitDone { .. } => {}
            }
        }
        row
    }

    pub(super) fn decode(revision: u64, row: &[u8]) -> Result<Self, Malformed> {
        let mut row = Bytes::copy_from_slice(row);
        let mut events = Vec::new();
        while row.has_remaining() {
            let event = decode_event(revision, &mut row)
                .ok_or_else(|| malformed(format!("log record of revision {revision}")))?;
            events.push(event);
        }
        Ok(Self { revision, events })
    }

    /// Roughly what the change costs in memory.
    pub(super) fn weight(&self) -> usize {
        let event = |event: &Event| match event {
            Event::Apply(entry) => entry.key.as_str().len() + entry.value.len() + 96,
            Event::Delete { key, .. } => key.as_str().len() + 96,
            Event::Init { .. } | Event::InitDone { .. } => 0,
        };
        self.events.iter().map(event).sum()
    }
}

fn put_bytes(row: &mut Vec<u8>, bytes: &[u8]) {
    // Transactions are limited to far below 4 GiB (see Options::max_transaction_bytes).
    row.put_u32_le(bytes.len() as u32);
    row.put_slice(bytes);
}

fn get_bytes(row: &mut Bytes) -> Option<Bytes> {
    let length = row.try_get_u32_le().ok()? as usize;
    (row.remaining() >= length).then(|| row.split_to(length))
}

fn decode_event(revision: u64, row: &mut Bytes) -> Option<Event> {
    let tag = row.try_get_u8().ok()?;
    let key = Key::try_from(str::from_utf8(&get_bytes(row)?).ok()?).ok()?;
    let revision = Revision(revision);
    match tag {
        TAG_DELETE => Some(Event::Delete { key, revision }),
        TAG_APPLY => {
            let created = Revision(row.try_get_u64_le().ok()?);
            let lease = lease_from(row.try_get_u64_le().ok()?);
            let value = get_bytes(row)?;
            Some(Event::Apply(Entry { key, value, created, modified: revision, lease }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change() -> Change {
        let entry = Entry {
            key: "a/b".parse().unwrap(),
            value: Bytes::from_static(b"\0value"),
            created: Revision(3),
            modified: Revision(7),
            lease: Some(LeaseId(9)),
        };
        let delete = Event::Delete { key: "a/c".parse().unwrap(), revision: Revision(7) };
        Change { revision: 7, events: vec![Event::Apply(entry), delete] }
    }

    #[test]
    fn a_change_comes_back_from_its_log_record() {
        assert_eq!(Change::decode(7, &change().encode()).unwrap(), change());
    }

    #[test]
    fn a_cut_record_is_malformed_not_shorter() {
        let row = change().encode();
        let boundary = row.len() - (1 + 4 + 3);
        for length in 1..row.len() {
            assert_eq!(Change::decode(7, &row[..length]).is_err(), length != boundary, "cut at {length}");
        }
    }

    #[test]
    fn state_comes_back() {
        let state = State { revision: 1, compacted: 2, log_bytes: 3, log_rows: 4, last_lease: 5 };
        assert_eq!(State::decode(&state.encode()).unwrap(), state);
        State::decode(&state.encode()[1..]).unwrap_err();
    }
}
