//! Policies that select nobody, and rules that nothing matches: as it is now, for workloads come and go.

use std::{collections::BTreeSet, sync::Arc};

use model::policy::output::{Direction, Member, PortRef};

use super::{
    Finding, Idle,
    lines::{Line, Lines},
};
use crate::engine::{
    Engine,
    groups::is_member,
    tables::{GroupId, PolicyId},
};

pub(super) fn findings(engine: &Engine, lines: &Lines) -> Vec<Finding> {
    let nobody: BTreeSet<PolicyId> =
        lines.policies().into_iter().filter(|policy| selects_nobody(engine, *policy)).collect();
    let of_policies = nobody.iter().map(|policy| Finding {
        policy: engine.object_id(*policy),
        rule: None,
        problem: Idle::SelectsNobody,
        proof: vec!["no workload that is there is selected".to_owned()],
    });
    let rules = lines.list.iter().filter(|line| !nobody.contains(&line.policy) && line.action.is_some());
    let of_rules = rules.filter_map(|line| {
        let proof = vec![nothing(engine, line)?];
        let policy = engine.object_id(line.policy);
        Some(Finding { policy, rule: Some(line.path()), problem: Idle::MatchesNothing, proof })
    });
    of_policies.chain(of_rules).collect()
}

fn selects_nobody(engine: &Engine, policy: PolicyId) -> bool {
    let record = engine.policies.rows[policy].record.as_ref();
    record
        .is_some_and(|record| record.applied_to.iter().all(|group| members(engine, *group).next().is_none()))
}

fn members(engine: &Engine, group: GroupId) -> impl Iterator<Item = &Arc<Member>> {
    let row = &engine.groups.rows[group];
    let profiles = engine.profiles_of(group);
    let entities = profiles.into_iter().flat_map(|profile| engine.entities.profiles[profile].entities.iter());
    entities.map(|entity| &engine.entities.rows[*entity].member).filter(move |member| is_member(row, member))
}

/// Why nothing is matched by any of a rule; none if something is.
fn nothing(engine: &Engine, line: &Line) -> Option<String> {
    if line.is_opaque {
        return None;
    }
    let mut reason = None;
    for rule in line.compiled(engine) {
        let is_anybody =
            |groups: &[GroupId]| groups.iter().any(|group| members(engine, *group).next().is_some());
        if rule.detail.ip_blocks.is_empty() && !is_anybody(&rule.groups) {
            reason = Some("its peers are no workload that is there".to_owned());
            continue;
        }
        // A rule without ports is about all of them.
        let named = rule.detail.services.iter().map(|service| match &service.port {
            Some(PortRef::Name(name)) => Some(name),
            _ => None,
        });
        let named: Option<Vec<&Arc<str>>> = named.collect();
        let named = named.filter(|named| !named.is_empty())?;
        let destinations = match line.direction {
            Direction::In => line.applied_to(engine, rule),
            Direction::Out => &rule.groups,
        };
        let mut members = destinations.iter().flat_map(|group| members(engine, *group));
        if members
            .any(|member| member.ports.iter().any(|port| named.iter().any(|name| *port.name == ***name)))
        {
            return None;
        }
        let names: Vec<&str> = named.iter().map(|name| &***name).collect();
        reason = Some(format!("no destination of it has a port called {}", names.join(" or ")));
    }
    reason
}
