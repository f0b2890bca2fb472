//! Instances, endpoint gateways and clusters. What a user wrote of one goes into its request as it is.

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Ip, Reference};

#[derive(Debug, Deserialize)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) lifecycle_state: String,
    pub(crate) vpc: Reference,
    /// Instances of the older kind have none.
    pub(crate) primary_network_attachment: Option<Attachment>,
    pub(crate) network_attachments: Vec<Attachment>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Attachment {
    pub(crate) primary_ip: Ip,
    pub(crate) virtual_network_interface: Reference,
}

#[derive(Debug, Serialize)]
pub(crate) struct InstanceRequest {
    #[serde(flatten)]
    pub(crate) described: Map<String, Value>,
    pub(crate) name: String,
    pub(crate) vpc: Reference,
    pub(crate) primary_network_attachment: AttachmentRequest,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_group: Option<Reference>,
}

#[derive(Debug, Serialize)]
pub(crate) struct AttachmentRequest {
    pub(crate) name: &'static str,
    pub(crate) virtual_network_interface: InterfaceRequest,
}

#[derive(Debug, Serialize)]
pub(crate) struct InterfaceRequest {
    pub(crate) name: String,
    pub(crate) subnet: Reference,
    pub(crate) security_groups: [Reference; 1],
    pub(crate) allow_ip_spoofing: bool,
    pub(crate) auto_delete: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct EndpointGateway {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) lifecycle_state: String,
    pub(crate) ips: Vec<Ip>,
}

#[derive(Debug, Serialize)]
pub(crate) struct EndpointRequest {
    #[serde(flatten)]
    pub(crate) described: Map<String, Value>,
    pub(crate) name: String,
    pub(crate) vpc: Reference,
    pub(crate) security_groups: [Reference; 1],
    pub(crate) ips: [ReservedIpRequest; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_group: Option<Reference>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ReservedIpRequest {
    pub(crate) name: String,
    pub(crate) subnet: Reference,
    /// Whether it goes with what it is the address of.
    pub(crate) auto_delete: bool,
}

/// A managed Kubernetes cluster.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cluster {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) vpcs: Vec<String>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) master_status: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lifecycle {
    pub(crate) master_status: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterRequest<'r> {
    #[serde(flatten)]
    pub(crate) described: &'r Map<String, Value>,
    pub(crate) name: &'r str,
    pub(crate) provider: &'static str,
    pub(crate) disable_public_service_endpoint: bool,
    pub(crate) disable_outbound_traffic_protection: bool,
    pub(crate) pod_subnet: Ipv4Net,
    pub(crate) service_subnet: Ipv4Net,
    #[serde(rename = "securityGroupIDs")]
    pub(crate) security_group_ids: Vec<&'r str>,
    pub(crate) worker_pool: PoolRequest<'r>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PoolRequest<'r> {
    #[serde(flatten)]
    pub(crate) described: &'r Map<String, Value>,
    #[serde(rename = "vpcID")]
    pub(crate) vpc_id: &'r str,
    pub(crate) zones: Vec<PoolZone<'r>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PoolZone<'r> {
    pub(crate) id: &'r str,
    #[serde(rename = "subnetID")]
    pub(crate) subnet_id: &'r str,
}
