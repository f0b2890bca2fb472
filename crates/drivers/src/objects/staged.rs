//! Changes of objects that are kept beside what is in force, until somebody promotes or discards them.
//!
//! ```text
//!   staged/KIND/NAMESPACE/NAME   {"at": …, "set": …, "document": {…}}      without a document: the object is to be deleted
//! ```
//!
//! In: documents, and names of objects that are to go. Out: the same, as they were staged; and objects in force, in one transaction
//! with the end of what they were staged as. Holds: nothing; every call reads the store. Nobody follows these keys: what is staged
//! decides nothing. Not here: what a staged change would come to (`server::staged`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::StreamExt as _;
use jiff::Timestamp;
use model::policy::ObjectId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Entry, Key, Prefix, Revision, TransactError, Transaction};

use super::{
    Applied, Detail, Document, Objects, ObjectsError, Validation, key_below, parse_error, plan,
    read_key_below,
};

/// One change.
#[derive(Clone, Debug)]
pub struct Staged {
    pub id: ObjectId,
    /// What it shall be; none: it shall go.
    pub document: Option<Document>,
    /// The set it shall belong to; empty for none.
    pub set: String,
    pub at: Timestamp,
    revision: Revision,
}

/// What to stage.
#[derive(Clone, Debug)]
pub enum Intended {
    Put(Box<Document>),
    Delete(ObjectId),
}

