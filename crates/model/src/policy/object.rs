//! One value for any object the engine takes, and the name that finds it again.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

use super::{
    antrea, cluster, endpoint_slice, external, kubernetes, meta::ObjectMeta, policy_test, service, workload,
};

/// The order is that of a cold start: what is selected before what selects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    Namespace,
    Node,
    Pod,
    Service,
    EndpointSlice,
    ExternalNode,
    ExternalEntity,
    Tier,
    ClusterGroup,
    Group,
    NetworkPolicy,
    AntreaNetworkPolicy,
    AntreaClusterNetworkPolicy,
    ClusterNetworkPolicy,
    AdminNetworkPolicy,
    BaselineAdminNetworkPolicy,
    PolicyTest,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Object {
    Namespace(workload::Namespace),
    Node(workload::Node),
    Pod(workload::Pod),
    Service(service::Service),
    EndpointSlice(endpoint_slice::EndpointSlice),
    ExternalNode(external::ExternalNode),
    ExternalEntity(external::ExternalEntity),
    Tier(antrea::Tier),
    ClusterGroup(antrea::Group),
    Group(antrea::Group),
    NetworkPolicy(kubernetes::NetworkPolicy),
    AntreaNetworkPolicy(antrea::Policy),
    AntreaClusterNetworkPolicy(antrea::Policy),
    ClusterNetworkPolicy(cluster::ClusterNetworkPolicy),
    AdminNetworkPolicy(cluster::AdminNetworkPolicy),
    BaselineAdminNetworkPolicy(cluster::AdminNetworkPolicy),
    PolicyTest(policy_test::PolicyTest),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    pub kind: Kind,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
}

/// The two fields that say what the rest of a document is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TypeMeta {
    pub api_version: String,
    pub kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("kind `{kind}` of `{api_version}` is not one that Trestle takes; look at apiVersion and kind")]
pub struct UnknownKind {
    pub api_version: String,
    pub kind: String,
}

impl TypeMeta {
    /// The API group decides, not its version: a newer version of a known kind is read as far as its fields are known.
    pub fn kind(&self) -> Result<Kind, UnknownKind> {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        match (group, self.kind.as_str()) {
            ("", "Namespace") => Ok(Kind::Namespace),
            ("", "Node") => Ok(Kind::Node),
            ("", "Pod") => Ok(Kind::Pod),
            ("", "Service") => Ok(Kind::Service),
            ("discovery.k8s.io", "EndpointSlice") => Ok(Kind::EndpointSlice),
            ("networking.k8s.io", "NetworkPolicy") => Ok(Kind::NetworkPolicy),
            ("crd.antrea.io", "NetworkPolicy") => Ok(Kind::AntreaNetworkPolicy),
            ("crd.antrea.io", "ClusterNetworkPolicy") => Ok(Kind::AntreaClusterNetworkPolicy),
            ("policy.networking.k8s.io", "ClusterNetworkPolicy") => Ok(Kind::ClusterNetworkPolicy),
            ("policy.networking.k8s.io", "AdminNetworkPolicy") => Ok(Kind::AdminNetworkPolicy),
            ("policy.networking.k8s.io", "BaselineAdminNetworkPolicy") => {
                Ok(Kind::BaselineAdminNetworkPolicy)
            }
            ("crd.antrea.io", "Tier") => Ok(Kind::Tier),
            ("crd.antrea.io", "Group") => Ok(Kind::Group),
            ("crd.antrea.io", "ClusterGroup") => Ok(Kind::ClusterGroup),
            ("crd.antrea.io", "ExternalEntity") => Ok(Kind::ExternalEntity),
            ("crd.antrea.io", "ExternalNode") => Ok(Kind::ExternalNode),
            ("trestle.dev", "PolicyTest") => Ok(Kind::PolicyTest),
            _ => Err(UnknownKind { api_version: self.api_version.clone(), kind: self.kind.clone() }),
        }
    }
}

impl Kind {
    pub const ALL: [Kind; 17] = [
        Kind::Namespace,
        Kind::Node,
        Kind::Pod,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::ExternalNode,
        Kind::ExternalEntity,
        Kind::Tier,
        Kind::ClusterGroup,
        Kind::Group,
        Kind::NetworkPolicy,
        Kind::AntreaNetworkPolicy,
        Kind::AntreaClusterNetworkPolicy,
        Kind::ClusterNetworkPolicy,
        Kind::AdminNetworkPolicy,
        Kind::BaselineAdminNetworkPolicy,
        Kind::PolicyTest,
    ];

