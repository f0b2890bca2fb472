//! How often and when last policies and their rules have decided, as callers are told.
//!
//! In: what the record of flows has counted (`flows::Uses`), and the policies. Out: the same, by rules as people wrote them. What is
//! counted is what nodes tell: of a policy with a place that has told nothing in that time it is not said that it is unused.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ::flows::{Counted, Use, Uses};
use drivers::{flows::Flows, policy::Policy};
use model::policy::{Kind, ObjectId, output::Direction};
use policy::lint::{RulePath, Written};
use wire::trestle::v1::{PolicyDetail, PolicyState, RuleUse};

use crate::flows_view::written;

/// As lint names it.
pub const NOT_USED: &str = "not used";
/// What a Kubernetes policy denies by selecting somebody.
const ISOLATION: &str = "isolation";

/// Adds to policies how they are used, where that is counted.
pub async fn tell(flows: &Option<Arc<Flows>>, policy: &Policy, states: &mut [PolicyState]) {
    let Some(flows) = flows else { return };
    let uses = flows.uses().await;
    let spans: BTreeMap<ObjectId, BTreeSet<Arc<str>>> =
        policy.list().into_iter().map(|(id, state)| (id, state.span)).collect();
    for state in states {
        let Some(id) = id(state) else { continue };
        let Some(counted) = uses.of(&id.to_string()) else { continue };
        state_uses(&uses, counted, spans.get(&id).into_iter().flatten(), state);
    }
}

/// The same of one, and of its rules.
pub async fn tell_rules(flows: &Option<Arc<Flows>>, policy: &Policy, detail: &mut PolicyDetail) {
    let (Some(flows), Some(state)) = (flows, &mut detail.policy) else { return };
    let Some(id) = id(state) else { return };
    let uses = flows.uses().await;
    let Some(counted) = uses.of(&id.to_string()) else { return };
    let span = policy.get(&id).map(|(state, _)| state.span).unwrap_or_default();
    state_uses(&uses, counted, &span, state);
    let written = policy.ask(|engine| engine.written_rules(&id));
    detail.rules = rules(counted, &written);
}

fn id(state: &PolicyState) -> Option<ObjectId> {
    let kind = Kind::from_name(&state.kind)?;
    Some(ObjectId { kind, namespace: state.namespace.clone(), name: state.name.clone() })
}

fn state_uses<'s>(
    uses: &Uses,
    counted: &Counted,
    span: impl IntoIterator<Item = &'s Arc<str>>,
    state: &mut PolicyState,
) {
    let all = counted.all();
    state.uses = all.count;
    state.last_used = moment(all);
    state.counted_since = i64::try_from(counted.since).ok();
    state.silent = u32::try_from(silent(uses, counted, span)).unwrap_or(u32::MAX);
}

/// Places that have told nothing since a policy is counted.
fn silent<'s>(uses: &Uses, counted: &Counted, span: impl IntoIterator<Item = &'s Arc<str>>) -> usize {
    span.into_iter().filter(|place| !uses.has_told(place, counted.since)).count()
}

/// Absent if it never was.
fn moment(one: Use) -> Option<i64> {
    i64::try_from(one.last).ok().filter(|_| one.count > 0)
}

/// All written rules in their order, and what is denied without one.
fn rules(counted: &Counted, written: &[Written]) -> Vec<RuleUse> {
    let by_number = by_number(counted);
    let told = |rule: String, one: Use| RuleUse { rule, uses: one.count, last_used: moment(one) };
    let rules = written.iter().map(|rule| told(rule.path.to_string(), used(&by_number, rule)));
    let isolation = counted.rules.iter().filter(|(name, _)| name.starts_with("isolated by "));
    let isolation = isolation.map(|(_, one)| told(ISOLATION.to_owned(), *one));
    rules.chain(isolation).collect()
}

type ByNumber = BTreeMap<(Direction, usize), Use>;

fn by_number(counted: &Counted) -> ByNumber {
    counted.rules.iter().filter_map(|(name, one)| Some((number_of(name)?, *one))).collect()
}

/// One written rule may be several to nodes.
fn used(by_number: &ByNumber, rule: &Written) -> Use {
    let used = rule.numbers.iter().filter_map(|number| by_number.get(&(rule.path.direction, *number)));
    used.fold(Use::default(), |all, one| Use {
        count: all.count.saturating_add(one.count),
        last: all.last.max(one.last),
    })
}

/// As `explain` numbers it: `ingress rule 3 of …`.
fn number_of(rule: &str) -> Option<(Direction, usize)> {
    let mut words = rule.split(' ');
    let direction = match words.next()? {
        "ingress" => Direction::In,
        "egress" => Direction::Out,
        _ => return None,
    };
    words.next().filter(|word| *word == "rule")?;
    Some((direction, words.next()?.parse().ok()?))
}

/// Rules that have decided nothing for a while.
#[derive(Debug, Default)]
pub struct Unused {
    /// Each with the proof.
    pub rules: Vec<(ObjectId, RulePath, String)>,
    /// Of what nothing can be said.
    pub notes: Vec<String>,
}

/// Those that have decided nothing since then. Nothing is said of a policy that is not counted for so long, or not everywhere.
pub fn unused(uses: &Uses, policy: &Policy, since: u64) -> Unused {
    let mut unused = Unused::default();
    let (mut too_young, mut elsewhere) = (0, 0);
    for (id, state) in policy.list() {
        let Some(counted) = uses.of(&id.to_string()).filter(|counted| counted.since <= since) else {
            too_young += 1;
            continue;
        };
        if state.span.is_empty() || silent(uses, counted, &state.span) > 0 {
            elsewhere += 1;
            continue;
        }
        let by_number = by_number(counted);
        for rule in policy.ask(|engine| engine.written_rules(&id)) {
            let one = used(&by_number, &rule);
            if one.last >= since {
                continue;
            }
            let last = match one.count {
                0 => "it has decided nothing".to_owned(),
                _ => format!("it has decided nothing since {}", written(one.last)),
            };
            let nodes = state.span.len();
            let proof = format!("{last}; counted since {}, at {nodes} places", written(counted.since));
            unused.rules.push((id.clone(), rule.path, proof));
        }
    }
    let since = written(since);
    if too_young > 0 {
        unused.notes.push(format!(
            "{too_young} policies are counted, as they are now, only after {since}: which of their rules are used is not known"
        ));
    }
    if elsewhere > 0 {
        unused.notes.push(format!(
            "{elsewhere} policies are in force nowhere, or at places that have told of no connection: which of their rules are used is not known"
        ));
    }
    unused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_known_by_its_number() {
        assert_eq!(number_of("ingress rule 3 `a b` of NetworkPolicy shop/web"), Some((Direction::In, 3)));
        assert_eq!(number_of("egress rule 0 of NetworkPolicy shop/web"), Some((Direction::Out, 0)));
        for other in
            ["isolated by NetworkPolicy shop/web", "", "ingress", "ingress rule x of y", "its permit list"]
        {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}
