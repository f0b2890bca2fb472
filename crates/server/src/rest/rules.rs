//! Rules of resources and of tags.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use model::{PermitEntry, PermitRule, ResourceName, Segment, TagName};
use orchestrator::execute::{Orchestrator, RuleHolder};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wire::{invisinetspb::PermitListRule, permit::permit_rule};

use super::{
    body::{Body, Done, Path, Query},
    jobs::{How, JobBody, answer},
    resources::resource_name,
};
use crate::{
    changes::{changing, rules_changed, rules_of},
    failure::{Failure, Problem},
};

/// A rule. Peers are `tags`, each a tag, an address or a prefix; `targets` are found by the controller.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub(super) struct RuleBody {
    /// Empty: named after its content.
    name: String,
    targets: Vec<String>,
    /// 0: inbound, 1: outbound.
    direction: i32,
    /// -1: any.
    src_port: i32,
    /// -1: any.
    dst_port: i32,
    /// Last port of a range; 0: a single port.
    #[serde(skip_serializing_if = "is_zero")]
    src_port_last: i32,
    #[serde(skip_serializing_if = "is_zero")]
    dst_port_last: i32,
    /// IANA number; -1: any.
    protocol: i32,
    tags: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl RuleBody {
    fn rule(self, name: Option<&str>) -> Result<PermitRule, Failure> {
        let message = PermitListRule {
            id: name.map_or(self.name, str::to_owned),
            // Users' targets do not count: what a rule permits is what its tags resolve to.
            targets: Vec::new(),
            direction: self.direction,
            src_port: self.src_port,
            dst_port: self.dst_port,
            protocol: self.protocol,
            tags: self.tags,
            src_port_last: self.src_port_last,
            dst_port_last: self.dst_port_last,
        };
        permit_rule(&message).map_err(|err| Failure::invalid(&err))
    }
}

impl From<&PermitEntry> for RuleBody {
    fn from(entry: &PermitEntry) -> Self {
        PermitListRule::from(entry).into()
    }
}

impl From<PermitListRule> for RuleBody {
    fn from(message: PermitListRule) -> Self {
        Self {
            name: message.id,
            targets: message.targets,
            direction: message.direction,
            src_port: message.src_port,
            dst_port: message.dst_port,
            src_port_last: message.src_port_last,
            dst_port_last: message.dst_port_last,
            protocol: message.protocol,
            tags: message.tags,
        }
    }
}

type Resource = (String, String, String);

/// The rules of a resource.
#[utoipa::path(get, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}/rules", tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path)), responses(
    (status = 200, body = Vec<RuleBody>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(path): Path<Resource>,
) -> Result<Json<Vec<RuleBody>>, Failure> {
    let name = resource_name(&path)?;
    let rules = orchestrator.rules(&name)?;
    let in_force = orchestrator.resource(&name)?.permit_list;
    let with_targets = |rule: &PermitRule| {
        let mut shown = RuleBody::from(PermitListRule::from(rule));
        let entry = in_force.iter().find(|entry| entry.name.as_str() == rule.name.as_str());
        shown.targets =
            entry.map(|entry| entry.targets().iter().map(ToString::to_string).collect()).unwrap_or_default();
        shown
    };
    Ok(Json(rules.iter().map(with_targets).collect()))
}

/// Add a rule to a resource.
#[utoipa::path(post, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}/rules", tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path), How),
    request_body = RuleBody, responses(
    (status = 202, body = JobBody),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn post(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(path): Path<Resource>,
    Query(how): Query<How>,
    Body(body): Body<RuleBody>,
) -> Result<Response, Failure> {
    put_rules(&orchestrator, resource_name(&path)?, vec![body.rule(None)?], &how).await
}

/// Add or replace the rule of this name.
#[utoipa::path(put, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}/rules/{rule}",
    tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path), ("rule" = String, Path),
    How), request_body = RuleBody, responses(
    (status = 202, body = JobBody),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn put(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path((namespace, cloud, resource, rule)): Path<(String, String, String, String)>,
    Query(how): Query<How>,
    Body(body): Body<RuleBody>,
) -> Result<Response, Failure> {
    let name = resource_name(&(namespace, cloud, resource))?;
    put_rules(&orchestrator, name, vec![body.rule(Some(&rule))?], &how).await
}

/// Add or replace several rules.
#[utoipa::path(post, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}/applyRules",
    tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path), How),
    request_body = Vec<RuleBody>, responses(
    (status = 202, body = JobBody),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn apply(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(path): Path<Resource>,
    Query(how): Query<How>,
    Body(body): Body<Vec<RuleBody>>,
) -> Result<Response, Failure> {
    let rules = body.into_iter().map(|rule| rule.rule(None)).collect::<Result<Vec<_>, _>>()?;
    put_rules(&orchestrator, resource_name(&path)?, rules, &how).await
}

async fn put_rules(
    orchestrator: &Arc<Orchestrator>,
    name: ResourceName,
    rules: Vec<PermitRule>,
    how: &How,
) -> Result<Response, Failure> {
    put_on(orchestrator, RuleHolder::Resource(name), rules, how).await
}

async fn put_on(
    orchestrator: &Arc<Orchestrator>,
    on: RuleHolder,
    rules: Vec<PermitRule>,
    how: &How,
) -> Result<Response, Failure> {
    let (on, before) = rules_of(orchestrator, on);
    let outcome = orchestrator.put_rules_on(&on, rules, how.dry_run).await?;
    let outcome = changing(outcome, rules_changed(orchestrator, on, before));
    answer(orchestrator, outcome, how.wait, || Ok(Json(Done {}).into_response())).await
}

/// Delete a rule.
#[utoipa::path(delete, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}/rules/{rule}",
    tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path), ("rule" = String, Path),
    How), responses(
    (status = 202, body = JobBody),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path((namespace, cloud, resource, rule)): Path<(String, String, String, String)>,
    Query(how): Query<How>,
) -> Result<Response, Failure> {
    let name = resource_name(&(namespace, cloud, resource))?;
    delete_rules(&orchestrator, name, &[rule], &how).await
}

