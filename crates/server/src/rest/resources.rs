//! `/namespaces/{namespace}/clouds/{cloud}/resources`.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use model::{
    ResourceName,
    change::{Change, What},
};
use orchestrator::execute::{Orchestrator, ResourceView};
use serde::{Deserialize, Serialize};
use tonic::Code;
use utoipa::ToSchema;
use wire::trestle::v1::{JobInfo, ResourceInfo};

use super::{
    body::{Body, Done, Path},
    jobs::{Asked, How, answer},
};
use crate::{
    audit,
    changes::{changing, resource_asked},
    enforcement::Kind,
    failure::{Failure, Problem},
    views,
};

/// A resource to make: its description, as a string of the cloud's own form.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct Description {
    description: String,
}

/// A resource to make (`name` and `description`) or to attach (`id`, and `name` if not the last part of it).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(default)]
#[derive(Default)]
pub(super) struct NewResource {
    name: String,
    description: String,
    id: String,
}

/// A resource that was made. All of it is text: clients of Paraglider's read it as such.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Made {
    /// `namespace.cloud.name`, which is also its tag.
    name: String,
    uri: String,
    ip: String,
    region: String,
    state: String,
    message: String,
}

impl From<ResourceInfo> for Made {
    fn from(
        ResourceInfo { name, uri, ip, region, state, message, permit_list: _, notes: _ }: ResourceInfo,
    ) -> Self {
        Self { name, uri, ip, region, state, message }
    }
}

pub(super) fn resource_name(
    (namespace, cloud, name): &(String, String, String),
) -> Result<ResourceName, Failure> {
    let part = |text: &String| text.parse().map_err(|err: model::NameError| Failure::invalid(&err));
    Ok(ResourceName { namespace: part(namespace)?, cloud: part(cloud)?, name: part(name)? })
}

/// The resources of a namespace in a cloud.
#[utoipa::path(get, path = "/namespaces/{namespace}/clouds/{cloud}/resources", tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path)), responses((status = 200, body = Vec<ResourceInfo>)))]
pub(super) async fn list(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path((namespace, cloud)): Path<(String, String)>,
) -> Json<Vec<ResourceInfo>> {
    let here =
        |view: &ResourceView| view.name.namespace.as_str() == namespace && view.name.cloud.as_str() == cloud;
    Json(orchestrator.resources().into_iter().filter(here).map(views::resource).collect())
}

/// One resource.
#[utoipa::path(get, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}", tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path)), responses(
    (status = 200, body = ResourceInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(path): Path<(String, String, String)>,
) -> Result<Json<ResourceInfo>, Failure> {
    let view = orchestrator.resource(&resource_name(&path)?)?;
    Ok(Json(views::resource_with_notes(&orchestrator, view)))
}

/// Create a resource.
#[utoipa::path(put, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}", tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path), How),
    request_body = Description, responses(
    (status = 200, body = Made, description = "with `wait`"),
    (status = 202, body = JobInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn put(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(path): Path<(String, String, String)>,
    Asked(how): Asked,
    Body(body): Body<Description>,
) -> Result<Response, Failure> {
    create(&orchestrator, resource_name(&path)?, body.description, false, &how).await
}

/// Create or attach a resource.
#[utoipa::path(post, path = "/namespaces/{namespace}/clouds/{cloud}/resources", tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), How), request_body = NewResource, responses(
    (status = 200, body = Made, description = "with `wait`"),
    (status = 202, body = JobInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn post(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path((namespace, cloud)): Path<(String, String)>,
    Asked(how): Asked,
    Body(body): Body<NewResource>,
) -> Result<Response, Failure> {
    let attach = body.description.is_empty();
    if attach && body.id.is_empty() {
        let message = "give a `description` to create a resource, or an `id` to attach one";
        return Err(Failure::new(Code::InvalidArgument, message));
    }
    let last = body.id.rsplit('/').next().unwrap_or_default().to_owned();
    let name = if body.name.is_empty() { last } else { body.name };
    let name = resource_name(&(namespace, cloud, name))?;
    create(&orchestrator, name, if attach { body.id } else { body.description }, attach, &how).await
}

async fn create(
    orchestrator: &Arc<Orchestrator>,
    name: ResourceName,
    description: String,
    attach: bool,
    how: &How,
) -> Result<Response, Failure> {
    audit::object(&name);
    let asked = resource_asked(&name, &description);
    let outcome = orchestrator.create_resource(name.clone(), description, attach, how.dry_run).await?;
    let outcome = changing(Kind::Resource, outcome, asked);
    let made = || Ok(Json(Made::from(views::resource(orchestrator.resource(&name)?))).into_response());
    answer(orchestrator, outcome, how.wait, made).await
}

/// Delete a resource with its rules.
#[utoipa::path(delete, path = "/namespaces/{namespace}/clouds/{cloud}/resources/{resource}", tag = "resources",
    params(("namespace" = String, Path), ("cloud" = String, Path), ("resource" = String, Path), How), responses(
    (status = 200, body = Done, description = "with `wait`"),
    (status = 202, body = JobInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(path): Path<(String, String, String)>,
    Asked(how): Asked,
) -> Result<Response, Failure> {
    let name = resource_name(&path)?;
    let gone = Change::named(format!("resource {name}"), What::Deleted);
    let outcome = changing(Kind::Resource, orchestrator.delete_resource(name, how.dry_run).await?, gone);
    answer(&orchestrator, outcome, how.wait, || Ok(Json(Done {}).into_response())).await
}
