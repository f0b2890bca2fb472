//! Kubernetes Services: what decides where a service is found and who answers.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{
    kubernetes::IntOrString,
    labels::Labels,
    meta::{ObjectMeta, null_as_default},
};

/// Chooses the IPVS scheduler of one service.
pub const SCHEDULER_ANNOTATION: &str = "trestle/ipvs-scheduler";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: ServiceSpec,
    #[serde(deserialize_with = "null_as_default")]
    pub status: ServiceStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// A Service without a selector selects no Pod.
    #[serde(deserialize_with = "null_as_default")]
    pub selector: Labels,
    /// Empty means ClusterIP.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub ports: Vec<ServicePort>,
    /// `None` for headless, empty for none yet.
    #[serde(rename = "clusterIP", skip_serializing_if = "String::is_empty")]
    pub cluster_ip: String,
    /// Of both families; the first is `clusterIP`.
    #[serde(
        rename = "clusterIPs",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub cluster_ips: Vec<String>,
    #[serde(
        rename = "externalIPs",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub external_ips: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub load_balancer_source_ranges: Vec<String>,
    /// `ClientIP`; empty means None.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session_affinity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// `Local`; empty means Cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub internal_traffic_policy: String,
    /// `Local`; empty means Cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub external_traffic_policy: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub health_check_node_port: i32,
    /// `PreferDualStack` or `RequireDualStack`; empty means SingleStack.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ip_family_policy: String,
    /// `IPv4`, `IPv6`, in the order of `clusterIPs`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub ip_families: Vec<String>,
    /// Whether a load balancer gets node ports; absent means yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocate_load_balancer_node_ports: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<String>,
    pub publish_not_ready_addresses: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// May be empty if it is the only one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Empty means TCP.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    pub port: i32,
    /// Absent means the same as `port`; a name is looked up at each Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_port: Option<IntOrString>,
    #[serde(skip_serializing_if = "is_zero")]
    pub node_port: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionAffinityConfig {
    #[serde(rename = "clientIP", skip_serializing_if = "Option::is_none")]
    pub client_ip: Option<ClientIpConfig>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientIpConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatus {
    #[serde(deserialize_with = "null_as_default")]
    pub load_balancer: LoadBalancerStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadBalancerStatus {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub ingress: Vec<LoadBalancerIngress>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerIngress {
    /// Empty if the balancer is known by name only.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ip: String,
    /// `Proxy`; absent means VIP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl ServiceSpec {
    /// `clusterIPs`, or `clusterIP` alone when the list is absent; empty for headless Services.
    pub fn cluster_addresses(&self) -> impl Iterator<Item = &str> {
        let lone = self.cluster_ips.is_empty().then_some(self.cluster_ip.as_str());
        let all = self.cluster_ips.iter().map(String::as_str).chain(lone);
        all.filter(|address| !address.is_empty() && *address != "None")
    }
}

/// An address as people write it: leading zeros in IPv4 are decimal, as they always were for Kubernetes.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        *octet = part.parse().ok().filter(|_| digits)?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets).into())
}

/// A prefix as people write it, with white space around it and with host bits.
pub fn parse_prefix(text: &str) -> Option<IpNet> {
    let (address, len) = text.trim().split_once('/')?;
    IpNet::new(parse_address(address)?, len.parse().ok()?).ok().map(|prefix| prefix.trunc())
}
