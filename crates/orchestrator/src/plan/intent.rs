//! What users want.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnet::Ipv4Net;
use model::{
    Address, CloudTraits, ExistingNetwork, LinkName, NetworkName, PermitRule, ResourceName, Segment, Site,
    TagName,
    allow::{End, Permission},
};
use serde::{Deserialize, Serialize};
use tags::Graph;

use super::{Pools, Verdicts};

/// Everything users have asked for, with the tags as they are now.
#[derive(Clone, Debug, Default)]
pub struct Intent {
    pub pools: Pools,
    /// Spaces that clouds use by their own word, beside those on record.
    pub taken: BTreeSet<Ipv4Net>,
    /// The clouds there are.
    pub clouds: BTreeMap<Segment, CloudTraits>,
    pub resources: BTreeMap<ResourceName, ResourceIntent>,
    /// Rules of resources. Rules of a resource that is not wanted are ignored.
    pub rules: BTreeMap<ResourceName, BTreeMap<Segment, PermitRule>>,
    /// Rules of tags: each resource that a tag resolves to has them too.
    pub tag_rules: BTreeMap<TagName, BTreeMap<Segment, PermitRule>>,
    /// Who may open connections to whom, by name.
    pub permissions: BTreeMap<Segment, Permission>,
    /// Who is at those ends of permissions that are no resources, tags or addresses.
    pub elsewhere: Arc<BTreeMap<End, BTreeSet<Address>>>,
    /// Links that stay whether or not a rule needs them.
    pub links: BTreeSet<LinkName>,
    pub graph: Graph,
    /// What network policies say, by resource.
    pub verdicts: Arc<BTreeMap<ResourceName, Verdicts>>,
}

/// A resource that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceIntent {
    /// Found in the description by the cloud's plugin.
    pub region: Segment,
    /// The cloud's own description, without network settings; or, to attach, the id of what exists.
    pub description: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attach: bool,
    /// To attach: the network it lives in, if that stays its network. None: it gets one of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<ExistingNetwork>,
}

impl ResourceIntent {
    pub fn network(&self, name: &ResourceName) -> NetworkName {
        NetworkName { site: Site::of(name), region: self.region.clone() }
    }
}
