//! What there is, whole: `/status`, `/clouds`, `/rules`, `/resources`, `/links`, `/workloads`.

use std::{collections::BTreeMap, str::FromStr, sync::Arc};

use axum::{Json, extract::State};
use drivers::policy::Policy;
use model::policy::output::MemberKind;
use orchestrator::{execute::Orchestrator, plan::Scope};
use serde::{Deserialize, Serialize};
use tonic::Code;
use utoipa::{IntoParams, ToSchema};
use wire::{
    json::Link,
    trestle::v1::{CloudInfo, ResourceInfo, RuleInfo, Status},
};

use super::body::{Path, Query};
use crate::{
    about::About,
    failure::{Failure, Problem},
    views,
};

/// How the controller is.
#[utoipa::path(get, path = "/status", tag = "system", responses(
    (status = 200, body = Status),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn status(State(about): State<About>) -> Result<Json<Status>, Failure> {
    Ok(Json(about.tell().await?))
}

/// The clouds that are to be, by name, with how each is.
#[utoipa::path(get, path = "/clouds", tag = "resources", responses((status = 200, body = Vec<CloudInfo>)))]
pub(super) async fn clouds(State(orchestrator): State<Arc<Orchestrator>>) -> Json<Vec<CloudInfo>> {
    Json(views::clouds(&orchestrator))
}

/// One cloud.
#[utoipa::path(get, path = "/clouds/{cloud}", tag = "resources", params(("cloud" = String, Path)), responses(
    (status = 200, body = CloudInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn cloud(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(cloud): Path<String>,
) -> Result<Json<CloudInfo>, Failure> {
    let name = cloud.parse().map_err(|err| Failure::from_error(Code::InvalidArgument, &err))?;
    let view = orchestrator.cloud_view(&name)?;
    Ok(Json(views::cloud(view, &orchestrator.resources())))
}

/// Whose rules; at most one of them.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// `namespace.cloud.name`: what is in force at one resource.
    #[serde(default)]
    resource: String,
    /// The rules on one tag.
    #[serde(default)]
    tag: String,
    /// What is in force in one namespace.
    #[serde(default)]
    namespace: String,
}

impl Whose {
    fn scope(&self) -> Result<Scope, Failure> {
        fn read<T: FromStr<Err: std::error::Error + 'static>>(text: &str) -> Result<T, Failure> {
            text.parse().map_err(|err| Failure::from_error(Code::InvalidArgument, &err))
        }
        match [&self.resource, &self.tag, &self.namespace].map(String::as_str) {
            ["", "", ""] => Ok(Scope::All),
            [resource, "", ""] => read(resource).map(Scope::Resource),
            ["", tag, ""] => read(tag).map(Scope::Tag),
            ["", "", namespace] => read(namespace).map(Scope::Namespace),
            _ => {
                let text = "whose rules? name one of resource, tag and namespace, or none for all";
                Err(Failure::new(Code::InvalidArgument, text))
            }
        }
    }
}

/// What is in force and from where: rules of resources and of tags, what policies permit, permissions.
#[utoipa::path(get, path = "/rules", tag = "resources", params(Whose), responses(
    (status = 200, body = Vec<RuleInfo>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn rules(
    State(orchestrator): State<Arc<Orchestrator>>,
    Query(whose): Query<Whose>,
) -> Result<Json<Vec<RuleInfo>>, Failure> {
    let scope = whose.scope()?;
    let told = drivers::blocking(move || views::rules_in_force(&orchestrator, &scope));
    Ok(Json(told.await?))
}

/// The resources of all namespaces in all clouds.
#[utoipa::path(get, path = "/resources", tag = "resources", responses((status = 200, body = Vec<ResourceInfo>)))]
pub(super) async fn resources(State(orchestrator): State<Arc<Orchestrator>>) -> Json<Vec<ResourceInfo>> {
    Json(orchestrator.resources().into_iter().map(views::resource).collect())
}

/// All links, with how their ends are.
#[utoipa::path(get, path = "/links", tag = "resources", responses((status = 200, body = Vec<Link>)))]
pub(super) async fn links(State(orchestrator): State<Arc<Orchestrator>>) -> Json<Vec<Link>> {
    Json(orchestrator.links().await.into_iter().map(|link| views::link(link).into()).collect())
}

/// A Pod, external entity or Node, as policies see it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Workload {
    /// `Pod`, `ExternalEntity` or `Node`.
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    labels: BTreeMap<String, String>,
    addresses: Vec<String>,
    /// Where policies for it are enforced.
    node: Option<String>,
}

/// All workloads, sorted by namespace, kind and name.
#[utoipa::path(get, path = "/workloads", tag = "policies", responses((status = 200, body = Vec<Workload>)))]
pub(super) async fn workloads(State(policy): State<Arc<Policy>>) -> Json<Vec<Workload>> {
    let list = drivers::blocking(move || {
        let mut list: Vec<Workload> = policy.workloads().into_iter().filter_map(workload).collect();
        list.sort_by(|a, b| (&a.namespace, a.kind, &a.name).cmp(&(&b.namespace, b.kind, &b.name)));
        list
    });
    Json(list.await)
}

fn workload(workload: policy::survey::Workload) -> Option<Workload> {
    let policy::survey::Workload { member, labels } = workload;
    Some(Workload {
        kind: match member.kind {
            MemberKind::Pod => "Pod",
            MemberKind::ExternalEntity => "ExternalEntity",
            MemberKind::Node => "Node",
            _ => return None,
        },
        namespace: member.namespace.to_string(),
        name: member.name.to_string(),
        labels: labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        addresses: member.addresses.as_slice().iter().map(ToString::to_string).collect(),
        node: member.node.as_ref().map(ToString::to_string),
    })
}
