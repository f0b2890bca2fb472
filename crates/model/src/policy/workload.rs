//! Namespaces, Pods and Nodes: only the fields that decide who is in a group, who answers for a Service, and where.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
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
    #[serde(rename = "podCIDR", skip_serializing_if = "String::is_empty")]
    pub pod_cidr: String,
    /// One of each family at most.
    #[serde(
        rename = "podCIDRs",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub pod_cidrs: Vec<String>,
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

/// On Pods on their node's network, so that policies can leave them out. Nobody can claim it.
pub const HOST_NETWORK_LABEL: &str = "trestle.dev/host-network";

/// On every workload of a Kubernetes cluster that is read, and on its namespaces: the name of the cluster. No object there can claim it.
pub const CLUSTER_LABEL: &str = "trestle.dev/cluster";

/// The type of a node's address that counts beside all others: a host that has joined speaks from any of its own.
pub const HOST_IP: &str = "HostIP";
/// Addresses the node uses for tunnels, comma separated, set by its agent.
pub const TRANSPORT_ADDRESSES: &str = "node.antrea.io/transport-addresses";

impl Node {
    /// Where traffic of the node itself comes from, as Antrea has it. One of each family of: its internal addresses, or
    /// the external ones if it has none; the gateways of its Pods, which is where a Pod sees the node come from; the
    /// addresses of its tunnels. And all of a host that has joined.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        let of = |kind: &str| -> Vec<IpAddr> {
            let own = self.status.addresses.iter().filter(|address| address.kind == kind);
            own.filter_map(|address| address.address.parse().ok()).collect()
        };
        let own = match of("InternalIP") {
            internal if internal.is_empty() => of("ExternalIP"),
            internal => internal,
        };
        let transport = self.metadata.annotations.get(TRANSPORT_ADDRESSES);
        let transport = transport.into_iter().flat_map(|list| list.split(','));
        [
            one_per_family(own),
            one_per_family(self.gateways()),
            one_per_family(transport.filter_map(|address| address.trim().parse().ok())),
            of(HOST_IP),
        ]
        .concat()
        .into_iter()
        .collect()
    }

    /// The first address of each prefix that the node's Pods have theirs from.
    fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        let lone = (self.spec.pod_cidrs.is_empty() && !self.spec.pod_cidr.is_empty())
            .then_some(self.spec.pod_cidr.as_str());
        let prefixes = self.spec.pod_cidrs.iter().map(String::as_str).chain(lone);
        prefixes.filter_map(|prefix| match prefix.parse::<IpNet>().ok()?.addr() {
            IpAddr::V4(address) => Some(IpAddr::V4(Ipv4Addr::from(u32::from(address).checked_add(1)?))),
            IpAddr::V6(address) => Some(IpAddr::V6(Ipv6Addr::from(u128::from(address).checked_add(1)?))),
        })
    }
}

fn one_per_family(addresses: impl IntoIterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::with_capacity(2);
    for address in addresses {
        if found.iter().all(|one| one.is_ipv4() != address.is_ipv4()) {
            found.push(address);
        }
    }
    found
}
