//! Classes of peers: addresses that no rule can tell apart.
//!
//! In: which features rules ask for, and which addresses have them. Out: a class for each address, and for each range
//! of addresses that no member has; classes that came and went. Holds: features in use, addresses, ranges, classes.
//!
//! A class's number comes from its features, not from history: a restart finds the same numbers in the kernel. Should
//! two classes fall on one number, the second takes the next free one.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use model::policy::output::IpBlock;
use node_nft::{Element, Key, Ranges};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{compile::FeatureKey, layout::Place, mirror::Mirror, number};

/// Never 0, which stands for everybody else.
pub type ClassId = u32;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Signature {
    pub ipv6: bool,
    /// Ascending.
    pub features: Box<[u32]>,
}

#[derive(Default)]
pub struct Peers {
    ids: FxHashMap<FeatureKey, u32>,
    features: FxHashMap<u32, Feature>,
    next: u32,
    addresses: BTreeMap<IpAddr, Address>,
    /// Per family: disjoint, ascending.
    ranges: [Vec<Stretch>; 2],
    classes: FxHashMap<Signature, ClassId>,
    by_id: FxHashMap<ClassId, Class>,
    by_feature: FxHashMap<u32, FxHashSet<ClassId>>,
    dirty: FxHashSet<IpAddr>,
    /// Blocks that came or went, per family.
    dirty_blocks: Vec<IpBlock>,
}

struct Feature {
    key: FeatureKey,
    users: usize,
    /// The same in every run.
    hash: u64,
}

#[derive(Default)]
struct Address {
    /// Features that members give it, each as often as members do.
    given: Vec<(u32, u32)>,
    class: Option<ClassId>,
}

/// A range of addresses that are in the same blocks.
struct Stretch {
    first: IpAddr,
    last: IpAddr,
    features: Box<[u32]>,
    class: ClassId,
}

struct Class {
    signature: Signature,
    /// Addresses and ranges.
    users: usize,
}

/// Classes that came and went.
#[derive(Debug, Default)]
pub struct Settled {
    pub new: BTreeSet<ClassId>,
    pub gone: BTreeSet<ClassId>,
}

impl Peers {
    /// The feature's number, and whether it is new: then its addresses must `enter`.
    pub fn acquire(&mut self, key: &FeatureKey) -> (u32, bool) {
        if let Some(id) = self.ids.get(key) {
            self.features.get_mut(id).expect("ids are of features").users += 1;
            return (*id, false);
        }
        let id = self.next;
        self.next += 1;
        self.ids.insert(key.clone(), id);
        let hash = number::hash(&format!("{key:?}"));
        self.features.insert(id, Feature { key: key.clone(), users: 1, hash });
        if let FeatureKey::Block(block) = key {
            self.dirty_blocks.push(block.clone());
        }
        (id, true)
    }

    /// Whether nobody uses the feature any more: then its addresses must have left by now.
    pub fn release(&mut self, id: u32) -> bool {
        let feature = self.features.get_mut(&id).expect("released as often as acquired");
        feature.users -= 1;
        if feature.users > 0 {
            return false;
        }
        let feature = self.features.remove(&id).expect("it was there a moment ago");
        self.ids.remove(&feature.key);
        if let FeatureKey::Block(block) = feature.key {
            self.dirty_blocks.push(block);
        }
        true
    }

    pub fn find(&self, key: &FeatureKey) -> Option<u32> {
        self.ids.get(key).copied()
    }

    pub fn key(&self, id: u32) -> Option<&FeatureKey> {
        self.features.get(&id).map(|feature| &feature.key)
    }

    /// One more member gives the address this feature.
    pub fn enter(&mut self, address: IpAddr, feature: u32) {
        let given = &mut self.addresses.entry(address).or_default().given;
        match given.iter_mut().find(|(known, _)| *known == feature) {
            Some((_, count)) => *count += 1,
            None => {
                given.push((feature, 1));
                self.dirty.insert(address);
            }
        }
    }

    pub fn leave(&mut self, address: IpAddr, feature: u32) {
        let Some(known) = self.addresses.get_mut(&address) else { return };
        let Some(index) = known.given.iter().position(|(given, _)| *given == feature) else { return };
        known.given[index].1 -= 1;
        if known.given[index].1 == 0 {
            known.given.swap_remove(index);
            self.dirty.insert(address);
        }
    }

