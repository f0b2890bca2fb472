//! Counts of things that several patches share.

use std::{collections::HashMap, hash::Hash};

/// How often each thing is wanted. The first user makes it, the last one removes it.
#[derive(Clone, Debug)]
pub struct Refs<T> {
    counts: HashMap<T, u32>,
}

impl<T> Default for Refs<T> {
    fn default() -> Self {
        Self { counts: HashMap::new() }
    }
}

impl<T: Hash + Eq> Refs<T> {
    /// Whether this is the first user.
    pub fn acquire(&mut self, thing: T) -> bool {
        let count = self.counts.entry(thing).or_default();
        *count += 1;
        *count == 1
    }

    /// Whether this was the last user.
    pub fn release(&mut self, thing: &T) -> bool {
        let Some(count) = self.counts.get_mut(thing) else { return false };
        *count -= 1;
        let last = *count == 0;
        if last {
            self.counts.remove(thing);
        }
        last
    }

    pub fn contains(&self, thing: &T) -> bool {
        self.counts.contains_key(thing)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.counts.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_makes_and_only_the_last_removes() {
        let mut refs = Refs::default();
        assert!(refs.acquire("vip"));
        assert!(!refs.acquire("vip"));
        assert!(!refs.release(&"vip"));
        assert!(refs.release(&"vip"));
        assert!(!refs.release(&"vip"), "what nobody holds is nobody's to release");
    }
}
