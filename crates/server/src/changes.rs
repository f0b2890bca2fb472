//! What calls of the orchestrator changed, for the record: the same for gRPC and REST.

use model::{PermitRule, ResourceName, change::Change};
use orchestrator::execute::{Orchestrator, Outcome, RuleHolder};
use serde_json::Value;

use crate::audit;

/// Puts a change on record, if it is to come about and was not only asked for.
pub fn changing(outcome: Outcome, change: Change) -> Outcome {
    match &outcome {
        Outcome::Job(job) => {
            audit::changed(change);
            audit::note(&format!("job {}", job.id));
        }
        Outcome::Plan(_) => audit::note(audit::DRY_RUN),
    }
    outcome
}

/// A resource that is wanted. Its description is the cloud's, and may hold secrets.
pub fn resource_asked(name: &ResourceName, description: &str) -> Change {
    let description = serde_json::from_str(description).unwrap_or_else(|_| Value::from(description));
    Change::between(format!("resource {name}"), None, Some(&description)).without_values()
}

/// What has rules, and those it has, to be compared with those it will have.
pub fn rules_of(orchestrator: &Orchestrator, on: RuleHolder) -> (RuleHolder, Vec<PermitRule>) {
    let rules = match &on {
        RuleHolder::Resource(name) => orchestrator.rules(name).unwrap_or_default(),
        RuleHolder::Tag(tag) => orchestrator.tag_rules(tag),
    };
    (on, rules)
}

pub fn rules_changed(orchestrator: &Orchestrator, on: RuleHolder, before: Vec<PermitRule>) -> Change {
    let (on, after) = rules_of(orchestrator, on);
    Change::between(format!("rules of {on}"), Some(&by_name(before)), Some(&by_name(after)))
}

fn by_name(rules: Vec<PermitRule>) -> Value {
    let named = |rule: PermitRule| (rule.name.to_string(), serde_json::to_value(&rule).unwrap_or_default());
    Value::Object(rules.into_iter().map(named).collect())
}
