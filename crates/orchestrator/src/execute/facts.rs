//! What is stored: one fact per key.
//!
//! ```text
//!   orchestrator/want/resource/NAME        ResourceIntent      orchestrator/made/network/NAME     NetworkRecord
//!   orchestrator/want/rule/RESOURCE/RULE   PermitRule          orchestrator/made/resource/NAME    ResourceRecord
//!   orchestrator/want/tag-rule/TAG/RULE    PermitRule          orchestrator/made/peering/NAME     SimpleRecord
//!   orchestrator/want/link/NAME            null                orchestrator/made/nat/NAME         SimpleRecord
//!   orchestrator/want/permission/NAME      Permission
//!   orchestrator/job/ID                    Job                 orchestrator/made/gateway/SITE     GatewayRecord
//!                                                               orchestrator/made/link/NAME        LinkRecord
//!   orchestrator/mark                      nothing: who sees it written has seen all that was written before it
//! ```

use bytes::Bytes;
use model::{
    LinkName, NetworkName, PeeringName, PermitRule, ResourceName, Segment, Site, TagName, allow::Permission,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use store::{Key, Prefix};

use super::Job;
use crate::plan::{
    GatewayRecord, LinkRecord, NetworkRecord, ResourceIntent, ResourceRecord, SimpleRecord, Subject,
};

/// One stored fact: what it is about, and its value; none to delete it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    Resource(ResourceName, Option<ResourceIntent>),
    Rule(ResourceName, Segment, Option<PermitRule>),
    TagRule(TagName, Segment, Option<PermitRule>),
    Permission(Segment, Option<Permission>),
    Link(LinkName, Option<()>),
    Network(NetworkName, Option<NetworkRecord>),
    MadeResource(ResourceName, Option<ResourceRecord>),
    Peering(PeeringName, Option<SimpleRecord>),
    Nat(NetworkName, Option<SimpleRecord>),
    Gateway(Site, Option<GatewayRecord>),
    MadeLink(LinkName, Option<LinkRecord>),
    Job(String, Option<Job>),
}

/// An entry that cannot be read.
#[derive(Debug)]
pub(super) struct Strange {
    pub subject: Subject,
    pub reason: String,
}

pub(super) fn prefix() -> Prefix {
    Prefix::below("orchestrator").expect("a fixed path is a legal prefix")
}

/// Where the records of links are, which hold the keys of their tunnels.
pub(crate) fn links_made() -> Prefix {
    Prefix::below("orchestrator/made/link").expect("a fixed path is a legal prefix")
}

