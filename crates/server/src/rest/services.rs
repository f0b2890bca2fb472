//! `/services`.

use std::sync::Arc;

use axum::{Json, extract::State};
use drivers::services::Services;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use wire::trestle::v1::{self, ExplainServiceRequest, explain_service_response::Outcome};

use super::body::{Path, Query};
use crate::{
    failure::{Failure, Problem},
    services_view as view,
};

/// A service that nodes balance.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ServiceState {
    namespace: String,
    name: String,
    /// `ClusterIP`, `NodePort` or `LoadBalancer`.
    r#type: String,
    cluster_ips: Vec<String>,
    external_ips: Vec<String>,
    load_balancers: Vec<String>,
    ports: Vec<ServicePort>,
    /// Endpoints that take new connections, and all there are.
    ready: u32,
    total: u32,
    /// The endpoints are worked out from Pods, because there is no EndpointSlice.
    from_pods: bool,
    /// What is remarkable about it.
    traits: Vec<String>,
    /// Empty in lists.
    endpoints: Vec<ServiceEndpoint>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ServicePort {
    name: String,
    protocol: String,
    port: u32,
    /// 0 if there is none.
    node_port: u32,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ServiceEndpoint {
    endpoint: String,
    port_name: String,
    node: String,
    ready: bool,
    serving: bool,
    terminating: bool,
    hints: Vec<String>,
    slice: String,
}

impl From<v1::ServiceState> for ServiceState {
    fn from(state: v1::ServiceState) -> Self {
        let port = |port: v1::ServicePortState| ServicePort {
            name: port.name,
            protocol: port.protocol,
            port: port.port,
            node_port: port.node_port,
        };
        let endpoint = |one: v1::ServiceEndpointState| ServiceEndpoint {
            endpoint: one.endpoint,
            port_name: one.port_name,
            node: one.node,
            ready: one.ready,
            serving: one.serving,
            terminating: one.terminating,
            hints: one.hints,
            slice: one.slice,
        };
        Self {
            namespace: state.namespace,
            name: state.name,
            r#type: state.r#type,
            cluster_ips: state.cluster_ips,
            external_ips: state.external_ips,
            load_balancers: state.load_balancers,
            ports: state.ports.into_iter().map(port).collect(),
            ready: state.ready,
            total: state.total,
            from_pods: state.from_pods,
            traits: state.traits,
            endpoints: state.endpoints.into_iter().map(endpoint).collect(),
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Absent: all namespaces.
    #[serde(default)]
    namespace: String,
}

/// Services that nodes balance.
#[utoipa::path(get, path = "/services", tag = "services", params(ListQuery), responses(
    (status = 200, body = Vec<ServiceState>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(
    State(services): State<Arc<Services>>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Vec<ServiceState>>, Failure> {
    let services = view::list(&services, &query.namespace);
    Ok(Json(services.into_iter().map(ServiceState::from).collect()))
}

/// One service with its endpoints.
#[utoipa::path(get, path = "/services/{namespace}/{name}", tag = "services",
    params(("namespace" = String, Path), ("name" = String, Path)), responses(
    (status = 200, body = ServiceState),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(
    State(services): State<Arc<Services>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Json<ServiceState>, Failure> {
    Ok(Json(view::get(&services, &namespace, &name)?.into()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainQuery {
    /// Address of a service, or of a node for its node ports.
    address: String,
    port: u32,
    /// `tcp` (default), `udp` or `sctp`.
    #[serde(default)]
    protocol: String,
    /// The node that the packet passes (default: one without endpoints, in no zone).
    #[serde(default)]
    node: String,
    /// Who sends it (default: a Pod).
    #[serde(default)]
    from: String,
    /// `nftables` (default) or `ipvs`.
    #[serde(default)]
    plane: String,
    /// Addresses of Pods, separated by commas.
    #[serde(default)]
    pod_prefixes: String,
}

/// Where a packet goes, and why.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ServiceExplanation)]
pub(super) struct Explanation {
    /// `balanced`, `rejected`, `dropped` or `passed`.
    outcome: &'static str,
    /// As `namespace/name:port`; empty if no service has the address and port.
    service: String,
    frontend: String,
    endpoints: Vec<String>,
    /// The endpoint sees the node's address instead of the client's.
    source_hidden: bool,
    /// From top to bottom.
    reasons: Vec<String>,
    judged: Vec<JudgedEndpoint>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JudgedEndpoint {
    endpoint: String,
    node: String,
    used: bool,
    reason: String,
}

/// Where a packet to a service goes from a node, and why.
#[utoipa::path(get, path = "/services/explain", tag = "services", params(ExplainQuery), responses(
    (status = 200, body = Explanation),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn explain(
    State(services): State<Arc<Services>>,
    Query(query): Query<ExplainQuery>,
) -> Result<Json<Explanation>, Failure> {
    let ExplainQuery { address, port, protocol, node, from, plane, pod_prefixes } = query;
    let prefixes = pod_prefixes.split(',').filter(|text| !text.is_empty()).map(str::to_owned).collect();
    let request =
        ExplainServiceRequest { address, port, protocol, node, from, plane, pod_prefixes: prefixes };
    let reply = view::explain(&services, &request)?;
    let outcome = match reply.outcome() {
        Outcome::Balanced => "balanced",
        Outcome::Rejected => "rejected",
        Outcome::Dropped => "dropped",
        Outcome::Passed | Outcome::Unspecified => "passed",
    };
    let judged = reply.judged.into_iter().map(|one| JudgedEndpoint {
        endpoint: one.endpoint,
        node: one.node,
        used: one.used,
        reason: one.reason,
    });
    Ok(Json(Explanation {
        outcome,
        service: reply.service,
        frontend: reply.frontend,
        endpoints: reply.endpoints,
        source_hidden: reply.source_hidden,
        reasons: reply.reasons,
        judged: judged.collect(),
    }))
}
