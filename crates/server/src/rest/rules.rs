//! Rules of resources and of tags.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use model::{PermitRule, ResourceName, Segment, TagName};
use orchestrator::execute::{Orchestrator, RuleHolder};
use wire::{invisinetspb::PermitListRule, permit::permit_rule, trestle::v1::JobInfo};

use super::{
    body::{Body, Done, Path},
    jobs::{Asked, How, answer},
    resources::resource_name,
};
use crate::{
    changes::{changing, rules_changed, rules_of},
    enforcement::Kind,
    failure::{Failure, Problem},
    views,
};

/// Users' targets do not count: what a rule permits is what its tags resolve to.
fn read(rule: &PermitListRule) -> Result<PermitRule, Failure> {
    permit_rule(rule).map_err(|err| Failure::invalid(&err))
}

fn read_all(rules: &[PermitListRule]) -> Result<Vec<PermitRule>, Failure> {
    rules.iter().map(read).collect()
}

type Resource = (String, String, String);

/// The rules of a resource.
#[utoipa::path(get, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}/rules", tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path)), responses(
    (status = 200, body = Vec<PermitListRule>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(path): Path<Resource>,
) -> Result<Json<Vec<PermitListRule>>, Failure> {
    Ok(Json(views::rules(&orchestrator, &resource_name(&path)?)?))
}

/// Add a rule to a resource.
#[utoipa::path(post, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}/rules", tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path), How),
    request_body = PermitListRule, responses(
    (status = 202, body = JobInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn post(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(path): Path<Resource>,
    Asked(how): Asked,
    Body(body): Body<PermitListRule>,
) -> Result<Response, Failure> {
    put_rules(&orchestrator, resource_name(&path)?, vec![read(&body)?], &how).await
}

/// Add or replace the rule of this name.
#[utoipa::path(put, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}/rules/{rule}",
    tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path), ("rule" = String, Path),
    How), request_body = PermitListRule, responses(
    (status = 202, body = JobInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn put(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path((namespace, cloud, resource, rule)): Path<(String, String, String, String)>,
    Asked(how): Asked,
    Body(body): Body<PermitListRule>,
) -> Result<Response, Failure> {
    let name = resource_name(&(namespace, cloud, resource))?;
    put_rules(&orchestrator, name, vec![read(&PermitListRule { id: rule, ..body })?], &how).await
}

/// Add or replace several rules.
#[utoipa::path(post, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}/applyRules",
    tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path), How),
    request_body = Vec<PermitListRule>, responses(
    (status = 202, body = JobInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn apply(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(path): Path<Resource>,
    Asked(how): Asked,
    Body(body): Body<Vec<PermitListRule>>,
) -> Result<Response, Failure> {
    put_rules(&orchestrator, resource_name(&path)?, read_all(&body)?, &how).await
}

async fn put_rules(
    orchestrator: &Arc<Orchestrator>,
    name: ResourceName,
    rules: Vec<PermitRule>,
    how: &How,
) -> Result<Response, Failure> {
    put_on(orchestrator, RuleHolder::Resource(name), rules, how).await
}

/// These are Paraglider's routes: as there, a rule is reason enough for a link, unless the caller says otherwise.
async fn put_on(
    orchestrator: &Arc<Orchestrator>,
    on: RuleHolder,
    rules: Vec<PermitRule>,
    how: &How,
) -> Result<Response, Failure> {
    let rules = rules.into_iter().map(|rule| rule.building(how.build.unwrap_or(true))).collect();
    let (on, before) = rules_of(orchestrator, on);
    let outcome = orchestrator.put_rules_on(&on, rules, how.dry_run).await?;
    let outcome = changing(Kind::Rule, outcome, rules_changed(orchestrator, on, before));
    answer(orchestrator, outcome, how.wait, || Ok(Json(Done {}).into_response())).await
}

/// Delete a rule.
#[utoipa::path(delete, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}/rules/{rule}",
    tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path), ("rule" = String, Path),
    How), responses(
    (status = 202, body = JobInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path((namespace, cloud, resource, rule)): Path<(String, String, String, String)>,
    Asked(how): Asked,
) -> Result<Response, Failure> {
    let name = resource_name(&(namespace, cloud, resource))?;
    delete_rules(&orchestrator, name, &[rule], &how).await
}

/// Delete several rules.
#[utoipa::path(post, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}/deleteRules",
    tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path), How),
    request_body = Vec<String>, responses(
    (status = 202, body = JobInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete_many(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(path): Path<Resource>,
    Asked(how): Asked,
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
    let outcome = changing(Kind::Rule, outcome, rules_changed(orchestrator, on, before));
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
    responses((status = 200, body = Vec<PermitListRule>)))]
pub(super) async fn list_on_tag(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(tag): Path<String>,
) -> Result<Json<Vec<PermitListRule>>, Failure> {
    let rules = orchestrator.tag_rules(&tag_name(&tag)?);
    Ok(Json(rules.iter().map(PermitListRule::from).collect()))
}

/// Put rules on a tag.
#[utoipa::path(post, path = "/tags/{tag}/rules", tag = "tags", params(("tag" = String, Path), How),
    request_body = Vec<PermitListRule>, responses(
    (status = 202, body = JobInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn post_on_tag(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(tag): Path<String>,
    Asked(how): Asked,
    Body(rules): Body<Vec<PermitListRule>>,
) -> Result<Response, Failure> {
    let tag = tag_name(&tag)?;
    put_on(&orchestrator, RuleHolder::Tag(tag), read_all(&rules)?, &how).await
}

/// Take rules off a tag.
#[utoipa::path(delete, path = "/tags/{tag}/rules", tag = "tags", params(("tag" = String, Path), How),
    request_body = Vec<String>, responses(
    (status = 202, body = JobInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete_on_tag(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(tag): Path<String>,
    Asked(how): Asked,
    Body(names): Body<Vec<String>>,
) -> Result<Response, Failure> {
    let tag = tag_name(&tag)?;
    delete_on(&orchestrator, RuleHolder::Tag(tag), &names, &how).await
}
