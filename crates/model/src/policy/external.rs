//! Workloads outside the cluster: ExternalEntity (what a policy sees) and ExternalNode (a VM that makes one).

use serde::{Deserialize, Serialize};

use super::meta::{ObjectMeta, null_as_default};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExternalEntity {
    pub metadata: ObjectMeta,
    pub spec: ExternalEntitySpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalEntitySpec {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub endpoints: Vec<Endpoint>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub ports: Vec<EntityPort>,
    /// The span key: who enforces for this entity. Empty means nobody does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub external_node: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    pub ip: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EntityPort {
    pub protocol: String,
    pub port: i32,
    pub name: String,
}

impl ExternalEntity {
    /// An entity made from an ExternalNode is enforced by that VM's own agent, which knows itself as `namespace/name`.
    pub fn span_key(&self) -> Option<String> {
        if self.spec.external_node.is_empty() {
            return None;
        }
        let owned = self.metadata.owner_references.first().is_some_and(|owner| owner.kind == "ExternalNode");
        Some(if owned {
            format!("{}/{}", self.metadata.namespace, self.spec.external_node)
        } else {
            self.spec.external_node.clone()
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExternalNode {
    pub metadata: ObjectMeta,
    pub spec: ExternalNodeSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExternalNodeSpec {
    pub interfaces: Vec<Interface>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    pub name: String,
    #[serde(deserialize_with = "null_as_default")]
    pub ips: Vec<String>,
}
