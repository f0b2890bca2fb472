//! The one rule that decides between two workloads, ports left aside: the question of `networkpolicyevaluation`.

use model::policy::{
    ObjectId,
    output::{Direction, Identifier, Protocol},
};

use super::{Endpoint, ExplainError, Outcome, Query, RuleRef, Side};
use crate::engine::Engine;

/// What decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    pub policy: ObjectId,
    pub uid: Identifier,
    pub direction: Direction,
    /// None: the policy isolates, and nothing permits.
    pub rule: Option<RuleRef>,
}

impl Engine {
    /// None if no policy has a say. A side that denies decides; if both permit, the side whose rule ranks higher.
    pub fn evaluate(
        &self,
        source: Endpoint,
        destination: Endpoint,
    ) -> Result<Option<Evaluation>, ExplainError> {
        let (port, source_port, icmp, family) = (None, None, None, None);
        let query =
            Query { source, destination, protocol: Some(Protocol::Tcp), port, source_port, icmp, family };
        let explanation = self.decide_both(&query, false)?;
        let sides = [(&explanation.egress, Direction::Out), (&explanation.ingress, Direction::In)];
        let found = |(side, direction): (&Side, Direction)| {
            let (policy, rule) = side.steps.last().and_then(|step| match &step.outcome {
                Outcome::Rule(rule) => Some((rule.policy.clone(), Some(rule.clone()))),
                Outcome::Isolated { by, .. } => by.first().map(|policy| (policy.clone(), None)),
                Outcome::NoMatch | Outcome::Permitted => None,
            })?;
            let uid = self.uid_of_policy(&policy)?;
            Some((side.allowed, Evaluation { policy, uid, direction, rule }))
        };
        let mut found: Vec<_> = sides.into_iter().filter_map(found).collect();
        found.sort_by(|(a_allows, a), (b_allows, b)| {
            let rank = |found: &Evaluation| {
                let rule = found.rule.as_ref();
                let tier = rule.and_then(|rule| rule.tier_priority).unwrap_or(KUBERNETES);
                (tier, rule.and_then(|rule| rule.priority).unwrap_or_default())
            };
            let (a_rank, b_rank) = (rank(a), rank(b));
            a_allows.cmp(b_allows).then(a_rank.0.cmp(&b_rank.0)).then(a_rank.1.total_cmp(&b_rank.1))
        });
        Ok(found.into_iter().next().map(|(_, evaluation)| evaluation))
    }
}

/// Between the last tier and baseline.
const KUBERNETES: i32 = 251;
