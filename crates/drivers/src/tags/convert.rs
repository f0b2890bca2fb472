//! Between the graph's words and the wire's, for gRPC and REST alike.

use model::{TagName, TagValue};
use tags::{Request, ResolvedMember};
use wire::tagservicepb::TagMapping;

/// The request that sets a tag.
pub fn set(tag: TagName, value: TagValue) -> Request {
    match value {
        TagValue::Leaf(leaf) => Request::SetLeaf { tag, leaf },
        TagValue::Group(members) => Request::SetGroup { tag, members },
    }
}

/// A resolved member as Paraglider writes it: literals have an address only.
pub fn mapping(member: &ResolvedMember) -> TagMapping {
    match member {
        ResolvedMember::Literal(address) => {
            TagMapping { ip: Some(address.to_string()), ..TagMapping::default() }
        }
        ResolvedMember::Leaf { name, leaf } => TagMapping {
            tag_name: name.to_string(),
            child_tags: Vec::new(),
            uri: leaf.uri.as_ref().map(ToString::to_string),
            ip: leaf.ip.map(|ip| ip.to_string()),
        },
    }
}
