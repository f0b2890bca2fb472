//! The decision on one side of a connection.

use std::sync::Arc;

use model::policy::{
    ObjectId,
    antrea::BASELINE_TIER_PRIORITY,
    output::{Action, Direction},
};

use super::{
    ExplainError, Explanation, Miss, NearMiss, Outcome, Query, RuleRef, Side, Stage, Step,
    ends::{Resolved, resolve},
};
use crate::engine::{
    Engine,
    policies::{CompiledRule, Record},
    tables::{Id, IdSet, PolicyId},
};

impl Engine {
    /// As of the last drain: drain first when events came since.
    pub fn explain(&self, query: &Query) -> Result<Explanation, ExplainError> {
        self.decide_both(query, true)
    }

    /// `with_ports`: whether rules about other ports and protocols than the query's are passed over.
    pub(super) fn decide_both(&self, query: &Query, with_ports: bool) -> Result<Explanation, ExplainError> {
        let (source, destination) = resolve(self, query)?;
        let mut notes = Vec::new();
        let loopback = is_loopback(&source, &destination);
        let mut side = |direction, local: &Resolved, remote: &Resolved| {
            if loopback {
                let outcome = Outcome::Permitted;
                return Side { allowed: true, steps: vec![Step { stage: Stage::Loopback, outcome }] };
            }
            Decision {
                engine: self,
                query,
                with_ports,
                direction,
                local,
                remote,
                destination: &destination,
                notes: &mut notes,
            }
            .decide()
        };
        let egress = side(Direction::Out, &source, &destination);
        let ingress = side(Direction::In, &destination, &source);
        let (source, destination) = (source.describe(self), destination.describe(self));
        for (end, what) in [(&source, "source"), (&destination, "destination")] {
            if end.workloads.len() > 1 {
                notes
                    .push(format!("the address of the {what} is claimed by {}", end.workloads.join(" and ")));
            }
            if !end.workloads.is_empty() && end.address.is_none() {
                notes.push(format!(
                    "the {what} has no address of this family: no rule about addresses matches it"
                ));
            }
            if !end.workloads.is_empty() && end.enforced_on.is_empty() {
                notes.push(format!("nobody enforces policies for the {what}"));
            }
        }
        notes.dedup();
        let mut remedies = Vec::new();
        for (side, direction, end) in [(&egress, "egress", &source), (&ingress, "ingress", &destination)] {
            remedies.extend(side.remedies(direction, end, query));
        }
        let allowed = egress.allowed && ingress.allowed;
        Ok(Explanation { allowed, source, destination, egress, ingress, notes, remedies })
    }
}

fn is_loopback(source: &Resolved, destination: &Resolved) -> bool {
    source.entities.len() == 1 && source.entities == destination.entities
}

/// Which of two rules of one stage comes first: tier, then priority, then place in the policy; names break ties.
pub(crate) fn rank(engine: &Engine, id: PolicyId, index: usize) -> impl PartialOrd {
    let row = &engine.policies.rows[id];
    let record = row.record.as_ref().expect("only policies with a record are applied");
    let tier = record.tier_priority.unwrap_or_default();
    let priority = record.priority.unwrap_or_default();
    let name = (row.kind, &engine.namespaces.rows[row.namespace].name, &row.name);
    (tier, priority, record.rules[index].priority, name, index)
}

/// A rule, by its policy and its place in it.
type Found = (PolicyId, usize);

struct Decision<'a> {
    engine: &'a Engine,
    query: &'a Query,
    with_ports: bool,
    direction: Direction,
    local: &'a Resolved,
    remote: &'a Resolved,
    destination: &'a Resolved,
    notes: &'a mut Vec<String>,
}

impl<'a> Decision<'a> {
    fn decide(mut self) -> Side {
        let mut steps = Vec::new();
        for stage in [Stage::Tiers, Stage::Kubernetes, Stage::Baseline] {
            let outcome = match stage {
                Stage::Kubernetes => self.kubernetes(),
                _ => self.tiers(stage == Stage::Baseline),
            };
            let decided = match &outcome {
                Outcome::Rule(rule) if rule.action == Action::Pass => None,
                Outcome::Rule(rule) => Some(rule.action == Action::Allow),
                Outcome::Isolated { .. } => Some(false),
                Outcome::NoMatch | Outcome::Permitted => None,
            };
            steps.push(Step { stage, outcome });
            if let Some(allowed) = decided {
                return Side { allowed, steps };
            }
        }
        steps.push(Step { stage: Stage::Default, outcome: Outcome::Permitted });
        Side { allowed: true, steps }
    }

    fn applied(&self) -> IdSet<PolicyId> {
        let groups = self.local.applied_to.iter().map(|group| &self.engine.groups.rows[*group]);
        groups.flat_map(|group| group.links.ids()).map(|id| PolicyId::from_index(id as usize)).collect()
    }

    fn tiers(&mut self, baseline: bool) -> Outcome {
        let mut best: Option<Found> = None;
        for id in self.applied().iter() {
            let record = self.engine.policies.rows[*id].record.as_ref();
            let in_stage = |r: &&Arc<Record>| {
                r.tier_priority.is_some_and(|tier| (tier >= BASELINE_TIER_PRIORITY) == baseline)
            };
            let Some(record) = record.filter(in_stage) else { continue };
            for (index, rule) in record.rules.iter().enumerate() {
                if self.about(record, rule) && self.peer_and_service(rule) == (true, true) {
                    self.keep_first(&mut best, (*id, index));
                }
                self.note_undecidable(*id, record, index);
            }
        }
        best.map_or(Outcome::NoMatch, |found| Outcome::Rule(self.rule_ref(found)))
    }

