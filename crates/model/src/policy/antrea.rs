//! crd.antrea.io: policies with tiers and priorities, Tier, Group and ClusterGroup.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::{
    kubernetes::{IpBlock, Port},
    meta::{ObjectMeta, null_as_default},
    selector::LabelSelector,
};

/// Namespaced (Antrea NetworkPolicy) or cluster scoped (ClusterNetworkPolicy): one shape, the scope is in its kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    pub metadata: ObjectMeta,
    pub spec: PolicySpec,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicySpec {
    /// Empty means `application`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tier: String,
    /// JSON has no word for what is not a number; it is out of range anyway.
    #[serde(deserialize_with = "null_as_default")]
    pub priority: f64,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub applied_to: Vec<AppliedTo>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub ingress: Vec<Rule>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub egress: Vec<Rule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AppliedTo {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_entity_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<NamespacedName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<NamespacedName>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespacedName {
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub action: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub ports: Vec<Port>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub protocols: Vec<Protocol>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub from: Vec<Peer>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub to: Vec<Peer>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub to_services: Vec<NamespacedName>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub l7_protocols: Vec<L7Protocol>,
    pub enable_logging: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub log_label: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub applied_to: Vec<AppliedTo>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Protocol {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp: Option<Icmp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub igmp: Option<Igmp>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Icmp {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<i32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Igmp {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub igmp_type: Option<i32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group_address: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct L7Protocol {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Http {
    pub host: String,
    pub method: String,
    pub path: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tls {
    pub sni: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Peer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// ClusterNetworkPolicy only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<PeerNamespaces>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_entity_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_block: Option<IpBlock>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<NamespacedName>,
    /// Egress only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fqdn: Option<String>,
}

/// The namespace of the Pod the policy is applied to, or all namespaces with the same values of some labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PeerNamespaces {
    #[serde(rename = "match", skip_serializing_if = "String::is_empty")]
    pub matching: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub same_labels: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tier {
    pub metadata: ObjectMeta,
    pub spec: TierSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierSpec {
    pub priority: i32,
}

/// Group (namespaced) or ClusterGroup; exactly one way of naming members is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    pub metadata: ObjectMeta,
    pub spec: GroupSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_entity_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_reference: Option<NamespacedName>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub ip_blocks: Vec<IpBlock>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub child_groups: Vec<String>,
}

/// Tiers that exist without an object.
pub const SYSTEM_TIERS: [(&str, i32); 6] = [
    ("emergency", 50),
    ("securityops", 100),
    ("networkops", 150),
    ("platform", 200),
    ("application", 250),
    ("baseline", 253),
];

/// What tiers were called before they had objects. Policies of that time still name them so.
const STATIC_TIERS: [(&str, &str); 6] = [
    ("Emergency", "emergency"),
    ("SecurityOps", "securityops"),
    ("NetworkOps", "networkops"),
    ("Platform", "platform"),
    ("Application", "application"),
    ("Baseline", "baseline"),
];

/// The tier that `spec.tier` means.
pub fn tier_name(written: &str) -> &str {
    match STATIC_TIERS.iter().find(|(old, _)| *old == written) {
        Some((_, name)) => name,
        None if written.is_empty() => DEFAULT_TIER,
        None => written,
    }
}

pub const PRIORITIES: RangeInclusive<f64> = 1.0..=10_000.0;
pub const DEFAULT_TIER: &str = "application";
pub const DEFAULT_TIER_PRIORITY: i32 = 250;
pub const BASELINE_TIER: &str = "baseline";
pub const BASELINE_TIER_PRIORITY: i32 = 253;
