//! From objects to bytes: frames of a watch and bodies of replies, in Kubernetes protobuf, JSON, and tables for kubectl.
//!
//! ```text
//!  protobuf frame: length (4, big endian) ─ WatchEvent { type, RawExtension { "k8s\0" ─ Unknown { kind, object } } }
//!  JSON frame:     {"type":…,"object":{"kind":…,…}} and a line feed
//! ```
//!
//! A group whose frame would pass 8 MiB is told in several: clients give up a stream at 16.

mod envelope;
mod table;
mod update;

use std::sync::Arc;

use bytes::Bytes;
use model::policy::output::{Identifier, Member};
use prost::Message as _;

pub(crate) use envelope::json;
pub use envelope::{API_VERSION, GROUP, MAGIC, VERSION, document};
use envelope::{frame, json_frame};
pub use update::frames;

use crate::{
    convert,
    encoding::Encoding,
    members::Difference,
    proto,
    resource::Resource,
    version::{Content, Node, Version},
};

/// Bytes of members in one frame.
const MOST: usize = 8 << 20;
/// JSON takes up to four times the bytes of protobuf for a member.
const JSON_GROWTH: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
}

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
            EventType::Bookmark => "BOOKMARK",
        }
    }
}

/// Says that a bookmark ends the initial events, to clients that asked for them.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Which object a frame is about.
#[derive(Debug, Clone, Copy)]
struct Title<'a> {
    resource: Resource,
    name: &'a Identifier,
    uid: &'a Identifier,
}

impl Title<'_> {
    fn metadata(self) -> proto::ObjectMeta {
        proto::ObjectMeta { name: self.name.to_string(), uid: self.uid.to_string(), ..Default::default() }
    }
}

fn title(version: &Version) -> Title<'_> {
    Title { resource: Resource::of(version), name: &version.name, uid: &version.uid }
}

/// The object comes into view.
pub fn added(version: &Version, node: &Node, encoding: Encoding) -> Bytes {
    let is_shared = node.is_none() || !matches!(version.content, Content::AppliedTo(_));
    match is_shared {
        true => version.added.get(encoding, || encode_added(version, &None, encoding)),
        false => encode_added(version, node, encoding),
    }
}

fn encode_added(version: &Version, node: &Node, encoding: Encoding) -> Bytes {
    let mut out = Vec::new();
    if encoding == Encoding::Table {
        json_frame(&mut out, EventType::Added, &table::one(version, node));
        return out.into();
    }
    match &version.content {
        Content::Policy(policy) => frame(&mut out, encoding, EventType::Added, &convert::policy(policy)),
        Content::AppliedTo(_) | Content::Address(_) => {
            put_group(&mut out, title(version), &version.members(node), encoding);
        }
    }
    out.into()
}

/// The whole group: ADDED, and patches if it is large.
fn put_group(out: &mut Vec<u8>, title: Title<'_>, members: &[Arc<Member>], encoding: Encoding) {
    let mut chunks = chunks(title, members, encoding).into_iter();
    let first = chunks.next().unwrap_or_default();
    group_frame(out, encoding, title, EventType::Added, first);
    chunks.for_each(|more| patch_frame(out, encoding, title, more, Vec::new()));
}

/// The policy is another now. Told in full.
pub fn policy_modified(version: &Version, encoding: Encoding) -> Bytes {
    let mut out = Vec::new();
    match (&version.content, encoding) {
        (_, Encoding::Table) => {
            json_frame(&mut out, EventType::Modified, &table::one(version, &None));
        }
        (Content::Policy(policy), _) => {
            frame(&mut out, encoding, EventType::Modified, &convert::policy(policy));
        }
        (Content::AppliedTo(_) | Content::Address(_), _) => {}
    }
    out.into()
}

/// The members of the group are others now. Told as a patch; a table's row is told again.
pub fn group_modified(version: &Version, difference: &Difference, node: &Node, encoding: Encoding) -> Bytes {
    let mut out = Vec::new();
    if encoding == Encoding::Table {
        json_frame(&mut out, EventType::Modified, &table::one(version, node));
        return out.into();
    }
    put_patch(&mut out, title(version), &difference.added, &difference.removed, encoding);
    out.into()
}

fn put_patch(
    out: &mut Vec<u8>,
    title: Title<'_>,
    added: &[Arc<Member>],
    removed: &[Arc<Member>],
    encoding: Encoding,
) {
    let mut added = chunks(title, added, encoding);
    let mut removed = chunks(title, removed, encoding);
    if added.len() <= 1 && removed.len() <= 1 {
        let (added, removed) = (added.pop().unwrap_or_default(), removed.pop().unwrap_or_default());
        patch_frame(out, encoding, title, added, removed);
    } else {
        added.into_iter().for_each(|chunk| patch_frame(out, encoding, title, chunk, Vec::new()));
        removed.into_iter().for_each(|chunk| patch_frame(out, encoding, title, Vec::new(), chunk));
    }
}

/// The object went, or went out of view.
pub fn deleted(version: &Version, encoding: Encoding) -> Bytes {
    let mut out = Vec::new();
    match (&version.content, encoding) {
        (_, Encoding::Table) => json_frame(&mut out, EventType::Deleted, &table::one(version, &None)),
        (Content::Policy(policy), _) => {
            frame(&mut out, encoding, EventType::Deleted, &convert::policy_stub(policy));
        }
        _ => group_frame(&mut out, encoding, title(version), EventType::Deleted, Vec::new()),
    }
    out.into()
}

