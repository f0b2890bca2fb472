//! The transfer objects of `controlplane.antrea.io/v1beta2`: one struct each for protobuf and JSON.
//!
//! Numbers and JSON keys are the originals'. What a Go pointer is optional there is an `Option` here: absent and zero
//! differ for a client. Only what nodes report and what users ask is ever read.

mod asked;
mod stats;

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost::Message;
use serde::{Deserialize, Serialize, Serializer, ser::SerializeSeq as _};

pub use asked::{
    ClusterGroupMembers, EvaluatedRule, EvaluationEnd, EvaluationRequest, EvaluationResponse,
    GroupAssociation, GroupMembers, GroupReference, IPGroupAssociation, NetworkPolicyEvaluation,
};

pub use stats::{
    AntreaClusterNetworkPolicyStats, AntreaClusterNetworkPolicyStatsList, AntreaNetworkPolicyStats,
    AntreaNetworkPolicyStatsList, NetworkPolicyStats, NetworkPolicyStatsList, NodeStatsSummary, PolicyStats,
    RuleTrafficStats, STATS_GROUP, STATS_VERSION, Time, TrafficStats,
};

/// Of Antrea's control plane.
pub const API_VERSION: &str = "controlplane.antrea.io/v1beta2";

/// An object a client can name by its kind.
pub trait Transfer: Message + Serialize + Default {
    const KIND: &'static str;
    const API_VERSION: &'static str = API_VERSION;
}

macro_rules! transfer {
    ($($name:ident),*) => {
        $(impl Transfer for $name { const KIND: &'static str = stringify!($name); })*
    };
}

transfer!(
    AddressGroup,
    AddressGroupList,
    AddressGroupPatch,
    AppliedToGroup,
    AppliedToGroupList,
    AppliedToGroupPatch,
    EgressGroup,
    EgressGroupList,
    NetworkPolicy,
    NetworkPolicyEvaluation,
    NetworkPolicyList,
    SupportBundleCollection,
    SupportBundleCollectionList,
    ClusterGroupMembers,
    GroupMembers,
    GroupAssociation,
    IPGroupAssociation
);

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[prost(int64, tag = "7")]
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// Told with statistics only, and never read.
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    pub creation_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "12")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMeta {
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Reference {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct NamedPort {
    #[prost(int32, tag = "1")]
    pub port: i32,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub protocol: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupMember {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_entity: Option<Reference>,
    /// Always 16 bytes each: clients compare them raw.
    #[prost(bytes = "vec", repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "base64_list")]
    pub ips: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<NamedPort>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Reference>,
}

fn base64_list<S: Serializer>(list: &[Vec<u8>], to: S) -> Result<S::Ok, S::Error> {
    let mut seq = to.serialize_seq(Some(list.len()))?;
    list.iter().try_for_each(|bytes| seq.serialize_element(&STANDARD.encode(bytes)))?;
    seq.end()
}

fn base64_bytes<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&STANDARD.encode(bytes))
}

/// The three kinds of groups have one shape.
macro_rules! group {
    ($group:ident, $list:ident) => {
        #[derive(Clone, PartialEq, Message, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $group {
            #[prost(message, required, tag = "1")]
            pub metadata: ObjectMeta,
            #[prost(message, repeated, tag = "2")]
            #[serde(skip_serializing_if = "Vec::is_empty")]
            pub group_members: Vec<GroupMember>,
        }

        #[derive(Clone, PartialEq, Message, Serialize)]
        pub struct $list {
            #[prost(message, required, tag = "1")]
            pub metadata: ListMeta,
            #[prost(message, repeated, tag = "2")]
            pub items: Vec<$group>,
        }
    };
}

macro_rules! patch {
    ($patch:ident) => {
        #[derive(Clone, PartialEq, Message, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $patch {
            #[prost(message, required, tag = "1")]
            pub metadata: ObjectMeta,
            #[prost(message, repeated, tag = "2")]
            #[serde(skip_serializing_if = "Vec::is_empty")]
            pub added_group_members: Vec<GroupMember>,
            #[prost(message, repeated, tag = "3")]
            #[serde(skip_serializing_if = "Vec::is_empty")]
            pub removed_group_members: Vec<GroupMember>,
        }
    };
}

