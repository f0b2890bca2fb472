//! How far the nodes are with each policy, from what they report.

use std::{fmt, sync::Arc};

use model::policy::{
    ObjectId,
    output::{Identifier, NetworkPolicy, Problem, Span},
};
use rustc_hash::FxHashMap;

/// A node's message is cut here; a node must not fill the controller's memory.
const MESSAGE: usize = 256;

/// What a node says of one policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub generation: i64,
    pub is_failure: bool,
    pub message: String,
}

/// Reports by policy and node. Nodes that leave a span, and policies that go, take theirs along.
#[derive(Debug, Default)]
pub struct Reports(FxHashMap<Identifier, FxHashMap<Arc<str>, Report>>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Realisation {
    pub policy: Identifier,
    pub source: ObjectId,
    pub generation: i64,
    /// Nodes that need the policy.
    pub desired: usize,
    /// Nodes that have this generation of it.
    pub current: usize,
    /// Nodes that could not, with what they say.
    pub failures: Vec<(Arc<str>, String)>,
    /// What is wrong with the policy itself.
    pub problems: Vec<Problem>,
    pub phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No node needs it.
    Pending,
    Realizing,
    Realized,
    /// Every node has answered, and some could not.
    Failed,
}

impl Reports {
    pub fn take(&mut self, policy: &Identifier, node: &str, mut report: Report) {
        if let Some((at, _)) = report.message.char_indices().nth(MESSAGE) {
            report.message.truncate(at);
        }
        let reports = self.0.entry(policy.clone()).or_default();
        // Two connections of one node may race; an older generation never hides a newer one.
        if reports.get(node).is_none_or(|known| known.generation <= report.generation) {
            reports.insert(node.into(), report);
        }
    }

    pub fn forget(&mut self, policy: &Identifier, is_removed: bool, nodes: &Span) {
        if is_removed {
            self.0.remove(policy);
        } else if !nodes.is_empty()
            && let Some(reports) = self.0.get_mut(policy)
        {
            nodes.iter().for_each(|node| drop(reports.remove(node)));
        }
    }

    /// All reports kept are of nodes in the span. O(reports).
    pub fn realisation(
        &self,
        policy: &NetworkPolicy,
        source: ObjectId,
        desired: usize,
        problems: Vec<Problem>,
    ) -> Realisation {
        let reports = self.0.get(&policy.uid).into_iter().flatten();
        let (mut current, mut failures) = (0, Vec::new());
        for (node, report) in reports.filter(|(_, report)| report.generation == policy.generation) {
            match report.is_failure {
                true => failures.push((Arc::clone(node), report.message.clone())),
                false => current += 1,
            }
        }
        failures.sort();
        let phase = match desired {
            0 => Phase::Pending,
            _ if current == desired => Phase::Realized,
            _ if !failures.is_empty() && current + failures.len() == desired => Phase::Failed,
            _ => Phase::Realizing,
        };
        Realisation {
            policy: policy.uid.clone(),
            source,
            generation: policy.generation,
            desired,
            current,
            failures,
            problems,
            phase,
        }
    }
}

/// As in `Realizing 3/5` and `Failed 4/5: node-2: no such table`.
impl fmt::Display for Realisation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.phase {
            Phase::Pending => f.write_str("Pending"),
            Phase::Realized => f.write_str("Realized"),
            Phase::Realizing => write!(f, "Realizing {}/{}", self.current, self.desired),
            Phase::Failed => write!(f, "Failed {}/{}", self.current, self.desired),
        }?;
        match self.failures.first() {
            Some((node, message)) => write!(f, ": {node}: {message}"),
            None => Ok(()),
        }
    }
}
