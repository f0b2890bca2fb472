//! Workloads outside the cluster: ExternalEntity (what a policy sees) and ExternalNode (a VM that makes one).

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use super::meta::{ObjectMeta, OwnerReference, null_as_default};

/// Every host has it, with its name: Nodes, ExternalNodes and hosts that joined.
pub const HOST_LABEL: &str = "trestle.dev/host";

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
    /// The name of the ExternalNode that it stands for, if it stands for one.
    pub fn host(&self) -> Option<&str> {
        let owner = self.metadata.owner_references.first()?;
        (owner.kind == "ExternalNode").then_some(&*self.spec.external_node)
    }

    /// An entity made from an ExternalNode is enforced by that VM's own agent, which knows itself as `namespace/name`.
    pub fn span_key(&self) -> Option<String> {
        if self.spec.external_node.is_empty() {
            return None;
        }
        Some(if self.host().is_some() {
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

impl ExternalNode {
    /// The entity that stands for the VM in policies: made of its first interface and its labels.
    pub fn entity(&self) -> ExternalEntity {
        let interface = self.spec.interfaces.first().cloned().unwrap_or_default();
        let name = match interface.name.as_str() {
            "" => self.metadata.name.clone(),
            interface => {
                let digest = Sha1::digest(interface);
                format!("{}-{:02x}{:02x}{:x}", self.metadata.name, digest[0], digest[1], digest[2] >> 4)
            }
        };
        let owner = OwnerReference { kind: "ExternalNode".into(), name: self.metadata.name.clone() };
        ExternalEntity {
            metadata: ObjectMeta {
                name,
                namespace: self.metadata.namespace.clone(),
                labels: self.metadata.labels.clone(),
                owner_references: vec![owner],
                ..ObjectMeta::default()
            },
            spec: ExternalEntitySpec {
                endpoints: interface.ips.into_iter().map(|ip| Endpoint { ip, name: String::new() }).collect(),
                ports: Vec::new(),
                external_node: self.metadata.name.clone(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entity_of_a_vm_is_named_after_its_interface() {
        let mut node = ExternalNode::default();
        (node.metadata.name, node.metadata.namespace) = ("vm".into(), "ns".into());
        node.spec.interfaces = vec![Interface { name: "eth0".into(), ips: vec!["10.0.0.1".into()] }];
        assert_eq!(node.entity().metadata.name, "vm-3e616");
        assert_eq!(node.entity().span_key().as_deref(), Some("ns/vm"));
        assert_eq!(node.entity().host(), Some("vm"));
        assert_eq!(ExternalEntity::default().host(), None);
        node.spec.interfaces[0].name.clear();
        assert_eq!(node.entity().metadata.name, "vm");
    }
}
