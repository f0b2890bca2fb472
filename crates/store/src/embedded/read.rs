//! Reads of objects: one, all, or a page at a time from one state.

use std::{ops::Bound, sync::Arc};

use futures::{StreamExt as _, stream};
use redb::ReadTransaction;
use tokio::task::spawn_blocking;

use super::{
    Shared,
    database::{EngineError, guarded},
    open::read_state,
    tables::{OBJECTS, decode_object},
};
use crate::api::{Entry, Key, Listing, Prefix, ReadError, Revision, Snapshot};

/// A page of a snapshot ends at so many entries or bytes.
const PAGE_ENTRIES: usize = 512;
const PAGE_BYTES: usize = 1024 * 1024;

impl Shared {
    /// One B-tree descent, normally in the cache: done where it is called, unless the file is being reopened.
    pub(super) async fn get(self: &Arc<Self>, key: &Key) -> Result<Option<Entry>, ReadError> {
        if self.db.is_busy() {
            let key = key.clone();
            return self.read_off_thread(move |transaction| get(transaction, &key)).await;
        }
        self.db
            .read(|transaction| get(transaction, key))
            .map_err(|error| error.into_read_error(self.db.path()))
    }

    pub(super) async fn list(self: &Arc<Self>, prefix: &Prefix) -> Result<Listing, ReadError> {
        let prefix = prefix.clone();
        self.read_off_thread(move |transaction| {
            let revision = Revision(read_state(transaction)?.revision);
            let (entries, _) = page(transaction, &prefix, None, usize::MAX, usize::MAX)?;
            Ok(Listing { entries, revision })
        })
        .await
    }

    /// All pages come from one read transaction, which is held until the last page was read.
    pub(super) async fn snapshot(self: &Arc<Self>, prefix: &Prefix) -> Result<Snapshot, ReadError> {
        let (revision, transaction) = self.begin_snapshot().await?;
        let shared = Arc::clone(self);
        let state = Some((transaction, prefix.clone(), None::<Key>));
        let pages = stream::unfold(state, move |state| {
            let shared = Arc::clone(&shared);
            async move {
                let (transaction, prefix, after) = state?;
                let read = move || {
                    let (entries, more) =
                        guarded(|| page(&transaction, &prefix, after.as_ref(), PAGE_ENTRIES, PAGE_BYTES))?;
                    let last = entries.last().map(|entry| entry.key.clone());
                    Ok((entries, more.then_some((transaction, prefix, last))))
                };
                let done = spawn_blocking(read).await;
                match done.unwrap_or_else(|error| Err(EngineError::Panicked(error.to_string()))) {
                    Ok((entries, next)) => Some((Ok(entries), next)),
                    Err(error) => Some((Err(error.into_read_error(shared.db.path())), None)),
                }
            }
        });
        Ok(Snapshot { revision, pages: pages.boxed() })
    }

    async fn begin_snapshot(self: &Arc<Self>) -> Result<(Revision, ReadTransaction), ReadError> {
        let shared = Arc::clone(self);
        let begin = move || {
            // Heals the file if need be; the transaction kept is a second one.
            shared.db.read(|_| Ok(()))?;
            let transaction = shared.db.begin_read().1?;
            let state = guarded(|| read_state(&transaction))?;
            Ok((Revision(state.revision), transaction))
        };
        let done = spawn_blocking(begin).await;
        let done = done.unwrap_or_else(|error| Err(EngineError::Panicked(error.to_string())));
        done.map_err(|error| error.into_read_error(self.db.path()))
    }
}

fn get(transaction: &ReadTransaction, key: &Key) -> Result<Option<Entry>, EngineError> {
    let objects = transaction.open_table(OBJECTS)?;
    match objects.get(key.as_str())? {
        Some(row) => Ok(Some(decode_object(key.as_str(), row.value())?)),
        None => Ok(None),
    }
}

/// Entries below `prefix` after `after`, and whether there may be more.
fn page(
    transaction: &ReadTransaction,
    prefix: &Prefix,
    after: Option<&Key>,
    max_entries: usize,
    max_bytes: usize,
) -> Result<(Vec<Entry>, bool), EngineError> {
    let objects = transaction.open_table(OBJECTS)?;
    let begin = after.map_or(Bound::Included(prefix.as_str()), |key| Bound::Excluded(key.as_str()));
    let mut entries = Vec::new();
    let mut bytes = 0;
    for row in redb::ReadableTable::range::<&str>(&objects, (begin, Bound::Unbounded))? {
        let (key, row) = row?;
        if !key.value().starts_with(prefix.as_str()) {
            return Ok((entries, false));
        }
        if entries.len() >= max_entries || bytes >= max_bytes {
            return Ok((entries, true));
        }
        bytes += row.value().len();
        entries.push(decode_object(key.value(), row.value())?);
    }
    Ok((entries, false))
}