group!(AddressGroup, AddressGroupList);
group!(AppliedToGroup, AppliedToGroupList);
group!(EgressGroup, EgressGroupList);
patch!(AddressGroupPatch);
patch!(AppliedToGroupPatch);

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<NetworkPolicyRule>,
    #[prost(string, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub applied_to_groups: Vec<String>,
    #[prost(double, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<f64>,
    #[prost(int32, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier_priority: Option<i32>,
    /// Never absent: a stock agent does not look before it reads.
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<SourceRef>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct NetworkPolicyList {
    #[prost(message, required, tag = "1")]
    pub metadata: ListMeta,
    #[prost(message, repeated, tag = "2")]
    pub items: Vec<NetworkPolicy>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceRef {
    #[prost(string, tag = "1")]
    #[serde(rename = "type")]
    pub kind: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub uid: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyRule {
    #[prost(string, tag = "1")]
    pub direction: String,
    #[prost(message, required, tag = "2")]
    pub from: NetworkPolicyPeer,
    #[prost(message, required, tag = "3")]
    pub to: NetworkPolicyPeer,
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
    #[prost(int32, tag = "5")]
    pub priority: i32,
    #[prost(string, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    #[prost(bool, tag = "7")]
    pub enable_logging: bool,
    #[prost(string, repeated, tag = "8")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub applied_to_groups: Vec<String>,
    #[prost(string, tag = "9")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(message, repeated, tag = "10")]
    #[serde(rename = "l7Protocols", skip_serializing_if = "Vec::is_empty")]
    pub l7_protocols: Vec<L7Protocol>,
    #[prost(string, tag = "11")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub log_label: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyPeer {
    #[prost(string, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub address_groups: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ip_blocks: Vec<IpBlock>,
    #[prost(string, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fqdns: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to_services: Vec<Reference>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct IpBlock {
    #[prost(message, required, tag = "1")]
    pub cidr: IpNet,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<IpNet>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IpNet {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(serialize_with = "base64_bytes")]
    pub ip: Vec<u8>,
    /// 0 to 32 for IPv4, although the address has 16 bytes.
    #[prost(int32, tag = "2")]
    pub prefix_length: i32,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    #[prost(string, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<IntOrString>,
    #[prost(int32, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_port: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<i32>,
    #[prost(int32, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub igmp_type: Option<i32>,
    #[prost(string, tag = "7")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group_address: String,
    #[prost(int32, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_port: Option<i32>,
    #[prost(int32, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_end_port: Option<i32>,
}

/// A number (`kind` 0) or a name (`kind` 1); in JSON just that.
#[derive(Clone, PartialEq, Message)]
pub struct IntOrString {
    #[prost(int64, tag = "1")]
    pub kind: i64,
    #[prost(int32, tag = "2")]
    pub int_val: i32,
    #[prost(string, tag = "3")]
    pub str_val: String,
}

impl Serialize for IntOrString {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.kind == 0 { to.serialize_i32(self.int_val) } else { to.serialize_str(&self.str_val) }
    }
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct L7Protocol {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Http {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub method: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Tls {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sni: String,
}

/// Never made here; agents watch for it.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct SupportBundleCollection {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct SupportBundleCollectionList {
    #[prost(message, required, tag = "1")]
    pub metadata: ListMeta,
    #[prost(message, repeated, tag = "2")]
    pub items: Vec<SupportBundleCollection>,
}

/// What nodes report on one policy.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct NetworkPolicyStatus {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[prost(message, repeated, tag = "2")]
    pub nodes: Vec<NodeStatus>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    #[prost(string, tag = "1")]
    pub node_name: String,
    #[prost(int64, tag = "2")]
    pub generation: i64,
    #[prost(bool, tag = "3")]
    pub realization_failure: bool,
    #[prost(string, tag = "4")]
    pub message: String,
}

/// The envelope of every protobuf object, after the four bytes `k8s\0`.
#[derive(Clone, PartialEq, Message)]
pub struct Unknown {
    #[prost(message, required, tag = "1")]
    pub type_meta: TypeMeta,
    #[prost(bytes = "vec", tag = "2")]
    pub raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TypeMeta {
    #[prost(string, tag = "1")]
    pub api_version: String,
    #[prost(string, tag = "2")]
    pub kind: String,
}

/// One event of a watch; `object` is a `RawExtension` around an enveloped object.
#[derive(Clone, PartialEq, Message)]
pub struct WatchEvent {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(message, required, tag = "2")]
    pub object: RawExtension,
}

#[derive(Clone, PartialEq, Message)]
pub struct RawExtension {
    #[prost(bytes = "vec", tag = "1")]
    pub raw: Vec<u8>,
}
