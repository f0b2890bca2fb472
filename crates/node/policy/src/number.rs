//! Numbers that come from what they stand for: a restart finds the same ones in the kernel.
//!
//! Should two things fall on one number, the second takes the next free one.

use std::hash::{Hash, Hasher};

use crate::layout::{ASIDE, FIRST_CLASS};

/// 64-bit FNV-1a, the same in every run.
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        self.0 = bytes.iter().fold(self.0, step);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub fn hash(what: &impl Hash) -> u64 {
    let mut hasher = Fnv::default();
    what.hash(&mut hasher);
    hasher.finish()
}

/// None that has a meaning of its own where classes and functions stand.
pub fn free(hash: u64, is_taken: impl Fn(u32) -> bool) -> u32 {
    let [a, b, c, d, e, f, g, h] = hash.to_le_bytes();
    let mut number = (u32::from_le_bytes([a, b, c, d]) ^ u32::from_le_bytes([e, f, g, h])) & !ASIDE;
    while number < FIRST_CLASS || is_taken(number) {
        number = (number + 1) & !ASIDE;
    }
    number
}
