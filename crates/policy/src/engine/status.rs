//! What is wrong with policies and groups, and what consumers were told of it.

use std::collections::{BTreeMap, BTreeSet};

use model::policy::{
    ObjectId,
    output::{Problem, StatusUpdate},
};

use super::Engine;

#[derive(Debug, Default, Clone)]
pub(crate) struct Problems {
    current: BTreeMap<ObjectId, Vec<Problem>>,
    told: BTreeMap<ObjectId, Vec<Problem>>,
    changed: BTreeSet<ObjectId>,
}

impl Problems {
    pub(crate) fn is_empty(&self) -> bool {
        self.current.is_empty() && self.told.is_empty()
    }

    /// The next object whose problems differ from what was told.
    pub(crate) fn next_change(&mut self) -> Option<StatusUpdate> {
        while let Some(object) = self.changed.pop_first() {
            let problems = self.current.get(&object).cloned().unwrap_or_default();
            if problems.as_slice() == self.told.get(&object).map_or(&[][..], Vec::as_slice) {
                continue;
            }
            if problems.is_empty() {
                self.told.remove(&object);
            } else {
                self.told.insert(object.clone(), problems.clone());
            }
            return Some(StatusUpdate { object, problems });
        }
        None
    }
}

impl Engine {
    pub(super) fn set_problems(&mut self, object: ObjectId, problems: Vec<Problem>) {
        let status = &mut self.problems;
        if problems.is_empty() {
            if status.current.remove(&object).is_none() {
                return;
            }
        } else {
            status.current.insert(object.clone(), problems);
        }
        status.changed.insert(object);
    }

    /// Everything wrong with a policy or group, as of the last drain.
    pub fn problems(&self, object: &ObjectId) -> &[Problem] {
        self.problems.current.get(object).map_or(&[], Vec::as_slice)
    }
}
