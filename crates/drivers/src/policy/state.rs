//! What each policy comes to: its generation, its span, and what is wrong with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::policy::{
    ObjectId,
    output::{Change, PolicyUpdate, Problem, StatusUpdate, Update},
};

/// One policy as users see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyState {
    pub generation: i64,
    /// Where it is to be enforced.
    pub span: BTreeSet<Arc<str>>,
    pub problems: Vec<Problem>,
}

/// All policies, kept up to date from the engine's updates.
#[derive(Default)]
pub struct States {
    policies: BTreeMap<ObjectId, PolicyState>,
    /// Stored objects that cannot be read, of any kind, and what is told of each.
    unreadable: BTreeMap<ObjectId, String>,
}

impl States {
    pub(super) fn seen(&mut self, id: &ObjectId, generation: i64) {
        if id.kind.is_policy() {
            self.policies.entry(id.clone()).or_default().generation = generation;
        }
    }

    pub(super) fn gone(&mut self, id: &ObjectId) {
        self.policies.remove(id);
        self.unreadable.remove(id);
    }

    /// Whether an object can be read, and what is told if not.
    pub(super) fn unreadable(&mut self, id: &ObjectId, told: Option<String>) {
        match told {
            Some(told) => drop(self.unreadable.insert(id.clone(), told)),
            None => drop(self.unreadable.remove(id)),
        }
    }

    pub(super) fn unreadables(&self) -> Vec<String> {
        self.unreadable.values().cloned().collect()
    }

    pub(super) fn apply(&mut self, updates: &[Update]) {
        for update in updates {
            match update {
                Update::NetworkPolicy(update) => self.policy(update),
                Update::Status(StatusUpdate { object, problems }) => {
                    if let Some(state) = self.policies.get_mut(object) {
                        state.problems.clone_from(problems);
                    }
                }
                Update::AppliedToGroup(_) | Update::AddressGroup(_) => {}
            }
        }
    }

    fn policy(&mut self, update: &PolicyUpdate) {
        let source = &update.policy.source;
        let id = ObjectId {
            kind: source.kind,
            namespace: source.namespace.to_string(),
            name: source.name.to_string(),
        };
        let Some(state) = self.policies.get_mut(&id) else { return };
        if update.change == Change::Removed {
            state.span.clear();
            return;
        }
        for key in update.span_removed.iter() {
            state.span.remove(key);
        }
        state.span.extend(update.span_added.iter().cloned());
    }

    pub(super) fn list(&self) -> Vec<(ObjectId, PolicyState)> {
        let with_problem = |(id, state): (&ObjectId, &PolicyState)| {
            let mut state = state.clone();
            if let Some(told) = self.unreadable.get(id) {
                state.problems.insert(0, Problem::new("", told.clone()));
            }
            (id.clone(), state)
        };
        self.policies.iter().map(with_problem).collect()
    }
}
