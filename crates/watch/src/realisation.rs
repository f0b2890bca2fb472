//! How far the nodes are with each policy, from what they report.

use std::sync::Arc;

use model::policy::{
    ObjectId,
    output::{Identifier, NetworkPolicy, Problem, Span},
};
use rustc_hash::{FxHashMap, FxHashSet};

/// A node's message is cut here; a node must not fill the controller's memory.
const MESSAGE: usize = 256;

/// What a node says of one policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub generation: i64,
    pub is_failure: bool,
    pub message: String,
}

/// Whether a policy is in force, or why not.
pub type Outcome = Result<(), String>;

/// When a report was made, in milliseconds since 1970: of two about one generation the later one counts.
pub type Millis = u64;

/// What is known of nodes beside what they report to this process.
pub trait Others {
    /// What a node reported of this generation to somebody else, and when.
    fn reported(&self, node: &str, policy: &Identifier, generation: i64) -> Option<(Millis, Outcome)>;

    /// What is known of a node that does not report each policy; none as long as it is unknown.
    fn acknowledged(&self, node: &str, policy: &Identifier) -> Option<Outcome>;
}

/// A report as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub report: Report,
    pub at: Millis,
}

/// Reports by policy and node. Nodes that leave a span, and policies that go, take theirs along.
#[derive(Debug, Default)]
pub struct Reports {
    kept: FxHashMap<Identifier, FxHashMap<Arc<str>, Taken>>,
    /// Policies whose reports changed since they were last asked for; none as long as nobody asks.
    changed: Option<FxHashSet<Identifier>>,
}

/// All reports of one policy.
pub type ReportsOf = (Identifier, Vec<(Arc<str>, Taken)>);

