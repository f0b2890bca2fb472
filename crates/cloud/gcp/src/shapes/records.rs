//! Private zones of Cloud DNS, and what is in them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::mark::Remark;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Zone {
    pub name: String,
    #[serde(default)]
    pub description: Remark,
    #[serde(skip_deserializing)]
    pub dns_name: &'static str,
    #[serde(skip_deserializing)]
    pub visibility: &'static str,
    #[serde(skip_deserializing)]
    pub private_visibility_config: Visibility,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Visibility {
    pub networks: Vec<VisibleIn>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VisibleIn {
    /// With the host.
    pub network_url: String,
}

/// Records of one name and type. To be removed they are written back as they were read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordSet {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub ttl: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rrdatas: Vec<String>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct RecordChange {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additions: Vec<RecordSet>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deletions: Vec<RecordSet>,
}
