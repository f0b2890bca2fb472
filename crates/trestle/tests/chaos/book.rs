//! What clients were told of their writes, and what may therefore be stored at the end.
//!
//! A key whose last write has an unknown outcome is not written again: a write that is still on its way could come after the
//! next one. So a key has one value, or, of its last write, two.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Tag,
    Pod,
    Policy,
    Rule,
}

pub type Key = (Kind, String);

/// None: it is not there.
pub type Value = Option<String>;

#[derive(Debug, Default)]
pub struct Book {
    may_be: BTreeMap<Key, Vec<Value>>,
    pub acknowledged: usize,
    pub unknown: usize,
    pub refused: usize,
    /// What was said of those of unknown outcome, and how often.
    pub troubles: BTreeMap<String, usize>,
    /// Answers that cannot be, if nothing is lost.
    pub wrong: Vec<String>,
}

impl Book {
    /// What is stored for certain. Not to be asked of a key in doubt.
    pub fn value(&self, key: &Key) -> Value {
        self.may_be.get(key).and_then(|values| values[0].clone())
    }

    pub fn acknowledge(&mut self, key: &Key, value: Value) {
        self.may_be.insert(key.clone(), vec![value]);
        self.acknowledged += 1;
    }

    pub fn doubt(&mut self, key: &Key, value: Value, why: String) {
        self.may_be.entry(key.clone()).or_insert_with(|| vec![None]).push(value);
        self.unknown += 1;
        *self.troubles.entry(why).or_default() += 1;
    }

    /// Another client's, of other keys.
    pub fn add(&mut self, other: Self) {
        self.may_be.extend(other.may_be);
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.refused += other.refused;
        self.wrong.extend(other.wrong);
        for (why, count) in other.troubles {
            *self.troubles.entry(why).or_default() += count;
        }
    }

    /// How many keys of each kind must be there.
    pub fn present(&self) -> BTreeMap<Kind, usize> {
        let mut present = BTreeMap::new();
        for ((kind, _), _) in self.may_be.iter().filter(|(_, values)| !values.contains(&None)) {
            *present.entry(*kind).or_default() += 1;
        }
        present
    }

    /// What is lost, and what came from nowhere.
    pub fn differences(&self, found: &BTreeMap<Key, String>) -> Vec<String> {
        let lost = self.may_be.iter().filter(|(key, values)| !values.contains(&found.get(*key).cloned()));
        let lost = lost.map(|(key, values)| format!("{key:?} may be {values:?} and is {:?}", found.get(key)));
        let strange = found.iter().filter(|(key, _)| !self.may_be.contains_key(*key));
        lost.chain(strange.map(|(key, value)| format!("{key:?} is {value:?} and nobody wrote it"))).collect()
    }
}
