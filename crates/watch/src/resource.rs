//! The resources that can be watched.

use crate::version::{Content, Version};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    NetworkPolicies,
    AppliedToGroups,
    AddressGroups,
    /// Always empty: stock agents wait for its bookmark before they start.
    EgressGroups,
    /// Always empty: agents that may collect support bundles watch for requests, and there are none.
    SupportBundleCollections,
}

impl Resource {
    pub const ALL: [Resource; 5] = [
        Resource::NetworkPolicies,
        Resource::AppliedToGroups,
        Resource::AddressGroups,
        Resource::EgressGroups,
        Resource::SupportBundleCollections,
    ];

    /// The word in paths.
    pub fn plural(self) -> &'static str {
        match self {
            Resource::NetworkPolicies => "networkpolicies",
            Resource::AppliedToGroups => "appliedtogroups",
            Resource::AddressGroups => "addressgroups",
            Resource::EgressGroups => "egressgroups",
            Resource::SupportBundleCollections => "supportbundlecollections",
        }
    }

    pub fn kind(self) -> &'static str {
        match self {
            Resource::NetworkPolicies => "NetworkPolicy",
            Resource::AppliedToGroups => "AppliedToGroup",
            Resource::AddressGroups => "AddressGroup",
            Resource::EgressGroups => "EgressGroup",
            Resource::SupportBundleCollections => "SupportBundleCollection",
        }
    }

    pub fn of(version: &Version) -> Self {
        match version.content {
            Content::Policy(_) => Resource::NetworkPolicies,
            Content::AppliedTo(_) => Resource::AppliedToGroups,
            Content::Address(_) => Resource::AddressGroups,
        }
    }
}