impl Intended {
    fn id(&self) -> &ObjectId {
        match self {
            Self::Put(document) => document.id(),
            Self::Delete(id) => id,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    at: Timestamp,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    set: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    document: Option<Value>,
}

fn prefix() -> Prefix {
    Prefix::below("staged").expect("a fixed path is a legal prefix")
}

fn key(id: &ObjectId) -> Key {
    key_below(&prefix(), id)
}

fn read(entry: &Entry) -> Result<Staged, ObjectsError> {
    let fault = |err| ObjectsError::Read(parse_error(entry, err));
    let envelope: Envelope = serde_json::from_slice(&entry.value).map_err(fault)?;
    let document = match envelope.document {
        Some(json) => {
            let read = Document::read(json.to_string().as_bytes(), Validation::Ignore);
            Some(read.map_err(|err| ObjectsError::Read(parse_error(entry, err)))?)
        }
        None => None,
    };
    let id = match &document {
        Some(document) => document.id().clone(),
        None => read_key_below("staged", &entry.key).ok_or_else(|| {
            ObjectsError::Read(parse_error(entry, std::io::Error::other("its key names no object")))
        })?,
    };
    Ok(Staged { id, document, set: envelope.set, at: envelope.at, revision: entry.modified })
}

impl Objects {
    /// Keeps changes beside what is in force, all or none; one that is staged already takes its place.
    pub async fn stage(&self, intended: &[Intended], set: &str, at: Timestamp) -> Result<(), ObjectsError> {
        let mut seen = BTreeSet::new();
        let mut transaction = Transaction::new();
        for one in intended {
            let id = one.id();
            if !seen.insert(id) {
                return Err(ObjectsError::Twice(id.clone()));
            }
            let document = match one {
                Intended::Put(document) => Some(document.json().clone()),
                Intended::Delete(_) => None,
            };
            let envelope = Envelope { at, set: set.to_owned(), document };
            let value = serde_json::to_vec(&envelope).expect("JSON values have no odd keys");
            transaction = transaction.put(key(id), value);
        }
        self.store.transact(transaction).await.map_err(ObjectsError::Write)?;
        Ok(())
    }

    /// All that is staged, sorted by kind, namespace and name.
    pub async fn staged(&self) -> Result<Vec<Staged>, ObjectsError> {
        let mut snapshot = self.store.snapshot(&prefix()).await.map_err(ObjectsError::Read)?;
        let mut staged = Vec::new();
        while let Some(page) = snapshot.pages.next().await {
            for entry in page.map_err(ObjectsError::Read)? {
                staged.push(read(&entry)?);
            }
        }
        staged.sort_by(|a: &Staged, b| a.id.cmp(&b.id));
        Ok(staged)
    }

    /// Forgets what is staged under these names, as it was read: all or, if one has gone or changed meanwhile, none.
    pub async fn discard(&self, staged: &[Staged]) -> Result<(), ObjectsError> {
        match self.store.transact(end_of(staged)).await {
            Ok(_) => Ok(()),
            Err(TransactError::Conflict { .. }) => Err(ObjectsError::Busy),
            Err(err) => Err(ObjectsError::Write(err)),
        }
    }

    /// Makes staged changes: all or none, and with them ends what they were staged as. Of one that shall go and has gone nothing is told.
    pub async fn promote(
        &self,
        staged: &[Staged],
        dry_run: bool,
    ) -> Result<(Vec<Applied>, Revision), ObjectsError> {
        let mut sets: BTreeMap<String, Vec<Document>> = BTreeMap::new();
        let mut gone = BTreeSet::new();
        for one in staged {
            match &one.document {
                Some(document) => sets.entry(one.set.clone()).or_default().push(document.clone()),
                None => {
                    gone.insert(one.id.clone());
                }
            }
        }
        let ids: Vec<ObjectId> = staged.iter().map(|one| one.id.clone()).collect();
        let ranges = Arc::clone(&self.ranges);
        self.change_with(dry_run, &ids, end_of(staged), move |found, allotments| {
            let going: BTreeSet<_> = gone.iter().filter(|id| found.contains_key(id)).cloned().collect();
            let mut all = plan::delete(&going.iter().cloned().collect::<Vec<_>>(), found)?;
            let documents: Vec<Document> = sets.values().flatten().cloned().collect();
            let complete = allotments.complete(&ranges, &documents, &going, found)?;
            let mut rest = complete.iter().cloned();
            for (set, documents) in &sets {
                let documents: Vec<Document> = rest.by_ref().take(documents.len()).collect();
                let plan::Plan { applied, writes } = plan::apply(&documents, set, found, Detail::Everything);
                all.applied.extend(applied);
                all.writes.extend(writes);
            }
            Ok(all)
        })
        .await
    }
}

/// Takes them away as they were read.
fn end_of(staged: &[Staged]) -> Transaction {
    staged.iter().fold(Transaction::new(), |transaction, one| {
        transaction.expect_modified_at(key(&one.id), one.revision).delete(key(&one.id))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use services::allot::Ranges;

    use super::*;
    use crate::objects::Outcome;

    fn pod(name: &str, app: &str) -> Document {
        let metadata = json!({ "name": name, "namespace": "shop", "labels": { "app": app } });
        let document = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata });
        Document::read(document.to_string().as_bytes(), Validation::Strict).unwrap()
    }

    fn put(document: Document) -> Intended {
        Intended::Put(Box::new(document))
    }

    #[tokio::test]
    async fn what_is_staged_is_nowhere_else_until_it_is_promoted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let (old, new, more) = (pod("a", "old"), pod("a", "new"), pod("b", "b"));
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        {
            let objects = Objects::new(store::embedded::open(path.clone()).unwrap(), Ranges::default());
            objects.apply([old.clone()].into(), "", None, false).await.unwrap();
            objects.stage(&[put(pod("a", "first"))], "", at).await.unwrap();
            objects.stage(&[put(new.clone()), put(more.clone())], "shop", at).await.unwrap();
            let twice = objects.stage(&[put(new.clone()), put(new.clone())], "", at).await.unwrap_err();
            assert!(matches!(twice, ObjectsError::Twice(_)));
        }
        // After a restart.
        let objects = Objects::new(store::embedded::open(path).unwrap(), Ranges::default());
        let staged = objects.staged().await.unwrap();
        assert_eq!(staged.iter().map(|one| one.id.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((staged[0].at, staged[0].set.as_str()), (at, "shop"));
        assert_eq!(
            objects.get(old.id()).await.unwrap().document.object().metadata().labels,
            old.object().metadata().labels
        );
        assert!(objects.get(more.id()).await.is_err(), "what is staged is not there");
        let (told, _) = objects.promote(&staged, true).await.unwrap();
        assert_eq!(
            told.iter().map(|one| one.outcome).collect::<Vec<_>>(),
            [Outcome::Configured, Outcome::Created]
        );
        assert_eq!(objects.staged().await.unwrap().len(), 2, "a dry run");
        // Only one of them.
        objects.promote(&staged[..1], false).await.unwrap();
        let stored = objects.get(old.id()).await.unwrap();
        assert_eq!(stored.document.object().metadata().labels, new.object().metadata().labels);
        assert_eq!((stored.set.as_str(), objects.staged().await.unwrap().len()), ("shop", 1));
        // It has gone meanwhile.
        assert!(matches!(objects.promote(&staged[..1], false).await, Err(ObjectsError::Busy)));
        assert!(matches!(objects.discard(&staged).await, Err(ObjectsError::Busy)));
        objects.discard(&staged[1..]).await.unwrap();
        assert!(objects.staged().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn deletions_are_staged_too_and_what_is_so_already_only_ends() {
        let dir = tempfile::tempdir().unwrap();
        let objects =
            Objects::new(store::embedded::open(dir.path().join("store")).unwrap(), Ranges::default());
        let (goes, stays) = (pod("goes", "x"), pod("stays", "x"));
        objects.apply([goes.clone(), stays.clone()].into(), "", None, false).await.unwrap();
        let nobody = ObjectId { name: "nobody".into(), ..goes.id().clone() };
        let intended = [Intended::Delete(goes.id().clone()), Intended::Delete(nobody), put(stays.clone())];
        objects.stage(&intended, "", Timestamp::UNIX_EPOCH).await.unwrap();
        let staged = objects.staged().await.unwrap();
        assert_eq!(staged.iter().filter(|one| one.document.is_none()).count(), 2);
        let (told, _) = objects.promote(&staged, false).await.unwrap();
        let told: Vec<_> = told.iter().map(|one| (one.id.name.as_str(), one.outcome)).collect();
        assert_eq!(told, [("goes", Outcome::Deleted), ("stays", Outcome::Unchanged)]);
        assert!(objects.get(goes.id()).await.is_err());
        assert!(objects.staged().await.unwrap().is_empty());
    }
}
