//! `/tickets` and `/consumers`: the calls of `trestle.v1.Storage`, as REST.

use std::sync::Arc;

use axum::{Json, extract::State};
use drivers::storage::Storage;
use serde::Deserialize;
use tonic::Request;
use utoipa::IntoParams;
use wire::trestle::v1::{
    AdoptVolumeRequest, Consumer, CreateTicketRequest, CreateTicketResponse, GetConsumerRequest,
    KeepConsumerRequest, LabelConsumerRequest, LimitConsumerRequest, ListConsumersRequest,
    ListTicketsRequest, NameConsumerRequest, OffboardConsumerRequest, PermitConsumerRequest,
    RecreateVolumeRequest, ResizeConsumerRequest, RevokeTicketRequest, Ticket, storage_server::Storage as _,
};

use super::body::{Body, Done, Path, Query};
use crate::{
    failure::{Failure, Problem},
    grpc::storage::Grpc,
};

/// All tickets.
#[utoipa::path(get, path = "/tickets", tag = "storage", responses(
    (status = 200, body = Vec<Ticket>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list_tickets(
    State(storage): State<Option<Arc<Storage>>>,
) -> Result<Json<Vec<Ticket>>, Failure> {
    let reply = service(&storage).list_tickets(Request::new(ListTicketsRequest {})).await?.into_inner();
    Ok(Json(reply.tickets))
}

/// Make a ticket to hand to another cluster.
#[utoipa::path(post, path = "/tickets", tag = "storage", request_body = CreateTicketRequest, responses(
    (status = 200, body = CreateTicketResponse),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn create_ticket(
    State(storage): State<Option<Arc<Storage>>>,
    Body(request): Body<CreateTicketRequest>,
) -> Result<Json<CreateTicketResponse>, Failure> {
    Ok(Json(service(&storage).create_ticket(Request::new(request)).await?.into_inner()))
}

/// Make a ticket worthless.
#[utoipa::path(delete, path = "/tickets/{id}", tag = "storage", params(("id" = String, Path)), responses(
    (status = 200, body = Done),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn revoke_ticket(
    State(storage): State<Option<Arc<Storage>>>,
    Path(id): Path<String>,
) -> Result<Json<Done>, Failure> {
    service(&storage).revoke_ticket(Request::new(RevokeTicketRequest { id })).await?;
    Ok(Json(Done {}))
}

/// All consumers, with usage against grant.
#[utoipa::path(get, path = "/consumers", tag = "storage", responses(
    (status = 200, body = Vec<Consumer>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list_consumers(
    State(storage): State<Option<Arc<Storage>>>,
) -> Result<Json<Vec<Consumer>>, Failure> {
    let reply = service(&storage).list_consumers(Request::new(ListConsumersRequest {})).await?.into_inner();
    Ok(Json(reply.consumers))
}

/// One consumer.
#[utoipa::path(get, path = "/consumers/{id}", tag = "storage", params(("id" = String, Path)), responses(
    (status = 200, body = Consumer),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get_consumer(
    State(storage): State<Option<Arc<Storage>>>,
    Path(id): Path<String>,
) -> Result<Json<Consumer>, Failure> {
    Ok(Json(service(&storage).get_consumer(Request::new(GetConsumerRequest { id })).await?.into_inner()))
}

/// Change a consumer's grant.
#[utoipa::path(put, path = "/consumers/{id}/capacity", tag = "storage", params(("id" = String, Path)),
    request_body = ResizeConsumerRequest, responses(
    (status = 200, body = Consumer),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn resize_consumer(
    State(storage): State<Option<Arc<Storage>>>,
    Path(id): Path<String>,
    Body(body): Body<ResizeConsumerRequest>,
) -> Result<Json<Consumer>, Failure> {
    let request = ResizeConsumerRequest { id, ..body };
    Ok(Json(service(&storage).resize_consumer(Request::new(request)).await?.into_inner()))
}

/// Let a consumer through to the storage from these addresses and no others.
#[utoipa::path(put, path = "/consumers/{id}/sources", tag = "storage", params(("id" = String, Path)),
    request_body = PermitConsumerRequest, responses(
    (status = 200, body = Consumer),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn permit_consumer(
    State(storage): State<Option<Arc<Storage>>>,
    Path(id): Path<String>,
    Body(body): Body<PermitConsumerRequest>,
) -> Result<Json<Consumer>, Failure> {
    let request = PermitConsumerRequest { id, ..body };
    Ok(Json(service(&storage).permit_consumer(Request::new(request)).await?.into_inner()))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OffboardQuery {
    /// Delete its data at once; there is no way back.
    #[serde(default)]
    now: bool,
}

/// Put a consumer off: its sessions end, and its data is deleted when its grace time is over, or now.
#[utoipa::path(delete, path = "/consumers/{id}", tag = "storage", params(("id" = String, Path), OffboardQuery), responses(
    (status = 200, body = Done),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn offboard_consumer(
    State(storage): State<Option<Arc<Storage>>>,
    Path(id): Path<String>,
    Query(OffboardQuery { now }): Query<OffboardQuery>,
) -> Result<Json<Done>, Failure> {
    service(&storage).offboard_consumer(Request::new(OffboardConsumerRequest { id, now })).await?;
    Ok(Json(Done {}))
}

/// Take back a consumer that was put off, while its data is kept.
#[utoipa::path(post, path = "/consumers/{id}/keep", tag = "storage", params(("id" = String, Path)), responses(
    (status = 200, body = Consumer),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn keep_consumer(
    State(storage): State<Option<Arc<Storage>>>,
    Path(id): Path<String>,
) -> Result<Json<Consumer>, Failure> {
    let request = KeepConsumerRequest { id };
    Ok(Json(service(&storage).keep_consumer(Request::new(request)).await?.into_inner()))
}

/// Call a consumer something.
#[utoipa::path(put, path = "/consumers/{id}/name", tag = "storage", params(("id" = String, Path)),
    request_body = NameConsumerRequest, responses(
    (status = 200, body = Consumer),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn name_consumer(
    State(storage): State<Option<Arc<Storage>>>,
    Path(id): Path<String>,
    Body(body): Body<NameConsumerRequest>,
) -> Result<Json<Consumer>, Failure> {
    let request = NameConsumerRequest { id, ..body };
    Ok(Json(service(&storage).name_consumer(Request::new(request)).await?.into_inner()))
}

/// Take what is there as the data of a consumer whose data is not what was made for it.
#[utoipa::path(post, path = "/consumers/{id}/adoption", tag = "storage", params(("id" = String, Path)), responses(
    (status = 200, body = Consumer),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn adopt_volume(
    State(storage): State<Option<Arc<Storage>>>,
    Path(consumer): Path<String>,
) -> Result<Json<Consumer>, Failure> {
    let request = AdoptVolumeRequest { consumer };
    Ok(Json(service(&storage).adopt_volume(Request::new(request)).await?.into_inner()))
}

/// Give up the data of such a consumer: it gets empty storage and new credentials.
#[utoipa::path(post, path = "/consumers/{id}/recreation", tag = "storage", params(("id" = String, Path)),
    request_body = RecreateVolumeRequest, responses(
    (status = 200, body = Consumer),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn recreate_volume(
    State(storage): State<Option<Arc<Storage>>>,
    Path(consumer): Path<String>,
    Body(body): Body<RecreateVolumeRequest>,
) -> Result<Json<Consumer>, Failure> {
    let request = RecreateVolumeRequest { consumer, ..body };
    Ok(Json(service(&storage).recreate_volume(Request::new(request)).await?.into_inner()))
}

/// Bound how much a consumer is served in a second.
#[utoipa::path(put, path = "/consumers/{id}/rates", tag = "storage", params(("id" = String, Path)),
    request_body = LimitConsumerRequest, responses(
    (status = 200, body = Consumer),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn limit_consumer(
    State(storage): State<Option<Arc<Storage>>>,
    Path(id): Path<String>,
    Body(body): Body<LimitConsumerRequest>,
) -> Result<Json<Consumer>, Failure> {
    let request = LimitConsumerRequest { id, ..body };
    Ok(Json(service(&storage).limit_consumer(Request::new(request)).await?.into_inner()))
}

/// Replace what a consumer is labelled with.
#[utoipa::path(put, path = "/consumers/{id}/labels", tag = "storage", params(("id" = String, Path)),
    request_body = LabelConsumerRequest, responses(
    (status = 200, body = Consumer),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn label_consumer(
    State(storage): State<Option<Arc<Storage>>>,
    Path(id): Path<String>,
    Body(body): Body<LabelConsumerRequest>,
) -> Result<Json<Consumer>, Failure> {
    let request = LabelConsumerRequest { id, ..body };
    Ok(Json(service(&storage).label_consumer(Request::new(request)).await?.into_inner()))
}

pub(super) fn service(storage: &Option<Arc<Storage>>) -> Grpc {
    Grpc(storage.clone())
}
