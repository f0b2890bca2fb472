//! Kubernetes-style objects, stored as users write them.
//!
//! In: documents. Out: the same documents with `uid` and `generation`, one store key each; Services with the addresses
//! and node ports they lack, which are kept beside them ([`allotments`]). Holds: nothing; every call reads the store.
//! Not here: what the objects come to (`policy`).
//!
//! ```text
//!   objects/KIND/NAMESPACE/NAME   {"set": …, "document": {…}}      namespace `-` for kinds without one
//! ```
//!
//! Beside them, changes that are not in force yet ([`staged`]).

mod allotments;
mod difference;
mod document;
mod json;
pub mod manifests;
mod plan;
pub mod staged;
mod unreadable;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use allotments::Allotments;
use futures::StreamExt as _;
use model::policy::{Kind, Object, ObjectId, fields};
use plan::Found;
use serde_json::Value;
use services::allot::{AllotError, Ranges};
use store::{
    Entry, Key, Prefix, ReadError, Revision, Store, TransactError, Transaction, Watch, WatchFrom,
    follow::Follower,
};

pub use document::{Document, Stored, Validation};
pub use plan::{Applied, Detail, Outcome, Revised};
pub use unreadable::Unreadable;

use crate::blocking::blocking;

/// Tries before an apply gives way to others who change the same objects.
const TRIES: usize = 16;
/// Objects that prune deletes in one transaction.
const PRUNED: usize = 500;
/// Objects read before others have a turn.
const READ_AT_ONCE: usize = 64;

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
    ///
    /// With `keep`, what is to be pruned of the set next and has an address or a port that a document asks for goes in the same
    /// transaction.
    pub async fn apply(
        &self,
        documents: Arc<[Document]>,
        set: &str,
        keep: Option<HashSet<ObjectId>>,
        dry_run: bool,
    ) -> Result<(Vec<Applied>, Revision), ObjectsError> {
        self.apply_telling(Detail::Everything, documents, set, keep, dry_run).await
    }

    /// The same, and tells no more of each than is asked for.
    pub async fn apply_telling(
        &self,
        detail: Detail,
        documents: Arc<[Document]>,
        set: &str,
        keep: Option<HashSet<ObjectId>>,
        dry_run: bool,
    ) -> Result<(Vec<Applied>, Revision), ObjectsError> {
        let mut ids = BTreeSet::new();
        if let Some(twice) = documents.iter().find(|document| !ids.insert(document.id())) {
            return Err(ObjectsError::Twice(twice.id().clone()));
        }
        let going = match keep {
            Some(keep) => self.giving_way(&documents, set, &keep).await?,
            None => BTreeSet::new(),
        };
        let ids: Vec<_> = ids.into_iter().chain(&going).cloned().collect();
        let (ranges, set) = (Arc::clone(&self.ranges), set.to_owned());
        self.change(dry_run, &ids, move |found, allotments| {
            let going: BTreeSet<_> = going.iter().filter(|id| found.contains_key(id)).cloned().collect();
            let documents = allotments.complete(&ranges, &documents, &going, found)?;
            let mut plan = plan::delete(&going.into_iter().collect::<Vec<_>>(), found)?;
            let plan::Plan { applied, writes } = plan::apply(&documents, &set, found, detail);
            plan.applied.extend(applied);
            plan.writes.extend(writes);
            Ok(plan)
        })
        .await
    }

    /// Services of the set that are not to be kept and have what a document asks for.
    async fn giving_way(
        &self,
        documents: &[Document],
        set: &str,
        keep: &HashSet<ObjectId>,
    ) -> Result<BTreeSet<ObjectId>, ObjectsError> {
        if set.is_empty() || !documents.iter().any(|document| document.id().kind == Kind::Service) {
            return Ok(BTreeSet::new());
        }
        let allotments = Allotments::read(&self.store).await.map_err(ObjectsError::Read)?;
        let mut going = BTreeSet::new();
        for id in allotments.in_the_way(documents).into_iter().filter(|id| !keep.contains(id)) {
            let entry = self.store.get(&key(&id)).await.map_err(ObjectsError::Read)?;
            if entry.and_then(|entry| document::set_of(&entry)).as_deref() == Some(set) {
                going.insert(id);
            }
        }
        Ok(going)
    }

    /// Deletes objects, all or none.
    pub async fn delete(
        &self,
        ids: &[ObjectId],
        dry_run: bool,
    ) -> Result<(Vec<Applied>, Revision), ObjectsError> {
        let gone = ids.to_vec();
        self.change(dry_run, ids, move |found, _| plan::delete(&gone, found)).await
    }

    /// Deletes what belongs to a set and is not to be kept, [`PRUNED`] objects at a time. One that somebody else has deleted
    /// meanwhile is as it should be.
    pub async fn prune(
        &self,
        set: &str,
        keep: impl IntoIterator<Item = ObjectId>,
        dry_run: bool,
    ) -> Result<(Vec<Applied>, Revision), ObjectsError> {
        let (set, keep): (Arc<str>, Arc<HashSet<ObjectId>>) =
            (set.into(), Arc::new(keep.into_iter().collect()));
        let mut gone = Vec::new();
        let mut snapshot = self.store.snapshot(&prefix()).await.map_err(ObjectsError::Read)?;
        while let Some(page) = snapshot.pages.next().await {
            let (page, set, keep) = (page.map_err(ObjectsError::Read)?, Arc::clone(&set), Arc::clone(&keep));
            let of_set = move |entry: &Entry| {
                let id = read_key(&entry.key).filter(|id| !keep.contains(id))?;
                (document::set_of(entry).as_deref() == Some(&*set)).then_some(id)
            };
            gone.extend(blocking(move || page.iter().filter_map(of_set).collect::<Vec<_>>()).await);
        }
        let (mut applied, mut newest) = (Vec::with_capacity(gone.len()), Revision(0));
        for part in gone.chunks(PRUNED) {
            let there = part.to_vec();
            let pruned = self.change(dry_run, part, move |found, _| {
                let there: Vec<_> = there.iter().filter(|id| found.contains_key(id)).cloned().collect();
                plan::delete(&there, found)
            });
            let (part, revision) = pruned.await?;
            applied.extend(part);
            newest = newest.max(revision);
        }
        Ok((applied, newest))
    }

    /// Changes one stored object as is decided by what it is at that moment; whether it was changed. One that is not there is as
    /// it is.
    pub async fn revise(
        &self,
        id: &ObjectId,
        decide: impl Fn(&Document) -> Revised + Send + Sync + 'static,
    ) -> Result<bool, ObjectsError> {
        let gone = id.clone();
        let revised = self.change(false, std::slice::from_ref(id), move |found, _| {
            let stored = found.get(&gone).and_then(|(stored, _)| stored.as_ref());
            match stored.map_or(Revised::Keep, |stored| decide(&stored.document)) {
                Revised::Keep => Ok(plan::apply(&[], "", found, Detail::Record)),
                Revised::Put(document) => Ok(plan::apply(&[*document], "", found, Detail::Record)),
                Revised::Delete => plan::delete(std::slice::from_ref(&gone), found),
            }
        });
        Ok(!revised.await?.0.is_empty())
    }

    pub async fn get(&self, id: &ObjectId) -> Result<Stored, ObjectsError> {
        let entry = self.store.get(&key(id)).await.map_err(ObjectsError::Read)?;
        let entry = entry.ok_or_else(|| ObjectsError::NotFound { id: id.clone() })?;
        Stored::read(&entry).map_err(ObjectsError::Read)
    }

    /// What is stored under a name at this moment, as those who follow are told of it.
    pub async fn told(&self, id: &ObjectId) -> Result<Option<Result<Stored, Box<Unreadable>>>, ReadError> {
        Ok(self.store.get(&key(id)).await?.and_then(|entry| read(&entry)))
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

    /// Reads what is there, plans, and writes the plan if nothing changed meanwhile. Planning compares whole documents, so it is
    /// done where it holds nobody up.
    async fn change(
        &self,
        dry_run: bool,
        ids: &[ObjectId],
        plan: impl Fn(&Found, &Allotments) -> Result<plan::Plan, ObjectsError> + Send + Sync + 'static,
    ) -> Result<(Vec<Applied>, Revision), ObjectsError> {
        self.change_with(dry_run, ids, Transaction::new(), plan).await
    }

    /// The same, and in the same transaction something else, which is done also where the plan changes nothing.
    async fn change_with(
        &self,
        dry_run: bool,
        ids: &[ObjectId],
        also: Transaction,
        plan: impl Fn(&Found, &Allotments) -> Result<plan::Plan, ObjectsError> + Send + Sync + 'static,
    ) -> Result<(Vec<Applied>, Revision), ObjectsError> {
        let plan = Arc::new(plan);
        for _ in 0..TRIES {
            let found = self.found(ids).await?;
            let allotments = if ids.iter().any(|id| id.kind == Kind::Service) {
                Allotments::read(&self.store).await.map_err(ObjectsError::Read)?
            } else {
                Allotments::default()
            };
            let decide = Arc::clone(&plan);
            let (found, allotments, planned) = blocking(move || {
                let planned = decide(&found, &allotments);
                (found, allotments, planned)
            })
            .await;
            let planned = planned?;
            if dry_run || planned.writes.is_empty() && also.operations.is_empty() {
                return Ok((planned.applied, Revision(0)));
            }
            let entries = allotments.follow(&planned.writes, also.clone());
            match self.store.transact(transaction(entries, planned.writes, &found)).await {
                Ok(committed) => return Ok((planned.applied, committed.revision)),
                Err(TransactError::Conflict { .. }) => {}
                Err(err) => return Err(ObjectsError::Write(err)),
            }
        }
        Err(ObjectsError::Busy)
    }

    async fn found(&self, ids: &[ObjectId]) -> Result<Found, ObjectsError> {
        let mut found = BTreeMap::new();
        for (number, id) in ids.iter().enumerate() {
            if let Some(entry) = self.store.get(&key(id)).await.map_err(ObjectsError::Read)? {
                found.insert(id.clone(), (Stored::read(&entry).ok(), entry.modified));
            }
            if number % READ_AT_ONCE == READ_AT_ONCE - 1 {
                // A store in this process answers at once, and others wait for this thread.
                tokio::task::yield_now().await;
            }
        }
        Ok(found)
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
    key_below(&prefix(), id)
}

fn key_below(prefix: &Prefix, id: &ObjectId) -> Key {
    let namespace = if id.namespace.is_empty() { "-" } else { &id.namespace };
    let prefix = prefix.child(id.kind.as_str()).and_then(|prefix| prefix.child(namespace));
    prefix
        .and_then(|prefix| prefix.key(&id.name))
        .expect("names of objects are bounded well below the limit of a key")
}

/// The object a deleted key stood for.
pub fn read_key(key: &Key) -> Option<ObjectId> {
    read_key_below("objects", key)
}

fn read_key_below(root: &str, key: &Key) -> Option<ObjectId> {
    let segments: Vec<&str> = key.segments().collect();
    let [_, kind, namespace, _] = segments.as_slice() else { return None };
    if segments[0] != root {
        return None;
    }
    let namespace = if *namespace == "-" { "" } else { namespace };
    Some(ObjectId { kind: Kind::from_name(kind)?, namespace: namespace.to_owned(), name: key.name().ok()? })
}

/// What an entry of a watch holds; none if its key is no object's. An error is an object that cannot be read, or not all of
/// which is known: it was stored by another version, or because whoever applied it asked for that.
fn read(entry: &Entry) -> Option<Result<Stored, Box<Unreadable>>> {
    let unreadable = match Stored::read(entry) {
        Ok(stored) => {
            let unknown = fields::unknown(stored.id().kind, stored.document.json());
            if unknown.is_empty() {
                return Some(Ok(stored));
            }
            Unreadable::unknown(&stored.document, &unknown)
        }
        Err(err) => {
            let document = document::raw(entry).unwrap_or_default();
            Unreadable::new(read_key(&entry.key)?, &document, common::chain(&err))
        }
    };
    tracing::warn!(key = entry.key.as_str(), "{}", unreadable.told());
    Some(Err(Box::new(unreadable)))
}

/// What an API server has. An error is an object that cannot be read, or of which not all is known though it decides who may talk
/// to whom: other kinds have fields of later versions, which decide nothing here.
pub fn read_of_cluster(kind: Kind, json: Value) -> Result<Object, Box<Unreadable>> {
    let object = match kind.deserialize(&json) {
        Ok(object) => object,
        Err(err) => {
            let text = |field: &str| json["metadata"][field].as_str().unwrap_or_default().to_owned();
            let namespace = if kind.is_namespaced() { text("namespace") } else { String::new() };
            let id = ObjectId { kind, namespace, name: text("name") };
            return Err(Box::new(Unreadable::new(id, &json, err.to_string())));
        }
    };
    let decides = kind.is_policy() || matches!(kind, Kind::Tier | Kind::Group | Kind::ClusterGroup);
    let unknown = if decides { fields::unknown(kind, &json) } else { Vec::new() };
    if unknown.is_empty() {
        return Ok(object);
    }
    Err(Box::new(Unreadable::unknown(&Document::of(object, json), &unknown)))
}

/// The same without the document, for those who need what it means: of what is as it should be none is made.
pub fn read_object(entry: &Entry) -> Option<Result<Object, Box<Unreadable>>> {
    let id = read_key(&entry.key)?;
    match document::known_object(id.kind, entry).filter(|object| object.id() == id) {
        Some(object) => Some(Ok(object)),
        None => read(entry).map(|read| read.map(|stored| stored.document.into_object())),
    }
}

/// Reads an entry of a snapshot; none if it cannot be read, which the policy driver tells ([`read`]).
pub fn read_entry(entry: &Entry) -> Option<Stored> {
    Stored::read(entry).ok()
}

/// For errors about one object.
pub fn parse_error(entry: &Entry, err: impl std::error::Error + Send + Sync + 'static) -> ReadError {
    ReadError::Parse { key: entry.key.clone(), source: Arc::new(err) }
}
