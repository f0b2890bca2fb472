//! What each policy comes to: its generation, its span, and what is wrong with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::policy::{
    ObjectId,
    output::{Change, Identifier, PolicyUpdate, Problem, StatusUpdate, Update},
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
    policies: BTreeMap<ObjectId, Kept>,
    /// Objects that cannot be read, of any kind, and what is told of each.
    unreadable: BTreeMap<ObjectId, String>,
    /// Names that a stored object and one of a cluster have.
    twice: BTreeSet<ObjectId>,
}

/// A policy's state in little room: there are very many, and most of them are on few nodes.
#[derive(Default)]
struct Kept {
    generation: i64,
    /// Ascending.
    span: Vec<Arc<str>>,
    problems: Vec<Problem>,
    /// Whose span it is: of several policies under one name, one after the other, the newest one's.
    newest: Option<Identifier>,
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

    /// Whether a stored object and one of a cluster have the name.
    pub(super) fn twice(&mut self, id: &ObjectId, is_twice: bool) {
        match is_twice {
            true => drop(self.twice.insert(id.clone())),
            false => drop(self.twice.remove(id)),
        }
    }

    pub(super) fn unreadables(&self) -> Vec<String> {
        let twice = self.twice.iter().map(|id| {
            format!("{id} is stored here, and a Kubernetes cluster has one of that name, which counts: delete or rename one of them")
        });
        self.unreadable.values().cloned().chain(twice).collect()
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
        let Some(kept) = self.policies.get_mut(&id) else { return };
        let is_newest = kept.newest.as_ref() == Some(&update.uid);
        if update.change == Change::Removed {
            // A policy's end may be told after the beginning of the next one of its name.
            if is_newest {
                kept.span.clear();
            }
            return;
        }
        if !is_newest {
            kept.span.clear();
            kept.newest = Some(update.uid.clone());
        }
        kept.span.retain(|key| update.span_removed.binary_search(key).is_err());
        kept.span.extend(update.span_added.iter().cloned());
        kept.span.sort_unstable();
        kept.span.dedup();
    }

    pub(super) fn faulty(&self) -> Vec<(ObjectId, Vec<Problem>)> {
        let told = |id: &ObjectId| self.unreadable.get(id).map(|told| Problem::new("", told.clone()));
        let faults = self.policies.iter().map(|(id, state)| {
            (id, told(id).into_iter().chain(state.problems.iter().cloned()).collect::<Vec<_>>())
        });
        faults
            .filter(|(_, problems)| !problems.is_empty())
            .map(|(id, problems)| (id.clone(), problems))
            .collect()
    }

    /// One policy, and whose span it has: none as long as no place needs it.
    pub(super) fn get(&self, id: &ObjectId) -> Option<(PolicyState, Option<Identifier>)> {
        let kept = self.policies.get(id)?;
        Some((self.told(id, kept), kept.newest.clone()))
    }

    /// The policy's name to nodes, if it is to be enforced at this one.
    pub(super) fn uid_at(&self, id: &ObjectId, node: &str) -> Option<Identifier> {
        let kept = self.policies.get(id)?;
        kept.span.binary_search_by(|key| (**key).cmp(node)).ok()?;
        kept.newest.clone()
    }

    fn told(&self, id: &ObjectId, kept: &Kept) -> PolicyState {
        let Kept { generation, span, problems, .. } = kept;
        let span = span.iter().cloned().collect();
        let mut state = PolicyState { generation: *generation, span, problems: problems.clone() };
        if let Some(told) = self.unreadable.get(id) {
            state.problems.insert(0, Problem::new("", told.clone()));
        }
        state
    }

    /// Each policy as it is named, with what is another one whenever it changes.
    pub(super) fn versions(&self) -> Vec<(String, String)> {
        let version = |(id, kept): (&ObjectId, &Kept)| {
            let uid = kept.newest.as_ref().map(ToString::to_string).unwrap_or_default();
            (id.to_string(), format!("{uid}/{}", kept.generation))
        };
        self.policies.iter().map(version).collect()
    }

    pub(super) fn list(&self) -> Vec<(ObjectId, PolicyState)> {
        self.policies.iter().map(|(id, state)| (id.clone(), self.told(id, state))).collect()
    }
}

#[cfg(test)]
mod tests {
    use model::policy::{
        Kind,
        output::{NetworkPolicy, PolicySource},
    };

    use super::*;

    fn update(uid: &str, change: Change, added: &[&str], removed: &[&str]) -> Update {
        let uid = Identifier::parse(uid);
        let source = PolicySource {
            kind: Kind::NetworkPolicy,
            namespace: "x".into(),
            name: "p".into(),
            uid: uid.clone(),
        };
        let policy = NetworkPolicy {
            uid: uid.clone(),
            generation: 1,
            source,
            tier_priority: None,
            priority: None,
            rules: Vec::new(),
            applied_to_groups: Vec::new(),
            applied_to_per_rule: false,
        };
        let span = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
        Update::NetworkPolicy(PolicyUpdate {
            uid,
            change,
            policy: Arc::new(policy),
            content_changed: true,
            span_added: span(added),
            span_removed: span(removed),
        })
    }

    #[test]
    fn a_policy_that_comes_again_has_its_own_span_whichever_is_told_first() {
        let id = ObjectId { kind: Kind::NetworkPolicy, namespace: "x".into(), name: "p".into() };
        let old = update("old", Change::Added, &["n1", "n2"], &[]);
        let new = update("new", Change::Added, &["n2", "n3"], &[]);
        let end = update("old", Change::Removed, &[], &["n1", "n2"]);
        for told in [[new.clone(), end.clone()], [end, new]] {
            for begins_anew in [true, false] {
                let mut states = States::default();
                states.seen(&id, 1);
                states.apply(std::slice::from_ref(&old));
                if begins_anew {
                    states.gone(&id);
                }
                states.seen(&id, 1);
                states.apply(&told);
                let span: Vec<_> = states.list()[0].1.span.iter().map(ToString::to_string).collect();
                assert_eq!(span, ["n2", "n3"]);
            }
        }
        let mut states = States::default();
        states.seen(&id, 1);
        states.apply(&[old, update("old", Change::Updated, &[], &["n1"])]);
        assert_eq!(states.list()[0].1.span.len(), 1);
        states.apply(&[update("old", Change::Removed, &[], &["n2"])]);
        assert!(states.list()[0].1.span.is_empty(), "nobody needs it");
    }
}
