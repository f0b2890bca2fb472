//! What there is, whole: `/status`, `/clouds`, `/resources`, `/links`, `/workloads`, `/objects`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use drivers::{
    objects::{Objects, read_entry},
    policy::Policy,
};
use futures::StreamExt as _;
use model::policy::{Kind, output::MemberKind};
use orchestrator::execute::Orchestrator;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonic::Code;
use utoipa::{IntoParams, ToSchema};
use wire::{
    json::Link,
    trestle::v1::{ResourceInfo, Status},
};

use super::body::Query;
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

/// The clouds there are, by name.
#[utoipa::path(get, path = "/clouds", tag = "resources", responses((status = 200, body = Vec<String>)))]
pub(super) async fn clouds(State(orchestrator): State<Arc<Orchestrator>>) -> Json<Vec<String>> {
    Json(orchestrator.cloud_names().iter().map(ToString::to_string).collect())
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

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ObjectsQuery {
    /// `Service`, `NetworkPolicy`, `Pod` … as `trestle get` lists them.
    kind: String,
}

/// The stored documents of a kind, as users wrote them.
#[utoipa::path(get, path = "/objects", tag = "policies", params(ObjectsQuery), responses(
    (status = 200, body = Vec<Value>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn objects(
    State(objects): State<Objects>,
    Query(query): Query<ObjectsQuery>,
) -> Result<Json<Vec<Value>>, Failure> {
    let unknown = || Failure::new(Code::InvalidArgument, format!("{:?} is no kind of object", query.kind));
    let kind = Kind::from_name(&query.kind).ok_or_else(unknown)?;
    let mut snapshot = objects.snapshot(Some(kind)).await?;
    let mut documents = Vec::new();
    while let Some(page) = snapshot.pages.next().await {
        let page = page.map_err(drivers::objects::ObjectsError::Read)?;
        documents.extend(page.iter().filter_map(read_entry).map(|stored| stored.document.json().clone()));
    }
    Ok(Json(documents))
}
