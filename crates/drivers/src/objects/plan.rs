//! What to store for documents to be true (pure).

use std::collections::BTreeMap;

use model::{
    change::{Change, What, compare, digest},
    policy::ObjectId,
};
use store::Revision;

use super::{Document, ObjectsError, Stored, difference::text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Created,
    Configured,
    Unchanged,
    Deleted,
}

/// What becomes of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub id: ObjectId,
    pub outcome: Outcome,
    /// Line by line; empty if nothing changes.
    pub difference: String,
    /// The same for the record, with digests of the document as it is stored.
    pub change: Change,
}

/// How much is told of what becomes of an object. To compare documents costs more than all else that is done with new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What becomes of it, and nothing else: of a dry run, which is on no record and stores nothing.
    Outcome,
    /// What the record is to say.
    Record,
    /// That, and the difference for people.
    Everything,
}

/// What becomes of an object that is looked at.
#[derive(Debug)]
pub enum Revised {
    Keep,
    Put(Box<Document>),
    Delete,
}

pub(super) struct Plan {
    pub applied: Vec<Applied>,
    pub writes: Vec<Write>,
}

pub(super) enum Write {
    Put(Box<Stored>),
    Delete(ObjectId),
}

impl Write {
    pub fn id(&self) -> &ObjectId {
        match self {
            Self::Put(stored) => stored.id(),
            Self::Delete(id) => id,
        }
    }
}

/// What is stored of the objects in question; none of an object that cannot be read, which may be replaced and deleted.
pub(super) type Found = BTreeMap<ObjectId, (Option<Stored>, Revision)>;

pub(super) fn apply(documents: &[Document], set: &str, found: &Found, detail: Detail) -> Plan {
    let mut plan = Plan { applied: Vec::with_capacity(documents.len()), writes: Vec::new() };
    for document in documents {
        let current = found.get(document.id()).map(|(stored, _)| stored.as_ref());
        let (outcome, stored) = match current {
            // Nobody asks for what would be stored.
            None if detail == Detail::Outcome => (Outcome::Created, None),
            None => (Outcome::Created, Some(created(document, set))),
            Some(None) => (Outcome::Configured, Some(created(document, set))),
            Some(Some(current)) => match replaced(current, document, set) {
                Some(stored) => (Outcome::Configured, Some(stored)),
                None => (Outcome::Unchanged, None),
            },
        };
        plan.applied.push(applied(document.id(), outcome, current.flatten(), stored.as_ref(), detail));
        plan.writes.extend(stored.map(|stored| Write::Put(Box::new(stored))));
    }
    plan
}

pub(super) fn delete(ids: &[ObjectId], found: &Found) -> Result<Plan, ObjectsError> {
    let mut plan = Plan { applied: Vec::with_capacity(ids.len()), writes: Vec::new() };
    for id in ids {
        let (stored, _) = found.get(id).ok_or_else(|| ObjectsError::NotFound { id: id.clone() })?;
        plan.applied.push(applied(id, Outcome::Deleted, stored.as_ref(), None, Detail::Everything));
        plan.writes.push(Write::Delete(id.clone()));
    }
    Ok(plan)
}

/// From what is stored and what will be. An object that is set anew may differ in nothing that users write.
fn applied(
    id: &ObjectId,
    outcome: Outcome,
    old: Option<&Stored>,
    new: Option<&Stored>,
    detail: Detail,
) -> Applied {
    let what = match outcome {
        Outcome::Created => What::Created,
        Outcome::Configured => What::Changed,
        Outcome::Unchanged => What::Unchanged,
        Outcome::Deleted => What::Deleted,
    };
    if detail == Detail::Outcome {
        return Applied {
            id: id.clone(),
            outcome,
            difference: String::new(),
            change: Change::named(id, what),
        };
    }
    let digest = |stored: Option<&Stored>| stored.map(|stored| digest(stored.document.json()));
    let (before, after) = (digest(old), digest(new));
    if outcome == Outcome::Unchanged {
        let change = Change { before, ..Change::named(id, what) };
        return Applied { id: id.clone(), outcome, difference: String::new(), change };
    }
    let [old, new] = [old, new].map(|stored| stored.map(|stored| stored.document.json()));
    let mut fields = compare(old, new);
    fields.retain(|field| !Document::is_filled_in(&field.path));
    let difference = if detail == Detail::Everything { text(&fields) } else { String::new() };
    let change = Change { before, after, ..Change::named(id, what).with_fields(fields) };
    Applied { id: id.clone(), outcome, difference, change }
}

fn created(document: &Document, set: &str) -> Stored {
    let metadata = document.object().metadata();
    let uid = if metadata.uid.is_empty() { crate::random::uuid() } else { metadata.uid.clone() };
    Stored { set: set.to_owned(), document: document.identified(&uid, metadata.generation.max(1)) }
}

/// None if nothing would change. A document that names another UID is another object under the same name.
fn replaced(current: &Stored, document: &Document, set: &str) -> Option<Stored> {
    let (old, new) = (current.document.object().metadata(), document.object().metadata());
    let other_uid = !new.uid.is_empty() && new.uid != old.uid;
    let set = if set.is_empty() { &current.set } else { set };
    let differs = !current.document.is_like(document);
    if !differs && !other_uid && *set == current.set && new.generation <= old.generation {
        return None;
    }
    if other_uid {
        return Some(created(document, set));
    }
    // What a cluster counts is taken over; it never goes back, for nodes tell by it what is newer.
    let generation = old.generation.saturating_add(i64::from(differs)).max(new.generation);
    Some(Stored { set: set.to_owned(), document: document.identified(&old.uid, generation) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::Validation;

    fn pod(generation: i64, app: &str) -> Document {
        let metadata = json!({ "name": "a", "generation": generation, "labels": { "app": app } });
        let document = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata });
        Document::read(document.to_string().as_bytes(), Validation::Strict).unwrap()
    }

    fn after(current: &Stored, document: &Document) -> Option<i64> {
        replaced(current, document, "").map(|stored| stored.document.object().metadata().generation)
    }

    #[test]
    fn a_generation_that_a_file_brings_counts_whenever_it_is_newer() {
        let current = created(&pod(3, "web"), "");
        assert_eq!(after(&current, &pod(7, "db")), Some(7));
        assert_eq!(after(&current, &pod(7, "web")), Some(7), "whatever else may be as it was");
        assert_eq!(after(&current, &pod(3, "web")), None);
        assert_eq!(after(&current, &pod(2, "db")), Some(4), "it never goes back");
        assert_eq!(after(&current, &pod(0, "web")), None);
        let last = created(&pod(i64::MAX, "web"), "");
        assert_eq!(after(&last, &pod(0, "db")), Some(i64::MAX));
    }
}
