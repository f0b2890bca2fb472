//! Counted spans: rows of nodes with a count, and who reads which row.
//!
//! ```text
//!  member on node ─► row of an AppliedToGroup ─┬─ read by its policies that have no other group
//!                                              ├─ read by AddressGroups only such policies name
//!                                              └─feeds─► row of a policy with several groups ─┐
//!                                                                       ▲ read by the policy  │
//!  row of an AddressGroup named by policies with different rows ◄─feeds─┴─────────────────────┘
//! ```
//!
//! A row counts its members, or the rows that feed it; a node enters or leaves when a count crosses zero, and only then
//! does anything downstream hear of it. Who needs exactly another's span reads that row instead of keeping one: ten
//! thousand policies over one group have one row between them.

use std::sync::Arc;

use super::{
    Engine,
    tables::{CountedSet, GroupId, Id, IdSet, NodeId, PolicyId, Slab, SpanId},
};

/// A span as it was told to consumers.
pub(crate) type Nodes = Arc<[NodeId]>;

#[derive(Debug, Clone)]
pub(crate) struct Row {
    nodes: CountedSet<NodeId>,
    /// `nodes` as a list, made at the first flush after a change.
    list: Option<Nodes>,
    pub(crate) owner: Owner,
    /// Rows that count this one.
    feeds: IdSet<SpanId>,
    /// AddressGroups that read this row as theirs.
    pub(crate) readers: IdSet<GroupId>,
    changed: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner {
    Nobody,
    Group(GroupId),
    Policy(PolicyId),
}

#[derive(Debug, Clone)]
pub(crate) struct Spans {
    rows: Slab<SpanId, Row>,
    changed: Vec<SpanId>,
    nothing: Nodes,
}

impl Spans {
    /// The row of whoever spans nothing.
    pub(crate) fn new() -> (Self, SpanId) {
        let mut spans = Spans { rows: Slab::new(), changed: Vec::new(), nothing: Arc::new([]) };
        let empty = spans.insert(Owner::Nobody);
        (spans, empty)
    }

    pub(crate) fn insert(&mut self, owner: Owner) -> SpanId {
        self.rows.insert(Row {
            nodes: CountedSet::new(),
            list: None,
            owner,
            feeds: IdSet::new(),
            readers: IdSet::new(),
            changed: false,
        })
    }

    /// Nothing may feed it, be fed by it or read it any more.
    pub(crate) fn remove(&mut self, id: SpanId) {
        self.rows.remove(id);
    }

    pub(crate) fn get(&self, id: SpanId) -> &Row {
        &self.rows[id]
    }

    pub(crate) fn add_reader(&mut self, id: SpanId, reader: GroupId) {
        self.rows[id].readers.insert(reader);
    }

    pub(crate) fn remove_reader(&mut self, id: SpanId, reader: GroupId) {
        self.rows[id].readers.remove(reader);
    }

    /// O(log span), and as much again for each row downstream when the node is new.
    pub(crate) fn increment(&mut self, id: SpanId, node: NodeId) {
        if self.rows[id].nodes.increment(node) {
            self.mark(id);
            let feeds = std::mem::replace(&mut self.rows[id].feeds, IdSet::new());
            feeds.iter().for_each(|fed| self.increment(*fed, node));
            self.rows[id].feeds = feeds;
        }
    }

    pub(crate) fn decrement(&mut self, id: SpanId, node: NodeId) {
        if self.rows[id].nodes.decrement(node) {
            self.mark(id);
            let feeds = std::mem::replace(&mut self.rows[id].feeds, IdSet::new());
            feeds.iter().for_each(|fed| self.decrement(*fed, node));
            self.rows[id].feeds = feeds;
        }
    }

    fn mark(&mut self, id: SpanId) {
        let row = &mut self.rows[id];
        row.list = None;
        if !row.changed {
            row.changed = true;
            self.changed.push(id);
        }
    }

    /// O(span of `from`).
    pub(crate) fn feed(&mut self, from: SpanId, to: SpanId) {
        if self.rows[from].feeds.insert(to) {
            let nodes = self.rows[from].nodes.clone();
            nodes.ids().for_each(|node| self.increment(to, node));
        }
    }

