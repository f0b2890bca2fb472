//! What a change of objects would come to, tried on a copy of the engine.
//!
//! In: the engine as it is, and what would be applied and deleted. Out: an engine that knows nothing of the other. Pure. Resources of
//! clouds are in it as policies see them: their permit lists are made of policies too, but not at once.

use drivers::{
    objects::{Document, staged::Staged},
    policy::{POD_LABEL, pod_label},
};
use model::policy::{Object, ObjectId, output::MemberKind};
use policy::{Engine, Event};

/// A change that is tried.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub applied: Vec<Object>,
    pub deleted: Vec<ObjectId>,
    /// Pods among what is applied that a permission names then.
    pub named: Vec<ObjectId>,
}

impl Change {
    pub fn of_documents<'d>(documents: impl IntoIterator<Item = &'d Document>) -> Self {
        let applied = documents.into_iter().filter_map(Document::in_effect).collect();
        Self { applied, ..Self::default() }
    }

    pub fn of_deletion(deleted: Vec<ObjectId>) -> Self {
        Self { deleted, ..Self::default() }
    }

    pub fn of_staged<'s>(staged: impl IntoIterator<Item = &'s Staged>) -> Self {
        let mut change = Self::default();
        for one in staged {
            match &one.document {
                Some(document) => change.applied.extend(document.in_effect()),
                None => change.deleted.push(one.id.clone()),
            }
        }
        change
    }

    /// This one, then another one.
    #[must_use]
    pub fn then(mut self, other: Self) -> Self {
        let is_overridden = |id: &ObjectId| {
            other.deleted.contains(id) || other.applied.iter().any(|object| object.id() == *id)
        };
        self.applied.retain(|object| !is_overridden(&object.id()));
        self.deleted.retain(|id| !is_overridden(id));
        self.applied.extend(other.applied);
        self.deleted.extend(other.deleted);
        self.named.extend(other.named);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.applied.is_empty() && self.deleted.is_empty()
    }

    /// The copy as it would be.
    pub fn on(&self, mut engine: Engine) -> Engine {
        for object in &self.applied {
            let named = self.named(&engine, object);
            engine.handle_event(Event::Apply(named.as_ref().unwrap_or(object)));
        }
        self.deleted.iter().for_each(|id| engine.handle_event(Event::Delete(id)));
        while engine.poll_update().is_some() {}
        engine
    }

    /// A Pod that a permission names has a label for that, which it keeps.
    fn named(&self, engine: &Engine, object: &Object) -> Option<Object> {
        let Object::Pod(pod) = object else { return None };
        let (id, metadata) = (object.id(), &pod.metadata);
        let known = engine.workload(MemberKind::Pod, &metadata.namespace, &metadata.name);
        let has_it = known.is_some_and(|known| known.labels.iter().any(|(key, _)| **key == *POD_LABEL));
        let is_named = has_it || self.named.contains(&id);
        if !is_named && !metadata.labels.contains_key(POD_LABEL) {
            return None;
        }
        let mut pod = pod.clone();
        let labels = std::mem::take(&mut pod.metadata.labels).into_iter();
        let own = is_named.then(|| (POD_LABEL.to_owned(), pod_label(&id.namespace, &id.name)));
        pod.metadata.labels = labels.filter(|(key, _)| key != POD_LABEL).chain(own).collect();
        Some(Object::Pod(pod))
    }
}
