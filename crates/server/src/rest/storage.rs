//! `/tickets` and `/consumers`: the calls of `trestle.v1.Storage`, as REST.

use std::sync::Arc;

use axum::{Json, extract::State};
use drivers::storage::Storage;
use serde::{Deserialize, Serialize};
use tonic::Request;
use utoipa::ToSchema;
use wire::trestle::v1::{
    CreateTicketRequest, GetConsumerRequest, ListConsumersRequest, ListTicketsRequest,
    OffboardConsumerRequest, PermitConsumerRequest, ResizeConsumerRequest, RevokeTicketRequest,
    storage_server::Storage as _,
};

use super::body::{Body, Done, Path};
use crate::{
    failure::{Failure, Problem},
    grpc::storage::Service,
    views::{Consumer, Ticket},
};

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewTicket {
    /// Default: 48 hours.
    #[serde(default)]
    lifetime_seconds: u64,
    /// The most a consumer may be granted with it, such as `100Gi`; default: no limit of its own.
    #[serde(default)]
    limit: String,
    /// The addresses and prefixes its consumer may come from, where the network is managed.
    #[serde(default)]
    sources: Vec<String>,
}

/// A ticket with its text, which is shown only here.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MadeTicket {
    ticket: Ticket,
    text: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewCapacity {
    /// A quantity such as `200Gi`.
    capacity: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSources {
    /// Addresses and prefixes; none: nobody is let through on its behalf.
    sources: Vec<String>,
}

/// All tickets.
#[utoipa::path(get, path = "/tickets", tag = "storage", responses(
    (status = 200, body = Vec<Ticket>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list_tickets(
    State(storage): State<Option<Arc<Storage>>>,
) -> Result<Json<Vec<Ticket>>, Failure> {
    let reply = service(&storage).list_tickets(Request::new(ListTicketsRequest {})).await?.into_inner();
    Ok(Json(reply.tickets.into_iter().map(Into::into).collect()))
}

/// Make a ticket to hand to another cluster.
#[utoipa::path(post, path = "/tickets", tag = "storage", request_body = NewTicket, responses(
    (status = 200, body = MadeTicket),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn create_ticket(
    State(storage): State<Option<Arc<Storage>>>,
    Body(NewTicket { lifetime_seconds, limit, sources }): Body<NewTicket>,
) -> Result<Json<MadeTicket>, Failure> {
    let request = CreateTicketRequest { lifetime_seconds, limit, sources };
    let reply = service(&storage).create_ticket(Request::new(request)).await?.into_inner();
    Ok(Json(MadeTicket { ticket: reply.ticket.unwrap_or_default().into(), text: reply.text }))
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
    Ok(Json(reply.consumers.into_iter().map(Into::into).collect()))
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
    Ok(Json(
        service(&storage).get_consumer(Request::new(GetConsumerRequest { id })).await?.into_inner().into(),
    ))
}

/// Change a consumer's grant.
#[utoipa::path(put, path = "/consumers/{id}/capacity", tag = "storage", params(("id" = String, Path)),
    request_body = NewCapacity, responses(
    (status = 200, body = Consumer),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn resize_consumer(
    State(storage): State<Option<Arc<Storage>>>,
    Path(id): Path<String>,
    Body(NewCapacity { capacity }): Body<NewCapacity>,
) -> Result<Json<Consumer>, Failure> {
    let request = ResizeConsumerRequest { id, capacity };
    Ok(Json(service(&storage).resize_consumer(Request::new(request)).await?.into_inner().into()))
}

/// Let a consumer through to the storage from these addresses and no others.
#[utoipa::path(put, path = "/consumers/{id}/sources", tag = "storage", params(("id" = String, Path)),
    request_body = NewSources, responses(
    (status = 200, body = Consumer),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn permit_consumer(
    State(storage): State<Option<Arc<Storage>>>,
    Path(id): Path<String>,
    Body(NewSources { sources }): Body<NewSources>,
) -> Result<Json<Consumer>, Failure> {
    let request = PermitConsumerRequest { id, sources };
    Ok(Json(service(&storage).permit_consumer(Request::new(request)).await?.into_inner().into()))
}

/// Put a consumer off: its sessions end and its data is deleted.
#[utoipa::path(delete, path = "/consumers/{id}", tag = "storage", params(("id" = String, Path)), responses(
    (status = 200, body = Done),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn offboard_consumer(
    State(storage): State<Option<Arc<Storage>>>,
    Path(id): Path<String>,
) -> Result<Json<Done>, Failure> {
    service(&storage).offboard_consumer(Request::new(OffboardConsumerRequest { id })).await?;
    Ok(Json(Done {}))
}

fn service(storage: &Option<Arc<Storage>>) -> Service {
    Service(storage.clone())
}
