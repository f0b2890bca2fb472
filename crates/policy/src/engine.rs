//! The incremental engine.
//!
//! In: [`Engine::handle_event`], total: it takes whatever is said and never fails. Out: [`Engine::poll_update`].
//! Holds: the tables below; the invariant is that draining gives a consumer exactly the state a computation from
//! scratch gives (`tests/oracle.rs`).
//!
//! ```text
//!  Pod, Node, ──► entities ─► profiles ◄─► selectors ◄── groups ◄── policies ◄── translate ◄── policy objects
//!  entity          (labels shared)   ▲        ▲             │ rows     │                        tiers, groups
//!  Namespace ──► namespaces ◄────────┴────────┘             └► spans ◄─┘
//!                                                               │
//!  poll_update ◄── flush: groups grow · policies · groups shrink ┘
//! ```
//!
//! | event | cost |
//! |---|---|
//! | workload, address or node changed | O(groups it is in) |
//! | workload, labels known in its namespace | O(groups left and entered) |
//! | workload, new label set | O(candidate selectors by label) once per label set |
//! | policy | O(rules); a new selector O(candidate label sets by label) |
//! | namespace labels | O(its label sets × namespace selectors that change their answer) |
//! | tier, group, namespace with dependents | each dependent policy once per flush |
//! | a node enters or leaves a span | O(log span) per row, O(span) per row and flush |
//! | drain | O(what is told) |

mod dependents;
pub(crate) mod entities;
mod flush;
pub(crate) mod groups;
mod lookup;
pub(crate) mod matching;
mod membership;
pub(crate) mod namespaces;
mod objects;
pub(crate) mod policies;
pub(crate) mod selectors;
mod spans;
mod status;
mod symbols;
pub(crate) mod tables;
mod view;

use std::sync::Arc;

use model::policy::{Object, ObjectId, output::Update};

pub use membership::{GroupMembers, NamedGroup};
pub use view::{GroupView, View};

use crate::selection::SERVICE_ACCOUNT_LABEL;

/// A change of intent or inventory. The object stays the caller's.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// Create or replace.
    Apply(&'a Object),
    Delete(&'a ObjectId),
}

/// A clone knows nothing of the other: what a change would do is tried on one.
#[derive(Debug, Clone)]
pub struct Engine {
    symbols: symbols::Interner<tables::Symbol>,
    nodes: symbols::Interner<tables::NodeId>,
    /// Span keys nobody holds any more, to be forgotten once consumers know.
    idle_nodes: Vec<tables::NodeId>,
    pub(crate) namespaces: namespaces::Namespaces,
    pub(crate) entities: entities::Entities,
    pub(crate) selectors: selectors::Selectors,
    pub(crate) groups: groups::Groups,
    spans: spans::Spans,
    /// The row of those that span nothing.
    nowhere: tables::SpanId,
    pub(crate) policies: policies::Policies,
    lookups: dependents::Lookups,
    problems: status::Problems,
    flush: flush::Flush,
    /// The label key under which service accounts are matched.
    service_account: tables::Symbol,
}

/// Counts of what the engine holds, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub workloads: usize,
    pub label_sets: usize,
    pub selectors: usize,
    pub groups: usize,
    pub policies: usize,
    pub span_rows: usize,
    pub namespaces: usize,
    pub symbols: usize,
    pub span_keys: usize,
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine {
    pub fn new() -> Self {
        let (spans, nowhere) = spans::Spans::new();
        let mut symbols = symbols::Interner::new();
        let service_account = symbols.intern(SERVICE_ACCOUNT_LABEL);
        symbols.acquire(service_account);
        Engine {
            symbols,
            nodes: symbols::Interner::new(),
            idle_nodes: Vec::new(),
            namespaces: namespaces::Namespaces::new(),
            entities: entities::Entities::new(),
            selectors: selectors::Selectors::new(),
            groups: groups::Groups::new(),
            spans,
            nowhere,
            policies: policies::Policies::new(),
            lookups: dependents::Lookups::default(),
            problems: status::Problems::default(),
            flush: flush::Flush::default(),
            service_account,
        }
    }

    /// Total: what is not understood is reported as a status of its object, and fails closed.
    pub fn handle_event(&mut self, event: Event<'_>) {
        // What was not drained yet describes the state before this event.
        self.finish_flush();
        match event {
            Event::Apply(object) => self.apply(object),
            Event::Delete(id) => self.delete(id),
        }
    }

    /// The next step of the difference since this was last `None`. Updates are made as they are asked for, so a drain
    /// needs no more memory than its largest update.
    pub fn poll_update(&mut self) -> Option<Update> {
        self.next_update()
    }

    /// The text of a key or value of a label.
    pub(crate) fn label(&self, symbol: tables::Symbol) -> Arc<str> {
        Arc::clone(self.symbols.text(symbol))
    }

    pub fn size(&self) -> Size {
        Size {
            workloads: self.entities.rows.len(),
            label_sets: self.entities.profiles.len(),
            selectors: self.selectors.rows.len(),
            groups: self.groups.rows.len(),
            policies: self.policies.rows.len(),
            span_rows: self.spans.len(),
            namespaces: self.namespaces.rows.len(),
            symbols: self.symbols.len(),
            span_keys: self.nodes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_may_move_to_the_thread_that_owns_it() {
        fn moves<T: Send + 'static>(_: &T) {}
        moves(&Engine::new());
    }
}
