//! One object: its content, the deltas that led to it, and the frames made of both.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::OnceLock,
};

use bytes::Bytes;

use crate::{
    dialect::{Dialect, Frames},
    few::Members,
    key::{Hash, Key, Revision},
};

/// Deltas kept of a set. A node further behind gets the whole set.
const MAX_DELTAS: usize = 64;
/// Deltas may always have this many members together, however small the set is.
const MIN_DELTA_MEMBERS: usize = 64;

/// A member of a set. Its encoding is `id` followed by `rest`; a member with the same id replaces another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: Bytes,
    pub rest: Bytes,
}

/// An object's content.
#[derive(Debug)]
pub(crate) enum Content {
    Whole(Bytes),
    Set(Set),
}

#[derive(Debug, Default)]
pub(crate) struct Set {
    pub members: Members,
    deltas: VecDeque<Delta>,
}

/// What changed in a set between two revisions.
#[derive(Debug)]
struct Delta {
    from: Revision,
    to: Revision,
    hash: Hash,
    put: Members,
    removed: BTreeSet<Bytes>,
    frames: Box<[OnceLock<Option<Frames>>]>,
}

/// What a publish did to a set.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    pub put: Members,
    pub removed: BTreeSet<Bytes>,
}

impl Difference {
    pub fn is_empty(&self) -> bool {
        self.put.is_empty() && self.removed.is_empty()
    }
}

impl Set {
    /// A set that was not there before. What it is made of is kept as it is, and nobody is told of a difference.
    pub fn new(hash: &mut Hash, members: impl IntoIterator<Item = Member>) -> Self {
        let mut set = Self::default();
        for Member { id, rest } in members {
            if let Some(had) = set.members.get(&*id) {
                hash.subtract(member_hash(&id, had));
            }
            hash.add(member_hash(&id, &rest));
            set.members.insert(id, rest);
        }
        set
    }

    /// Makes the members what they should be; says what that changed, and moves `hash` along.
    pub fn change(
        &mut self,
        hash: &mut Hash,
        put: impl IntoIterator<Item = Member>,
        removed: impl IntoIterator<Item = Bytes>,
    ) -> Difference {
        let mut difference = Difference::default();
        for id in removed {
            if let Some(rest) = self.members.remove(&*id) {
                hash.subtract(member_hash(&id, &rest));
                difference.removed.insert(id);
            }
        }
        for Member { id, rest } in put {
            match self.members.get(&*id) {
                Some(had) if *had == rest => {
                    difference.removed.remove(&id);
                    continue;
                }
                Some(had) => hash.subtract(member_hash(&id, had)),
                None => {}
            }
            hash.add(member_hash(&id, &rest));
            difference.removed.remove(&id);
            self.members.insert(id.clone(), rest.clone());
            difference.put.insert(id, rest);
        }
        difference
    }

    pub fn has_deltas(&self) -> bool {
        !self.deltas.is_empty()
    }

    /// Ids that are here and not in `wanted`.
    pub fn surplus(&self, wanted: &[Member]) -> Vec<Bytes> {
        let wanted: BTreeSet<_> = wanted.iter().map(|member| &member.id).collect();
        self.members.keys().filter(|id| !wanted.contains(id)).cloned().collect()
    }

    /// Keeps a difference for those who stand at `from` or later. One publish makes one delta, however many changes
    /// it has.
    pub fn remember(
        &mut self,
        from: Revision,
        to: Revision,
        hash: Hash,
        difference: Difference,
        dialects: usize,
    ) {
        let frames = || (0..dialects).map(|_| OnceLock::new()).collect();
        match self.deltas.back_mut().filter(|last| last.to == to) {
            Some(last) => {
                for id in &difference.removed {
                    last.put.remove(&**id);
                }
                last.removed.extend(difference.removed);
                for id in difference.put.keys() {
                    last.removed.remove(id);
                }
                last.put.extend(difference.put);
                (last.hash, last.frames) = (hash, frames());
            }
            None => {
                let Difference { put, removed } = difference;
                self.deltas.push_back(Delta { from, to, hash, put, removed, frames: frames() });
            }
        }
        let most = MIN_DELTA_MEMBERS.max(self.members.len() / 2);
        let mut total: usize = self.deltas.iter().map(|delta| delta.put.len() + delta.removed.len()).sum();
        while self.deltas.len() > MAX_DELTAS || total > most {
            let Some(dropped) = self.deltas.pop_front() else { break };
            total -= dropped.put.len() + dropped.removed.len();
        }
    }

