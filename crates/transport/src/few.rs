//! Maps of which most have few entries, and of which there are very many: few lie side by side, many in a tree. Pure.

use std::{borrow::Borrow, collections::BTreeMap};

use bytes::Bytes;

/// Up to so many lie side by side.
const FEW: usize = 32;

/// Members of a set by their id: each is encoded as its id and what follows.
pub type Members = Few<Bytes, Bytes>;

/// A map in the order of its keys.
#[derive(Clone, Debug)]
pub struct Few<K, V>(Inner<K, V>);

#[derive(Clone, Debug)]
enum Inner<K, V> {
    Few(Vec<(K, V)>),
    /// Also of what had many entries once: it may have many again.
    Many(BTreeMap<K, V>),
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self(Inner::Few(Vec::new()))
    }
}

impl<K: Ord, V> Few<K, V> {
    pub fn len(&self) -> usize {
        match &self.0 {
            Inner::Few(few) => few.len(),
            Inner::Many(many) => many.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        match &self.0 {
            Inner::Few(few) => place(few, key).ok().map(|at| &few[at].1),
            Inner::Many(many) => many.get(key),
        }
    }

    /// The value it replaces.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match &mut self.0 {
            Inner::Few(few) => match place(few, &key) {
                Ok(at) => return Some(std::mem::replace(&mut few[at].1, value)),
                Err(_) if few.len() == FEW => {
                    let mut many: BTreeMap<K, V> = std::mem::take(few).into_iter().collect();
                    many.insert(key, value);
                    self.0 = Inner::Many(many);
                }
                Err(at) => {
                    // As much as is needed, not as much as may be needed.
                    few.reserve_exact(1);
                    few.insert(at, (key, value));
                }
            },
            Inner::Many(many) => return many.insert(key, value),
        }
        None
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        match &mut self.0 {
            Inner::Few(few) => place(few, key).ok().map(|at| few.remove(at).1),
            Inner::Many(many) => many.remove(key),
        }
    }

    /// By key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let (few, many) = match &self.0 {
            Inner::Few(few) => (few.as_slice(), None),
            Inner::Many(many) => (&[][..], Some(many)),
        };
        few.iter().map(|(key, value)| (key, value)).chain(many.into_iter().flatten())
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }
}

fn place<K: Borrow<Q>, Q: Ord + ?Sized, V>(few: &[(K, V)], key: &Q) -> Result<usize, usize> {
    few.binary_search_by(|(known, _)| known.borrow().cmp(key))
}

impl<K: Ord, V: PartialEq> PartialEq for Few<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<K: Ord, V: Eq> Eq for Few<K, V> {}

impl<K: Ord, V> Extend<(K, V)> for Few<K, V> {
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, entries: T) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Few<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Self {
        let mut all = Self::default();
        all.extend(entries);
        all
    }
}

impl<K: 'static, V: 'static> IntoIterator for Few<K, V> {
    type Item = (K, V);
    type IntoIter = Box<dyn Iterator<Item = (K, V)>>;

    fn into_iter(self) -> Self::IntoIter {
        match self.0 {
            Inner::Few(few) => Box::new(few.into_iter()),
            Inner::Many(many) => Box::new(many.into_iter()),
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
                    prop_assert_eq!(members.insert(id.clone(), rest.clone()), map.insert(id.clone(), rest));
                } else {
                    prop_assert_eq!(members.remove(&id[..]), map.remove(&id));
                }
                prop_assert_eq!(members.get(&id[..]), map.get(&id));
                prop_assert_eq!(members.len(), map.len());
            }
            prop_assert!(members.iter().eq(map.iter()));
            let again: Members = map.into_iter().rev().collect();
            prop_assert_eq!(&again, &members);
            prop_assert!(members.clone().into_iter().eq(again));
        }
    }
}
