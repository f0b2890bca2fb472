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

use model::policy::output::IpBlock;
use node_nft::{Element, Key};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    compile::FeatureKey,
    layout::Place,
    mirror::Mirror,
    number,
    overlay::{Overlay, Stretch},
};

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
    /// Blocks in use.
    overlay: Overlay,
    /// Class of each stretch of it, by its first address.
    stretches: FxHashMap<IpAddr, ClassId>,
    classes: FxHashMap<Signature, ClassId>,
    by_id: FxHashMap<ClassId, Class>,
    by_feature: FxHashMap<u32, FxHashSet<ClassId>>,
    dirty: FxHashSet<IpAddr>,
    /// Blocks that came or went.
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
            self.overlay.put(id, block);
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
            self.overlay.remove(id, &block);
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
            None => {
                let stretch = self.overlay.stretch(address);
                stretch.and_then(|(first, _)| self.stretches.get(&first)).copied().unwrap_or(0)
            }
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
        features.extend(self.overlay.stretch(address).into_iter().flat_map(|(_, one)| one.blocks.iter()));
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

    /// O(addresses and stretches within the blocks that came or went).
    fn settle_blocks(&mut self, mirror: &mut Mirror, settled: &mut Settled) {
        for block in std::mem::take(&mut self.dirty_blocks) {
            let within = block.cidr.network()..=block.cidr.broadcast();
            self.dirty.extend(self.addresses.range(within).map(|(address, _)| *address));
        }
        for first in self.overlay.take_changed() {
            let (ipv6, key) = (first.is_ipv6(), Key::new().address(first));
            let Some(Stretch { last, blocks }) = self.overlay.get(first).cloned() else {
                mirror.remove(Place::Blocks(ipv6), key);
                let before = self.stretches.remove(&first);
                self.unuse(before, settled);
                continue;
            };
            let class = self.class(Signature { ipv6, features: blocks }, settled);
            self.by_id.get_mut(&class).expect("made or found right now").users += 1;
            mirror.put(Place::Blocks(ipv6), key, mark(class).until(Key::new().address(last)));
            let before = self.stretches.insert(first, class);
            self.unuse(before, settled);
        }
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
