//! gRPC: one module per service. Each reads the request, calls a room, and converts the reply.

pub(crate) mod access;
mod admin;
pub(crate) mod audit;
mod controller;
mod controller_today;
mod enforcement;
mod flows;
mod hosts;
mod join;
mod kubernetes;
mod local_sets;
mod namespaces;
mod node_feed;
mod nodes;
mod objects;
mod observer;
mod orchestrator;
mod permissions;
mod policies;
mod provider;
mod services;
pub(crate) mod storage;
pub(crate) mod tags;

use std::sync::Arc;

use ::orchestrator::execute::Orchestrator;
use axum::Router;
use drivers::{
    flows::Flows, namespaces::Namespaces, plugin_values::PluginValues, policy::Policy, services::Services,
    storage::Storage, tags::Tags,
};
use life::Life;
use node_feed::{DataplaneEvents, Feed, LaterDataplaneEvents, NodeFeed, Stream};
use store::Store;
use tonic::service::Routes;
use tonic_health::{
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};
use transport::Hub;
use wire::{
    invisinetspb::controller_server::{self, ControllerServer},
    localv1::sets_server::{self, SetsServer},
    observer::observer_server::{self, ObserverServer},
    paragliderpb,
    pb::dataplane_events_server,
    provider_raw::ocs_provider_server::{self, OcsProviderServer},
    tagservicepb::tag_service_server::{self, TagServiceServer},
    trestle::v1::{
        access_server::{self, AccessServer},
        admin_server::{self, AdminServer},
        enforcement_server::{self, EnforcementServer},
        flows_server::{self, FlowsServer},
        hosts_server::{self, HostsServer},
        join_server::{self, JoinServer},
        kubernetes_server::{self, KubernetesServer},
        namespaces_server::{self, NamespacesServer},
        node_feed_server,
        nodes_server::{self, NodesServer},
        objects_server::{self, ObjectsServer},
        orchestrator_server::{self, OrchestratorServer},
        permissions_server::{self, PermissionsServer},
        policies_server::{self, PoliciesServer},
        services_server::{self, ServicesServer},
        storage_server::{self, StorageServer},
        tag_events_server::{self, TagEventsServer},
    },
};

use crate::{
    about::About,
    access::{Credentials, join::Admissions},
    audit::Audit,
    clusters::Clusters,
    enforcement::Enforcement,
    explain::Explainer,
    hosts::Hosts,
    metrics::Metrics,
    nodes::Nodes,
    objects::Changing,
    permissions::Allows,
    realisation::Realisations,
    serving::Serving,
};

/// What the services are about; each is given what it needs.
pub struct Rooms {
    pub about: About,
    pub store: Store,
    pub tags: Arc<Tags>,
    pub namespaces: Namespaces,
    pub orchestrator: Arc<Orchestrator>,
    pub policy: Arc<Policy>,
    pub explainer: Explainer,
    pub changing: Changing,
    pub allows: Allows,
    pub realisations: Realisations,
    pub enforcement: Arc<Enforcement>,
    pub flows: Option<Arc<Flows>>,
    pub services: Arc<Services>,
    pub storage: Option<Arc<Storage>>,
    pub nodes: Nodes,
    pub hosts: Hosts,
    pub clusters: Clusters,
    pub admissions: Arc<Admissions>,
    pub hub: Arc<Hub>,
    pub credentials: Arc<Credentials>,
    pub ca_pem: String,
    pub audit: Arc<Audit>,
    pub metrics: Arc<Metrics>,
    pub serving: Arc<Serving>,
    pub life: Life,
}

/// The full names of all services served, also those that come from elsewhere.
pub const SERVED: &[&str] = &[
    tag_service_server::SERVICE_NAME,
    tag_events_server::SERVICE_NAME,
    namespaces_server::SERVICE_NAME,
    controller_server::SERVICE_NAME,
    paragliderpb::controller_server::SERVICE_NAME,
    orchestrator_server::SERVICE_NAME,
    objects_server::SERVICE_NAME,
    permissions_server::SERVICE_NAME,
    policies_server::SERVICE_NAME,
    enforcement_server::SERVICE_NAME,
    flows_server::SERVICE_NAME,
    observer_server::SERVICE_NAME,
    services_server::SERVICE_NAME,
    sets_server::SERVICE_NAME,
    storage_server::SERVICE_NAME,
    ocs_provider_server::SERVICE_NAME,
    access_server::SERVICE_NAME,
    admin_server::SERVICE_NAME,
    node_feed_server::SERVICE_NAME,
    nodes_server::SERVICE_NAME,
    hosts_server::SERVICE_NAME,
    join_server::SERVICE_NAME,
    kubernetes_server::SERVICE_NAME,
    dataplane_events_server::SERVICE_NAME,
    wire::protos::dataplane_events_server::SERVICE_NAME,
    tonic_health::pb::health_server::SERVICE_NAME,
    "grpc.reflection.v1.ServerReflection",
];

/// Longest message by which a machine joins.
const JOIN_BYTES: usize = 64 << 10;

