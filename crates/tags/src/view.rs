//! Reading: what a tag holds, what it resolves to, what lies above it, who subscribes to it.
//!
//! In: questions about a graph, usually a snapshot. Out: borrowed answers, always in the same order: literals by
//! address, then tags by name. A tag that does not exist is an error, never an empty answer.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    ops::{Bound, ControlFlow},
};

use imbl::OrdMap;
use model::{Address, Leaf, Member, Subscriber, TagName, TagValue};

use crate::{
    Graph, NotFound,
    node::{Content, Id, Node},
    walk::{Budget, Visited},
};

/// One thing a tag resolves to. Two paths to the same leaf or literal give one of these; a leaf and a literal of
/// the same address are two, because they come and go on their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResolvedMember {
    Literal(Address),
    Leaf { name: TagName, leaf: Leaf },
}

impl ResolvedMember {
    /// The bytes it takes in memory, about.
    pub(crate) fn weight(&self) -> usize {
        let text = match self {
            Self::Literal(_) => 0,
            Self::Leaf { name, leaf } => name.as_str().len() + leaf.uri.as_ref().map_or(0, |uri| uri.len()),
        };
        size_of::<Self>() + text
    }
}

/// What a tag resolves to: each distinct member once, in order. May be empty (a group without members); whoever
/// writes a rule from it must treat that as an error, not as "everybody" or "nobody in particular".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved<'g> {
    members: Vec<&'g ResolvedMember>,
}

/// The content of a tag, borrowed.
#[derive(Clone, Copy, Debug)]
pub enum TagView<'g> {
    Leaf(&'g Leaf),
    Group(Members<'g>),
}

/// The direct members of a group, in order.
#[derive(Clone, Copy)]
pub struct Members<'g>(&'g OrdMap<Member, Id>);

impl Graph {
    pub fn get(&self, tag: &TagName) -> Result<TagView<'_>, NotFound> {
        self.find(tag).and_then(|(_, node)| TagView::of(node)).ok_or_else(|| NotFound { tag: tag.clone() })
    }

    /// The tags whose name starts with `prefix`, by name.
    pub fn list<'g>(&'g self, prefix: &'g str) -> impl Iterator<Item = (&'g TagName, TagView<'g>)> {
        self.tags()
            .range::<_, str>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(move |(name, _)| name.as_str().starts_with(prefix))
            .filter_map(|(name, id)| Some((name, TagView::of(self.node(*id)?)?)))
    }

    /// Everything at the leaves of a tag, in one pass. A leaf resolves to itself.
    pub fn resolve(&self, tag: &TagName) -> Result<Resolved<'_>, NotFound> {
        let (id, node) = self.tag(tag)?;
        let mut members = Vec::with_capacity(node.members.len());
        let (mut last, mut runs) = (None, 0);
        let visited = self.descend([id], &mut Budget::unlimited(), |group, _, node| {
            if let Content::Terminal(member) = &node.content {
                // The members of one group come in order, so one run needs no sorting.
                if last.replace(group) != Some(group) {
                    runs += 1;
                }
                members.push(member);
            }
            ControlFlow::Continue(())
        });
        let visited = visited.expect("an unlimited budget lasts");
        if runs > 1 {
            // To pick them out of all names in order beats comparing them, unless they are few among many.
            if members.len() * 4 >= self.names() {
                members = self.terminals_in_order(&visited);
            } else {
                members.sort();
            }
        }
        Ok(Resolved { members })
    }

    fn terminals_in_order(&self, visited: &Visited) -> Vec<&ResolvedMember> {
        self.ids_in_order()
            .filter(|id| visited.contains(*id))
            .filter_map(|id| match &self.node(id)?.content {
                Content::Terminal(member) => Some(member),
                Content::Absent | Content::Group => None,
            })
            .collect()
    }

    /// The tags that hold this one directly or through others, by name; itself not among them.
    pub fn ancestors(&self, tag: &TagName) -> Result<Vec<&TagName>, NotFound> {
        let (id, _) = self.tag(tag)?;
        let mut above = Vec::new();
        self.ascend([id], &mut Budget::unlimited(), |found, node| {
            if let (true, Member::Tag(name)) = (found != id, &node.name) {
                above.push(name);
            }
            ControlFlow::Continue(())
        })
        .expect("an unlimited budget lasts");
        above.sort_unstable();
        Ok(above)
    }

    /// Who subscribes to this very tag, in order.
    pub fn subscribers(&self, tag: &TagName) -> Result<impl Iterator<Item = &Subscriber>, NotFound> {
        Ok(self.tag(tag)?.1.subscribers.iter())
    }

    /// The node of a tag that exists.
    pub(crate) fn tag(&self, tag: &TagName) -> Result<(Id, &Node), NotFound> {
        self.find(tag)
            .filter(|(_, node)| node.content != Content::Absent)
            .ok_or_else(|| NotFound { tag: tag.clone() })
    }
}

impl<'g> Resolved<'g> {
    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'g ResolvedMember> + '_ {
        self.members.iter().copied()
    }
}

impl<'g> IntoIterator for Resolved<'g> {
    type Item = &'g ResolvedMember;
    type IntoIter = std::vec::IntoIter<&'g ResolvedMember>;

    fn into_iter(self) -> Self::IntoIter {
        self.members.into_iter()
    }
}

impl<'g> TagView<'g> {
    fn of(node: &'g Node) -> Option<Self> {
        match &node.content {
            Content::Absent | Content::Terminal(ResolvedMember::Literal(_)) => None,
            Content::Group => Some(Self::Group(Members(&node.members))),
            Content::Terminal(ResolvedMember::Leaf { leaf, .. }) => Some(Self::Leaf(leaf)),
        }
    }

    pub fn to_value(self) -> TagValue {
        match self {
            Self::Leaf(leaf) => TagValue::Leaf(leaf.clone()),
            Self::Group(members) => TagValue::Group(members.iter().cloned().collect::<BTreeSet<_>>()),
        }
    }
}

impl<'g> Members<'g> {
    pub fn len(self) -> usize {
        self.0.len()
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(self, member: &Member) -> bool {
        self.0.contains_key(member)
    }

    pub fn iter(self) -> impl ExactSizeIterator<Item = &'g Member> {
        self.0.keys()
    }
}

impl std::fmt::Debug for Members<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
