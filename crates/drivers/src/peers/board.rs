//! What a controller wants written, and what of it is not written yet. Pure.
//!
//! In: values by key. Out: batches of changes within the store's limits, the key that speaks for all others last.
//! Holds: every value wanted, and the keys that differ from what was written.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use store::Key;

/// What one transaction may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub operations: usize,
    /// Keys and values together.
    pub bytes: usize,
}

/// A key and its value; none: it is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: Key,
    pub value: Option<Bytes>,
}

#[derive(Debug)]
pub struct Board {
    /// Written after all others.
    last: Key,
    wanted: BTreeMap<Key, Bytes>,
    unwritten: BTreeSet<Key>,
}

impl Board {
    pub fn new(last: Key) -> Self {
        Self { last, wanted: BTreeMap::new(), unwritten: BTreeSet::new() }
    }

    pub fn put(&mut self, key: Key, value: Bytes) {
        if self.wanted.get(&key) != Some(&value) {
            self.unwritten.insert(key.clone());
            self.wanted.insert(key, value);
        }
    }

    pub fn remove(&mut self, key: Key) {
        if self.wanted.remove(&key).is_some() {
            self.unwritten.insert(key);
        }
    }

    /// Nothing of what was written is there any more.
    pub fn begin_anew(&mut self) {
        self.unwritten = self.wanted.keys().cloned().collect();
    }

    /// What is to be written, in this order. A value beyond the limits comes alone.
    pub fn batches(&self, limits: Limits) -> Vec<Vec<Change>> {
        let others = self.unwritten.iter().filter(|key| **key != self.last);
        let changes = others.chain(self.unwritten.get(&self.last)).map(|key| self.change(key));
        let (mut batches, mut bytes) = (Vec::<Vec<Change>>::new(), 0);
        for change in changes {
            let size = change.key.as_str().len() + change.value.as_ref().map_or(0, Bytes::len);
            match batches.last_mut() {
                Some(batch) if batch.len() < limits.operations && bytes + size <= limits.bytes => {
                    batch.push(change);
                    bytes += size;
                }
                _ => {
                    batches.push(vec![change]);
                    bytes = size;
                }
            }
        }
        batches
    }

    pub fn written(&mut self, batch: &[Change]) {
        for change in batch {
            self.unwritten.remove(&change.key);
        }
    }

    fn change(&self, key: &Key) -> Change {
        Change { key: key.clone(), value: self.wanted.get(key).cloned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Limits = Limits { operations: 100, bytes: 10_000 };

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    fn board(values: &[(&str, &str)]) -> Board {
        let mut board = Board::new(key("about"));
        values.iter().for_each(|(at, value)| board.put(key(at), Bytes::copy_from_slice(value.as_bytes())));
        board
    }

    fn write(board: &mut Board) -> Vec<Vec<(String, bool)>> {
        let batches = board.batches(WIDE);
        batches.iter().for_each(|batch| board.written(batch));
        named(batches)
    }

    fn named(batches: Vec<Vec<Change>>) -> Vec<Vec<(String, bool)>> {
        let name = |change: Change| (change.key.to_string(), change.value.is_some());
        batches.into_iter().map(|batch| batch.into_iter().map(name).collect()).collect()
    }

    fn put(at: &str) -> (String, bool) {
        (at.to_owned(), true)
    }

    #[test]
    fn only_what_differs_is_written_and_the_key_that_speaks_for_all_comes_last() {
        let mut board = board(&[("about", "1"), ("n/a", "up"), ("n/b", "up")]);
        assert_eq!(write(&mut board), [[put("n/a"), put("n/b"), put("about")]]);
        board.put(key("n/a"), Bytes::from_static(b"up"));
        assert!(write(&mut board).is_empty());
        board.remove(key("n/b"));
        board.remove(key("n/c"));
        assert_eq!(write(&mut board), [[("n/b".to_owned(), false)]]);
        board.begin_anew();
        assert_eq!(write(&mut board), [[put("n/a"), put("about")]]);
    }

    #[test]
    fn what_was_refused_is_written_the_next_time() {
        let mut board = board(&[("a", "1"), ("b", "1")]);
        let batches = board.batches(Limits { operations: 1, ..WIDE });
        board.written(&batches[0]);
        assert_eq!(write(&mut board), [[put("b")]]);
    }

    #[test]
    fn batches_keep_to_the_limits() {
        let long = "x".repeat(60);
        let board = board(&[("about", "1"), ("a", &long), ("b", "1"), ("c", "1"), ("d", "1")]);
        let batches = board.batches(Limits { operations: 2, bytes: 50 });
        assert_eq!(named(batches), [vec![put("a")], vec![put("b"), put("c")], vec![put("d"), put("about")]]);
    }
}
