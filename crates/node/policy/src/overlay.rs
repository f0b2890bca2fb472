//! Blocks of addresses laid over each other: the stretches that they cut out, each with the blocks it is in.
//!
//! In: blocks that come and go, by number. Out: where stretches changed since the last look. Holds: the stretches of both families,
//! disjoint, none of them next to one that is in the same blocks: they are the same whatever the order in which blocks came.
//! Cost: O(log all) for each stretch within the block. Not here: what a stretch means (`peers`).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use model::policy::output::IpBlock;
use node_nft::Ranges;

/// Addresses up to `last` that are in the same blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub last: IpAddr,
    /// Ascending; there is one at least.
    pub blocks: Box<[u32]>,
}

#[derive(Default)]
pub struct Overlay {
    /// By their first address. All of IPv4 comes before IPv6.
    stretches: BTreeMap<IpAddr, Stretch>,
    /// First addresses of stretches that came, changed or went.
    changed: BTreeSet<IpAddr>,
    /// Where stretches may have become alike.
    seams: BTreeSet<IpAddr>,
}

impl Overlay {
    pub fn put(&mut self, id: u32, block: &IpBlock) {
        for (first, last) in ranges(block) {
            self.cut(first, last);
            let mut free = Some(first);
            let within: Vec<IpAddr> = self.stretches.range(first..=last).map(|(first, _)| *first).collect();
            for first in within {
                let gap = free.filter(|free| *free < first).zip(predecessor(first));
                gap.into_iter().for_each(|(free, end)| self.found(free, end, id));
                let stretch = self.stretches.get_mut(&first).expect("seen above, and none has gone");
                let at = stretch.blocks.partition_point(|other| *other < id);
                stretch.blocks = [&stretch.blocks[..at], &[id], &stretch.blocks[at..]].concat().into();
                free = successor(stretch.last);
                self.changed.insert(first);
            }
            let gap = free.filter(|free| *free <= last && free.is_ipv6() == last.is_ipv6());
            gap.into_iter().for_each(|free| self.found(free, last, id));
        }
    }

    pub fn remove(&mut self, id: u32, block: &IpBlock) {
        for (first, last) in ranges(block) {
            self.cut(first, last);
            let within: Vec<IpAddr> = self.stretches.range(first..=last).map(|(first, _)| *first).collect();
            for first in within {
                let stretch = self.stretches.get_mut(&first).expect("seen above, and none has gone");
                stretch.blocks = stretch.blocks.iter().copied().filter(|other| *other != id).collect();
                if stretch.blocks.is_empty() {
                    self.stretches.remove(&first);
                }
                self.changed.insert(first);
            }
        }
    }

    /// The stretch that has the address, and where it begins.
    pub fn stretch(&self, address: IpAddr) -> Option<(IpAddr, &Stretch)> {
        let (first, stretch) = self.stretches.range(..=address).next_back()?;
        (stretch.last >= address && stretch.last.is_ipv6() == address.is_ipv6()).then_some((*first, stretch))
    }

    pub fn get(&self, first: IpAddr) -> Option<&Stretch> {
        self.stretches.get(&first)
    }

    /// First addresses of stretches that came, changed or went since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<IpAddr> {
        for seam in std::mem::take(&mut self.seams) {
            self.join(seam);
        }
        std::mem::take(&mut self.changed)
    }

    fn found(&mut self, first: IpAddr, last: IpAddr, id: u32) {
        self.stretches.insert(first, Stretch { last, blocks: [id].into() });
        self.changed.insert(first);
    }

    /// No stretch lies across either end afterwards.
    fn cut(&mut self, first: IpAddr, last: IpAddr) {
        let after = successor(last);
        for border in [Some(first), after].into_iter().flatten() {
            self.seams.insert(border);
            let Some((before, stretch)) = self.stretches.range_mut(..border).next_back() else { continue };
            if stretch.last < border || stretch.last.is_ipv6() != border.is_ipv6() {
                continue;
            }
            let (before, right) = (*before, stretch.clone());
            stretch.last = predecessor(border).expect("something is before it");
            self.stretches.insert(border, right);
            self.changed.extend([before, border]);
        }
    }

    /// Makes one of two stretches that meet here and are in the same blocks.
    fn join(&mut self, seam: IpAddr) {
        let Some(right) = self.stretches.get(&seam) else { return };
        let Some((before, left)) = self.stretches.range(..seam).next_back() else { return };
        if successor(left.last) != Some(seam) || left.blocks != right.blocks {
            return;
        }
        let (before, last) = (*before, right.last);
        self.stretches.remove(&seam);
        self.stretches.get_mut(&before).expect("found above").last = last;
        self.changed.extend([before, seam]);
    }
}

fn ranges(block: &IpBlock) -> Vec<(IpAddr, IpAddr)> {
    let ipv6 = block.cidr.addr().is_ipv6();
    let whole = Ranges::new(ipv6, [block.cidr]);
    whole.without(&Ranges::new(ipv6, block.except.iter().copied())).iter().collect()
}

