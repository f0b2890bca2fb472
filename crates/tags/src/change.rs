//! What a transaction changed, as its subscribers see it.
//!
//! In: the graph before and after, and the ids that facts touched. Out: for every subscribed tag whose resolution
//! is different, the exact [`Difference`]; for every subscriber the differences it hears of, each once.
//! Holds: two snapshots; nothing is computed until asked for, so the writer need not wait for it.
//!
//! Only the net effect counts: what a transaction adds and removes again is no change. A leaf whose value changed
//! is among the removed with its old value and among the added with its new one. A tag that is gone afterwards
//! is `deleted`, and all it resolved to is removed. Whoever is subscribed before *or* after the transaction hears:
//! requests of one batch are concurrent, and hearing once too often loses nothing.

mod difference;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
};

use model::{Member, Subscriber, TagName};

use crate::{
    Graph, ResolvedMember,
    node::{Content, Id},
    walk::Budget,
};

/// The effect of one transaction.
#[derive(Clone, Debug)]
pub struct Change {
    before: Graph,
    after: Graph,
    touched: Touched,
}

/// How the resolution of one subscribed tag changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub tag: TagName,
    /// In order, with values as of after the change.
    pub added: Vec<ResolvedMember>,
    /// In order, with values as of before the change.
    pub removed: Vec<ResolvedMember>,
    /// The tag does not exist any more.
    pub deleted: bool,
}

impl Difference {
    /// The bytes it takes in memory, about: names and addresses are counted as if nothing else held them.
    pub fn weight(&self) -> usize {
        let members = self.added.iter().chain(&self.removed);
        size_of::<Self>() + self.tag.as_str().len() + members.map(ResolvedMember::weight).sum::<usize>()
    }
}

/// What the writes of a transaction changed on the way; maybe changed back since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    pub(crate) tags: Vec<Id>,
    /// Parent and member.
    pub(crate) memberships: Vec<(Id, Id)>,
    pub(crate) unsubscribed: Vec<Id>,
}

/// Where a change starts to be felt.
#[derive(Default)]
struct Seeds {
    /// Tags that are different in themselves: whatever lies above them may resolve differently.
    up: Vec<Id>,
    /// What was attached, detached or changed: only what lies below them, before or after, can make a difference.
    down_before: Vec<Id>,
    down_after: Vec<Id>,
}

impl Change {
    pub(crate) fn new(before: Graph, after: Graph, touched: Touched) -> Self {
        Self { before, after, touched }
    }

    /// The graph as it was.
    pub fn before(&self) -> &Graph {
        &self.before
    }

    /// The graph as it came to be.
    pub fn after(&self) -> &Graph {
        &self.after
    }

    /// The differences of all subscribed tags, by tag name.
    pub fn differences(&self) -> Vec<Difference> {
        if !self.before.has_subscriptions() && !self.after.has_subscriptions() {
            return Vec::new();
        }
        let seeds = self.seeds();
        let affected = self.affected(&seeds);
        if affected.is_empty() {
            return Vec::new();
        }
        let effects = Budget::cheaper(
            |budget| self.by_ascent(&seeds, &affected, budget),
            |budget| self.by_descent(&affected, budget),
        );
        let mut differences: Vec<_> =
            effects.into_iter().filter_map(|(tag, effect)| self.difference(tag, effect)).collect();
        differences.sort_unstable_by(|a, b| a.tag.cmp(&b.tag));
        differences
    }

    /// Who hears what: for each subscriber the differences of its tags, by tag name.
    pub fn by_subscriber(&self) -> BTreeMap<Subscriber, Vec<Arc<Difference>>> {
        let mut heard: BTreeMap<Subscriber, Vec<Arc<Difference>>> = BTreeMap::new();
        for difference in self.differences() {
            let difference = Arc::new(difference);
            for subscriber in self.subscribers(&difference.tag) {
                heard.entry(subscriber.clone()).or_default().push(Arc::clone(&difference));
            }
        }
        heard
    }

    fn subscribers(&self, tag: &TagName) -> BTreeSet<&Subscriber> {
        [&self.before, &self.after]
            .into_iter()
            .filter_map(|graph| graph.find(tag))
            .flat_map(|(_, node)| &node.subscribers)
            .collect()
    }

    fn seeds(&self) -> Seeds {
        let mut seeds = Seeds::default();
        for &id in &self.touched.tags {
            if content(&self.before, id) != content(&self.after, id) {
                seeds.up.push(id);
                seeds.down_before.push(id);
                seeds.down_after.push(id);
            }
        }
        for &(parent, member) in &self.touched.memberships {
            match (has(&self.before, parent, member), has(&self.after, parent, member)) {
                (true, false) => seeds.down_before.push(member),
                (false, true) => seeds.down_after.push(member),
                (true, true) | (false, false) => continue,
            }
            seeds.up.push(parent);
        }
        seeds
    }

    /// The subscribed tags that may resolve differently.
    fn affected(&self, seeds: &Seeds) -> BTreeSet<Id> {
        let mut affected = BTreeSet::new();
        for graph in [&self.before, &self.after] {
            graph
                .ascend(seeds.up.iter().copied(), &mut Budget::unlimited(), |id, _| {
                    if self.is_subscribed(id) {
                        affected.insert(id);
                    }
                    ControlFlow::Continue(())
                })
                .expect("an unlimited budget lasts");
        }
        affected
    }

    fn is_subscribed(&self, id: Id) -> bool {
        [&self.before, &self.after]
            .iter()
            .any(|graph| graph.node(id).is_some_and(|node| !node.subscribers.is_empty()))
    }

    fn difference(&self, id: Id, effect: difference::Effect) -> Option<Difference> {
        let exists = |graph| content(graph, id).is_some_and(|content| *content != Content::Absent);
        let deleted = exists(&self.before) && !exists(&self.after);
        if effect.added.is_empty() && effect.removed.is_empty() && !deleted {
            return None;
        }
        let Member::Tag(tag) = &self.before.node(id).or_else(|| self.after.node(id))?.name else {
            return None;
        };
        let (added, removed) = (members(&self.after, &effect.added), members(&self.before, &effect.removed));
        Some(Difference { tag: tag.clone(), added, removed, deleted })
    }
}

impl Touched {
    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        let memberships = self.memberships.iter().flat_map(|(parent, member)| [*parent, *member]);
        self.tags.iter().chain(&self.unsubscribed).copied().chain(memberships)
    }
}

fn content(graph: &Graph, id: Id) -> Option<&Content> {
    graph.node(id).map(|node| &node.content)
}

fn has(graph: &Graph, parent: Id, member: Id) -> bool {
    graph.node(member).is_some_and(|node| node.parents.contains(parent))
}

fn members(graph: &Graph, ids: &[Id]) -> Vec<ResolvedMember> {
    let mut members: Vec<_> = ids.iter().filter_map(|id| terminal(graph, *id)).cloned().collect();
    members.sort_unstable();
    members
}

fn terminal(graph: &Graph, id: Id) -> Option<&ResolvedMember> {
    match content(graph, id)? {
        Content::Terminal(member) => Some(member),
        Content::Absent | Content::Group => None,
    }
}
