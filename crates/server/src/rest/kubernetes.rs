//! `/clusters`: the call of `trestle.v1.Kubernetes`, as REST.

use axum::{Json, extract::State};
use wire::trestle::v1::ClusterInfo;

use crate::{clusters::Clusters, failure::Problem};

/// Kubernetes clusters that are read, and how each stands.
#[utoipa::path(get, path = "/clusters", tag = "kubernetes", responses(
    (status = 200, body = Vec<ClusterInfo>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(State(clusters): State<Clusters>) -> Json<Vec<ClusterInfo>> {
    Json(clusters.list())
}