    /// Its name here, which tells the kinds called NetworkPolicy apart, and those called ClusterNetworkPolicy.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Namespace => "Namespace",
            Kind::Node => "Node",
            Kind::Pod => "Pod",
            Kind::Service => "Service",
            Kind::EndpointSlice => "EndpointSlice",
            Kind::ExternalNode => "ExternalNode",
            Kind::ExternalEntity => "ExternalEntity",
            Kind::Tier => "Tier",
            Kind::ClusterGroup => "ClusterGroup",
            Kind::Group => "Group",
            Kind::NetworkPolicy => "NetworkPolicy",
            Kind::AntreaNetworkPolicy => "AntreaNetworkPolicy",
            Kind::AntreaClusterNetworkPolicy => "AntreaClusterNetworkPolicy",
            Kind::ClusterNetworkPolicy => "ClusterNetworkPolicy",
            Kind::AdminNetworkPolicy => "AdminNetworkPolicy",
            Kind::BaselineAdminNetworkPolicy => "BaselineAdminNetworkPolicy",
            Kind::PolicyTest => "PolicyTest",
        }
    }

    pub fn from_name(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Policies of any kind, which are enforced somewhere.
    pub fn is_policy(self) -> bool {
        matches!(self, Kind::NetworkPolicy | Kind::AntreaNetworkPolicy | Kind::AntreaClusterNetworkPolicy)
            || self.is_cluster_policy()
    }

    /// What Trestle alone has: no cluster is asked for it.
    pub fn is_own(self) -> bool {
        self == Kind::PolicyTest
    }

    /// Of policy.networking.k8s.io, today's or earlier.
    pub fn is_cluster_policy(self) -> bool {
        matches!(
            self,
            Kind::ClusterNetworkPolicy | Kind::AdminNetworkPolicy | Kind::BaselineAdminNetworkPolicy
        )
    }

    pub fn is_namespaced(self) -> bool {
        match self {
            Kind::Namespace
            | Kind::Node
            | Kind::Tier
            | Kind::ClusterGroup
            | Kind::AntreaClusterNetworkPolicy
            | Kind::ClusterNetworkPolicy
            | Kind::AdminNetworkPolicy
            | Kind::BaselineAdminNetworkPolicy => false,
            Kind::Pod
            | Kind::Service
            | Kind::EndpointSlice
            | Kind::ExternalNode
            | Kind::ExternalEntity
            | Kind::Group
            | Kind::NetworkPolicy
            | Kind::AntreaNetworkPolicy
            | Kind::PolicyTest => true,
        }
    }

    /// Reads a document whose kind is already known (read [`TypeMeta`] first, from the same text).
    pub fn deserialize<'de, D: Deserializer<'de>>(self, from: D) -> Result<Object, D::Error> {
        Ok(match self {
            Kind::Namespace => Object::Namespace(Deserialize::deserialize(from)?),
            Kind::Node => Object::Node(Deserialize::deserialize(from)?),
            Kind::Pod => Object::Pod(Deserialize::deserialize(from)?),
            Kind::Service => Object::Service(Deserialize::deserialize(from)?),
            Kind::EndpointSlice => Object::EndpointSlice(Deserialize::deserialize(from)?),
            Kind::ExternalNode => Object::ExternalNode(Deserialize::deserialize(from)?),
            Kind::ExternalEntity => Object::ExternalEntity(Deserialize::deserialize(from)?),
            Kind::Tier => Object::Tier(Deserialize::deserialize(from)?),
            Kind::ClusterGroup => Object::ClusterGroup(Deserialize::deserialize(from)?),
            Kind::Group => Object::Group(Deserialize::deserialize(from)?),
            Kind::NetworkPolicy => Object::NetworkPolicy(Deserialize::deserialize(from)?),
            Kind::AntreaNetworkPolicy => Object::AntreaNetworkPolicy(Deserialize::deserialize(from)?),
            Kind::AntreaClusterNetworkPolicy => {
                Object::AntreaClusterNetworkPolicy(Deserialize::deserialize(from)?)
            }
            Kind::ClusterNetworkPolicy => Object::ClusterNetworkPolicy(Deserialize::deserialize(from)?),
            Kind::AdminNetworkPolicy => Object::AdminNetworkPolicy(Deserialize::deserialize(from)?),
            Kind::BaselineAdminNetworkPolicy => {
                Object::BaselineAdminNetworkPolicy(Deserialize::deserialize(from)?)
            }
            Kind::PolicyTest => Object::PolicyTest(Deserialize::deserialize(from)?),
        })
    }
}

