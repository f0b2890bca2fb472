//! Tags between wire and model.

use std::collections::BTreeSet;

use model::{Leaf, Member, MemberError, NameError, ParseAddressError, SubscriberError, TagName, TagValue};

use crate::tagservicepb::TagMapping;

/// Why a tag mapping is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TagMappingError {
    #[error("the tag's name is not legal")]
    Name(#[source] NameError),
    #[error("tag {tag} has both members and a URI or address; it is either a group or a leaf")]
    Both { tag: TagName },
    #[error("tag {tag} has neither members nor a URI or address")]
    Neither { tag: TagName },
    #[error("tag {tag} cannot have the member {member:?}")]
    Member {
        tag: TagName,
        member: String,
        #[source]
        err: MemberError,
    },
    #[error("the URI of tag {tag} is not acceptable")]
    Uri {
        tag: TagName,
        #[source]
        err: SubscriberError,
    },
    #[error("the address of tag {tag} is not acceptable")]
    Ip {
        tag: TagName,
        #[source]
        err: ParseAddressError,
    },
}

/// Reads a mapping that sets a tag. Empty texts count as absent, as Paraglider's clients send them.
pub fn tag_value(mapping: TagMapping) -> Result<(TagName, TagValue), TagMappingError> {
    let tag: TagName = mapping.tag_name.parse().map_err(TagMappingError::Name)?;
    let uri = mapping.uri.filter(|uri| !uri.is_empty());
    let ip = mapping.ip.filter(|ip| !ip.is_empty());
    match (mapping.child_tags.is_empty(), uri.is_none() && ip.is_none()) {
        (false, false) => Err(TagMappingError::Both { tag }),
        (true, true) => Err(TagMappingError::Neither { tag }),
        (false, true) => {
            let members = members(&tag, mapping.child_tags)?;
            Ok((tag, TagValue::Group(members)))
        }
        (true, false) => {
            let leaf = leaf(&tag, uri, ip)?;
            Ok((tag, TagValue::Leaf(leaf)))
        }
    }
}

/// Reads a mapping that names members of a group, to remove them.
pub fn tag_members(mapping: TagMapping) -> Result<(TagName, BTreeSet<Member>), TagMappingError> {
    let tag: TagName = mapping.tag_name.parse().map_err(TagMappingError::Name)?;
    let members = members(&tag, mapping.child_tags)?;
    Ok((tag, members))
}

fn members(tag: &TagName, texts: Vec<String>) -> Result<BTreeSet<Member>, TagMappingError> {
    texts
        .into_iter()
        .map(|text| {
            text.parse().map_err(|err| TagMappingError::Member {
                tag: tag.clone(),
                member: text.chars().take(64).collect(),
                err,
            })
        })
        .collect()
}

fn leaf(tag: &TagName, uri: Option<String>, ip: Option<String>) -> Result<Leaf, TagMappingError> {
    if let Some(uri) = &uri {
        Leaf::check_uri(uri).map_err(|err| TagMappingError::Uri { tag: tag.clone(), err })?;
    }
    let ip = match ip {
        Some(text) => Some(text.parse().map_err(|err| TagMappingError::Ip { tag: tag.clone(), err })?),
        None => None,
    };
    Ok(Leaf { uri: uri.map(Into::into), ip })
}

impl From<(TagName, TagValue)> for TagMapping {
    fn from((name, value): (TagName, TagValue)) -> Self {
        let tag_name = name.to_string();
        match value {
            TagValue::Leaf(leaf) => Self {
                tag_name,
                child_tags: Vec::new(),
                uri: leaf.uri.map(|uri| uri.to_string()),
                ip: leaf.ip.map(|ip| ip.to_string()),
            },
            TagValue::Group(members) => Self {
                tag_name,
                child_tags: members.iter().map(Member::to_string).collect(),
                uri: None,
                ip: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(name: &str, children: &[&str], uri: Option<&str>, ip: Option<&str>) -> TagMapping {
        TagMapping {
            tag_name: name.to_owned(),
            child_tags: children.iter().map(|&c| c.to_owned()).collect(),
            uri: uri.map(str::to_owned),
            ip: ip.map(str::to_owned),
        }
    }

    #[test]
    fn a_mapping_is_a_leaf_or_a_group_and_nothing_else() {
        assert!(matches!(
            tag_value(mapping("t", &["a"], Some("u"), None)),
            Err(TagMappingError::Both { .. })
        ));
        assert!(matches!(tag_value(mapping("t", &[], None, None)), Err(TagMappingError::Neither { .. })));
        assert!(matches!(
            tag_value(mapping("t", &[], Some(""), Some(""))),
            Err(TagMappingError::Neither { .. })
        ));
        assert!(matches!(tag_value(mapping("", &["a"], None, None)), Err(TagMappingError::Name(_))));
        assert!(matches!(tag_value(mapping("t", &["a>b"], None, None)), Err(TagMappingError::Member { .. })));
        assert!(matches!(tag_value(mapping("t", &[], None, Some("1.2"))), Err(TagMappingError::Ip { .. })));
        assert!(matches!(tag_value(mapping("t", &[], Some("a\n"), None)), Err(TagMappingError::Uri { .. })));
    }

    #[test]
    fn what_is_read_prints_back() {
        for original in [
            mapping("t", &["10.0.0.0/8", "2001:db8::1", "a", "b"], None, None),
            mapping("t", &[], Some("u"), Some("1.2.3.4")),
            mapping("t", &[], None, Some("2001:db8::/32")),
        ] {
            assert_eq!(TagMapping::from(tag_value(original.clone()).unwrap()), original);
        }
    }
}
