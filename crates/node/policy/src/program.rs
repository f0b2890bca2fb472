//! What applies to one workload in one direction and family: rules in the order in which they are asked.

use model::policy::output::Direction;

use rustc_hash::FxHashMap;

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
        self.parts().flat_map(|(_, part)| part.features.iter().copied())
    }

    fn parts(&self) -> impl Iterator<Item = (&ProgramRule, &Part)> {
        self.rules.iter().flat_map(|rule| rule.parts.iter().map(move |part| (rule, part)))
    }

    /// These parts, by their numbers, ascending.
    pub(crate) fn rows(&self, parts: &[u32]) -> impl Iterator<Item = (Stage, &Verb, Option<&[Match]>)> {
        let mut wanted = parts.iter().copied().peekable();
        let numbered = (0..).zip(self.parts());
        let named = numbered.filter(move |(number, _)| wanted.next_if_eq(number).is_some());
        named.map(|(_, (rule, part))| (rule.stage, &rule.verb, part.services.as_deref()))
    }
}

/// Whom the parts of a program are about, by their numbers.
#[derive(Debug, Default)]
pub struct Concern {
    anyone: Vec<u32>,
    by_feature: FxHashMap<u32, Vec<u32>>,
}

impl Concern {
    pub fn new(program: &Program) -> Self {
        let mut concern = Self::default();
        for (number, (_, part)) in (0..).zip(program.parts()) {
            if part.anyone {
                concern.anyone.push(number);
                continue;
            }
            for feature in &part.features {
                concern.by_feature.entry(*feature).or_default().push(number);
            }
        }
        concern
    }

    /// Parts that are about peers with these features, ascending: peers of equal parts are treated alike.
    pub fn with(&self, features: &[u32]) -> Vec<u32> {
        let of_features = features.iter().filter_map(|feature| self.by_feature.get(feature)).flatten();
        let mut parts: Vec<u32> = self.anyone.iter().chain(of_features).copied().collect();
        parts.sort_unstable();
        parts.dedup();
        parts
    }
}
