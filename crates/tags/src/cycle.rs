//! The cycle check: would a group contain itself once it has these new members?

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::ControlFlow,
};

use model::{Member, TagName};

use crate::{
    Cycle, Graph,
    node::Id,
    walk::{Budget, Exhausted},
};

impl Graph {
    /// The first new member, by name, that already contains the group, with the shortest way from it.
    ///
    /// Looks up from the group and down from the members by turns: adding a leaf at the bottom of a deep graph and
    /// adding a large group at its top are both cheap.
    pub(crate) fn find_cycle(&self, group: Id, members: &BTreeSet<Id>) -> Option<(TagName, Cycle)> {
        if members.is_empty() {
            return None;
        }
        let makes_cycle = Budget::cheaper(
            |budget| self.any_above(group, members, budget),
            |budget| self.is_below(group, members, budget),
        );
        makes_cycle.then(|| self.describe_cycle(group, members))
    }

    fn any_above(&self, group: Id, members: &BTreeSet<Id>, budget: &mut Budget) -> Result<bool, Exhausted> {
        let mut found = false;
        self.ascend([group], budget, |id, _| {
            found = members.contains(&id);
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    fn is_below(&self, group: Id, members: &BTreeSet<Id>, budget: &mut Budget) -> Result<bool, Exhausted> {
        let mut found = false;
        self.descend(members.iter().copied(), budget, |_, id, _| {
            found = id == group;
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    /// Walks again, breadth first and in order of names, so that the message does not depend on ids. Only a refused
    /// request pays for it.
    fn describe_cycle(&self, group: Id, members: &BTreeSet<Id>) -> (TagName, Cycle) {
        let mut above = BTreeSet::new();
        self.ascend([group], &mut Budget::unlimited(), |id, _| {
            above.insert(id);
            ControlFlow::Continue(())
        })
        .expect("an unlimited budget lasts");
        let (name, start) = members
            .intersection(&above)
            .map(|id| (self.tag_name(*id), *id))
            .min()
            .expect("a cycle was found, so a member is above the group");
        let mut found_from = BTreeMap::from([(start, start)]);
        let mut next = VecDeque::from([start]);
        while let Some(id) = next.pop_front() {
            if id == group {
                break;
            }
            for &member in self.node(id).into_iter().flat_map(|node| node.members.values()) {
                if above.contains(&member) && !found_from.contains_key(&member) {
                    found_from.insert(member, id);
                    next.push_back(member);
                }
            }
        }
        let mut path = vec![self.tag_name(group)];
        let mut id = group;
        while id != start {
            id = found_from[&id];
            path.push(self.tag_name(id));
        }
        path.push(self.tag_name(group));
        path.reverse();
        (name, Cycle { path })
    }

    fn tag_name(&self, id: Id) -> TagName {
        match self.node(id).map(|node| &node.name) {
            Some(Member::Tag(name)) => name.clone(),
            Some(Member::Literal(_)) | None => unreachable!("only tags are above a tag"),
        }
    }
}
