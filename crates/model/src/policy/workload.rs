//! Namespaces, Pods and Nodes: only the fields that decide who is in a group, who answers for a Service, and where.

use serde::{Deserialize, Serialize};

use super::meta::{ObjectMeta, null_as_default};

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
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub conditions: Vec<PodCondition>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False or Unknown.
    pub status: String,
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

    /// As the Pod's own condition says. A Pod written by hand has none, and is ready when it runs or says nothing.
    pub fn is_ready(&self) -> bool {
        match self.conditions.iter().find(|condition| condition.kind == "Ready") {
            Some(condition) => condition.status == "True",
            None => matches!(self.phase.as_str(), "Running" | ""),
        }
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
    pub spec: NodeSpec,
    #[serde(deserialize_with = "null_as_default")]
    pub status: NodeStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Taint {
    pub key: String,
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
