//! What there is, whole: `/status`, `/clouds`, `/resources`, `/links`, `/workloads`, `/objects`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use drivers::{
    objects::{Objects, read_entry},
    policy::Policy,
    storage::Storage,
};
use futures::StreamExt as _;
use model::{
    ConnectionStatus,
    policy::{Kind, output::MemberKind},
};
use orchestrator::execute::{LinkView, Orchestrator, ResourceView};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonic::Code;
use utoipa::{IntoParams, ToSchema};

use super::{body::Query, rules::RuleBody};
use crate::{
    about::{About, Told},
    failure::{Failure, Problem},
};

/// The controller as a whole.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Status {
    version: &'static str,
    /// `embedded` or `etcd`.
    store: &'static str,
    revision: u64,
    started_at: String,
    ready: bool,
    /// Why it cannot serve; empty if it can.
    problems: Vec<String>,
    /// What is wrong although it serves.
    attention: Vec<String>,
    /// Whether storage is provided to other clusters.
    storage: bool,
}

/// How the controller is.
#[utoipa::path(get, path = "/status", tag = "system", responses(
    (status = 200, body = Status),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn status(
    State(about): State<About>,
    State(provider): State<Option<Arc<Storage>>>,
) -> Result<Json<Status>, Failure> {
    let Told { version, store, revision, started_at, problems, attention } = about.tell().await?;
    Ok(Json(Status {
        version,
        store,
        revision,
        started_at: started_at.to_string(),
        ready: problems.is_empty(),
        problems,
        attention,
        storage: provider.is_some(),
    }))
}

/// The clouds there are, by name.
#[utoipa::path(get, path = "/clouds", tag = "resources", responses((status = 200, body = Vec<String>)))]
pub(super) async fn clouds(State(orchestrator): State<Arc<Orchestrator>>) -> Json<Vec<String>> {
    Json(orchestrator.cloud_names().iter().map(ToString::to_string).collect())
}

/// A resource with the permit list it has now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FullResource {
    /// `namespace.cloud.name`, which is also its tag.
    name: String,
    uri: String,
    ip: String,
    region: String,
    /// `wanted`, `making`, `ready` or `removing`.
    state: &'static str,
    /// The last trouble with it.
    message: String,
    /// What is permitted, with tags resolved.
    permit_list: Vec<RuleBody>,
}

impl From<ResourceView> for FullResource {
    fn from(view: ResourceView) -> Self {
        Self {
            name: view.name.to_string(),
            uri: view.uri.unwrap_or_default(),
            ip: view.ip.unwrap_or_default(),
            region: view.region.to_string(),
            state: view.state,
            message: view.message,
            permit_list: view.permit_list.iter().map(RuleBody::from).collect(),
        }
    }
}

/// The resources of all namespaces in all clouds.
#[utoipa::path(get, path = "/resources", tag = "resources", responses((status = 200, body = Vec<FullResource>)))]
pub(super) async fn resources(State(orchestrator): State<Arc<Orchestrator>>) -> Json<Vec<FullResource>> {
    Json(orchestrator.resources().into_iter().map(Into::into).collect())
}

/// One end of a link.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LinkEnd {
    /// `namespace.cloud`.
    site: String,
    asn: Option<u32>,
    address_spaces: Vec<String>,
    /// Absent where the cloud does not say.
    status: Option<EndStatus>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EndStatus {
    tunnels: u32,
    tunnels_up: u32,
    bgp_established: u32,
    routes: Vec<String>,
    bytes_in: u64,
    bytes_out: u64,
}

/// A VPN link between two sites.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Link {
    ends: Vec<LinkEnd>,
    /// `wanted`, `making`, `ready` or `removing`.
    state: &'static str,
    /// It stays whether or not a rule needs it.
    pinned: bool,
    message: String,
}

impl From<ConnectionStatus> for EndStatus {
    fn from(status: ConnectionStatus) -> Self {
        Self {
            tunnels: status.tunnels,
            tunnels_up: status.tunnels_up,
            bgp_established: status.bgp_established,
            routes: status.routes.iter().map(ToString::to_string).collect(),
            bytes_in: status.bytes_in,
            bytes_out: status.bytes_out,
        }
    }
}

impl From<LinkView> for Link {
    fn from(view: LinkView) -> Self {
        let ends = view.name.ends().into_iter().zip(view.asns).zip(view.spaces).zip(view.ends);
        let ends = ends.map(|(((site, asn), spaces), status)| LinkEnd {
            site: site.to_string(),
            asn,
            address_spaces: spaces.iter().map(ToString::to_string).collect(),
            status: status.map(Into::into),
        });
        Self { ends: ends.collect(), state: view.state, pinned: view.pinned, message: view.message }
    }
}

/// All links, with how their ends are.
#[utoipa::path(get, path = "/links", tag = "resources", responses((status = 200, body = Vec<Link>)))]
pub(super) async fn links(State(orchestrator): State<Arc<Orchestrator>>) -> Json<Vec<Link>> {
    Json(orchestrator.links().await.into_iter().map(Into::into).collect())
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