/// Written to know that memory has what was written before.
pub(super) fn mark() -> Key {
    key(&["mark"])
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
            Self::Permission(name, _) => key(&["want", "permission", name.as_str()]),
            Self::Link(name, _) => key(&["want", "link", &name.to_string()]),
            Self::Network(name, _) => key(&["made", "network", &name.to_string()]),
            Self::MadeResource(name, _) => key(&["made", "resource", &name.to_string()]),
            Self::Peering(name, _) => key(&["made", "peering", &name.to_string()]),
            Self::Nat(name, _) => key(&["made", "nat", &name.to_string()]),
            Self::Gateway(site, _) => key(&["made", "gateway", &site.to_string()]),
            Self::MadeLink(name, _) => key(&["made", "link", &name.to_string()]),
            Self::Job(id, _) => key(&["job", id]),
        }
    }

    pub(super) fn value(&self) -> Option<Bytes> {
        match self {
            Self::Resource(_, value) => value.as_ref().map(text),
            Self::Rule(_, _, value) | Self::TagRule(_, _, value) => value.as_ref().map(text),
            Self::Permission(_, value) => value.as_ref().map(text),
            Self::Link(_, value) => value.as_ref().map(text),
            Self::Network(_, value) => value.as_ref().map(text),
            Self::MadeResource(_, value) => value.as_ref().map(text),
            Self::Peering(_, value) | Self::Nat(_, value) => value.as_ref().map(text),
            Self::Gateway(_, value) => value.as_ref().map(text),
            Self::MadeLink(_, value) => value.as_ref().map(text),
            Self::Job(_, value) => value.as_ref().map(text),
        }
    }

    /// Whether it says that there is nothing.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Resource(_, value) => value.is_none(),
            Self::Rule(_, _, value) | Self::TagRule(_, _, value) => value.is_none(),
            Self::Permission(_, value) => value.is_none(),
            Self::Link(_, value) => value.is_none(),
            Self::Network(_, value) => value.is_none(),
            Self::MadeResource(_, value) => value.is_none(),
            Self::Peering(_, value) | Self::Nat(_, value) => value.is_none(),
            Self::Gateway(_, value) => value.is_none(),
            Self::MadeLink(_, value) => value.is_none(),
            Self::Job(_, value) => value.is_none(),
        }
    }

    /// What it is about.
    pub(super) fn subject(&self) -> Subject {
        match self {
            Self::Resource(name, _) => Subject::Wanted(name.clone()),
            Self::Rule(resource, rule, _) => Subject::Rule(resource.clone(), rule.clone()),
            Self::TagRule(tag, rule, _) => Subject::TagRule(tag.clone(), rule.clone()),
            Self::Permission(name, _) => Subject::Permission(name.clone()),
            Self::Link(name, _) => Subject::Link(name.clone()),
            Self::Network(name, _) => Subject::Network(name.clone()),
            Self::MadeResource(name, _) => Subject::Resource(name.clone()),
            Self::Peering(name, _) => Subject::Peering(name.clone()),
            Self::Nat(name, _) => Subject::Nat(name.clone()),
            Self::Gateway(site, _) => Subject::Gateway(site.clone()),
            Self::MadeLink(name, _) => Subject::MadeLink(name.clone()),
            Self::Job(id, _) => Subject::Job(id.clone()),
        }
    }

    /// The object that a step acts on when it writes this; none for what steps do not write.
    pub(super) fn object(&self) -> Option<String> {
        match self {
            Self::Network(name, _) => Some(format!("network/{name}")),
            Self::MadeResource(name, _) => Some(format!("resource/{name}")),
            Self::Peering(name, _) => Some(format!("peering/{name}")),
            Self::Nat(name, _) => Some(format!("nat/{name}")),
            Self::Gateway(site, _) => Some(format!("gateway/{site}")),
            Self::MadeLink(name, _) => Some(format!("link/{name}")),
            Self::Resource(..)
            | Self::Rule(..)
            | Self::TagRule(..)
            | Self::Permission(..)
            | Self::Link(..)
            | Self::Job(..) => None,
        }
    }

    /// Reads a stored entry, or, without a value, that it is gone. If it cannot be read, what it is about and why.
    pub(super) fn read(key: &Key, value: Option<&[u8]>) -> Result<Self, Box<Strange>> {
        let Some(gone) = Self::gone(key) else {
            let reason = "its key says nothing to this version".to_owned();
            return Err(Box::new(Strange { subject: Subject::Strange(key.as_str().to_owned()), reason }));
        };
        let Some(value) = value else { return Ok(gone) };
        let subject = gone.subject();
        gone.with(value).map_err(|err| Box::new(Strange { subject, reason: err.to_string() }))
    }

    /// What a key is about, without a value; none if it is nothing this version writes.
    fn gone(key: &Key) -> Option<Self> {
        let last = key.name().ok()?;
        let segments: Vec<&str> = key.segments().collect();
        Some(match segments.as_slice() {
            ["orchestrator", "want", "resource", _] => Self::Resource(last.parse().ok()?, None),
            ["orchestrator", "want", "rule", resource, _] => {
                Self::Rule(resource.parse().ok()?, last.parse().ok()?, None)
            }
            ["orchestrator", "want", "tag-rule", tag, _] => {
                Self::TagRule(tag.parse().ok()?, last.parse().ok()?, None)
            }
            ["orchestrator", "want", "permission", _] => Self::Permission(last.parse().ok()?, None),
            ["orchestrator", "want", "link", _] => Self::Link(last.parse().ok()?, None),
            ["orchestrator", "made", "network", _] => Self::Network(last.parse().ok()?, None),
            ["orchestrator", "made", "resource", _] => Self::MadeResource(last.parse().ok()?, None),
            ["orchestrator", "made", "peering", _] => Self::Peering(last.parse().ok()?, None),
            ["orchestrator", "made", "nat", _] => Self::Nat(last.parse().ok()?, None),
            ["orchestrator", "made", "gateway", _] => Self::Gateway(last.parse().ok()?, None),
            ["orchestrator", "made", "link", _] => Self::MadeLink(last.parse().ok()?, None),
            ["orchestrator", "job", _] => Self::Job(last, None),
            _ => return None,
        })
    }

    fn with(self, value: &[u8]) -> Result<Self, serde_json::Error> {
        fn json<T: DeserializeOwned>(value: &[u8]) -> Result<Option<T>, serde_json::Error> {
            serde_json::from_slice(value).map(Some)
        }
        Ok(match self {
            Self::Resource(name, _) => Self::Resource(name, json(value)?),
            Self::Rule(resource, rule, _) => Self::Rule(resource, rule, json(value)?),
            Self::TagRule(tag, rule, _) => Self::TagRule(tag, rule, json(value)?),
            Self::Permission(name, _) => Self::Permission(name, json(value)?),
            // That it is there says all.
            Self::Link(name, _) => Self::Link(name, Some(())),
            Self::Network(name, _) => Self::Network(name, json(value)?),
            Self::MadeResource(name, _) => Self::MadeResource(name, json(value)?),
            Self::Peering(name, _) => Self::Peering(name, json(value)?),
            Self::Nat(name, _) => Self::Nat(name, json(value)?),
            Self::Gateway(site, _) => Self::Gateway(site, json(value)?),
            Self::MadeLink(name, _) => Self::MadeLink(name, json(value)?),
            Self::Job(id, _) => Self::Job(id, json(value)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use model::Secret;

    use super::*;
    use crate::plan::Phase;

    /// Whatever holds a record can be logged: no secret shows itself, and none lies outside what is sealed.
    #[test]
    fn the_key_of_a_link_is_stored_below_what_is_sealed_and_never_printed() {
        let (phase, shared_key) = (Phase::Ready, Secret::new("hunter2"));
        let record =
            LinkRecord { phase, bgp: Vec::new(), spaces: Default::default(), shared_key, stood: false };
        let name: LinkName = "ns.a+ns.b".parse().unwrap();
        let mut inventory = crate::plan::Inventory::default();
        inventory.links.insert(name.clone(), record.clone());
        let fact = Fact::MadeLink(name, Some(record.clone()));
        let printed = [format!("{record:?}"), format!("{fact:#?}"), format!("{inventory:?}")];
        assert!(printed.iter().all(|text| !text.contains("hunter2")), "{printed:?}");
        let (key, value) = (fact.key(), fact.value().unwrap());
        assert!(crate::secrets().iter().any(|prefix| prefix.contains(&key)), "{key:?}");
        assert_eq!(Fact::read(&key, Some(&value)).unwrap(), fact, "stored and read back it is the same");
    }
}
