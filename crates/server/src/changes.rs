//! What calls of the orchestrator changed, for the record: the same for gRPC and REST.

use ::tags::Request;
use drivers::tags::Tags;
use model::{PermitRule, ResourceName, change::Change};
use orchestrator::execute::{JobOrPlan, Orchestrator, RuleHolder};
use serde_json::Value;

use crate::{
    audit,
    enforcement::{self, Kind},
    failure::Failure,
};

/// Changes a tag, whose change is followed until it is in force.
pub async fn tag_changed(tags: &Tags, request: Request) -> Result<Change, Failure> {
    let tag = match &request {
        Request::SetLeaf { tag, .. }
        | Request::SetGroup { tag, .. }
        | Request::DeleteMembers { tag, .. }
        | Request::DeleteTag { tag } => Some(tag),
        // Who is told changes nothing of who may talk to whom.
        Request::Subscribe { .. } | Request::Unsubscribe { .. } => None,
    };
    tag.into_iter().for_each(enforcement::about_tag);
    let is_about_tag = tag.is_some();
    let change = tags.request(request).await?;
    if is_about_tag {
        enforcement::stored(Kind::Tag);
    }
    Ok(change)
}

/// Puts a change on record, if it is to come about and was not only asked for, and follows it until it is in force.
pub fn changing(kind: Kind, outcome: JobOrPlan, change: Change) -> JobOrPlan {
    match &outcome {
        JobOrPlan::Job(job) => {
            enforcement::stored_resources(kind, job);
            audit::changed(change);
            audit::note(&format!("job {}", job.id));
        }
        JobOrPlan::Plan(_) => audit::note(audit::DRY_RUN),
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
