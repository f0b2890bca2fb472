//! Where each kind is at an API server.

use model::policy::Kind;

/// A kind and the path of its collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    pub kind: Kind,
    /// Empty: the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    /// Part of every cluster. Others are there when somebody has installed them.
    pub always: bool,
}

const fn always(kind: Kind, group: &'static str, version: &'static str, plural: &'static str) -> Resource {
    Resource { kind, group, version, plural, always: true }
}

const fn installed(kind: Kind, group: &'static str, version: &'static str, plural: &'static str) -> Resource {
    Resource { kind, group, version, plural, always: false }
}

const ANTREA: &str = "crd.antrea.io";
const POLICY: &str = "policy.networking.k8s.io";

/// All that is read.
pub const RESOURCES: &[Resource] = &[
    always(Kind::Namespace, "", "v1", "namespaces"),
    always(Kind::Node, "", "v1", "nodes"),
    always(Kind::Pod, "", "v1", "pods"),
    always(Kind::Service, "", "v1", "services"),
    always(Kind::EndpointSlice, "discovery.k8s.io", "v1", "endpointslices"),
    always(Kind::NetworkPolicy, "networking.k8s.io", "v1", "networkpolicies"),
    installed(Kind::ExternalNode, ANTREA, "v1alpha1", "externalnodes"),
    installed(Kind::ExternalEntity, ANTREA, "v1alpha2", "externalentities"),
    installed(Kind::Tier, ANTREA, "v1beta1", "tiers"),
    installed(Kind::ClusterGroup, ANTREA, "v1beta1", "clustergroups"),
    installed(Kind::Group, ANTREA, "v1beta1", "groups"),
    installed(Kind::AntreaNetworkPolicy, ANTREA, "v1beta1", "networkpolicies"),
    installed(Kind::AntreaClusterNetworkPolicy, ANTREA, "v1beta1", "clusternetworkpolicies"),
    installed(Kind::ClusterNetworkPolicy, POLICY, "v1alpha2", "clusternetworkpolicies"),
    installed(Kind::AdminNetworkPolicy, POLICY, "v1alpha1", "adminnetworkpolicies"),
    installed(Kind::BaselineAdminNetworkPolicy, POLICY, "v1alpha1", "baselineadminnetworkpolicies"),
];

impl Resource {
    /// `v1`, `crd.antrea.io/v1beta1`.
    pub fn api_version(&self) -> String {
        let Self { group, version, .. } = self;
        if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") }
    }

    /// The path of the collection over all namespaces.
    pub fn path(&self) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        format!("{root}/{}/{}", self.api_version(), self.plural)
    }

    /// The path of the collection in one namespace; empty for kinds without.
    pub fn path_in(&self, namespace: &str) -> String {
        if namespace.is_empty() {
            return self.path();
        }
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        format!("{root}/{}/namespaces/{namespace}/{}", self.api_version(), self.plural)
    }

    /// What documents call the kind.
    pub fn word(&self) -> &'static str {
        let name = self.kind.as_str();
        name.strip_prefix("Antrea").unwrap_or(name)
    }

    /// Whether objects of the kind say what became of them.
    pub fn has_status(&self) -> bool {
        self.kind.is_policy() && self.kind != Kind::NetworkPolicy
    }

    /// `networkpolicies.crd.antrea.io`, as kubectl has it.
    pub fn name(&self) -> String {
        let Self { group, plural, .. } = self;
        if group.is_empty() { (*plural).to_owned() } else { format!("{plural}.{group}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_once() {
        let mut kinds: Vec<_> = RESOURCES.iter().map(|resource| resource.kind).collect();
        kinds.sort_unstable();
        let of_clusters: Vec<_> = Kind::ALL.into_iter().filter(|kind| !kind.is_own()).collect();
        assert_eq!(kinds, of_clusters);
    }

    #[test]
    fn paths_are_those_of_the_api() {
        let path = |kind| RESOURCES.iter().find(|it| it.kind == kind).map(Resource::path).unwrap();
        assert_eq!(path(Kind::Pod), "/api/v1/pods");
        assert_eq!(path(Kind::Tier), "/apis/crd.antrea.io/v1beta1/tiers");
    }
}