    fn kubernetes(&mut self) -> Outcome {
        let (mut isolating, mut missed): (Vec<PolicyId>, Vec<(Found, Miss)>) = Default::default();
        let mut permitting: Option<Found> = None;
        for id in self.applied().iter() {
            let Some(record) = self.engine.policies.rows[*id].record.as_ref() else { continue };
            if record.tier_priority.is_some() {
                continue;
            }
            let mut isolates = false;
            for (index, rule) in record.rules.iter().enumerate().filter(|(_, r)| self.about(record, r)) {
                isolates = true;
                if rule.action.is_none() {
                    continue;
                }
                match self.peer_and_service(rule) {
                    (true, true) => self.keep_first(&mut permitting, (*id, index)),
                    (true, false) => missed.push(((*id, index), Miss::Port)),
                    (false, true) => missed.push(((*id, index), Miss::Peer)),
                    (false, false) => {}
                }
            }
            if isolates {
                isolating.push(*id);
            }
        }
        if let Some(found) = permitting {
            return Outcome::Rule(self.rule_ref(found));
        }
        if isolating.is_empty() {
            return Outcome::NoMatch;
        }
        let mut by: Vec<ObjectId> = isolating.into_iter().map(|id| self.engine.object_id(id)).collect();
        by.sort_unstable();
        let near_miss = |(found, misses)| NearMiss { rule: self.rule_ref(found), misses };
        let mut near_misses: Vec<NearMiss> = missed.into_iter().map(near_miss).collect();
        near_misses.sort_by(|a, b| (&a.rule.policy, a.rule.index).cmp(&(&b.rule.policy, b.rule.index)));
        Outcome::Isolated { by, near_misses }
    }

    /// Thousands of rules may match; only the first is ever spelled out.
    fn keep_first(&self, best: &mut Option<Found>, found: Found) {
        if best.is_none_or(|best| self.rank(found) < self.rank(best)) {
            *best = Some(found);
        }
    }

    fn rank(&self, (id, index): Found) -> impl PartialOrd {
        rank(self.engine, id, index)
    }

    fn rule_ref(&self, (id, index): Found) -> RuleRef {
        let record =
            self.engine.policies.rows[id].record.as_ref().expect("only policies with a record are applied");
        let rule = &record.rules[index];
        RuleRef {
            policy: self.engine.object_id(id),
            tier_priority: record.tier_priority,
            priority: record.priority,
            direction: rule.direction,
            order: rule.priority,
            index,
            name: rule.detail.name.clone(),
            action: rule.action.unwrap_or(Action::Drop),
        }
    }

    fn about(&self, record: &Record, rule: &CompiledRule) -> bool {
        rule.direction == self.direction
            && (!record.applied_to_per_rule
                || rule.applied_to.iter().any(|group| self.local.applied_to.contains(*group)))
    }

    /// Whether a rule is about the other end, and about the port.
    fn peer_and_service(&self, rule: &CompiledRule) -> (bool, bool) {
        let in_group = rule.groups.iter().any(|group| self.remote.addresses.contains(*group));
        let in_block = || {
            let blocks = &rule.detail.ip_blocks;
            self.remote.address.is_some_and(|a| blocks.iter().any(|block| block.contains(a)))
        };
        let peer = in_group || in_block();
        // A node looks names up at itself, or at members of the rule's groups; a block of addresses has no names.
        let has_names = self.direction == Direction::In || in_group || !peer;
        let names = || {
            let members = self.destination.members(self.engine).filter(|_| has_names);
            members.flat_map(|member| member.ports.iter())
        };
        let service = !self.with_ports || self.query.asked().meets(&rule.detail.services, names);
        (peer, service)
    }

    fn note_undecidable(&mut self, id: PolicyId, record: &Record, index: usize) {
        let rule = &record.rules[index];
        let detail = &rule.detail;
        let undecidable = if !detail.fqdns.is_empty() {
            "matches names, which are resolved where packets are seen"
        } else if !detail.to_services.is_empty() {
            "matches Services, which are resolved where packets are seen"
        } else if !detail.l7_protocols.is_empty() {
            "also looks at layer 7"
        } else {
            return;
        };
        if self.about(record, rule) {
            self.notes.push(format!("{} {undecidable}", self.rule_ref((id, index))));
        }
    }
}

impl Side {
    fn remedies(&self, direction: &str, end: &super::End, query: &Query) -> Vec<String> {
        let Some(last) = self.steps.last().filter(|_| !self.allowed) else { return Vec::new() };
        let port = query.port.map(|port| format!(" port {port}")).unwrap_or_default();
        let protocol = query.protocol.map_or_else(|| "this protocol".to_owned(), |one| one.to_string());
        let what = format!("{protocol}{port}");
        let who = end.workloads.join(", ");
        match &last.outcome {
            Outcome::Rule(rule) => vec![format!(
                "change {rule}, or permit {what} in a rule that comes before it (a lower tier or priority number)"
            )],
            Outcome::Isolated { by, near_misses } => {
                let mut remedies: Vec<String> =
                    near_misses.iter().map(|miss| miss.remedy(&what, query)).collect();
                let policies: Vec<String> = by.iter().map(ToString::to_string).collect();
                remedies.push(format!(
                    "add an {direction} rule that permits {what} to {}, which isolate {who}",
                    policies.join(" or ")
                ));
                remedies
            }
            Outcome::NoMatch | Outcome::Permitted => Vec::new(),
        }
    }
}

impl NearMiss {
    fn remedy(&self, what: &str, query: &Query) -> String {
        match self.misses {
            Miss::Port => format!("{} permits this peer: add {what} to its ports", self.rule),
            Miss::Peer => {
                let peer = match self.rule.direction {
                    Direction::In => &query.source,
                    Direction::Out => &query.destination,
                };
                format!("{} permits {what}: add {peer} to its peers", self.rule)
            }
        }
    }
}
