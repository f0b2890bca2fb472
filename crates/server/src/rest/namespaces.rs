//! `/namespaces`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use drivers::namespaces::Namespaces;
use model::{Namespace, Segment};
use orchestrator::execute::Orchestrator;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{Body, Done, Path};
use crate::{
    audit,
    failure::{Failure, Problem},
};

/// Where a namespace lives in one cloud. Keys are capitalised, as clients of Paraglider expect them.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CloudDeployment {
    /// The cloud.
    #[serde(rename = "Name", alias = "name")]
    name: String,
    /// The cloud's own id: a subscription and resource group, a project, an account.
    #[serde(rename = "Deployment", alias = "deployment")]
    deployment: String,
}

/// All namespaces: a map from name to deployments.
#[utoipa::path(get, path = "/namespaces", tag = "namespaces", responses(
    (status = 200, body = BTreeMap<String, Vec<CloudDeployment>>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(
    State(namespaces): State<Namespaces>,
) -> Result<Json<BTreeMap<String, Vec<CloudDeployment>>>, Failure> {
    let namespaces = namespaces.list().await?;
    Ok(Json(
        namespaces
            .into_iter()
            .map(|namespace| (namespace.name.to_string(), deployments(&namespace)))
            .collect(),
    ))
}

/// The deployments of one namespace.
#[utoipa::path(get, path = "/namespaces/{namespace}", tag = "namespaces", params(("namespace" = String, Path)),
    responses(
    (status = 200, body = Vec<CloudDeployment>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(
    State(namespaces): State<Namespaces>,
    Path(namespace): Path<String>,
) -> Result<Json<Vec<CloudDeployment>>, Failure> {
    Ok(Json(deployments(&namespaces.get(&name(&namespace)?).await?)))
}

/// Create a namespace, or replace its deployments.
#[utoipa::path(put, path = "/namespaces/{namespace}", tag = "namespaces", params(("namespace" = String, Path)),
    request_body = Vec<CloudDeployment>, responses(
    (status = 200, body = Done),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn set(
    State(namespaces): State<Namespaces>,
    Path(namespace): Path<String>,
    Body(body): Body<Vec<CloudDeployment>>,
) -> Result<Json<Done>, Failure> {
    let mut deployments = Vec::with_capacity(body.len());
    for deployment in body {
        deployments.push((name(&deployment.name)?, deployment.deployment));
    }
    let namespace = Namespace::new(name(&namespace)?, deployments).map_err(|err| Failure::invalid(&err))?;
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

fn deployments(namespace: &Namespace) -> Vec<CloudDeployment> {
    let deployments = namespace.deployments.iter();
    deployments
        .map(|(cloud, id)| CloudDeployment { name: cloud.to_string(), deployment: id.as_str().to_owned() })
        .collect()
}

fn name(text: &str) -> Result<Segment, Failure> {
    text.parse().map_err(|err: model::NameError| Failure::invalid(&err))
}
