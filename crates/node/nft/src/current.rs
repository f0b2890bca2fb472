//! A table as the kernel has it.

use std::collections::BTreeMap;

use crate::{BaseChain, Elements, Family, SetSchema};

#[derive(Clone, Debug)]
pub struct CurrentTable {
    pub family: Family,
    pub name: String,
    /// Its comment begins with [`crate::OWNER`].
    pub owned: bool,
    pub chains: BTreeMap<String, CurrentChain>,
    pub sets: BTreeMap<String, CurrentSet>,
}

#[derive(Clone, Debug, Default)]
pub struct CurrentChain {
    pub base: Option<BaseChain>,
    /// In the order of evaluation.
    pub rules: Vec<CurrentRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentRule {
    /// `None`: not a rule of ours.
    pub fingerprint: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct CurrentSet {
    /// `None`: not of a shape that we make.
    pub schema: Option<SetSchema>,
    /// Empty for a dynamic set.
    pub elements: Elements,
}
