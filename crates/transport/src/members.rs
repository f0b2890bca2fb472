//! The members of a set, sorted by their id. Most sets have few, and there are very many sets: few members lie side by side, many in
//! a tree. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Up to so many lie side by side.
const FEW: usize = 32;

/// Members of a set by their id: each is encoded as its id and what follows.
#[derive(Clone, Debug)]
pub struct Members(Inner);

#[derive(Clone, Debug)]
enum Inner {
    Few(Vec<(Bytes, Bytes)>),
    /// Also of a set that had many once: it may have many again.
    Many(BTreeMap<Bytes, Bytes>),
}

impl Default for Members {
    fn default() -> Self {
        Self(Inner::Few(Vec::new()))
    }
}

impl Members {
    pub fn len(&self) -> usize {
        match &self.0 {
            Inner::Few(members) => members.len(),
            Inner::Many(members) => members.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, id: &[u8]) -> Option<&Bytes> {
        match &self.0 {
            Inner::Few(members) => place(members, id).ok().map(|at| &members[at].1),
            Inner::Many(members) => members.get(id),
        }
    }

    pub fn insert(&mut self, id: Bytes, rest: Bytes) {
        match &mut self.0 {
            Inner::Few(members) => match place(members, &id) {
                Ok(at) => members[at].1 = rest,
                Err(_) if members.len() == FEW => {
                    let mut many: BTreeMap<Bytes, Bytes> = std::mem::take(members).into_iter().collect();
                    many.insert(id, rest);
                    self.0 = Inner::Many(many);
                }
                Err(at) => {
                    // As much as is needed, not as much as may be needed.
                    members.reserve_exact(1);
                    members.insert(at, (id, rest));
                }
            },
            Inner::Many(members) => drop(members.insert(id, rest)),
        }
    }

    pub fn remove(&mut self, id: &[u8]) -> Option<Bytes> {
        match &mut self.0 {
            Inner::Few(members) => place(members, id).ok().map(|at| members.remove(at).1),
            Inner::Many(members) => members.remove(id),
        }
    }

    /// By id.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        let (few, many) = match &self.0 {
            Inner::Few(members) => (members.as_slice(), None),
            Inner::Many(members) => (&[][..], Some(members)),
        };
        few.iter().map(|(id, rest)| (id, rest)).chain(many.into_iter().flatten())
    }

    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.iter().map(|(id, _)| id)
    }
}

fn place(members: &[(Bytes, Bytes)], id: &[u8]) -> Result<usize, usize> {
    members.binary_search_by(|(known, _)| known.as_ref().cmp(id))
}

impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Members {}

impl Extend<(Bytes, Bytes)> for Members {
    fn extend<T: IntoIterator<Item = (Bytes, Bytes)>>(&mut self, members: T) {
        members.into_iter().for_each(|(id, rest)| self.insert(id, rest));
    }
}

impl FromIterator<(Bytes, Bytes)> for Members {
    fn from_iter<T: IntoIterator<Item = (Bytes, Bytes)>>(members: T) -> Self {
        let mut all = Self::default();
        all.extend(members);
        all
    }
}

impl IntoIterator for Members {
    type Item = (Bytes, Bytes);
    type IntoIter = Box<dyn Iterator<Item = (Bytes, Bytes)>>;

    fn into_iter(self) -> Self::IntoIter {
        match self.0 {
            Inner::Few(members) => Box::new(members.into_iter()),
            Inner::Many(members) => Box::new(members.into_iter()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is put and removed, it is as in a map, also where few become many and many few.
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((any::<bool>(), 0_u8..80, any::<u8>()), 0..300)) {
            let (mut members, mut map) = (Members::default(), BTreeMap::new());
            for (puts, id, rest) in steps {
                let (id, rest) = (Bytes::copy_from_slice(&[id / 9, id]), Bytes::copy_from_slice(&[rest]));
                if puts {
                    members.insert(id.clone(), rest.clone());
                    map.insert(id.clone(), rest);
                } else {
                    prop_assert_eq!(members.remove(&id), map.remove(&id));
                }
                prop_assert_eq!(members.get(&id), map.get(&id));
                prop_assert_eq!(members.len(), map.len());
            }
            prop_assert!(members.iter().eq(map.iter()));
            let again: Members = map.into_iter().rev().collect();
            prop_assert_eq!(&again, &members);
            prop_assert!(members.clone().into_iter().eq(again));
        }
    }
}
