//! What people ask beside the watches: members of a group by pages, groups of a Pod or an address, the deciding rule.
//!
//! In: what the engine answered. Out: bodies of replies.

use std::{net::IpAddr, sync::Arc};

use bytes::Bytes;
use model::policy::{
    antrea::NamespacedName,
    output::{Identifier, IpBlock, Member},
};

use crate::{convert, encode::document, encoding::Encoding, proto, query::QueryError};

/// Which part of a long list. Without a limit it is one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    number: usize,
    limit: Option<usize>,
}

impl Page {
    /// From decoded pairs: `limit`, and `page` from 1 on.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, QueryError> {
        let mut page = Page { number: 1, limit: None };
        for (key, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
            let number = |key| {
                let parsed = value.parse::<usize>().ok();
                let expected = "a number from 0 on";
                parsed.ok_or_else(|| QueryError::value(key, value, expected))
            };
            match key {
                "page" => page.number = number("page")?.max(1),
                "limit" => page.limit = Some(number("limit")?).filter(|limit| *limit > 0),
                _ => {}
            }
        }
        Ok(page)
    }

    /// The part of the list, and how many pages there are.
    fn of<T>(self, list: &[T]) -> (&[T], usize) {
        let limit = self.limit.unwrap_or(list.len()).max(1);
        let first = (self.number - 1).saturating_mul(limit).min(list.len());
        let last = first.saturating_add(limit).min(list.len());
        (&list[first..last], list.len().div_ceil(limit))
    }
}

/// Who is in a Group, or in a ClusterGroup when the name has no namespace. Blocks come without their exceptions.
pub fn group_members(
    group: &NamespacedName,
    uid: &Identifier,
    members: &[Arc<Member>],
    blocks: &[IpBlock],
    page: Page,
    encoding: Encoding,
) -> Bytes {
    let metadata = proto::ObjectMeta {
        name: group.name.clone(),
        namespace: group.namespace.clone(),
        uid: uid.to_string(),
        ..Default::default()
    };
    let (part, pages) = page.of(members);
    let effective_members = part.iter().map(|member| convert::address_member(member)).collect();
    let effective_ip_blocks =
        blocks.iter().flat_map(IpBlock::networks).map(|net| convert::ip_net(&net)).collect();
    let (total_members, total_pages) = (members.len() as i64, pages as i64);
    let current_page = page.number as i64;
    match group.namespace.is_empty() {
        true => document(
            encoding,
            &proto::ClusterGroupMembers {
                metadata,
                effective_members,
                effective_ip_blocks,
                total_members,
                total_pages,
                current_page,
            },
        ),
        false => document(
            encoding,
            &proto::GroupMembers {
                metadata,
                effective_members,
                effective_ip_blocks,
                total_members,
                total_pages,
                current_page,
            },
        ),
    }
}

fn references(groups: &[(NamespacedName, Identifier)]) -> Vec<proto::GroupReference> {
    let reference = |(group, uid): &(NamespacedName, Identifier)| proto::GroupReference {
        namespace: group.namespace.clone(),
        name: group.name.clone(),
        uid: uid.to_string(),
    };
    groups.iter().map(reference).collect()
}

/// The groups a Pod is in.
pub fn groups_of_pod(
    namespace: &str,
    name: &str,
    groups: &[(NamespacedName, Identifier)],
    encoding: Encoding,
) -> Bytes {
    let metadata =
        proto::ObjectMeta { name: name.to_owned(), namespace: namespace.to_owned(), ..Default::default() };
    document(encoding, &proto::GroupAssociation { metadata, associated_groups: references(groups) })
}

/// The groups an address is in, as somebody's or as part of a block.
pub fn groups_of_address(
    address: IpAddr,
    groups: &[(NamespacedName, Identifier)],
    encoding: Encoding,
) -> Bytes {
    let metadata = proto::ObjectMeta { name: address.to_string(), ..Default::default() };
    document(encoding, &proto::IPGroupAssociation { metadata, associated_groups: references(groups) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_the_list_and_nothing_else() {
        let list: Vec<u32> = (0..7).collect();
        let page = |pairs: &[(&'static str, &'static str)]| Page::parse(pairs.iter().copied());
        assert_eq!(page(&[]).unwrap().of(&list), (&list[..], 1));
        assert_eq!(page(&[("limit", "3")]).unwrap().of(&list), (&list[..3], 3));
        assert_eq!(page(&[("limit", "3"), ("page", "3")]).unwrap().of(&list), (&list[6..], 3));
        assert_eq!(page(&[("limit", "3"), ("page", "9")]).unwrap().of(&list), (&list[7..], 3));
        let most = usize::MAX.to_string();
        let far = Page::parse([("limit", most.as_str()), ("page", most.as_str())]).unwrap();
        assert_eq!(far.of(&list), (&list[7..], 1));
        assert_eq!(page(&[]).unwrap().of::<u32>(&[]), (&[][..], 0));
        for value in ["-1", "x", "1e9", "99999999999999999999"] {
            assert!(Page::parse([("limit", value)]).is_err(), "{value}");
        }
    }
}
