//! Ends that nothing tells apart: what is known of one pair is known of all pairs of the same kinds.

use std::{collections::BTreeSet, sync::Arc};

use ipnet::IpNet;
use model::Address;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    Shape, Survey, count_of,
    index::{bounds, number},
};
use crate::engine::tables::{EntityId, GroupId};

/// Where some network begins, or another has ended: IPv4, IPv6.
type Borders = [Vec<u128>; 2];

/// All that rules and lists can tell of an end.
#[derive(PartialEq, Eq, Hash)]
struct Kind<'a> {
    sides: [u32; 2],
    shape: Shape,
    ports: u32,
    /// Of each family: the groups, and between which borders the address is.
    faces: [Option<(&'a [GroupId], usize)>; 2],
    /// Of a cluster.
    block: Option<Address>,
    /// Of a workload that several ends stand for.
    entity: Option<EntityId>,
}

impl Survey {
    /// For each end the first end of its kind; none if it is not known.
    pub(super) fn kinds(&self) -> Vec<Option<u32>> {
        let (borders, shared) = (self.borders(), self.shared());
        let mut first: FxHashMap<Kind<'_>, u32> = FxHashMap::default();
        let mut kinds = Vec::with_capacity(self.ends.len());
        for (at, end) in self.ends.iter().enumerate() {
            kinds.push(end.as_ref().map(|end| {
                let face = |six: usize| {
                    let face = end.faces[six].as_ref()?;
                    let between = borders[six].partition_point(|border| *border <= number(face.address));
                    Some((&*face.groups, between))
                };
                let kind = Kind {
                    sides: end.sides,
                    shape: end.shape,
                    ports: end.ports,
                    faces: [face(0), face(1)],
                    block: end.block,
                    entity: end.entity.filter(|entity| shared.contains(entity)),
                };
                *first.entry(kind).or_insert(count_of(at))
            }));
        }
        kinds
    }

    /// Workloads that more than one end stands for.
    pub(super) fn shared(&self) -> FxHashSet<EntityId> {
        let (mut seen, mut shared) = (FxHashSet::default(), FxHashSet::default());
        for entity in self.ends.iter().flatten().filter_map(|end| end.entity) {
            if !seen.insert(entity) {
                shared.insert(entity);
            }
        }
        shared
    }

    fn borders(&self) -> Borders {
        let mut borders: [BTreeSet<u128>; 2] = Default::default();
        let mut add = |net: IpNet| {
            let (first, last) = bounds(net);
            let borders = &mut borders[usize::from(net.addr().is_ipv6())];
            borders.insert(first);
            borders.extend(last.checked_add(1));
        };
        let (mut rules, mut lists) = (FxHashSet::default(), FxHashSet::default());
        for side in &self.sides {
            if rules.insert(Arc::as_ptr(&side.rules)) {
                for block in side.rules.iter().flat_map(|rule| &rule.detail.ip_blocks) {
                    add(block.cidr);
                    block.except.iter().copied().for_each(&mut add);
                }
            }
            if let Some(list) = side.list.as_ref().filter(|list| lists.insert(Arc::as_ptr(list))) {
                list.iter().flat_map(|entry| entry.targets()).for_each(|target| add(target.net()));
            }
        }
        borders.map(|borders| borders.into_iter().collect())
    }
}