/// Delete several rules.
#[utoipa::path(post, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}/deleteRules",
    tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path), How),
    request_body = Vec<String>, responses(
    (status = 202, body = JobBody),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete_many(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(path): Path<Resource>,
    Query(how): Query<How>,
    Body(names): Body<Vec<String>>,
) -> Result<Response, Failure> {
    delete_rules(&orchestrator, resource_name(&path)?, &names, &how).await
}

async fn delete_rules(
    orchestrator: &Arc<Orchestrator>,
    name: ResourceName,
    rules: &[String],
    how: &How,
) -> Result<Response, Failure> {
    delete_on(orchestrator, RuleHolder::Resource(name), rules, how).await
}

async fn delete_on(
    orchestrator: &Arc<Orchestrator>,
    on: RuleHolder,
    rules: &[String],
    how: &How,
) -> Result<Response, Failure> {
    let (on, before) = rules_of(orchestrator, on);
    let outcome = orchestrator.delete_rules_on(&on, segments(rules)?, how.dry_run).await?;
    let outcome = changing(outcome, rules_changed(orchestrator, on, before));
    answer(orchestrator, outcome, how.wait, || Ok(Json(Done {}).into_response())).await
}

fn segments(names: &[String]) -> Result<Vec<Segment>, Failure> {
    names.iter().map(|name| name.parse().map_err(|err: model::NameError| Failure::invalid(&err))).collect()
}

fn tag_name(text: &str) -> Result<TagName, Failure> {
    text.parse().map_err(|err: model::NameError| Failure::invalid(&err))
}

/// The rules of a tag: every resource in it has them.
#[utoipa::path(get, path = "/tags/{tag}/rules", tag = "tags", params(("tag" = String, Path)),
    responses((status = 200, body = Vec<RuleBody>)))]
pub(super) async fn list_on_tag(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(tag): Path<String>,
) -> Result<Json<Vec<RuleBody>>, Failure> {
    let rules = orchestrator.tag_rules(&tag_name(&tag)?);
    Ok(Json(rules.iter().map(|rule| RuleBody::from(PermitListRule::from(rule))).collect()))
}

/// Put rules on a tag.
#[utoipa::path(post, path = "/tags/{tag}/rules", tag = "tags", params(("tag" = String, Path), How),
    request_body = Vec<RuleBody>, responses(
    (status = 202, body = JobBody),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn post_on_tag(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(tag): Path<String>,
    Query(how): Query<How>,
    Body(rules): Body<Vec<RuleBody>>,
) -> Result<Response, Failure> {
    let tag = tag_name(&tag)?;
    let rules = rules.into_iter().map(|rule| rule.rule(None)).collect::<Result<Vec<_>, _>>()?;
    put_on(&orchestrator, RuleHolder::Tag(tag), rules, &how).await
}

/// Take rules off a tag.
#[utoipa::path(delete, path = "/tags/{tag}/rules", tag = "tags", params(("tag" = String, Path), How),
    request_body = Vec<String>, responses(
    (status = 202, body = JobBody),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete_on_tag(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(tag): Path<String>,
    Query(how): Query<How>,
    Body(names): Body<Vec<String>>,
) -> Result<Response, Failure> {
    let tag = tag_name(&tag)?;
    delete_on(&orchestrator, RuleHolder::Tag(tag), &names, &how).await
}
