//! What is stored: one fact per key.
//!
//! ```text
//!   orchestrator/want/resource/NAME        ResourceIntent      orchestrator/made/network/NAME     NetworkRecord
//!   orchestrator/want/rule/RESOURCE/RULE   PermitRule          orchestrator/made/resource/NAME    ResourceRecord
//!   orchestrator/want/tag-rule/TAG/RULE    PermitRule          orchestrator/made/peering/NAME     SimpleRecord
//!   orchestrator/want/link/NAME            null                orchestrator/made/nat/NAME         SimpleRecord
//!   orchestrator/job/ID                    Job                 orchestrator/made/gateway/SITE     GatewayRecord
//!   orchestrator/reserved/PREFIX           Reservation           orchestrator/made/link/NAME        LinkRecord
//! ```

use bytes::Bytes;
use ipnet::Ipv4Net;
use model::{LinkName, NetworkName, PeeringName, PermitRule, ResourceName, Segment, Site, TagName};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use store::{Key, Prefix};

use super::Job;
use crate::plan::{
    GatewayRecord, LinkRecord, NetworkRecord, Reservation, ResourceIntent, ResourceRecord, SimpleRecord,
};

/// One stored fact: what it is about, and its value; none to delete it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    Resource(ResourceName, Option<ResourceIntent>),
    Rule(ResourceName, Segment, Option<PermitRule>),
    TagRule(TagName, Segment, Option<PermitRule>),
    Link(LinkName, Option<()>),
    Network(NetworkName, Option<NetworkRecord>),
    MadeResource(ResourceName, Option<ResourceRecord>),
    Peering(PeeringName, Option<SimpleRecord>),
    Nat(NetworkName, Option<SimpleRecord>),
    Gateway(Site, Option<GatewayRecord>),
    MadeLink(LinkName, Option<LinkRecord>),
    Reserved(Ipv4Net, Option<Reservation>),
    Job(String, Option<Job>),
}

pub(super) fn prefix() -> Prefix {
    Prefix::below("orchestrator").expect("a fixed path is a legal prefix")
}

fn key(path: &[&str]) -> Key {
    let (name, parents) = path.split_last().expect("the path is not empty");
    let prefix = parents.iter().try_fold(prefix(), |prefix, part| prefix.child(part));
    prefix.and_then(|prefix| prefix.key(name)).expect("names are bounded well below the limit of a key")
}

/// What a fact is about and its value, encoded; none to delete.
fn text(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("facts have no maps with odd keys").into()
}

impl Fact {
    pub(super) fn key(&self) -> Key {
        match self {
            Self::Resource(name, _) => key(&["want", "resource", &name.to_string()]),
            Self::Rule(resource, rule, _) => key(&["want", "rule", &resource.to_string(), rule.as_str()]),
            Self::TagRule(tag, rule, _) => key(&["want", "tag-rule", tag.as_str(), rule.as_str()]),
            Self::Link(name, _) => key(&["want", "link", &name.to_string()]),
            Self::Network(name, _) => key(&["made", "network", &name.to_string()]),
            Self::MadeResource(name, _) => key(&["made", "resource", &name.to_string()]),
            Self::Peering(name, _) => key(&["made", "peering", &name.to_string()]),
            Self::Nat(name, _) => key(&["made", "nat", &name.to_string()]),
            Self::Gateway(site, _) => key(&["made", "gateway", &site.to_string()]),
            Self::MadeLink(name, _) => key(&["made", "link", &name.to_string()]),
            Self::Reserved(space, _) => key(&["reserved", &space.to_string()]),
            Self::Job(id, _) => key(&["job", id]),
        }
    }

    pub(super) fn value(&self) -> Option<Bytes> {
        match self {
            Self::Resource(_, value) => value.as_ref().map(text),
            Self::Rule(_, _, value) | Self::TagRule(_, _, value) => value.as_ref().map(text),
            Self::Link(_, value) => value.as_ref().map(text),
            Self::Reserved(_, value) => value.as_ref().map(text),
            Self::Network(_, value) => value.as_ref().map(text),
            Self::MadeResource(_, value) => value.as_ref().map(text),
            Self::Peering(_, value) | Self::Nat(_, value) => value.as_ref().map(text),
            Self::Gateway(_, value) => value.as_ref().map(text),
            Self::MadeLink(_, value) => value.as_ref().map(text),
            Self::Job(_, value) => value.as_ref().map(text),
        }
    }

    /// Reads a stored entry, or, without a value, that it is gone; none if it is nothing this version writes.
    pub(super) fn read(key: &Key, value: Option<&[u8]>) -> Option<Self> {
        /// None if it cannot be read; nothing within if there is nothing.
        fn json<T: DeserializeOwned>(value: Option<&[u8]>) -> Option<Option<T>> {
            value.map(|value| serde_json::from_slice(value).ok()).map_or(Some(None), |read| read.map(Some))
        }
        let last = key.name().ok()?;
        let segments: Vec<&str> = key.segments().collect();
        Some(match segments.as_slice() {
            ["orchestrator", "want", "resource", _] => Self::Resource(last.parse().ok()?, json(value)?),
            ["orchestrator", "want", "rule", resource, _] => {
                Self::Rule(resource.parse().ok()?, last.parse().ok()?, json(value)?)
            }
            ["orchestrator", "want", "tag-rule", tag, _] => {
                Self::TagRule(tag.parse().ok()?, last.parse().ok()?, json(value)?)
            }
            ["orchestrator", "want", "link", _] => Self::Link(last.parse().ok()?, value.map(|_| ())),
            ["orchestrator", "made", "network", _] => Self::Network(last.parse().ok()?, json(value)?),
            ["orchestrator", "made", "resource", _] => Self::MadeResource(last.parse().ok()?, json(value)?),
            ["orchestrator", "made", "peering", _] => Self::Peering(last.parse().ok()?, json(value)?),
            ["orchestrator", "made", "nat", _] => Self::Nat(last.parse().ok()?, json(value)?),
            ["orchestrator", "made", "gateway", _] => Self::Gateway(last.parse().ok()?, json(value)?),
            ["orchestrator", "made", "link", _] => Self::MadeLink(last.parse().ok()?, json(value)?),
            ["orchestrator", "reserved", _] => Self::Reserved(last.parse().ok()?, json(value)?),
            ["orchestrator", "job", _] => Self::Job(last, json(value)?),
            _ => return None,
        })
    }
}
