//! Kubernetes-style objects, stored as users write them.
//!
//! In: documents. Out: the same documents with `uid` and `generation`, one store key each; Services with the addresses
//! and node ports they lack, which are kept beside them ([`allotments`]). Holds: nothing; every call reads the store.
//! Not here: what the objects come to (`policy`).
//!
//! ```text
//!   objects/KIND/NAMESPACE/NAME   {"set": …, "document": {…}}      namespace `-` for kinds without one
//! ```

mod allotments;
mod difference;
mod document;
mod plan;
mod unreadable;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use allotments::Allotments;
use futures::StreamExt as _;
use model::policy::{Kind, ObjectId};
use plan::Found;
use services::allot::{AllotError, Ranges};
use store::{
    Entry, Key, Prefix, ReadError, Revision, Store, TransactError, Transaction, Watch, WatchFrom,
    follow::Follower,
};

pub use document::{Document, Stored};
pub use plan::{Applied, Outcome};
pub use unreadable::Unreadable;

use crate::error::chain;

/// Tries before an apply gives way to others who change the same objects.
const TRIES: usize = 16;

/// Why objects could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    #[error("there is no {id}")]
    NotFound { id: ObjectId },
    #[error("{0} is given twice")]
    Twice(ObjectId),
    #[error(transparent)]
    Allot(#[from] AllotError),
    #[error("the objects kept changing meanwhile; try again")]
    Busy,
    #[error("cannot read objects from the store")]
    Read(#[source] ReadError),
    #[error("cannot write objects to the store")]
    Write(#[source] TransactError),
}

/// The objects of a store.
#[derive(Clone)]
pub struct Objects {
    store: Store,
    /// Where Services get addresses and node ports.
    ranges: Arc<Ranges>,
}

impl Objects {
    pub fn new(store: Store, ranges: Ranges) -> Self {
        Self { store, ranges: Arc::new(ranges) }
    }

    /// Enters what Services of an earlier version have. Returns how many entries were put right.
    pub async fn adopt_allotments(&self) -> Result<usize, ObjectsError> {
        allotments::adopt(&self.store).await
    }

    /// Stores documents, all or none. The revision is the one readers must reach to see them; 0 if nothing changed.
    pub async fn apply(
        &self,
        documents: &[Document],
        set: &str,
        dry_run: bool,
    ) -> Result<(Vec<Applied>, Revision), ObjectsError> {
        let mut ids = BTreeSet::new();
        if let Some(twice) = documents.iter().find(|document| !ids.insert(document.id())) {
            return Err(ObjectsError::Twice(twice.id().clone()));
        }
        self.change(dry_run, ids.iter().copied(), |found, allotments| {
            let documents = allotments.complete(&self.ranges, documents, found)?;
            Ok(plan::apply(&documents, set, found))
        })
        .await
    }

    /// Deletes objects, all or none.
    pub async fn delete(
        &self,
        ids: &[ObjectId],
        dry_run: bool,
    ) -> Result<(Vec<Applied>, Revision), ObjectsError> {
        self.change(dry_run, ids.iter(), |found, _| plan::delete(ids, found)).await
    }

    /// Deletes what belongs to a set and is not to be kept.
    pub async fn prune(
        &self,
        set: &str,
        keep: &[ObjectId],
        dry_run: bool,
    ) -> Result<(Vec<Applied>, Revision), ObjectsError> {
        let mut gone = Vec::new();
        let mut snapshot = self.store.snapshot(&prefix()).await.map_err(ObjectsError::Read)?;
        while let Some(page) = snapshot.pages.next().await {
            for entry in page.map_err(ObjectsError::Read)? {
                if let Ok(stored) = Stored::read(&entry)
                    && stored.set == set
                    && !keep.contains(stored.id())
                {
                    gone.push(stored.id().clone());
                }
            }
        }
        self.delete(&gone, dry_run).await
    }

    pub async fn get(&self, id: &ObjectId) -> Result<Stored, ObjectsError> {
        let entry = self.store.get(&key(id)).await.map_err(ObjectsError::Read)?;
        let entry = entry.ok_or_else(|| ObjectsError::NotFound { id: id.clone() })?;
        Stored::read(&entry).map_err(ObjectsError::Read)
    }

    /// The state of a kind (none: all), page by page.
    pub async fn snapshot(&self, kind: Option<Kind>) -> Result<store::Snapshot, ObjectsError> {
        self.store.snapshot(&of_kind(kind)).await.map_err(ObjectsError::Read)
    }

    /// All objects, for as long as somebody follows.
    pub fn follow(&self) -> Follower {
        Follower::new(self.store.clone(), prefix())
    }

    pub fn watch(&self, kind: Option<Kind>) -> Watch {
        self.store.watch(&of_kind(kind), WatchFrom::Start)
    }

    /// Reads what is there, plans, and writes the plan if nothing changed meanwhile.
    async fn change<'a>(
        &self,
        dry_run: bool,
        ids: impl Iterator<Item = &'a ObjectId> + Clone,
        plan: impl Fn(&Found, &Allotments) -> Result<plan::Plan, ObjectsError>,
    ) -> Result<(Vec<Applied>, Revision), ObjectsError> {
        for _ in 0..TRIES {
            let mut found = BTreeMap::new();
            for id in ids.clone() {
                if let Some(entry) = self.store.get(&key(id)).await.map_err(ObjectsError::Read)? {
                    found.insert(id.clone(), (Stored::read(&entry).ok(), entry.modified));
                }
            }
            let allotments = if ids.clone().any(|id| id.kind == Kind::Service) {
                Allotments::read(&self.store).await.map_err(ObjectsError::Read)?
            } else {
                Allotments::default()
            };
            let planned = plan(&found, &allotments)?;
            if dry_run || planned.writes.is_empty() {
                return Ok((planned.applied, Revision(0)));
            }
            let entries = allotments.follow(&planned.writes, Transaction::new());
            match self.store.transact(transaction(entries, planned.writes, &found)).await {
                Ok(committed) => return Ok((planned.applied, committed.revision)),
                Err(TransactError::Conflict { .. }) => {}
                Err(err) => return Err(ObjectsError::Write(err)),
            }
        }
        Err(ObjectsError::Busy)
    }
}

/// Each write requires what it was planned on to be unchanged.
fn transaction(mut transaction: Transaction, writes: Vec<plan::Write>, found: &Found) -> Transaction {
    for write in writes {
        let (id, value) = match write {
            plan::Write::Put(stored) => (stored.id().clone(), Some(stored.to_bytes())),
            plan::Write::Delete(id) => (id, None),
        };
        let key = key(&id);
        transaction = match found.get(&id) {
            Some((_, revision)) => transaction.expect_modified_at(key.clone(), *revision),
            None => transaction.expect_absent(key.clone()),
        };
        transaction = match value {
            Some(value) => transaction.put(key, value),
            None => transaction.delete(key),
        };
    }
    transaction
}

pub fn prefix() -> Prefix {
    Prefix::below("objects").expect("a fixed path is a legal prefix")
}

fn of_kind(kind: Option<Kind>) -> Prefix {
    let Some(kind) = kind else { return prefix() };
    prefix().child(kind.as_str()).expect("the name of a kind is a legal segment")
}

fn key(id: &ObjectId) -> Key {
    let namespace = if id.namespace.is_empty() { "-" } else { &id.namespace };
    let prefix = of_kind(Some(id.kind)).child(namespace);
    prefix
        .and_then(|prefix| prefix.key(&id.name))
        .expect("names of objects are bounded well below the limit of a key")
}

/// The object a deleted key stood for.
pub fn read_key(key: &Key) -> Option<ObjectId> {
    let segments: Vec<&str> = key.segments().collect();
    let ["objects", kind, namespace, _] = segments.as_slice() else { return None };
    let namespace = if *namespace == "-" { "" } else { namespace };
    Some(ObjectId { kind: Kind::from_name(kind)?, namespace: namespace.to_owned(), name: key.name().ok()? })
}

/// What an entry of a watch holds; none if its key is no object's.
pub fn read(entry: &Entry) -> Option<Result<Stored, Box<Unreadable>>> {
    let err = match Stored::read(entry) {
        Ok(stored) => return Some(Ok(stored)),
        Err(err) => err,
    };
    let id = read_key(&entry.key)?;
    let document = document::raw(entry).unwrap_or_default();
    let unreadable = Unreadable::new(id, &document, chain(&err));
    tracing::warn!(key = entry.key.as_str(), "{}", unreadable.told());
    Some(Err(Box::new(unreadable)))
}

/// Reads an entry of a snapshot; none if it cannot be read, which the policy driver tells ([`read`]).
pub fn read_entry(entry: &Entry) -> Option<Stored> {
    Stored::read(entry).ok()
}

/// For errors about one object.
pub fn parse_error(entry: &Entry, err: impl std::error::Error + Send + Sync + 'static) -> ReadError {
    ReadError::Parse { key: entry.key.clone(), source: Arc::new(err) }
}
