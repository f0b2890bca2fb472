//! The rules of all policies as people wrote them: one written rule may be several to nodes.

use std::collections::{BTreeMap, BTreeSet};

use model::policy::{
    ObjectId,
    antrea::BASELINE_TIER_PRIORITY,
    output::{Action, Direction},
};

use super::RulePath;
use crate::engine::{
    Engine,
    policies::{CompiledRule, Record},
    tables::{GroupId, PolicyId},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Tiers,
    Kubernetes,
    Baseline,
}

/// One written rule.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) policy: PolicyId,
    pub(super) direction: Direction,
    pub(super) index: usize,
    pub(super) stage: Stage,
    /// None: a Kubernetes policy that isolates and permits nothing. It is no written rule, and never a finding.
    pub(super) action: Option<Action>,
    /// Its rules among those of the record.
    pub(super) rules: Vec<usize>,
    /// Where it stands among the rules of its stage that have an order.
    order: usize,
    /// It covers nothing and is covered by nothing: a node looks at what cannot be compared here (names, Services, layer 7), or its
    /// policy is at fault.
    pub(super) is_opaque: bool,
}

pub(super) struct Lines {
    /// Ascending by stage and order; Kubernetes rules by policy and place.
    pub(super) list: Vec<Line>,
}

impl Line {
    pub(super) fn path(&self) -> RulePath {
        RulePath { direction: self.direction, index: self.index }
    }

    /// Of two of one stage.
    pub(super) fn comes_before(&self, other: &Self) -> bool {
        self.order < other.order
    }

    /// As a proof says it.
    pub(super) fn acts(&self) -> &'static str {
        match (self.stage, self.action) {
            (Stage::Kubernetes, _) | (_, None) => "",
            (_, Some(Action::Allow)) => " allows it before",
            (_, Some(Action::Drop)) => " drops it before",
            (_, Some(Action::Reject)) => " rejects it before",
            (_, Some(Action::Pass)) => " passes it on before",
        }
    }

    pub(super) fn compiled<'e>(&self, engine: &'e Engine) -> impl Iterator<Item = &'e CompiledRule> {
        let record = record(engine, self.policy);
        self.rules.iter().map(|at| &record.rules[*at])
    }

    /// Those whom a rule is about.
    pub(super) fn applied_to<'e>(&self, engine: &'e Engine, rule: &'e CompiledRule) -> &'e [GroupId] {
        let record = record(engine, self.policy);
        if record.applied_to_per_rule { &rule.applied_to } else { &record.applied_to }
    }
}

fn record(engine: &Engine, policy: PolicyId) -> &Record {
    engine.policies.rows[policy].record.as_ref().expect("lines are of policies with a record")
}

impl Lines {
    pub(super) fn of(engine: &Engine) -> Self {
        let mut list = Vec::new();
        for (policy, row) in engine.policies.rows.iter() {
            let Some(record) = row.record.as_ref() else { continue };
            let is_faulty = !engine.problems(&engine.object_id(policy)).is_empty();
            list.extend(written(policy, record, is_faulty));
        }
        let named = |line: &Line| {
            let id = engine.object_id(line.policy);
            (id.kind, id.namespace, id.name)
        };
        let rank = |line: &Line| {
            let record = record(engine, line.policy);
            let (tier, priority) =
                (record.tier_priority.unwrap_or_default(), record.priority.unwrap_or_default());
            (line.stage, tier, priority, record.tier_priority.map(|_| line.index))
        };
        list.sort_by(|a, b| {
            let ranked = rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal);
            ranked.then_with(|| named(a).cmp(&named(b))).then_with(|| a.path().cmp(&b.path()))
        });
        list.iter_mut().enumerate().for_each(|(at, line)| line.order = at);
        Self { list }
    }

    /// Of one policy without fault.
    pub(super) fn of_policy(engine: &Engine, id: &ObjectId) -> Vec<Line> {
        let policy = engine.policy_named(id).filter(|_| engine.problems(id).is_empty());
        let record = policy.and_then(|policy| Some((policy, engine.policies.rows[policy].record.as_ref()?)));
        record.map_or_else(Vec::new, |(policy, record)| written(policy, record, false))
    }

    /// The first rule of a tier that hands over to Kubernetes policies.
    pub(super) fn first_pass(&self, direction: Direction) -> Option<usize> {
        self.list.iter().position(|line| {
            line.direction == direction && line.stage == Stage::Tiers && line.action == Some(Action::Pass)
        })
    }

    /// The policies, each once, in their order here.
    pub(super) fn policies(&self) -> Vec<PolicyId> {
        let mut seen = BTreeSet::new();
        self.list.iter().map(|line| line.policy).filter(|policy| seen.insert(*policy)).collect()
    }
}

fn written(policy: PolicyId, record: &Record, is_faulty: bool) -> Vec<Line> {
    let stage = match record.tier_priority {
        None => Stage::Kubernetes,
        Some(tier) if tier < BASELINE_TIER_PRIORITY => Stage::Tiers,
        Some(_) => Stage::Baseline,
    };
    let mut lines: BTreeMap<(Direction, usize), Line> = BTreeMap::new();
    let mut counts = [0, 0];
    for (at, rule) in record.rules.iter().enumerate() {
        // Kubernetes rules have no rank: nothing of a policy without fault is left out, so they stand as they are written.
        let count = &mut counts[rule.direction as usize];
        let index = usize::try_from(rule.priority).unwrap_or(*count);
        *count += 1;
        let detail = &rule.detail;
        let is_opaque = is_faulty
            || !detail.fqdns.is_empty()
            || !detail.to_services.is_empty()
            || !detail.l7_protocols.is_empty()
            || !detail.untranslatable.is_empty();
        let line = lines.entry((rule.direction, index)).or_insert_with(|| Line {
            policy,
            direction: rule.direction,
            index,
            stage,
            action: rule.action,
            rules: Vec::new(),
            order: 0,
            is_opaque: false,
        });
        line.rules.push(at);
        line.is_opaque |= is_opaque;
    }
    lines.into_values().collect()
}
