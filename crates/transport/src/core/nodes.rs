//! Names of nodes as small numbers, reused when nothing is known of a name any more.

use std::{collections::HashMap, sync::Arc};

/// A node, or everyone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub(crate) u32);

impl NodeIndex {
    /// Stands for all nodes, also those nobody has named yet.
    pub(crate) const EVERYONE: Self = Self(0);
}

#[derive(Debug, Default)]
pub(super) struct Nodes {
    by_name: HashMap<Arc<str>, NodeIndex>,
    /// Number 1 is at place 0.
    names: Vec<Option<Named>>,
    free: Vec<NodeIndex>,
}

#[derive(Debug)]
struct Named {
    name: Arc<str>,
    pins: u32,
}

impl Nodes {
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn find(&self, name: &str) -> Option<NodeIndex> {
        self.by_name.get(name).copied()
    }

    pub fn intern(&mut self, name: &str) -> NodeIndex {
        if let Some(node) = self.find(name) {
            return node;
        }
        let name: Arc<str> = name.into();
        let named = Some(Named { name: Arc::clone(&name), pins: 0 });
        let node = match self.free.pop() {
            Some(node) => {
                self.names[node.0 as usize - 1] = named;
                node
            }
            None => {
                self.names.push(named);
                NodeIndex(u32::try_from(self.names.len()).expect("there are fewer nodes than addresses"))
            }
        };
        self.by_name.insert(name, node);
        node
    }

    pub fn name(&self, node: NodeIndex) -> Option<Arc<str>> {
        let named = self.names.get((node.0 as usize).checked_sub(1)?)?.as_ref()?;
        Some(Arc::clone(&named.name))
    }

    pub fn pin(&mut self, node: NodeIndex) {
        if let Some(named) = &mut self.names[node.0 as usize - 1] {
            named.pins += 1;
        }
    }

    pub fn unpin(&mut self, node: NodeIndex) {
        if let Some(named) = &mut self.names[node.0 as usize - 1] {
            named.pins = named.pins.saturating_sub(1);
        }
    }

    /// Forgets a node unless it is pinned.
    pub fn release(&mut self, node: NodeIndex) {
        let named = &mut self.names[node.0 as usize - 1];
        if let Some(Named { pins: 0, name }) = named {
            self.by_name.remove(name);
            *named = None;
            self.free.push(node);
        }
    }
}