    pub fn classes_with(&self, feature: u32) -> impl Iterator<Item = ClassId> + '_ {
        self.by_feature.get(&feature).into_iter().flatten().copied()
    }

    pub fn signature(&self, class: ClassId) -> Option<&Signature> {
        self.by_id.get(&class).map(|class| &class.signature)
    }

    /// 0 for those whom no rule tells from others.
    pub fn class_of(&self, address: IpAddr) -> ClassId {
        match self.addresses.get(&address).and_then(|known| known.class) {
            Some(class) => class,
            None => self.stretch(address).map_or(0, |stretch| stretch.class),
        }
    }

    /// Gives every address and range that changed its class.
    pub fn settle(&mut self, mirror: &mut Mirror) -> Settled {
        let mut settled = Settled::default();
        self.settle_blocks(mirror, &mut settled);
        // In order: trees take neighbours several times faster than addresses at random.
        let mut dirty: Vec<IpAddr> = std::mem::take(&mut self.dirty).into_iter().collect();
        dirty.sort_unstable();
        for address in dirty {
            self.settle_address(address, mirror, &mut settled);
        }
        let empty: Vec<ClassId> = settled.gone.iter().copied().collect();
        for id in empty {
            if self.by_id.get(&id).is_some_and(|class| class.users > 0) {
                settled.gone.remove(&id);
                continue;
            }
            self.forget(id);
            // Came and went within one call.
            if settled.new.remove(&id) {
                settled.gone.remove(&id);
            }
        }
        settled
    }

    fn settle_address(&mut self, address: IpAddr, mirror: &mut Mirror, settled: &mut Settled) {
        let Some(known) = self.addresses.get(&address) else { return };
        let (given, before) = (&known.given, known.class);
        let place = Place::Peers(address.is_ipv6());
        if given.is_empty() {
            self.addresses.remove(&address);
            mirror.remove(place, Key::new().address(address));
            self.unuse(before, settled);
            return;
        }
        let mut features: Vec<u32> = given.iter().map(|(feature, _)| *feature).collect();
        features
            .extend(self.stretch(address).into_iter().flat_map(|stretch| stretch.features.iter().copied()));
        features.sort_unstable();
        let class = self.class(Signature { ipv6: address.is_ipv6(), features: features.into() }, settled);
        if before == Some(class) {
            return;
        }
        self.by_id.get_mut(&class).expect("made or found right now").users += 1;
        self.unuse(before, settled);
        self.addresses.get_mut(&address).expect("found above").class = Some(class);
        mirror.put(place, Key::new().address(address), mark(class));
    }

    fn stretch(&self, address: IpAddr) -> Option<&Stretch> {
        let stretches = &self.ranges[usize::from(address.is_ipv6())];
        let index = stretches.partition_point(|stretch| stretch.last < address);
        stretches.get(index).filter(|stretch| stretch.first <= address)
    }

    /// O(blocks in use) for a family in which one came or went, and O(addresses within those).
    fn settle_blocks(&mut self, mirror: &mut Mirror, settled: &mut Settled) {
        let changed = std::mem::take(&mut self.dirty_blocks);
        for ipv6 in [false, true] {
            let mut of_family = changed.iter().filter(|block| block.cidr.addr().is_ipv6() == ipv6).peekable();
            if of_family.peek().is_none() {
                continue;
            }
            for block in of_family {
                let within = block.cidr.network()..=block.cidr.broadcast();
                self.dirty.extend(self.addresses.range(within).map(|(address, _)| *address));
            }
            self.rebuild_ranges(ipv6, mirror, settled);
        }
    }

    fn rebuild_ranges(&mut self, ipv6: bool, mirror: &mut Mirror, settled: &mut Settled) {
        let blocks = self.features.iter().filter_map(|(id, feature)| match &feature.key {
            FeatureKey::Block(block) if block.cidr.addr().is_ipv6() == ipv6 => Some((*id, block)),
            _ => None,
        });
        let pieces = overlay(ipv6, blocks);
        let place = Place::Blocks(ipv6);
        for stretch in std::mem::take(&mut self.ranges[usize::from(ipv6)]) {
            mirror.remove(place, Key::new().address(stretch.first));
            self.unuse(Some(stretch.class), settled);
        }
        let mut stretches = Vec::with_capacity(pieces.len());
        for (first, last, features) in pieces {
            let class = self.class(Signature { ipv6, features: features.clone() }, settled);
            self.by_id.get_mut(&class).expect("made or found right now").users += 1;
            mirror.put(place, Key::new().address(first), mark(class).until(Key::new().address(last)));
            stretches.push(Stretch { first, last, features, class });
        }
        self.ranges[usize::from(ipv6)] = stretches;
    }

    fn class(&mut self, signature: Signature, settled: &mut Settled) -> ClassId {
        if let Some(id) = self.classes.get(&signature) {
            return *id;
        }
        let mut hashes: Vec<u64> = signature.features.iter().map(|id| self.features[id].hash).collect();
        hashes.sort_unstable();
        let id = number::free(number::hash(&(hashes, signature.ipv6)), |id| self.by_id.contains_key(&id));
        for feature in &signature.features {
            self.by_feature.entry(*feature).or_default().insert(id);
        }
        self.classes.insert(signature.clone(), id);
        self.by_id.insert(id, Class { signature, users: 0 });
        settled.new.insert(id);
        id
    }

    fn unuse(&mut self, class: Option<ClassId>, settled: &mut Settled) {
        let Some(class) = class else { return };
        let known = self.by_id.get_mut(&class).expect("classes in use are known");
        known.users -= 1;
        if known.users == 0 {
            settled.gone.insert(class);
        }
    }

    fn forget(&mut self, id: ClassId) {
        let Some(class) = self.by_id.remove(&id) else { return };
        for feature in &class.signature.features {
            if let Some(classes) = self.by_feature.get_mut(feature) {
                classes.remove(&id);
                if classes.is_empty() {
                    self.by_feature.remove(feature);
                }
            }
        }
        self.classes.remove(&class.signature);
    }
}