impl Report {
    fn outcome(&self) -> Outcome {
        if self.is_failure { Err(self.message.clone()) } else { Ok(()) }
    }
}

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
    pub fn take(&mut self, policy: &Identifier, node: &str, mut report: Report, at: Millis) {
        if let Some((end, _)) = report.message.char_indices().nth(MESSAGE) {
            report.message.truncate(end);
        }
        let reports = self.kept.entry(policy.clone()).or_default();
        // Two connections of one node may race; an older generation never hides a newer one.
        if reports.get(node).is_none_or(|known| known.report.generation <= report.generation) {
            reports.insert(node.into(), Taken { report, at });
            self.note(policy);
        }
    }

    pub fn forget(&mut self, policy: &Identifier, is_removed: bool, nodes: &Span) {
        let had = if is_removed {
            self.kept.remove(policy).is_some()
        } else if !nodes.is_empty()
            && let Some(reports) = self.kept.get_mut(policy)
        {
            let before = reports.len();
            nodes.iter().for_each(|node| drop(reports.remove(node)));
            reports.len() < before
        } else {
            false
        };
        if had {
            self.note(policy);
        }
    }

    /// The policies whose reports changed since the last call, with all their reports; at first, all.
    pub fn take_changed(&mut self) -> Vec<ReportsOf> {
        let changed = match self.changed.replace(FxHashSet::default()) {
            Some(changed) => changed.into_iter().collect(),
            None => self.kept.keys().cloned().collect::<Vec<_>>(),
        };
        let reports = |policy: &Identifier| {
            let kept = self.kept.get(policy).into_iter().flatten();
            kept.map(|(node, taken)| (Arc::clone(node), taken.clone())).collect()
        };
        changed.into_iter().map(|policy| (policy.clone(), reports(&policy))).collect()
    }

    fn note(&mut self, policy: &Identifier) {
        if let Some(changed) = &mut self.changed {
            changed.insert(policy.clone());
        }
    }

    /// What a node reported of this generation, and when.
    pub fn reported(&self, policy: &Identifier, node: &str, generation: i64) -> Option<(Millis, Outcome)> {
        let taken = self.kept.get(policy)?.get(node)?;
        (taken.report.generation == generation).then(|| (taken.at, taken.report.outcome()))
    }

    /// All reports kept are of nodes in the span. O(span).
    pub fn realisation<'s>(
        &self,
        policy: &NetworkPolicy,
        source: ObjectId,
        span: impl Iterator<Item = &'s Arc<str>>,
        problems: Vec<Problem>,
        others: &dyn Others,
    ) -> Realisation {
        let (mut desired, mut current, mut failures) = (0, 0, Vec::new());
        for node in span {
            desired += 1;
            let own = self.reported(&policy.uid, node, policy.generation);
            let other = others.reported(node, &policy.uid, policy.generation);
            let reported = [own, other].into_iter().flatten().max_by_key(|(at, _)| *at);
            let told = reported.map(|(_, outcome)| outcome);
            match told.or_else(|| others.acknowledged(node, &policy.uid)) {
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

    /// What others were told of generation 1, and of nodes that do not report.
    #[derive(Default)]
    struct Told {
        reported: Vec<(&'static str, Millis, Outcome)>,
        acknowledged: Vec<(&'static str, Outcome)>,
    }

    impl Others for Told {
        fn reported(&self, node: &str, _: &Identifier, generation: i64) -> Option<(Millis, Outcome)> {
            let told = self.reported.iter().find(|(of, ..)| *of == node && generation == 1);
            told.map(|(_, at, outcome)| (*at, outcome.clone()))
        }

        fn acknowledged(&self, node: &str, _: &Identifier) -> Option<Outcome> {
            self.acknowledged.iter().find(|(of, _)| *of == node).map(|(_, outcome)| outcome.clone())
        }
    }

    fn told(reports: &Reports, generation: i64, desired: usize) -> (Phase, usize, usize) {
        told_with(reports, generation, desired, &Told::default())
    }

    fn told_with(reports: &Reports, generation: i64, desired: usize, others: &Told) -> (Phase, usize, usize) {
        let source = ObjectId { kind: Kind::NetworkPolicy, namespace: "ns".into(), name: "p".into() };
        let span: Span = ["a", "b"].into_iter().take(desired).map(Into::into).collect();
        let told = reports.realisation(&policy(generation), source, span.iter(), Vec::new(), others);
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
        reports.take(&uid, "a", report(1, false), 1);
        assert_eq!(told(&reports, 1, 2), (Phase::Realizing, 1, 0));
        reports.take(&uid, "b", report(1, false), 1);
        assert_eq!(told(&reports, 1, 2), (Phase::Realized, 2, 0));
        // A new generation starts over, and a late word about the old one changes nothing.
        reports.take(&uid, "a", report(2, false), 1);
        reports.take(&uid, "a", report(1, true), 1);
        assert_eq!(told(&reports, 2, 2), (Phase::Realizing, 1, 0));
        reports.take(&uid, "b", report(2, true), 1);
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
        let in_force = Told { acknowledged: vec![("a", Ok(()))], ..Told::default() };
        assert_eq!(told_with(&reports, 1, 2, &in_force), (Phase::Realizing, 1, 0));
        reports.take(&uid, "b", report(1, false), 1);
        assert_eq!(told_with(&reports, 1, 2, &in_force), (Phase::Realized, 2, 0));
        let refusal = || Err("no room".to_owned());
        let refused = Told { acknowledged: vec![("a", refusal()), ("b", refusal())], ..Told::default() };
        assert_eq!(told_with(&reports, 1, 2, &refused), (Phase::Failed, 1, 1));
    }

    #[test]
    fn a_long_message_is_cut() {
        let (mut reports, uid) = (Reports::default(), Identifier::parse("p"));
        reports.take(&uid, "a", report(1, true), 1);
        assert_eq!(reports.kept[&uid]["a"].report.message.len(), MESSAGE);
    }

    #[test]
    fn of_reports_here_and_elsewhere_the_later_one_counts() {
        let (mut reports, uid) = (Reports::default(), Identifier::parse("p"));
        let elsewhere = |at| Told { reported: vec![("a", at, Ok(()))], ..Told::default() };
        assert_eq!(told_with(&reports, 1, 1, &elsewhere(5)), (Phase::Realized, 1, 0));
        // They are about generation 1.
        assert_eq!(told_with(&reports, 2, 1, &elsewhere(5)), (Phase::Realizing, 0, 0));
        reports.take(&uid, "a", report(1, true), 4);
        assert_eq!(told_with(&reports, 1, 1, &elsewhere(5)), (Phase::Realized, 1, 0));
        assert_eq!(told_with(&reports, 1, 1, &elsewhere(3)), (Phase::Failed, 0, 1));
    }

    #[test]
    fn who_asks_is_told_each_change_of_reports_once() {
        let (mut reports, uid) = (Reports::default(), Identifier::parse("p"));
        reports.take(&uid, "a", report(1, false), 1);
        let nodes = |reports: &mut Reports| -> Vec<Vec<String>> {
            let changed = reports.take_changed().into_iter();
            changed.map(|(_, of)| of.into_iter().map(|(node, _)| node.to_string()).collect()).collect()
        };
        assert_eq!(nodes(&mut reports), [["a"]], "what was there before anybody asked");
        assert!(nodes(&mut reports).is_empty());
        reports.forget(&uid, false, &["b".into()].into_iter().collect());
        assert!(nodes(&mut reports).is_empty(), "nothing was forgotten");
        reports.take(&uid, "a", report(2, false), 2);
        assert_eq!(nodes(&mut reports), [["a"]]);
        reports.forget(&uid, true, &Span::default());
        assert_eq!(nodes(&mut reports), [Vec::<String>::new()]);
    }
}