impl Object {
    pub fn kind(&self) -> Kind {
        match self {
            Object::Namespace(_) => Kind::Namespace,
            Object::Node(_) => Kind::Node,
            Object::Pod(_) => Kind::Pod,
            Object::Service(_) => Kind::Service,
            Object::EndpointSlice(_) => Kind::EndpointSlice,
            Object::ExternalNode(_) => Kind::ExternalNode,
            Object::ExternalEntity(_) => Kind::ExternalEntity,
            Object::Tier(_) => Kind::Tier,
            Object::ClusterGroup(_) => Kind::ClusterGroup,
            Object::Group(_) => Kind::Group,
            Object::NetworkPolicy(_) => Kind::NetworkPolicy,
            Object::AntreaNetworkPolicy(_) => Kind::AntreaNetworkPolicy,
            Object::AntreaClusterNetworkPolicy(_) => Kind::AntreaClusterNetworkPolicy,
            Object::ClusterNetworkPolicy(_) => Kind::ClusterNetworkPolicy,
            Object::AdminNetworkPolicy(_) => Kind::AdminNetworkPolicy,
            Object::BaselineAdminNetworkPolicy(_) => Kind::BaselineAdminNetworkPolicy,
            Object::PolicyTest(_) => Kind::PolicyTest,
        }
    }

    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Object::Namespace(o) => &o.metadata,
            Object::Node(o) => &o.metadata,
            Object::Pod(o) => &o.metadata,
            Object::Service(o) => &o.metadata,
            Object::EndpointSlice(o) => &o.metadata,
            Object::ExternalNode(o) => &o.metadata,
            Object::ExternalEntity(o) => &o.metadata,
            Object::Tier(o) => &o.metadata,
            Object::ClusterGroup(o) | Object::Group(o) => &o.metadata,
            Object::NetworkPolicy(o) => &o.metadata,
            Object::AntreaNetworkPolicy(o) | Object::AntreaClusterNetworkPolicy(o) => &o.metadata,
            Object::ClusterNetworkPolicy(o) => &o.metadata,
            Object::AdminNetworkPolicy(o) | Object::BaselineAdminNetworkPolicy(o) => &o.metadata,
            Object::PolicyTest(o) => &o.metadata,
        }
    }

    pub fn metadata_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Object::Namespace(o) => &mut o.metadata,
            Object::Node(o) => &mut o.metadata,
            Object::Pod(o) => &mut o.metadata,
            Object::Service(o) => &mut o.metadata,
            Object::EndpointSlice(o) => &mut o.metadata,
            Object::ExternalNode(o) => &mut o.metadata,
            Object::ExternalEntity(o) => &mut o.metadata,
            Object::Tier(o) => &mut o.metadata,
            Object::ClusterGroup(o) | Object::Group(o) => &mut o.metadata,
            Object::NetworkPolicy(o) => &mut o.metadata,
            Object::AntreaNetworkPolicy(o) | Object::AntreaClusterNetworkPolicy(o) => &mut o.metadata,
            Object::ClusterNetworkPolicy(o) => &mut o.metadata,
            Object::AdminNetworkPolicy(o) | Object::BaselineAdminNetworkPolicy(o) => &mut o.metadata,
            Object::PolicyTest(o) => &mut o.metadata,
        }
    }

    /// A policy of policy.networking.k8s.io in the words of today.
    pub fn cluster_policy(&self) -> Option<Cow<'_, cluster::ClusterNetworkPolicy>> {
        match self {
            Object::ClusterNetworkPolicy(policy) => Some(Cow::Borrowed(policy)),
            Object::AdminNetworkPolicy(policy) => Some(Cow::Owned(policy.today("Admin"))),
            Object::BaselineAdminNetworkPolicy(policy) => Some(Cow::Owned(policy.today("Baseline"))),
            _ => None,
        }
    }

    pub fn id(&self) -> ObjectId {
        let (kind, metadata) = (self.kind(), self.metadata());
        let namespace = if kind.is_namespaced() { metadata.namespace.clone() } else { String::new() };
        ObjectId { kind, namespace, name: metadata.name.clone() }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{:?} {}", self.kind, self.name)
        } else {
            write!(f, "{:?} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}
