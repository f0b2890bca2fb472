//! Two ways to the exact difference of the affected tags.
//!
//! ```text
//!   ascent                                     descent
//!       T1    T2   affected tags                   T1       resolve each affected tag,
//!        \   / \                                  /  \      before and after,
//!         web   db   their groups above          .    .     and compare
//!           \  /                                .      .
//!            x       everything touched        x        y
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    rc::Rc,
};

use super::{Change, Seeds, terminal};
use crate::{
    Graph,
    node::{Content, Id},
    walk::{Budget, Exhausted},
};

/// What came to a tag and what went, unordered, each id once per list. A changed leaf is in both.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Effect {
    pub(super) added: Vec<Id>,
    pub(super) removed: Vec<Id>,
}

pub(super) type Effects = BTreeMap<Id, Effect>;

impl Change {
    /// Looks up from each leaf and literal below the change. O(touched + Σ above the groups that hold them).
    pub(super) fn by_ascent(
        &self,
        seeds: &Seeds,
        affected: &BTreeSet<Id>,
        budget: &mut Budget,
    ) -> Result<Effects, Exhausted> {
        let mut touched = terminals(&self.before, seeds.down_before.iter().copied(), budget)?;
        touched.extend(terminals(&self.after, seeds.down_after.iter().copied(), budget)?);
        touched.sort_unstable();
        touched.dedup();

        let mut effects = blank(affected);
        let (mut before, mut after) = (Above::new(&self.before, affected), Above::new(&self.after, affected));
        for id in touched {
            let (held_before, held_after) = (before.of(id, budget)?, after.of(id, budget)?);
            let same = terminal(&self.before, id) == terminal(&self.after, id);
            compare(&held_before, &held_after, |tag, (was, is)| {
                if (was, is) != (true, true) || !same {
                    effects.entry(tag).or_default().note(id, was, is);
                }
            });
        }
        Ok(effects)
    }

    /// Resolves each affected tag twice. O(Σ below the affected tags).
    pub(super) fn by_descent(
        &self,
        affected: &BTreeSet<Id>,
        budget: &mut Budget,
    ) -> Result<Effects, Exhausted> {
        let mut effects = blank(affected);
        for (&tag, effect) in &mut effects {
            let mut before = terminals(&self.before, [tag], budget)?;
            let mut after = terminals(&self.after, [tag], budget)?;
            before.sort_unstable();
            after.sort_unstable();
            compare(&before, &after, |id, (was, is)| {
                if (was, is) != (true, true) || terminal(&self.before, id) != terminal(&self.after, id) {
                    effect.note(id, was, is);
                }
            });
        }
        Ok(effects)
    }
}

impl Effect {
    fn note(&mut self, id: Id, was: bool, is: bool) {
        if was {
            self.removed.push(id);
        }
        if is {
            self.added.push(id);
        }
    }
}

fn blank(affected: &BTreeSet<Id>) -> Effects {
    affected.iter().map(|id| (*id, Effect::default())).collect()
}

fn terminals(
    graph: &Graph,
    from: impl IntoIterator<Item = Id>,
    budget: &mut Budget,
) -> Result<Vec<Id>, Exhausted> {
    let mut found = Vec::new();
    graph.descend(from, budget, |_, id, node| {
        if matches!(node.content, Content::Terminal(_)) {
            found.push(id);
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Walks two sorted lists side by side; for each id says whether it is in the first and in the second.
fn compare(first: &[Id], second: &[Id], mut each: impl FnMut(Id, (bool, bool))) {
    let (mut first, mut second) = (first.iter().peekable(), second.iter().peekable());
    while let Some(&&id) = first.peek().into_iter().chain(second.peek()).min() {
        let was = first.next_if(|next| **next == id).is_some();
        let is = second.next_if(|next| **next == id).is_some();
        each(id, (was, is));
    }
}

/// Which affected tags resolve to something, remembered per group: what one group holds is above the same tags.
struct Above<'a> {
    graph: &'a Graph,
    affected: &'a BTreeSet<Id>,
    groups: BTreeMap<Id, Rc<[Id]>>,
}

impl<'a> Above<'a> {
    fn new(graph: &'a Graph, affected: &'a BTreeSet<Id>) -> Self {
        Self { graph, affected, groups: BTreeMap::new() }
    }

    /// The affected tags that resolve to this leaf or literal, sorted.
    fn of(&mut self, id: Id, budget: &mut Budget) -> Result<Rc<[Id]>, Exhausted> {
        budget.spend(1)?;
        if terminal(self.graph, id).is_none() {
            return Ok(Rc::from([]));
        }
        let mut holders = Vec::new();
        for parent in self.graph.node(id).into_iter().flat_map(|node| node.parents.iter()) {
            budget.spend(1)?;
            if self.graph.node(parent).is_some_and(|node| node.is_group()) {
                holders.push(self.of_group(parent, budget)?);
            }
        }
        if let ([one], false) = (holders.as_slice(), self.affected.contains(&id)) {
            return Ok(Rc::clone(one));
        }
        let mut tags: Vec<Id> = self.affected.get(&id).copied().into_iter().collect();
        for holder in holders {
            budget.spend(holder.len())?;
            tags.extend(holder.iter());
        }
        tags.sort_unstable();
        tags.dedup();
        Ok(tags.into())
    }

    fn of_group(&mut self, group: Id, budget: &mut Budget) -> Result<Rc<[Id]>, Exhausted> {
        if let Some(known) = self.groups.get(&group) {
            return Ok(Rc::clone(known));
        }
        let mut tags = Vec::new();
        self.graph.ascend([group], budget, |id, _| {
            if self.affected.contains(&id) {
                tags.push(id);
            }
            ControlFlow::Continue(())
        })?;
        tags.sort_unstable();
        let tags: Rc<[Id]> = tags.into();
        self.groups.insert(group, Rc::clone(&tags));
        Ok(tags)
    }
}
