//! `/namespaces`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use drivers::namespaces::Namespaces;
use model::{Namespace, Segment};
use orchestrator::execute::Orchestrator;
use wire::trestle::v1::{self, Deployment};

use super::body::{Body, Done, Path};
use crate::{
    audit,
    failure::{Failure, Problem},
};

/// All namespaces: a map from name to deployments.
#[utoipa::path(get, path = "/namespaces", tag = "namespaces", responses(
    (status = 200, body = BTreeMap<String, Vec<Deployment>>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(
    State(namespaces): State<Namespaces>,
) -> Result<Json<BTreeMap<String, Vec<Deployment>>>, Failure> {
    let namespaces = namespaces.list().await?.into_iter().map(v1::Namespace::from);
    Ok(Json(namespaces.map(|namespace| (namespace.name, namespace.deployments)).collect()))
}

/// The deployments of one namespace.
#[utoipa::path(get, path = "/namespaces/{namespace}", tag = "namespaces", params(("namespace" = String, Path)),
    responses(
    (status = 200, body = Vec<Deployment>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(
    State(namespaces): State<Namespaces>,
    Path(namespace): Path<String>,
) -> Result<Json<Vec<Deployment>>, Failure> {
    Ok(Json(v1::Namespace::from(namespaces.get(&name(&namespace)?).await?).deployments))
}

/// Create a namespace, or replace its deployments.
#[utoipa::path(put, path = "/namespaces/{namespace}", tag = "namespaces", params(("namespace" = String, Path)),
    request_body = Vec<Deployment>, responses(
    (status = 200, body = Done),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn set(
    State(namespaces): State<Namespaces>,
    Path(namespace): Path<String>,
    Body(deployments): Body<Vec<Deployment>>,
) -> Result<Json<Done>, Failure> {
    let namespace = v1::Namespace { name: namespace, deployments };
    let namespace = Namespace::try_from(namespace).map_err(|err| Failure::invalid(&err))?;
    audit::changed(namespaces.set(&namespace).await?);
    Ok(Json(Done {}))
}

/// Delete an empty namespace.
#[utoipa::path(delete, path = "/namespaces/{namespace}", tag = "namespaces", params(("namespace" = String, Path)),
    responses(
    (status = 200, body = Done),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete(
    State(orchestrator): State<Arc<Orchestrator>>,
    State(namespaces): State<Namespaces>,
    Path(namespace): Path<String>,
) -> Result<Json<Done>, Failure> {
    let namespace = name(&namespace)?;
    let deleted = drivers::orchestration::delete_namespace(&orchestrator, &namespaces, &namespace).await?;
    audit::changed(deleted);
    Ok(Json(Done {}))
}

fn name(text: &str) -> Result<Segment, Failure> {
    text.parse().map_err(|err: model::NameError| Failure::invalid(&err))
}