fn successor(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => u32::from(address).checked_add(1).map(|next| IpAddr::V4(next.into())),
        IpAddr::V6(address) => u128::from(address).checked_add(1).map(|next| IpAddr::V6(next.into())),
    }
}

fn predecessor(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => u32::from(address).checked_sub(1).map(|next| IpAddr::V4(next.into())),
        IpAddr::V6(address) => u128::from(address).checked_sub(1).map(|next| IpAddr::V6(next.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use ipnet::IpNet;
    use proptest::prelude::*;

    use super::*;

    /// Addresses at the end of their family, so that there is none after the last; those of IPv4 have IPv6 behind them.
    fn address(ipv6: bool, low: u8) -> IpAddr {
        match ipv6 {
            false => Ipv4Addr::from(0xffff_ffe0 | u32::from(low)).into(),
            true => Ipv6Addr::from((u128::MAX << 5) | u128::from(low)).into(),
        }
    }

    fn prefix(ipv6: bool) -> impl Strategy<Value = IpNet> {
        let whole: u8 = if ipv6 { 128 } else { 32 };
        (0..32_u8, whole - 5..=whole).prop_map(move |(low, len)| {
            IpNet::new(address(ipv6, low), len).expect("a length within the address's").trunc()
        })
    }

    fn block() -> impl Strategy<Value = IpBlock> {
        any::<bool>().prop_flat_map(|ipv6| {
            let except = proptest::collection::vec(prefix(ipv6), 0..4);
            (prefix(ipv6), except).prop_map(|(cidr, except)| IpBlock { cidr, except })
        })
    }

    /// Blocks that come, and which of those that are there go.
    fn history() -> impl Strategy<Value = Vec<(IpBlock, Option<prop::sample::Index>)>> {
        proptest::collection::vec((block(), any::<Option<prop::sample::Index>>()), 1..12)
    }

    fn contains(block: &IpBlock, address: IpAddr) -> bool {
        block.cidr.contains(&address) && !block.except.iter().any(|net| net.contains(&address))
    }

    proptest! {
        #[test]
        fn every_address_is_in_the_stretch_of_its_blocks_whatever_came_and_went(history in history(), often in any::<bool>()) {
            let (mut overlay, mut there) = (Overlay::default(), BTreeMap::new());
            // What whoever only hears of changes knows.
            let mut told: BTreeMap<IpAddr, Stretch> = BTreeMap::new();
            for (id, (block, goes)) in (0_u32..).zip(history) {
                overlay.put(id, &block);
                there.insert(id, block);
                if let Some(index) = goes {
                    let gone = *index.get(&there.keys().copied().collect::<Vec<_>>());
                    overlay.remove(gone, &there[&gone]);
                    there.remove(&gone);
                }
                if often {
                    listen(&mut overlay, &mut told);
                }
            }
            listen(&mut overlay, &mut told);
            prop_assert_eq!(&told, &overlay.stretches);
            for ipv6 in [false, true] {
                for low in 0..32 {
                    let address = address(ipv6, low);
                    let of = |(id, block): (&u32, &IpBlock)| contains(block, address).then_some(*id);
                    let expected: Vec<u32> = there.iter().filter_map(of).collect();
                    let found = overlay.stretch(address).map(|(_, stretch)| stretch.blocks.to_vec());
                    prop_assert_eq!(found.unwrap_or_default(), expected);
                }
            }
            // The same blocks in another order cut out the same.
            let mut again = Overlay::default();
            there.iter().rev().for_each(|(id, block)| again.put(*id, block));
            again.take_changed();
            prop_assert_eq!(&again.stretches, &overlay.stretches);
        }
    }

    fn listen(overlay: &mut Overlay, told: &mut BTreeMap<IpAddr, Stretch>) {
        for first in overlay.take_changed() {
            match overlay.get(first) {
                Some(stretch) => told.insert(first, stretch.clone()),
                None => told.remove(&first),
            };
        }
    }

    /// What one block costs does not depend on how many there are elsewhere.
    #[test]
    fn a_block_changes_only_what_is_within_it() {
        let mut overlay = Overlay::default();
        for id in 0..1_000_u32 {
            let network = Ipv4Addr::from(0x0b00_0000 | id << 8);
            let cidr = IpNet::new(network.into(), 24).unwrap();
            let hole = IpNet::new(Ipv4Addr::from(u32::from(network) | 32).into(), 28).unwrap();
            overlay.put(id, &IpBlock { cidr, except: vec![hole] });
            assert_eq!(overlay.take_changed().len(), 2);
        }
        let cidr = "11.0.3.0/24".parse().unwrap();
        overlay.remove(3, &IpBlock { cidr, except: vec!["11.0.3.32/28".parse().unwrap()] });
        assert_eq!(overlay.take_changed().len(), 2);
    }
}
