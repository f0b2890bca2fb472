//! Which objects a node needs, and who watches as that node.
//!
//! ```text
//!  node ──► spans it is in ──► objects with that span        attach: O(what the node needs)
//!  object ─► span ──► nodes ──► watchers                     change: O(who must hear of it)
//! ```
//!
//! Objects over one set of nodes share one span: the engine gives them one list of names, and a batch that moves ten
//! thousand policies to a new set works it out once.

use std::sync::Arc;

use model::policy::output::Span;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::watcher::Watcher;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

pub type RowId = u32;

impl SpanId {
    /// The span of those no node needs.
    pub const NOWHERE: SpanId = SpanId(0);
}

#[derive(Debug, Default)]
struct SpanRow {
    /// Ascending.
    nodes: Box<[NodeId]>,
    rows: Vec<RowId>,
}

#[derive(Debug)]
struct NodeRow {
    name: Arc<str>,
    spans: FxHashSet<SpanId>,
    watchers: Vec<Arc<Watcher>>,
}

/// From a span by way of two lists of names, known by their addresses, which the value keeps alive.
type Moves = FxHashMap<(SpanId, usize, usize), (SpanId, Span, Span)>;

#[derive(Debug)]
pub struct Spans {
    spans: Vec<SpanRow>,
    free_spans: Vec<SpanId>,
    nodes: Vec<NodeRow>,
    free_nodes: Vec<NodeId>,
    names: FxHashMap<Arc<str>, NodeId>,
    moves: Moves,
    watchers: usize,
    /// Spans and nodes that may have lost their last reader in this batch.
    left_spans: Vec<SpanId>,
    left_nodes: Vec<NodeId>,
}

impl Spans {
    pub fn new() -> Self {
        Spans {
            spans: vec![SpanRow::default()],
            free_spans: Vec::new(),
            nodes: Vec::new(),
            free_nodes: Vec::new(),
            names: FxHashMap::default(),
            moves: Moves::default(),
            watchers: 0,
            left_spans: Vec::new(),
            left_nodes: Vec::new(),
        }
    }

    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    pub fn names(&self, span: SpanId) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.nodes_of(span).iter().map(|node| &self.nodes[node.0 as usize].name)
    }

    pub fn nodes_of(&self, span: SpanId) -> &[NodeId] {
        &self.spans[span.0 as usize].nodes
    }

    pub fn contains(&self, span: SpanId, node: &str) -> bool {
        self.node(node).is_some_and(|node| self.nodes_of(span).binary_search(&node).is_ok())
    }

    pub fn watchers(&self, node: NodeId) -> &[Arc<Watcher>] {
        &self.nodes[node.0 as usize].watchers
    }

    /// The objects a node needs.
    pub fn rows_on(&self, node: &str) -> impl Iterator<Item = RowId> {
        let spans = self.node(node).into_iter().flat_map(|node| &self.nodes[node.0 as usize].spans);
        spans.flat_map(|span| &self.spans[span.0 as usize].rows).copied()
    }

    pub fn attach(&mut self, node: &Arc<str>, watcher: Arc<Watcher>) {
        let node = self.intern(node);
        self.nodes[node.0 as usize].watchers.push(watcher);
        self.watchers += 1;
    }

    pub fn detach(&mut self, node: &str, watcher: &Arc<Watcher>) {
        let Some(node) = self.node(node) else { return };
        let watchers = &mut self.nodes[node.0 as usize].watchers;
        let before = watchers.len();
        watchers.retain(|other| !Arc::ptr_eq(other, watcher));
        self.watchers -= before - watchers.len();
        self.left_nodes.push(node);
        self.forget_left();
    }

    /// The span after some nodes came and some went. O(1) if a row before took the same way in this batch.
    pub fn after(&mut self, span: SpanId, added: &Span, removed: &Span) -> SpanId {
        if added.is_empty() && removed.is_empty() {
            return span;
        }
        let key = (span, added.as_ptr().addr(), removed.as_ptr().addr());
        if let Some((to, ..)) = self.moves.get(&key) {
            return *to;
        }
        let gone: FxHashSet<NodeId> = removed.iter().filter_map(|name| self.node(name)).collect();
        let come: Vec<NodeId> = added.iter().map(|name| self.intern(name)).collect();
        let stay = self.nodes_of(span).iter().filter(|node| !gone.contains(node)).copied();
        let mut nodes: Vec<NodeId> = stay.chain(come).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let to = self.insert(nodes.into());
        self.moves.insert(key, (to, added.clone(), removed.clone()));
        to
    }

    fn insert(&mut self, nodes: Box<[NodeId]>) -> SpanId {
        if nodes.is_empty() {
            return SpanId::NOWHERE;
        }
        let id = self.free_spans.pop().unwrap_or_else(|| {
            self.spans.push(SpanRow::default());
            SpanId(u32::try_from(self.spans.len() - 1).expect("memory ends before four billion spans"))
        });
        for node in &nodes {
            self.nodes[node.0 as usize].spans.insert(id);
        }
        self.spans[id.0 as usize].nodes = nodes;
        self.left_spans.push(id);
        id
    }

    /// Puts an object under a span; its place there.
    pub fn enter(&mut self, span: SpanId, row: RowId) -> usize {
        let rows = &mut self.spans[span.0 as usize].rows;
        rows.push(row);
        rows.len() - 1
    }

    /// Takes it away; the object that has its place now.
    pub fn leave(&mut self, span: SpanId, place: usize) -> Option<RowId> {
        let rows = &mut self.spans[span.0 as usize].rows;
        rows.swap_remove(place);
        let moved = rows.get(place).copied();
        if rows.is_empty() {
            self.left_spans.push(span);
        }
        moved
    }

    /// The end of a batch: what nobody refers to is forgotten. Not earlier, because `moves` refers to ids.
    pub fn settle(&mut self) {
        self.moves.clear();
        for id in std::mem::take(&mut self.left_spans) {
            let span = &mut self.spans[id.0 as usize];
            if id == SpanId::NOWHERE || !span.rows.is_empty() || span.nodes.is_empty() {
                continue;
            }
            for node in std::mem::take(&mut span.nodes) {
                self.nodes[node.0 as usize].spans.remove(&id);
                self.left_nodes.push(node);
            }
            span.rows = Vec::new();
            self.free_spans.push(id);
        }
        self.forget_left();
    }

    fn forget_left(&mut self) {
        for id in std::mem::take(&mut self.left_nodes) {
            let node = &self.nodes[id.0 as usize];
            if node.spans.is_empty() && node.watchers.is_empty() && self.names.remove(&node.name).is_some() {
                self.free_nodes.push(id);
            }
        }
    }

    fn intern(&mut self, name: &Arc<str>) -> NodeId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let row = NodeRow { name: Arc::clone(name), spans: FxHashSet::default(), watchers: Vec::new() };
        let id = match self.free_nodes.pop() {
            Some(id) => {
                self.nodes[id.0 as usize] = row;
                id
            }
            None => {
                self.nodes.push(row);
                NodeId(u32::try_from(self.nodes.len() - 1).expect("memory ends before four billion nodes"))
            }
        };
        self.names.insert(Arc::clone(name), id);
        id
    }

    pub fn watcher_count(&self) -> usize {
        self.watchers
    }
}
