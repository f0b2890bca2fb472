//! Namespaces, Pods, Nodes and Services: only the fields that decide who is in a group and where it is needed.

use serde::{Deserialize, Serialize};

use super::{
    labels::Labels,
    meta::{ObjectMeta, null_as_default},
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespace {
    pub metadata: ObjectMeta,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    pub spec: PodSpec,
    #[serde(deserialize_with = "null_as_default")]
    pub status: PodStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    pub host_network: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service_account_name: String,
    pub containers: Vec<Container>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Container {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub ports: Vec<ContainerPort>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// Ports without a name are of no use to a policy and are not kept.
    pub name: String,
    pub container_port: i32,
    /// Empty means TCP.
    pub protocol: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: String,
    #[serde(rename = "podIP", skip_serializing_if = "String::is_empty")]
    pub pod_ip: String,
    #[serde(rename = "podIPs", skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub pod_ips: Vec<PodIp>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodIp {
    pub ip: String,
}

impl PodStatus {
    /// A Pod that ran to its end keeps its address in its status while another Pod may already have it.
    pub fn is_terminated(&self) -> bool {
        self.phase == "Succeeded" || self.phase == "Failed"
    }

    /// `podIPs` in their order; `podIP` alone when the list is absent.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        let lone = (self.pod_ips.is_empty() && !self.pod_ip.is_empty()).then_some(self.pod_ip.as_str());
        self.pod_ips.iter().map(|ip| ip.ip.as_str()).chain(lone)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub status: NodeStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    pub addresses: Vec<NodeAddress>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
}

/// Addresses the node uses for tunnels, comma separated, set by its agent.
pub const TRANSPORT_ADDRESSES: &str = "node.antrea.io/transport-addresses";

impl Node {
    /// Internal and external addresses, then those of the transport annotation.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        let own = self.status.addresses.iter().filter(|a| a.kind == "InternalIP" || a.kind == "ExternalIP");
        let transport = self.metadata.annotations.get(TRANSPORT_ADDRESSES);
        own.map(|a| a.address.as_str())
            .chain(transport.into_iter().flat_map(|list| list.split(',').map(str::trim)))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: ServiceSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceSpec {
    /// A Service without a selector selects no Pod.
    #[serde(deserialize_with = "null_as_default")]
    pub selector: Labels,
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
}
