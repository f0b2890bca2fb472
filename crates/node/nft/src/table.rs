//! A table as it should be.

use std::collections::BTreeMap;

use crate::{Rule, Set};

/// Begins the comment of every table of ours. A table of our name without it belongs to someone else.
pub const OWNER: &str = "trestle";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    Inet,
    Ip,
    Ip6,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub family: Family,
    pub name: String,
    pub chains: BTreeMap<String, Chain>,
    pub sets: BTreeMap<String, Set>,
    /// Chains that no packet enters by itself stay as they are if they are not named here.
    pub keeps_chains: bool,
}

impl Table {
    pub fn new(family: Family, name: impl Into<String>) -> Self {
        let (chains, sets) = (BTreeMap::new(), BTreeMap::new());
        Self { family, name: name.into(), chains, sets, keeps_chains: false }
    }

    pub fn chain(&mut self, name: impl Into<String>, chain: Chain) -> &mut Self {
        self.chains.insert(name.into(), chain);
        self
    }

    pub fn set(&mut self, name: impl Into<String>, set: Set) -> &mut Self {
        self.sets.insert(name.into(), set);
        self
    }
}

#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// `None`: reached only by jumps and gotos.
    pub base: Option<BaseChain>,
    pub rules: Vec<Rule>,
}

impl Chain {
    pub fn base(kind: ChainKind, hook: Hook, priority: i32, policy: Policy) -> Self {
        Self { base: Some(BaseChain { kind, hook, priority, policy }), rules: Vec::new() }
    }

    pub fn regular() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseChain {
    pub kind: ChainKind,
    pub hook: Hook,
    pub priority: i32,
    pub policy: Policy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainKind {
    Filter,
    Nat,
    Route,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Accept,
    Drop,
}