/// The router of the gRPC listener.
pub fn router(rooms: Rooms, health: HealthReporter, max: usize) -> Router {
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(wire::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptors are made by the build");
    let feed = Feed {
        hub: Arc::clone(&rooms.hub),
        audit: Arc::clone(&rooms.audit),
        hosts: Arc::clone(&rooms.nodes.hosts),
        joined: Arc::clone(&rooms.hosts.records),
        policy: Arc::clone(&rooms.policy),
        life: rooms.life.clone(),
    };
    Routes::new(TagServiceServer::new(tags::Grpc(rooms.tags.clone())).max_decoding_message_size(max))
        .add_service(
            TagEventsServer::new(tags::EventService {
                tags: rooms.tags.clone(),
                metrics: rooms.metrics.clone(),
                serving: rooms.serving.clone(),
            })
            .max_decoding_message_size(max),
        )
        .add_service(
            NamespacesServer::new(namespaces::Grpc {
                orchestrator: rooms.orchestrator.clone(),
                namespaces: rooms.namespaces.clone(),
            })
            .max_decoding_message_size(max),
        )
        .add_service(
            AccessServer::new(access::Grpc {
                credentials: rooms.credentials.clone(),
                audit: rooms.audit.clone(),
                ca_pem: rooms.ca_pem.clone(),
                admissions: rooms.admissions.clone(),
            })
            .max_decoding_message_size(max),
        )
        .add_service(
            ControllerServer::new(controller::Grpc {
                orchestrator: rooms.orchestrator.clone(),
                namespaces: rooms.namespaces.clone(),
            })
            .max_decoding_message_size(max),
        )
        .add_service(
            paragliderpb::controller_server::ControllerServer::new(controller_today::Grpc {
                orchestrator: rooms.orchestrator.clone(),
                namespaces: rooms.namespaces.clone(),
                values: PluginValues::new(rooms.store.clone()),
            })
            .max_decoding_message_size(max),
        )
        .add_service(
            OrchestratorServer::new(orchestrator::Grpc(rooms.orchestrator.clone()))
                .max_decoding_message_size(max),
        )
        .add_service(
            ObjectsServer::new(objects::Grpc {
                changing: rooms.changing.clone(),
                serving: rooms.serving.clone(),
            })
            .max_decoding_message_size(max),
        )
        .add_service(
            KubernetesServer::new(kubernetes::Grpc(rooms.clusters.clone())).max_decoding_message_size(max),
        )
        .add_service(
            PermissionsServer::new(permissions::Grpc(rooms.allows.clone())).max_decoding_message_size(max),
        )
        .add_service(
            PoliciesServer::new(policies::Grpc {
                policy: rooms.policy.clone(),
                realisations: rooms.realisations.clone(),
                explainer: rooms.explainer.clone(),
                changing: rooms.changing.clone(),
            })
            .max_decoding_message_size(max),
        )
        .add_service(
            EnforcementServer::new(enforcement::Grpc {
                enforcement: rooms.enforcement.clone(),
                serving: rooms.serving.clone(),
            })
            .max_decoding_message_size(max),
        )
        .add_service(
            FlowsServer::new(flows::Grpc {
                flows: rooms.flows.clone(),
                joined: Arc::clone(&rooms.hosts.records),
                serving: rooms.serving.clone(),
            })
            .max_decoding_message_size(max),
        )
        .add_service(
            ObserverServer::new(observer::Grpc {
                flows: rooms.flows.clone(),
                nodes: rooms.nodes.clone(),
                serving: rooms.serving.clone(),
                started_at: rooms.about.started_at,
            })
            .max_decoding_message_size(max),
        )
        .add_service(
            ServicesServer::new(services::Grpc(rooms.services.clone())).max_decoding_message_size(max),
        )
        .add_service(
            SetsServer::new(local_sets::Grpc {
                services: rooms.services.clone(),
                serving: rooms.serving.clone(),
                life: rooms.life.clone(),
            })
            .max_decoding_message_size(max),
        )
        .add_service(StorageServer::new(storage::Grpc(rooms.storage.clone())).max_decoding_message_size(max))
        .add_service(
            OcsProviderServer::new(provider::Grpc(rooms.storage.clone())).max_decoding_message_size(max),
        )
        .add_service(
            AdminServer::new(admin::Grpc { about: rooms.about.clone(), store: rooms.store.clone() })
                .max_decoding_message_size(max),
        )
        .add_service(NodesServer::new(nodes::Grpc(rooms.nodes.clone())).max_decoding_message_size(max))
        // From strangers, and small.
        .add_service(
            JoinServer::new(join::Grpc(rooms.admissions.clone())).max_decoding_message_size(JOIN_BYTES),
        )
        .add_service(HostsServer::new(hosts::Grpc(rooms.hosts.clone())).max_decoding_message_size(max))
        .add_service(Stream::<NodeFeed>::new(feed.clone()))
        .add_service(Stream::<DataplaneEvents>::new(feed.clone()))
        .add_service(Stream::<LaterDataplaneEvents>::new(feed))
        .add_service(HealthServer::new(HealthService::from_health_reporter(health)))
        .add_service(reflection)
        .into_axum_router()
}
