//! Who is in a group or a network, found without asking everybody.

use std::net::IpAddr;

use ipnet::IpNet;
use rustc_hash::FxHashMap;

use super::{Surveyed, count_of};
use crate::engine::tables::GroupId;

/// Faces: ends by the address of one family.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Ascending by end; true is IPv6.
    groups: FxHashMap<GroupId, Vec<(u32, bool)>>,
    /// Ascending by address; IPv4, IPv6.
    addresses: [Vec<(u128, u32)>; 2],
}

impl Index {
    pub(super) fn new(ends: &[Option<Surveyed>]) -> Self {
        let mut index = Self::default();
        for (at, end) in ends.iter().enumerate().filter_map(|(at, end)| Some((count_of(at), end.as_ref()?))) {
            for (six, face) in [false, true].into_iter().zip(&end.faces) {
                let Some(face) = face else { continue };
                index.addresses[usize::from(six)].push((number(face.address), at));
                for group in face.groups.iter() {
                    index.groups.entry(*group).or_default().push((at, six));
                }
            }
        }
        index.addresses.iter_mut().for_each(|list| list.sort_unstable());
        index
    }

    /// Members among ends from one to another, both in.
    pub(super) fn members(&self, group: GroupId, first: u32, last: u32) -> &[(u32, bool)] {
        let members = self.groups.get(&group).map(Vec::as_slice).unwrap_or_default();
        let begin = members.partition_point(|(end, _)| *end < first);
        let end = members.partition_point(|(end, _)| *end <= last);
        &members[begin..end]
    }

    /// Ends with an address in a network.
    pub(super) fn inside(&self, net: IpNet) -> &[(u128, u32)] {
        let list = &self.addresses[usize::from(net.addr().is_ipv6())];
        let (first, last) = bounds(net);
        let begin = list.partition_point(|(address, _)| *address < first);
        let end = list.partition_point(|(address, _)| *address <= last);
        &list[begin..end]
    }
}

pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => address.into(),
    }
}

/// The first and the last address.
pub(super) fn bounds(net: IpNet) -> (u128, u128) {
    (number(net.network()), number(net.broadcast()))
}