    /// The frames that bring a node from `since` to the present; none if they are not kept or the dialect has none.
    fn deltas_since(
        &self,
        since: Revision,
        key: &Key,
        dialect: (usize, &dyn Dialect),
    ) -> Option<Vec<&Frames>> {
        if self.deltas.front()?.from > since {
            return None;
        }
        let (index, dialect) = dialect;
        self.deltas
            .iter()
            .filter(|delta| delta.to > since)
            .map(|delta| delta.frames(index, key, dialect))
            .collect()
    }
}

impl Delta {
    fn frames(&self, index: usize, key: &Key, dialect: &dyn Dialect) -> Option<&Frames> {
        let made = self.frames[index].get_or_init(|| dialect.delta(key, self.hash, &self.put, &self.removed));
        made.as_ref()
    }
}

pub(crate) fn object_hash(key: &Key, payload: &[u8]) -> Hash {
    Hash::of(&[b"object", &[key.kind.0], key.name.as_bytes(), payload])
}

pub(crate) fn empty_set_hash(key: &Key) -> Hash {
    Hash::of(&[b"set", &[key.kind.0], key.name.as_bytes()])
}

fn member_hash(id: &[u8], rest: &[u8]) -> Hash {
    Hash::of(&[b"member", id, rest])
}

/// The frames of an object in each dialect. Most objects are many and sent to nobody for a long time: until then there is no place
/// for frames either.
#[derive(Debug, Default)]
pub(crate) struct Frameset(OnceLock<Box<[Made]>>);

impl Frameset {
    /// Of one of so many dialects.
    pub fn of(&self, dialect: usize, dialects: usize) -> &Made {
        &self.0.get_or_init(|| (0..dialects).map(|_| Made::default()).collect())[dialect]
    }

    pub fn forget_images(&mut self) {
        self.0.get_mut().into_iter().flatten().for_each(Made::forget_image);
    }
}

/// The frames of an object for one dialect, made when first needed.
#[derive(Debug, Default)]
pub(crate) struct Made {
    image: OnceLock<Frames>,
    removal: OnceLock<Option<Bytes>>,
}

impl Made {
    fn forget_image(&mut self) {
        self.image.take();
    }

    pub fn image(&self, key: &Key, hash: Hash, content: &Content, dialect: &dyn Dialect) -> &Frames {
        self.image.get_or_init(|| match content {
            Content::Whole(payload) => dialect.whole(key, hash, payload),
            Content::Set(set) => dialect.set(key, hash, &set.members),
        })
    }

    pub fn removal(&self, key: &Key, dialect: &dyn Dialect) -> Option<&Bytes> {
        self.removal.get_or_init(|| dialect.removal(key)).as_ref()
    }
}

/// Adds what brings a node that holds the object as of `since` (none: not at all) to the present.
pub(crate) fn frames_since(
    out: &mut Vec<Bytes>,
    object: (&Key, Hash, &Content, &Made),
    since: Option<Revision>,
    dialect: (usize, &dyn Dialect),
) {
    let (key, hash, content, made) = object;
    let deltas = match (content, since) {
        (Content::Set(set), Some(since)) => set.deltas_since(since, key, dialect),
        (Content::Set(_) | Content::Whole(_), _) => None,
    };
    match deltas {
        Some(deltas) => out.extend(deltas.into_iter().flat_map(|frames| frames.iter()).cloned()),
        None => out.extend(made.image(key, hash, content, dialect.1).iter().cloned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &'static str, rest: &'static str) -> Member {
        Member { id: Bytes::from(id), rest: Bytes::from(rest) }
    }

    #[test]
    fn a_sets_hash_depends_on_its_members_and_not_on_their_history() {
        let key = Key::new(crate::Kind(1), "a");
        let mut way = Set::default();
        let mut there = empty_set_hash(&key);
        way.change(&mut there, [member("x", "1"), member("y", "")], []);
        way.change(&mut there, [member("x", "2")], [Bytes::from("y")]);
        way.change(&mut there, [member("z", "")], []);
        let mut hash = empty_set_hash(&key);
        let straight = Set::new(&mut hash, [member("x", "1"), member("z", ""), member("x", "2")]);
        assert_eq!(there, hash);
        assert_eq!(way.members, straight.members);
        assert_ne!(hash, empty_set_hash(&Key::new(crate::Kind(1), "b")));
    }

    #[test]
    fn what_is_put_back_is_no_difference() {
        let mut set = Set::default();
        let mut hash = Hash::default();
        set.change(&mut hash, [member("x", "1")], []);
        let before = hash;
        assert!(set.change(&mut hash, [member("x", "1")], []).is_empty());
        let moved = set.change(&mut hash, [member("x", "1")], [Bytes::from("x")]);
        assert_eq!((moved.put.len(), moved.removed.len(), hash), (1, 0, before));
    }
}
