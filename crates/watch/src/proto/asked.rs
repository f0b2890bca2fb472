//! Answers to people: who is in a group, which groups someone is in, which rule decides between two Pods.

use prost::Message;
use serde::{Deserialize, Serialize};

use super::{GroupMember, IpNet, ObjectMeta, Reference, SourceRef};

/// One page of who is in a ClusterGroup, or in a Group.
macro_rules! membership {
    ($name:ident) => {
        #[derive(Clone, PartialEq, Message, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            #[prost(message, required, tag = "1")]
            pub metadata: ObjectMeta,
            #[prost(message, repeated, tag = "2")]
            pub effective_members: Vec<GroupMember>,
            #[prost(message, repeated, tag = "3")]
            #[serde(rename = "effectiveIPBlocks")]
            pub effective_ip_blocks: Vec<IpNet>,
            #[prost(int64, tag = "4")]
            pub total_members: i64,
            #[prost(int64, tag = "5")]
            pub total_pages: i64,
            #[prost(int64, tag = "6")]
            pub current_page: i64,
        }
    };
}

/// The groups a Pod, or an address, is in.
macro_rules! association {
    ($name:ident) => {
        #[derive(Clone, PartialEq, Message, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            #[prost(message, required, tag = "1")]
            pub metadata: ObjectMeta,
            #[prost(message, repeated, tag = "2")]
            pub associated_groups: Vec<GroupReference>,
        }
    };
}

membership!(ClusterGroupMembers);
membership!(GroupMembers);
association!(GroupAssociation);
association!(IPGroupAssociation);

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct GroupReference {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub uid: String,
}

/// A question and its answer: which rule decides between two Pods, ports aside.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkPolicyEvaluation {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<EvaluationRequest>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<EvaluationResponse>,
    #[prost(message, required, tag = "3")]
    pub metadata: ObjectMeta,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct EvaluationRequest {
    #[prost(message, required, tag = "1")]
    pub source: EvaluationEnd,
    #[prost(message, required, tag = "2")]
    pub destination: EvaluationEnd,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct EvaluationEnd {
    #[prost(message, optional, tag = "1")]
    pub pod: Option<Reference>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvaluationResponse {
    #[prost(message, required, tag = "1")]
    pub network_policy: SourceRef,
    #[prost(int32, tag = "2")]
    pub rule_index: i32,
    #[prost(message, required, tag = "3")]
    pub rule: EvaluatedRule,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct EvaluatedRule {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub direction: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(string, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}
