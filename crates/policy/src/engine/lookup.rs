//! Hash tables of ids whose keys live in the rows the ids point at.
//!
//! Half of the hash stands beside the id: a table that grows, and a probe that meets a stranger, need not visit the rows.
//! To look for a key and to make room for it is one probe.

use std::hash::{BuildHasher, Hash};

use hashbrown::{HashTable, hash_table};
use rustc_hash::FxBuildHasher;

#[derive(Debug, Clone)]
pub(crate) struct Lookup<T>(HashTable<(KeyHash, T)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash(u32);

impl KeyHash {
    pub(crate) fn of(key: &(impl Hash + ?Sized)) -> Self {
        let hash = FxBuildHasher.hash_one(key);
        KeyHash((hash ^ (hash >> 32)) as u32)
    }

    /// The table takes its place from the low bits and its tag from the high ones.
    fn spread(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

/// Where a key that is not there would stand.
pub(crate) struct Vacancy<'a, T>(hash_table::VacantEntry<'a, (KeyHash, T)>, KeyHash);

impl<T> Vacancy<'_, T> {
    pub(crate) fn fill(self, value: T) {
        self.0.insert((self.1, value));
    }
}

impl<T: Copy + Eq> Lookup<T> {
    pub(crate) fn new() -> Self {
        Lookup(HashTable::new())
    }

    pub(crate) fn find(&self, hash: KeyHash, is: impl Fn(T) -> bool) -> Option<T> {
        let found = self.0.find(hash.spread(), |(other, value)| *other == hash && is(*value));
        found.map(|(_, value)| *value)
    }

    pub(crate) fn find_or_vacancy(
        &mut self,
        hash: KeyHash,
        is: impl Fn(T) -> bool,
    ) -> Result<T, Vacancy<'_, T>> {
        let is = |(other, value): &(KeyHash, T)| *other == hash && is(*value);
        match self.0.entry(hash.spread(), is, |(hash, _)| hash.spread()) {
            hash_table::Entry::Occupied(entry) => Ok(entry.get().1),
            hash_table::Entry::Vacant(entry) => Err(Vacancy(entry, hash)),
        }
    }

    /// Beside others under the same key, if there are any.
    pub(crate) fn add(&mut self, hash: KeyHash, value: T) {
        self.0.insert_unique(hash.spread(), (hash, value), |(hash, _)| hash.spread());
    }

    pub(crate) fn remove(&mut self, hash: KeyHash, value: T) {
        if let Ok(entry) = self.0.find_entry(hash.spread(), |other| *other == (hash, value)) {
            entry.remove();
        }
    }

    /// Everything under the hash; keys are for the caller to compare.
    pub(crate) fn all(&self, hash: KeyHash) -> impl Iterator<Item = T> {
        self.0.iter_hash(hash.spread()).filter(move |(other, _)| *other == hash).map(|(_, value)| *value)
    }
}
