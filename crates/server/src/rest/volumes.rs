//! `/consumers/{id}/volumes`: the volumes of a consumer, as REST. Their content goes over gRPC.

use std::sync::Arc;

use axum::{Json, extract::State};
use drivers::storage::Storage;
use serde::Deserialize;
use tonic::Request;
use utoipa::IntoParams;
use wire::trestle::v1::{
    CreateVolumeRequest, DeleteVolumeRequest, KeepVolumeRequest, ListVolumesRequest, PublishVolumeRequest,
    ResizeVolumeRequest, RestoreVolumeRequest, SnapshotVolumeRequest, UnpublishVolumeRequest, Volume,
    storage_server::Storage as _,
};

use super::{
    body::{Body, Done, Path, Query},
    storage::service,
};
use crate::failure::{Failure, Problem};

/// The volumes of a consumer, its snapshots, and what was deleted and is kept.
#[utoipa::path(get, path = "/consumers/{id}/volumes", tag = "storage", params(("id" = String, Path)), responses(
    (status = 200, body = Vec<Volume>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list_volumes(
    State(storage): State<Option<Arc<Storage>>>,
    Path(consumer): Path<String>,
) -> Result<Json<Vec<Volume>>, Failure> {
    let request = ListVolumesRequest { consumer };
    Ok(Json(service(&storage).list_volumes(Request::new(request)).await?.into_inner().volumes))
}

/// Make a volume: an empty one, or a copy of another or of a snapshot.
#[utoipa::path(post, path = "/consumers/{id}/volumes", tag = "storage", params(("id" = String, Path)),
    request_body = CreateVolumeRequest, responses(
    (status = 200, body = Volume),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn create_volume(
    State(storage): State<Option<Arc<Storage>>>,
    Path(consumer): Path<String>,
    Body(body): Body<CreateVolumeRequest>,
) -> Result<Json<Volume>, Failure> {
    let request = CreateVolumeRequest { consumer, ..body };
    Ok(Json(service(&storage).create_volume(Request::new(request)).await?.into_inner()))
}

/// Make a volume larger, or smaller where no data is and no client has it open.
#[utoipa::path(put, path = "/consumers/{id}/volumes/{name}/size", tag = "storage",
    params(("id" = String, Path), ("name" = String, Path)), request_body = ResizeVolumeRequest, responses(
    (status = 200, body = Volume),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn resize_volume(
    State(storage): State<Option<Arc<Storage>>>,
    Path((consumer, name)): Path<(String, String)>,
    Body(body): Body<ResizeVolumeRequest>,
) -> Result<Json<Volume>, Failure> {
    let request = ResizeVolumeRequest { consumer, name, ..body };
    Ok(Json(service(&storage).resize_volume(Request::new(request)).await?.into_inner()))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeleteQuery {
    /// Delete its data at once; there is no way back.
    #[serde(default)]
    now: bool,
}

/// Delete a volume or a snapshot: gone when its grace time is over, or now.
#[utoipa::path(delete, path = "/consumers/{id}/volumes/{name}", tag = "storage",
    params(("id" = String, Path), ("name" = String, Path), DeleteQuery), responses(
    (status = 200, body = Done),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete_volume(
    State(storage): State<Option<Arc<Storage>>>,
    Path((consumer, name)): Path<(String, String)>,
    Query(DeleteQuery { now }): Query<DeleteQuery>,
) -> Result<Json<Done>, Failure> {
    let request = DeleteVolumeRequest { consumer, name, now };
    service(&storage).delete_volume(Request::new(request)).await?;
    Ok(Json(Done {}))
}

/// Take back a volume or a snapshot that was deleted, while it is kept.
#[utoipa::path(post, path = "/consumers/{id}/volumes/{name}/keep", tag = "storage",
    params(("id" = String, Path), ("name" = String, Path)), responses(
    (status = 200, body = Volume),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn keep_volume(
    State(storage): State<Option<Arc<Storage>>>,
    Path((consumer, name)): Path<(String, String)>,
) -> Result<Json<Volume>, Failure> {
    let request = KeepVolumeRequest { consumer, name };
    Ok(Json(service(&storage).keep_volume(Request::new(request)).await?.into_inner()))
}

/// Keep what is in a volume at this moment, as the snapshot VOLUME@SNAPSHOT that the path names.
#[utoipa::path(post, path = "/consumers/{id}/volumes/{name}/snapshot", tag = "storage",
    params(("id" = String, Path), ("name" = String, Path)), responses(
    (status = 200, body = Volume),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn snapshot_volume(
    State(storage): State<Option<Arc<Storage>>>,
    Path((consumer, name)): Path<(String, String)>,
) -> Result<Json<Volume>, Failure> {
    let request = SnapshotVolumeRequest { consumer, name };
    Ok(Json(service(&storage).snapshot_volume(Request::new(request)).await?.into_inner()))
}

/// Put a volume back to one of its snapshots, while no client has it open.
#[utoipa::path(post, path = "/consumers/{id}/volumes/{name}/restoration", tag = "storage",
    params(("id" = String, Path), ("name" = String, Path)), request_body = RestoreVolumeRequest, responses(
    (status = 200, body = Volume),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn restore_volume(
    State(storage): State<Option<Arc<Storage>>>,
    Path((consumer, name)): Path<(String, String)>,
    Body(body): Body<RestoreVolumeRequest>,
) -> Result<Json<Volume>, Failure> {
    let request = RestoreVolumeRequest { consumer, name, ..body };
    Ok(Json(service(&storage).restore_volume(Request::new(request)).await?.into_inner()))
}

/// Give a volume to one writer: nobody else writes to it from then on, and whoever had it open is refused.
#[utoipa::path(put, path = "/consumers/{id}/volumes/{name}/writer", tag = "storage",
    params(("id" = String, Path), ("name" = String, Path)), request_body = PublishVolumeRequest, responses(
    (status = 200, body = Volume),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn publish_volume(
    State(storage): State<Option<Arc<Storage>>>,
    Path((consumer, name)): Path<(String, String)>,
    Body(body): Body<PublishVolumeRequest>,
) -> Result<Json<Volume>, Failure> {
    let request = PublishVolumeRequest { consumer, name, ..body };
    Ok(Json(service(&storage).publish_volume(Request::new(request)).await?.into_inner()))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WriterQuery {
    /// Only if it is this writer's; without it, whoever has it.
    #[serde(default)]
    writer: String,
}

/// Take a volume back from its writer.
#[utoipa::path(delete, path = "/consumers/{id}/volumes/{name}/writer", tag = "storage",
    params(("id" = String, Path), ("name" = String, Path), WriterQuery), responses(
    (status = 200, body = Volume),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn unpublish_volume(
    State(storage): State<Option<Arc<Storage>>>,
    Path((consumer, name)): Path<(String, String)>,
    Query(WriterQuery { writer }): Query<WriterQuery>,
) -> Result<Json<Volume>, Failure> {
    let request = UnpublishVolumeRequest { consumer, name, writer };
    Ok(Json(service(&storage).unpublish_volume(Request::new(request)).await?.into_inner()))
}