    pub(crate) fn stop_feeding(&mut self, from: SpanId, to: SpanId) {
        if self.rows[from].feeds.remove(to) {
            let nodes = self.rows[from].nodes.clone();
            nodes.ids().for_each(|node| self.decrement(to, node));
        }
    }

    /// The rows a node entered or left since this was last asked; some may have been removed since.
    pub(crate) fn take_changed(&mut self) -> Vec<SpanId> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.retain(|id| self.rows.get(*id).is_some());
        for id in &changed {
            self.rows[*id].changed = false;
        }
        changed
    }

    pub(crate) fn list(&mut self, id: SpanId) -> Nodes {
        let row = &mut self.rows[id];
        if row.nodes.len() == 0 {
            return Arc::clone(&self.nothing);
        }
        Arc::clone(row.list.get_or_insert_with(|| row.nodes.ids().collect()))
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }
}

/// What `new` has that `old` lacks, and the reverse. O(both).
pub(crate) fn difference(old: &[NodeId], new: &[NodeId]) -> (Vec<NodeId>, Vec<NodeId>) {
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        match (old.get(i), new.get(j)) {
            (Some(a), Some(b)) if a == b => (i, j) = (i + 1, j + 1),
            (Some(a), Some(b)) if a < b => {
                removed.push(*a);
                i += 1;
            }
            (Some(_), Some(b)) | (None, Some(b)) => {
                added.push(*b);
                j += 1;
            }
            (Some(a), None) => {
                removed.push(*a);
                i += 1;
            }
            (None, None) => break,
        }
    }
    (added, removed)
}

impl Engine {
    /// One more policy with this row names the AddressGroup. O(1), or O(span) when the group's rows become two.
    pub(super) fn add_source(&mut self, group: GroupId, source: SpanId) {
        let row = &mut self.groups.rows[group];
        if !row.links.increment(source.index() as u32) {
            return;
        }
        let (sources, span) = (row.links.len(), row.span);
        match sources {
            1 => self.read(group, source),
            2 => {
                let own = self.spans.insert(Owner::Group(group));
                self.spans.remove_reader(span, group);
                self.spans.feed(span, own);
                self.spans.feed(source, own);
                self.groups.rows[group].span = own;
            }
            _ => self.spans.feed(source, span),
        }
        self.mark_group(group);
    }

    pub(super) fn remove_source(&mut self, group: GroupId, source: SpanId) {
        let row = &mut self.groups.rows[group];
        if !row.links.decrement(source.index() as u32) {
            return;
        }
        let own = row.span;
        let left: Option<SpanId> = row.links.ids().next().map(|id| SpanId::from_index(id as usize));
        match (row.links.len(), left) {
            (1, Some(left)) => {
                self.spans.stop_feeding(source, own);
                self.spans.stop_feeding(left, own);
                self.spans.remove(own);
                self.read(group, left);
            }
            (0, _) => {
                self.spans.remove_reader(source, group);
                self.groups.rows[group].span = self.nowhere;
            }
            _ => self.spans.stop_feeding(source, own),
        }
        self.mark_group(group);
    }

    fn read(&mut self, group: GroupId, row: SpanId) {
        self.spans.add_reader(row, group);
        self.groups.rows[group].span = row;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_leaves_downstream_when_the_last_source_lost_it() {
        let (mut spans, _) = Spans::new();
        let [a, b, sum] = [(); 3].map(|()| spans.insert(Owner::Nobody));
        let node = NodeId::from_index(1);
        spans.increment(a, node);
        spans.feed(a, sum);
        spans.feed(b, sum);
        spans.increment(b, node);
        spans.increment(b, node);
        spans.decrement(a, node);
        assert_eq!(*spans.list(sum), [node]);
        spans.stop_feeding(b, sum);
        assert_eq!(*spans.list(sum), []);
    }

    #[test]
    fn differences_are_found_in_one_walk() {
        let ids = |list: &[usize]| list.iter().map(|i| NodeId::from_index(*i)).collect::<Vec<_>>();
        let (added, removed) = difference(&ids(&[1, 2, 5, 9]), &ids(&[0, 2, 9, 10]));
        assert_eq!((added, removed), (ids(&[0, 10]), ids(&[1, 5])));
    }
}
