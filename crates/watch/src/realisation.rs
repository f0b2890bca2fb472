//! How far the nodes are with each policy, from what they report.

use std::sync::Arc;

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

/// What nodes say of a policy that do not report each one: none as long as it is unknown, else whether it is in force, or
/// why not.
pub type Elsewhere<'a> = &'a dyn Fn(&str, &Identifier) -> Option<Result<(), String>>;

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

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Realizing => "Realizing",
            Phase::Realized => "Realized",
            Phase::Failed => "Failed",
        }
    }
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

    /// All reports kept are of nodes in the span. O(span).
    pub fn realisation<'s>(
        &self,
        policy: &NetworkPolicy,
        source: ObjectId,
        span: impl Iterator<Item = &'s Arc<str>>,
        problems: Vec<Problem>,
        elsewhere: Elsewhere<'_>,
    ) -> Realisation {
        let reports = self.0.get(&policy.uid);
        let (mut desired, mut current, mut failures) = (0, 0, Vec::new());
        for node in span {
            desired += 1;
            let report = reports.and_then(|reports| reports.get(node));
            let told = match report.filter(|report| report.generation == policy.generation) {
                Some(report) if report.is_failure => Some(Err(report.message.clone())),
                Some(_) => Some(Ok(())),
                None => elsewhere(node, &policy.uid),
            };
            match told {
                Some(Ok(())) => current += 1,
                Some(Err(message)) => failures.push((Arc::clone(node), message)),
                None => {}
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

#[cfg(test)]
mod tests {
    use model::policy::{Kind, output::PolicySource};

    use super::*;

    fn policy(generation: i64) -> NetworkPolicy {
        let uid = Identifier::parse("p");
        NetworkPolicy {
            uid: uid.clone(),
            generation,
            source: PolicySource { kind: Kind::NetworkPolicy, namespace: "ns".into(), name: "p".into(), uid },
            tier_priority: None,
            priority: None,
            rules: Vec::new(),
            applied_to_groups: Vec::new(),
            applied_to_per_rule: false,
        }
    }

    fn told(reports: &Reports, generation: i64, desired: usize) -> (Phase, usize, usize) {
        told_with(reports, generation, desired, &|_, _| None)
    }

    fn told_with(
        reports: &Reports,
        generation: i64,
        desired: usize,
        elsewhere: Elsewhere<'_>,
    ) -> (Phase, usize, usize) {
        let source = ObjectId { kind: Kind::NetworkPolicy, namespace: "ns".into(), name: "p".into() };
        let span: Span = ["a", "b"].into_iter().take(desired).map(Into::into).collect();
        let told = reports.realisation(&policy(generation), source, span.iter(), Vec::new(), elsewhere);
        (told.phase, told.current, told.failures.len())
    }

    fn report(generation: i64, is_failure: bool) -> Report {
        Report { generation, is_failure, message: "x".repeat(1_000) }
    }

    #[test]
    fn a_policy_is_realised_when_every_node_has_its_generation() {
        let (mut reports, uid) = (Reports::default(), Identifier::parse("p"));
        assert_eq!(told(&reports, 1, 0), (Phase::Pending, 0, 0));
        assert_eq!(told(&reports, 1, 2), (Phase::Realizing, 0, 0));
        reports.take(&uid, "a", report(1, false));
        assert_eq!(told(&reports, 1, 2), (Phase::Realizing, 1, 0));
        reports.take(&uid, "b", report(1, false));
        assert_eq!(told(&reports, 1, 2), (Phase::Realized, 2, 0));
        // A new generation starts over, and a late word about the old one changes nothing.
        reports.take(&uid, "a", report(2, false));
        reports.take(&uid, "a", report(1, true));
        assert_eq!(told(&reports, 2, 2), (Phase::Realizing, 1, 0));
        reports.take(&uid, "b", report(2, true));
        assert_eq!(told(&reports, 2, 2), (Phase::Failed, 1, 1));
        // The node that failed leaves the span, and with it its failure.
        reports.forget(&uid, false, &["b".into()].into_iter().collect());
        assert_eq!(told(&reports, 2, 1), (Phase::Realized, 1, 0));
        reports.forget(&uid, true, &Span::default());
        assert_eq!(told(&reports, 2, 1), (Phase::Realizing, 0, 0));
    }

    #[test]
    fn nodes_that_do_not_report_each_policy_are_asked_about() {
        let (mut reports, uid) = (Reports::default(), Identifier::parse("p"));
        let in_force = |node: &str, _: &Identifier| (node == "a").then_some(Ok(()));
        assert_eq!(told_with(&reports, 1, 2, &in_force), (Phase::Realizing, 1, 0));
        reports.take(&uid, "b", report(1, false));
        assert_eq!(told_with(&reports, 1, 2, &in_force), (Phase::Realized, 2, 0));
        let refused = |_: &str, _: &Identifier| Some(Err("no room".to_owned()));
        assert_eq!(told_with(&reports, 1, 2, &refused), (Phase::Failed, 1, 1));
    }

    #[test]
    fn a_long_message_is_cut() {
        let (mut reports, uid) = (Reports::default(), Identifier::parse("p"));
        reports.take(&uid, "a", report(1, true));
        assert_eq!(reports.0[&uid]["a"].message.len(), MESSAGE);
    }
}
