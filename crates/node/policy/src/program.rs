//! What applies to one workload in one direction and family: rules in the order in which they are asked.

use model::policy::output::Direction;

use crate::l4::{Decision, Match};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    Tiers,
    Kubernetes,
    Baseline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Decide(Decision),
    /// Leave the tiers; Kubernetes policies and the baseline decide.
    Pass,
}

/// Workloads with equal programs share one, and everything that is worked out from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    pub direction: Direction,
    pub ipv6: bool,
    /// Kubernetes policies apply: what none of them permits is dropped.
    pub isolated: bool,
    /// By stage, then by rank.
    pub rules: Vec<ProgramRule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProgramRule {
    pub stage: Stage,
    pub verb: Verb,
    /// Any of these.
    pub parts: Vec<Part>,
}

/// Peers and what is said of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Every address of the family.
    pub anyone: bool,
    /// Or peers that have one of these features.
    pub features: Vec<u32>,
    /// `None`: every protocol and port.
    pub services: Option<Vec<Match>>,
}

impl Program {
    /// Nothing passes.
    pub fn closed(direction: Direction, ipv6: bool) -> Self {
        Self { direction, ipv6, isolated: true, rules: Vec::new() }
    }

    /// Whether it changes anything.
    pub fn restricts(&self) -> bool {
        self.isolated || !self.rules.is_empty()
    }

    pub fn features(&self) -> impl Iterator<Item = u32> + '_ {
        self.rules.iter().flat_map(|rule| &rule.parts).flat_map(|part| part.features.iter().copied())
    }

    /// The rules that concern peers with these features.
    pub(crate) fn rows(
        &self,
        is_peer: impl Fn(u32) -> bool,
    ) -> impl Iterator<Item = (Stage, &Verb, Option<&[Match]>)> {
        let parts = self.rules.iter().flat_map(|rule| rule.parts.iter().map(move |part| (rule, part)));
        parts
            .filter(move |(_, part)| part.anyone || part.features.iter().any(|feature| is_peer(*feature)))
            .map(|(rule, part)| (rule.stage, &rule.verb, part.services.as_deref()))
    }
}
