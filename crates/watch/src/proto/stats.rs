//! What nodes count of each policy, and what is shown of it as `stats.antrea.io/v1alpha1`.

use prost::Message;
use serde::{Deserialize, Serialize, Serializer};

use super::{ListMeta, ObjectMeta, SourceRef, Transfer, is_zero};

pub const STATS_GROUP: &str = "stats.antrea.io";
pub const STATS_VERSION: &str = "v1alpha1";
const API_VERSION: &str = "stats.antrea.io/v1alpha1";

/// A time of Kubernetes: seconds since 1970; in JSON as RFC 3339 has it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Time {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Time {
    pub fn text(&self) -> String {
        jiff::Timestamp::from_second(self.seconds).map(|time| time.to_string()).unwrap_or_default()
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text())
    }
}

/// What one node counted since it last said so.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatsSummary {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[prost(message, repeated, tag = "2")]
    pub network_policies: Vec<PolicyStats>,
    #[prost(message, repeated, tag = "3")]
    pub antrea_cluster_network_policies: Vec<PolicyStats>,
    #[prost(message, repeated, tag = "4")]
    pub antrea_network_policies: Vec<PolicyStats>,
}

/// What was counted of one policy: as a whole, or by rule.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyStats {
    #[prost(message, required, tag = "1")]
    pub network_policy: SourceRef,
    #[prost(message, required, tag = "2")]
    pub traffic_stats: TrafficStats,
    #[prost(message, repeated, tag = "3")]
    pub rule_traffic_stats: Vec<RuleTrafficStats>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct TrafficStats {
    #[prost(int64, tag = "1")]
    #[serde(skip_serializing_if = "is_zero")]
    pub packets: i64,
    #[prost(int64, tag = "2")]
    #[serde(skip_serializing_if = "is_zero")]
    pub bytes: i64,
    #[prost(int64, tag = "3")]
    #[serde(skip_serializing_if = "is_zero")]
    pub sessions: i64,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleTrafficStats {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(message, required, tag = "2")]
    pub traffic_stats: TrafficStats,
}

/// The three kinds have one shape; counts by rule exist for Antrea's own policies.
macro_rules! stats {
    ($name:ident, $list:ident) => {
        #[derive(Clone, PartialEq, Message, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            #[prost(message, required, tag = "1")]
            pub metadata: ObjectMeta,
            #[prost(message, required, tag = "2")]
            pub traffic_stats: TrafficStats,
            #[prost(message, repeated, tag = "3")]
            #[serde(skip_serializing_if = "Vec::is_empty")]
            pub rule_traffic_stats: Vec<RuleTrafficStats>,
        }

        #[derive(Clone, PartialEq, Message, Serialize)]
        pub struct $list {
            #[prost(message, required, tag = "1")]
            pub metadata: ListMeta,
            #[prost(message, repeated, tag = "2")]
            pub items: Vec<$name>,
        }

        impl Transfer for $name {
            const KIND: &'static str = stringify!($name);
            const API_VERSION: &'static str = API_VERSION;
        }

        impl Transfer for $list {
            const KIND: &'static str = stringify!($list);
            const API_VERSION: &'static str = API_VERSION;
        }
    };
}

stats!(NetworkPolicyStats, NetworkPolicyStatsList);
stats!(AntreaNetworkPolicyStats, AntreaNetworkPolicyStatsList);
stats!(AntreaClusterNetworkPolicyStats, AntreaClusterNetworkPolicyStatsList);
