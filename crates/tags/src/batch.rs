//! Several requests in one transaction, each judged on top of those before it.
//!
//! In: requests, one after the other. Out: for each the verdict at once, at the end one plan for all that were
//! accepted, each key at most once. Holds: a scratch copy of the graph that runs ahead of the store.

use std::collections::BTreeMap;

use crate::{Graph, Key, Plan, Request, RequestError, Write};

/// The plans of several requests, folded into one. A refused request leaves no trace in it.
#[derive(Clone, Debug)]
pub struct Batch {
    base: Graph,
    scratch: Graph,
    writes: BTreeMap<Key, Write>,
}

impl Batch {
    pub fn new(graph: &Graph) -> Self {
        Self { base: graph.clone(), scratch: graph.clone(), writes: BTreeMap::new() }
    }

    /// Judges a request as if those accepted before were stored already, and adds its writes to the batch.
    pub fn add(&mut self, request: &Request) -> Result<(), RequestError> {
        let plan = self.scratch.plan(request)?;
        for write in &plan.writes {
            self.writes.insert(write.key(), write.clone());
        }
        self.scratch.apply(plan.writes);
        Ok(())
    }

    /// The graph as it will be once the batch is stored.
    pub fn graph(&self) -> &Graph {
        &self.scratch
    }

    /// What to store. Requests that undo each other cancel out.
    pub fn finish(self) -> Plan {
        let Self { base, writes, .. } = self;
        Plan { writes: writes.into_values().filter(|write| !base.is_settled(write)).collect() }
    }
}