/// The end of the initial events.
pub fn bookmark(resource: Resource, revision: u64, is_marked: bool, encoding: Encoding) -> Bytes {
    let mut out = Vec::new();
    let mut metadata = proto::ObjectMeta { resource_version: revision.to_string(), ..Default::default() };
    if is_marked {
        metadata.annotations.insert(INITIAL_EVENTS_END.to_owned(), "true".to_owned());
    }
    let kind = EventType::Bookmark;
    match (encoding, resource) {
        (Encoding::Table, _) => json_frame(&mut out, kind, &table::empty(resource, revision, is_marked)),
        (_, Resource::NetworkPolicies) => {
            frame(&mut out, encoding, kind, &proto::NetworkPolicy { metadata, ..Default::default() });
        }
        (_, Resource::AppliedToGroups) => {
            frame(&mut out, encoding, kind, &proto::AppliedToGroup { metadata, group_members: vec![] });
        }
        (_, Resource::AddressGroups) => {
            frame(&mut out, encoding, kind, &proto::AddressGroup { metadata, group_members: vec![] });
        }
        (_, Resource::EgressGroups) => {
            frame(&mut out, encoding, kind, &proto::EgressGroup { metadata, group_members: vec![] });
        }
        (_, Resource::SupportBundleCollections) => {
            frame(&mut out, encoding, kind, &proto::SupportBundleCollection { metadata });
        }
    }
    out.into()
}

/// The body of a reply to GET by name.
pub fn object(version: &Version, node: &Node, encoding: Encoding) -> Bytes {
    if encoding == Encoding::Table {
        return envelope::json(&table::one(version, node));
    }
    let title = title(version);
    let group_members = || members(title, &version.members(node));
    match &version.content {
        Content::Policy(policy) => document(encoding, &convert::policy(policy)),
        Content::AppliedTo(_) => document(
            encoding,
            &proto::AppliedToGroup { metadata: title.metadata(), group_members: group_members() },
        ),
        Content::Address(_) => document(
            encoding,
            &proto::AddressGroup { metadata: title.metadata(), group_members: group_members() },
        ),
    }
}

/// The body of a reply to LIST.
pub fn list(
    resource: Resource,
    versions: &[Arc<Version>],
    revision: u64,
    node: &Node,
    encoding: Encoding,
) -> Bytes {
    if encoding == Encoding::Table {
        return envelope::json(&table::list(resource, versions, revision, node));
    }
    let list = proto::ListMeta { resource_version: revision.to_string() };
    let groups = versions.iter().map(|version| {
        let title = title(version);
        (title.metadata(), members(title, &version.members(node)))
    });
    match resource {
        Resource::NetworkPolicies => {
            let items = versions.iter().filter_map(|version| match &version.content {
                Content::Policy(policy) => Some(convert::policy(policy)),
                Content::AppliedTo(_) | Content::Address(_) => None,
            });
            document(encoding, &proto::NetworkPolicyList { metadata: list, items: items.collect() })
        }
        Resource::AppliedToGroups => {
            let items = groups
                .map(|(metadata, group_members)| proto::AppliedToGroup { metadata, group_members })
                .collect();
            document(encoding, &proto::AppliedToGroupList { metadata: list, items })
        }
        Resource::AddressGroups => {
            let items = groups
                .map(|(metadata, group_members)| proto::AddressGroup { metadata, group_members })
                .collect();
            document(encoding, &proto::AddressGroupList { metadata: list, items })
        }
        Resource::EgressGroups => {
            document(encoding, &proto::EgressGroupList { metadata: list, items: Vec::new() })
        }
        Resource::SupportBundleCollections => {
            document(encoding, &proto::SupportBundleCollectionList { metadata: list, items: Vec::new() })
        }
    }
}

fn members(title: Title<'_>, members: &[Arc<Member>]) -> Vec<proto::GroupMember> {
    let convert = match title.resource {
        Resource::AddressGroups => convert::address_member,
        _ => convert::applied_to_member,
    };
    members.iter().map(|member| convert(member)).collect()
}

/// Members in portions that fit a frame. None for none.
fn chunks(title: Title<'_>, list: &[Arc<Member>], encoding: Encoding) -> Vec<Vec<proto::GroupMember>> {
    let most = if encoding == Encoding::Json { MOST / JSON_GROWTH } else { MOST };
    let mut chunks: Vec<Vec<proto::GroupMember>> = Vec::new();
    let mut room = 0;
    for member in members(title, list) {
        let size = member.encoded_len() + 8;
        match chunks.last_mut() {
            Some(chunk) if size <= room => {
                room -= size;
                chunk.push(member);
            }
            _ => {
                room = most.saturating_sub(size);
                chunks.push(vec![member]);
            }
        }
    }
    chunks
}

fn group_frame(
    out: &mut Vec<u8>,
    encoding: Encoding,
    title: Title<'_>,
    event: EventType,
    group_members: Vec<proto::GroupMember>,
) {
    let metadata = title.metadata();
    match title.resource {
        Resource::AddressGroups => {
            frame(out, encoding, event, &proto::AddressGroup { metadata, group_members });
        }
        _ => {
            frame(out, encoding, event, &proto::AppliedToGroup { metadata, group_members });
        }
    }
}

fn patch_frame(
    out: &mut Vec<u8>,
    encoding: Encoding,
    title: Title<'_>,
    added_group_members: Vec<proto::GroupMember>,
    removed_group_members: Vec<proto::GroupMember>,
) {
    let metadata = title.metadata();
    let event = EventType::Modified;
    match title.resource {
        Resource::AddressGroups => {
            let patch = proto::AddressGroupPatch { metadata, added_group_members, removed_group_members };
            frame(out, encoding, event, &patch);
        }
        _ => {
            let patch = proto::AppliedToGroupPatch { metadata, added_group_members, removed_group_members };
            frame(out, encoding, event, &patch);
        }
    }
}

#[cfg(test)]
mod tests;