fn mark(class: ClassId) -> Element {
    Element::value(Key::new().mark(class))
}

/// Blocks laid over each other: the ranges they cut out, each with the blocks it is in.
fn overlay<'a>(
    ipv6: bool,
    blocks: impl Iterator<Item = (u32, &'a IpBlock)>,
) -> Vec<(IpAddr, IpAddr, Box<[u32]>)> {
    /// Where blocks begin, and where they are over.
    #[derive(Default)]
    struct Border {
        begin: Vec<u32>,
        end: Vec<u32>,
    }
    let mut borders: BTreeMap<IpAddr, Border> = BTreeMap::new();
    let mut open_ended = Vec::new();
    for (id, block) in blocks {
        let except: Vec<IpNet> = block.except.clone();
        let ranges = Ranges::new(ipv6, [block.cidr]).without(&Ranges::new(ipv6, except));
        for (first, last) in ranges.iter() {
            borders.entry(first).or_default().begin.push(id);
            match successor(last) {
                Some(next) => borders.entry(next).or_default().end.push(id),
                None => open_ended.push(last),
            }
        }
    }
    let mut within: BTreeSet<u32> = BTreeSet::new();
    let mut pieces = Vec::new();
    let mut since: Option<IpAddr> = None;
    for (address, border) in borders {
        if let Some(first) = since.filter(|_| !within.is_empty()) {
            let last = predecessor(address).expect("a later border than one before is not the first address");
            pieces.push((first, last, within.iter().copied().collect()));
        }
        border.end.iter().for_each(|id| {
            within.remove(id);
        });
        within.extend(border.begin);
        since = Some(address);
    }
    if let (Some(first), Some(last)) = (since, open_ended.first())
        && !within.is_empty()
    {
        pieces.push((first, *last, within.iter().copied().collect()));
    }
    pieces
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
    use super::*;
    use crate::layout::FIRST_CLASS;

    /// Among this many classes several fall on the number of another.
    #[test]
    fn classes_never_share_a_number() {
        const CLASSES: u32 = 200_000;
        let (mut peers, mut mirror) = (Peers::default(), Mirror::default());
        for number in 0..CLASSES {
            let (feature, _) = peers.acquire(&FeatureKey::Set(format!("set{number}").into()));
            peers.enter(IpAddr::V4(number.into()), feature);
        }
        peers.settle(&mut mirror);
        let numbers: FxHashSet<ClassId> =
            (0..CLASSES).map(|number| peers.class_of(IpAddr::V4(number.into()))).collect();
        assert_eq!(numbers.len(), CLASSES as usize);
        assert!(numbers.iter().all(|number| *number >= FIRST_CLASS));
    }
}
