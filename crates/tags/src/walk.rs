//! Walks over the graph, up and down, each node once, without recursion.
//!
//! In: starting points and a budget. Out: every node reached, to a visitor. Holds: no state.
//!
//! ```text
//!             all            up:   from a node to the groups that hold it
//!            /   \
//!         web     db         down: from a node to what lies at its leaves
//!        /   \   /  \
//!      web-1  admin  10.0.0.0/8
//! ```
//!
//! Only memberships of groups are followed: those of leaves and of names that are no tags are inert.

use std::{
    collections::{BTreeSet, VecDeque},
    ops::ControlFlow,
};

use crate::{
    Graph,
    node::{Id, Node},
};

/// How many nodes and memberships a walk may still look at.
pub(crate) struct Budget(usize);

/// A walk ran out of budget.
#[derive(Debug)]
pub(crate) struct Exhausted;

impl Budget {
    pub(crate) fn unlimited() -> Self {
        Self(usize::MAX)
    }

    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), Exhausted> {
        self.0 = self.0.checked_sub(steps).ok_or(Exhausted)?;
        Ok(())
    }

    /// Runs two ways to the same answer with ever larger budgets until one arrives; a small multiple of the
    /// cheaper way's cost, without knowing beforehand which that is.
    pub(crate) fn cheaper<T>(
        mut one: impl FnMut(&mut Self) -> Result<T, Exhausted>,
        mut other: impl FnMut(&mut Self) -> Result<T, Exhausted>,
    ) -> T {
        // Below this many steps a second walk costs less than thinking about it.
        let mut steps: usize = 1 << 10;
        loop {
            if let Ok(answer) = one(&mut Self(steps)) {
                return answer;
            }
            if let Ok(answer) = other(&mut Self(steps)) {
                return answer;
            }
            steps = steps.saturating_mul(4);
        }
    }
}

impl Graph {
    /// Visits the starting points and everything below them, with the group each was found in. The members of one
    /// group come one after the other, in order. Returns what was visited.
    pub(crate) fn descend<'g>(
        &'g self,
        from: impl IntoIterator<Item = Id>,
        budget: &mut Budget,
        mut visit: impl FnMut(Option<Id>, Id, &'g Node) -> ControlFlow<()>,
    ) -> Result<Visited, Exhausted> {
        let mut seen = Visited::new(self.id_limit());
        // First in, first out: names often sort like the groups that hold them, and sorted input sorts fastest.
        let mut groups = VecDeque::new();
        for id in from {
            budget.spend(1)?;
            let Some(node) = self.node(id) else { continue };
            if !seen.insert(id) {
                continue;
            }
            if visit(None, id, node).is_break() {
                return Ok(seen);
            }
            if node.is_group() {
                groups.push_back((id, node));
            }
        }
        while let Some((group, node)) = groups.pop_front() {
            budget.spend(1 + node.members.len())?;
            for &id in node.members.values() {
                if !seen.insert(id) {
                    continue;
                }
                let Some(node) = self.node(id) else { continue };
                if visit(Some(group), id, node).is_break() {
                    return Ok(seen);
                }
                if node.is_group() {
                    groups.push_back((id, node));
                }
            }
        }
        Ok(seen)
    }

    /// Visits the starting points and every group above them.
    pub(crate) fn ascend<'g>(
        &'g self,
        from: impl IntoIterator<Item = Id>,
        budget: &mut Budget,
        mut visit: impl FnMut(Id, &'g Node) -> ControlFlow<()>,
    ) -> Result<(), Exhausted> {
        let mut seen = Visited::new(self.id_limit());
        let mut reached = Vec::new();
        for id in from {
            budget.spend(1)?;
            if let Some(node) = self.node(id).filter(|_| seen.insert(id)) {
                reached.push((id, node));
            }
        }
        while let Some((id, node)) = reached.pop() {
            if visit(id, node).is_break() {
                return Ok(());
            }
            for parent in node.parents.iter() {
                budget.spend(1)?;
                let Some(above) = self.node(parent).filter(|above| above.is_group()) else { continue };
                if seen.insert(parent) {
                    reached.push((parent, above));
                }
            }
        }
        Ok(())
    }
}

/// The ids a walk has seen: a small set first, a bitmap once that is cheaper. A walk that sees little of a large
/// graph must not pay for the graph.
pub(crate) struct Visited {
    few: BTreeSet<Id>,
    many: Vec<u64>,
    id_limit: usize,
}

impl Visited {
    pub(crate) fn new(id_limit: usize) -> Self {
        Self { few: BTreeSet::new(), many: Vec::new(), id_limit }
    }

    /// Whether the id is new.
    pub(crate) fn insert(&mut self, id: Id) -> bool {
        if self.many.is_empty() {
            // A bitmap word per sixteen ids seen is cheaper than a set of sixteen ids.
            if self.few.len() * 1024 < self.id_limit {
                return self.few.insert(id);
            }
            self.many = vec![0; self.id_limit / 64 + 1];
            for id in std::mem::take(&mut self.few) {
                self.mark(id);
            }
        }
        self.mark(id)
    }

    pub(crate) fn contains(&self, id: Id) -> bool {
        match self.many.get(id.index() / 64) {
            Some(word) => word & (1 << (id.index() % 64)) != 0,
            None => self.few.contains(&id),
        }
    }

    fn mark(&mut self, id: Id) -> bool {
        let (word, bit) = (id.index() / 64, 1 << (id.index() % 64));
        let new = self.many[word] & bit == 0;
        self.many[word] |= bit;
        new
    }
}
