//! A digest of what a node holds, to find what differs without sending it.
//!
//! An object is in the bucket its own hash names. One that changes leaves one bucket and enters another, so both
//! differ: the node hears of the new content from one, and a sweep of the other finds nothing left behind.

use crate::key::Hash;

/// Buckets of a digest: 1 KiB on the wire, and one change resends about two in 128 objects.
pub const BUCKETS: usize = 128;

/// Sums of hashes by bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest([u64; BUCKETS]);

/// A set of buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buckets(u128);

impl Default for Digest {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

/// The bucket of an object, by the hash nodes are told.
pub fn bucket(hash: u64) -> usize {
    (hash % BUCKETS as u64) as usize
}

impl Digest {
    /// From the wire; none if it does not have [`BUCKETS`] numbers.
    pub fn from_slice(numbers: &[u64]) -> Option<Self> {
        numbers.try_into().ok().map(Self)
    }

    pub fn as_slice(&self) -> &[u64] {
        &self.0
    }

    pub fn add(&mut self, hash: u64) {
        let sum = &mut self.0[bucket(hash)];
        *sum = sum.wrapping_add(hash);
    }

    pub fn subtract(&mut self, hash: u64) {
        let sum = &mut self.0[bucket(hash)];
        *sum = sum.wrapping_sub(hash);
    }

    /// The digest of two disjoint states together.
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        for (sum, other) in sum.0.iter_mut().zip(other.0) {
            *sum = sum.wrapping_add(other);
        }
        sum
    }

    pub fn differing(&self, other: &Self) -> Buckets {
        let differ = self.0.iter().zip(other.0).enumerate().filter(|(_, (a, b))| *a != b);
        Buckets(differ.fold(0, |set, (bucket, _)| set | 1 << bucket))
    }
}

impl Buckets {
    pub const ALL: Self = Self(u128::MAX);

    pub fn holds(self, hash: Hash) -> bool {
        self.0 >> bucket(hash.short()) & 1 == 1
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..BUCKETS as u32).filter(move |bucket| self.0 >> bucket & 1 == 1)
    }
}
