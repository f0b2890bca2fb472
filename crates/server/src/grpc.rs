//! gRPC: one module per service. Each reads the request, calls a room, and converts the reply.

mod access;
mod admin;
pub(crate) mod audit;
mod controller;
mod local_sets;
mod namespaces;
mod node_feed;
mod nodes;
mod objects;
mod orchestrator;
mod policies;
mod provider;
mod services;
pub(crate) mod storage;
pub(crate) mod tags;

use std::sync::Arc;

use axum::Router;
use node_feed::{DataplaneEvents, Feed, NodeFeed, Stream};
use tonic::service::Routes;
use tonic_health::{
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};
use wire::{
    invisinetspb::controller_server::{self, ControllerServer},
    localv1::sets_server::{self, SetsServer},
    pb::dataplane_events_server,
    provider_raw::ocs_provider_server::{self, OcsProviderServer},
    tagservicepb::tag_service_server::{self, TagServiceServer},
    trestle::v1::{
        access_server::{self, AccessServer},
        admin_server::{self, AdminServer},
        namespaces_server::{self, NamespacesServer},
        node_feed_server,
        nodes_server::{self, NodesServer},
        objects_server::{self, ObjectsServer},
        orchestrator_server::{self, OrchestratorServer},
        policies_server::{self, PoliciesServer},
        services_server::{self, ServicesServer},
        storage_server::{self, StorageServer},
        tag_events_server::{self, TagEventsServer},
    },
};

use crate::parts::Parts;

/// The full names of all services served, also those that come from elsewhere.
pub const SERVED: &[&str] = &[
    tag_service_server::SERVICE_NAME,
    tag_events_server::SERVICE_NAME,
    namespaces_server::SERVICE_NAME,
    controller_server::SERVICE_NAME,
    orchestrator_server::SERVICE_NAME,
    objects_server::SERVICE_NAME,
    policies_server::SERVICE_NAME,
    services_server::SERVICE_NAME,
    sets_server::SERVICE_NAME,
    storage_server::SERVICE_NAME,
    ocs_provider_server::SERVICE_NAME,
    access_server::SERVICE_NAME,
    admin_server::SERVICE_NAME,
    node_feed_server::SERVICE_NAME,
    nodes_server::SERVICE_NAME,
    dataplane_events_server::SERVICE_NAME,
    tonic_health::pb::health_server::SERVICE_NAME,
    "grpc.reflection.v1.ServerReflection",
];

/// The router of the gRPC listener.
pub fn router(parts: &Parts, health: HealthReporter) -> Router {
    let max = parts.config.limits.max_message_bytes;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(wire::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptors are made by the build");
    let hub = Arc::clone(&parts.transport.hub);
    let feed = Feed { hub: Arc::clone(&hub), audit: Arc::clone(&parts.audit), life: parts.life.clone() };
    Routes::new(TagServiceServer::new(tags::Service(parts.tags.clone())).max_decoding_message_size(max))
        .add_service(
            TagEventsServer::new(tags::EventService {
                tags: parts.tags.clone(),
                metrics: parts.metrics.clone(),
                serving: parts.serving.clone(),
            })
            .max_decoding_message_size(max),
        )
        .add_service(NamespacesServer::new(namespaces::Service(parts.clone())).max_decoding_message_size(max))
        .add_service(
            AccessServer::new(access::Service {
                credentials: parts.credentials.clone(),
                audit: parts.audit.clone(),
                ca_pem: parts.pki.ca_pem().to_owned(),
            })
            .max_decoding_message_size(max),
        )
        .add_service(ControllerServer::new(controller::Service(parts.clone())).max_decoding_message_size(max))
        .add_service(
            OrchestratorServer::new(orchestrator::Service(parts.clone())).max_decoding_message_size(max),
        )
        .add_service(
            ObjectsServer::new(objects::Service {
                objects: parts.objects.clone(),
                policy: parts.policy.clone(),
                serving: parts.serving.clone(),
            })
            .max_decoding_message_size(max),
        )
        .add_service(
            PoliciesServer::new(policies::Service { parts: parts.clone() }).max_decoding_message_size(max),
        )
        .add_service(
            ServicesServer::new(services::Service(parts.services.clone())).max_decoding_message_size(max),
        )
        .add_service(
            SetsServer::new(local_sets::Service {
                services: parts.services.clone(),
                serving: parts.serving.clone(),
                life: parts.life.clone(),
            })
            .max_decoding_message_size(max),
        )
        .add_service(
            StorageServer::new(storage::Service(parts.storage.clone())).max_decoding_message_size(max),
        )
        .add_service(
            OcsProviderServer::new(provider::Service(parts.storage.clone())).max_decoding_message_size(max),
        )
        .add_service(AdminServer::new(admin::Service(parts.clone())).max_decoding_message_size(max))
        .add_service(NodesServer::new(nodes::Service(parts.clone())).max_decoding_message_size(max))
        .add_service(Stream::<NodeFeed>::new(feed.clone()))
        .add_service(Stream::<DataplaneEvents>::new(feed))
        .add_service(HealthServer::new(HealthService::from_health_reporter(health)))
        .add_service(reflection)
        .into_axum_router()
}
