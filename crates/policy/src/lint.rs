//! What of the policies does nothing, with the proof.
//!
//! In: the engine, as of the last drain. Out: [`Finding`]s. Holds: nothing. Not here: policies that are at fault, which the engine
//! tells by itself (`Engine::problems`) and which are left out here, for what they close they close on purpose.
//!
//! ```text
//!   a rule  =  atoms: each of those it is applied to × each peer × each port
//!   an atom is covered by one rule that is applied to all of them, about all of the peer and of the port, and
//!     in its tier's stage     comes before it            ─► redundant (same action), shadowed (another one)
//!     in Kubernetes policies  is another one that stays  ─► redundant
//!     in tiers, before them   decides, and none passes   ─► unused
//!   a baseline rule for those whom Kubernetes policies isolate ─► unused
//! ```
//!
//! A rule is covered by what selectors, blocks and ports say, not by who is there today: the finding stays true whichever
//! workloads come. (Whether a namespace selector covers one namespace depends on that namespace's labels.) All that is reported of rules
//! that are covered may be taken away together: rules that are reported cover nothing. A rule that is covered only by several rules that
//! each have a part of one peer or of one range of ports is not found.
//!
//! Cost: O(rules of a namespace × rules of that namespace and of those that reach over namespaces).

mod cover;
mod empty;
mod lines;

use std::{cmp::Reverse, collections::BTreeSet, fmt};

use model::policy::{ObjectId, output::Direction};

use crate::engine::Engine;
use cover::Cover;
use lines::{Line, Lines, Stage};

/// Something that does nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub policy: ObjectId,
    /// None: the whole policy.
    pub rule: Option<RulePath>,
    pub problem: Idle,
    /// The rules that cover it, or what is not there.
    pub proof: Vec<String>,
}

/// A rule's place in the document: the direction and, from 0, which of its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RulePath {
    pub direction: Direction,
    pub index: usize,
}

/// A rule as people wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub path: RulePath,
    /// Its places among the rules that nodes and `explain` number: one written rule may be several of these.
    pub numbers: Vec<usize>,
}

/// In which way something does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idle {
    /// Other rules do the same.
    Redundant,
    /// Rules before it decide all that it is about, and not all as it would.
    Shadowed,
    /// Nothing that it is about gets to it.
    Unused,
    SelectsNobody,
    MatchesNothing,
}

impl Idle {
    /// Whether taking the rule away changes no decision, now and whichever workloads come.
    pub fn is_covered(self) -> bool {
        matches!(self, Self::Redundant | Self::Shadowed | Self::Unused)
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redundant => "redundant",
            Self::Shadowed => "shadowed",
            Self::Unused => "unused",
            Self::SelectsNobody => "selects nobody",
            Self::MatchesNothing => "matches nothing",
        })
    }
}

impl fmt::Display for RulePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = match self.direction {
            Direction::In => "ingress",
            Direction::Out => "egress",
        };
        write!(f, "spec.{list}[{}]", self.index)
    }
}

impl Engine {
    /// Sorted by policy and place. Of two rules that do the same, the one of a policy that is `asked` about is told; else the later one.
    pub fn lint(&self, asked: &BTreeSet<ObjectId>) -> Vec<Finding> {
        let lines = Lines::of(self);
        let mut findings = Vec::new();
        for direction in [Direction::In, Direction::Out] {
            findings.extend(covered(self, &lines, direction, asked));
        }
        findings.extend(empty::findings(self, &lines));
        findings.sort();
        findings
    }

    /// The rules of a policy. None of one that is at fault: it is not enforced as it is written.
    pub fn written_rules(&self, policy: &ObjectId) -> Vec<Written> {
        let lines = Lines::of_policy(self, policy).into_iter().filter(|line| line.action.is_some());
        lines.map(|line| Written { path: line.path(), numbers: line.rules }).collect()
    }
}

/// Rules of one direction that are covered. A rule that is told covers nothing, so what is looked at first decides which of two that are the
/// same is told.
fn covered(engine: &Engine, lines: &Lines, direction: Direction, asked: &BTreeSet<ObjectId>) -> Vec<Finding> {
    let mut cover = Cover::new(engine, lines, direction);
    let mut findings = Vec::new();
    let mut order: Vec<usize> =
        (0..lines.list.len()).filter(|at| lines.list[*at].direction == direction).collect();
    // Baseline first: it is held against Kubernetes policies as they are.
    order.sort_by_cached_key(|at| {
        let line = &lines.list[*at];
        let is_asked = !asked.is_empty() && asked.contains(&engine.object_id(line.policy));
        (Reverse(line.stage), !is_asked, Reverse(*at))
    });
    for at in order {
        let line = &lines.list[at];
        let found = match line.stage {
            Stage::Tiers => ordered(&cover, at),
            Stage::Kubernetes => among_kubernetes(&cover, at),
            Stage::Baseline => ordered(&cover, at).or_else(|| isolated(&cover, at)),
        };
        if let Some((problem, by)) = found {
            cover.remove(at);
            findings.push(finding(engine, lines, line, problem, &by));
        }
    }
    findings
}

/// By rules of the same stage that come before it.
fn ordered(cover: &Cover<'_>, at: usize) -> Option<(Idle, Vec<usize>)> {
    let line = &cover.lines.list[at];
    let by = cover.of(at, |other| other.stage == line.stage && other.comes_before(line))?;
    let is_same = by.iter().all(|other| cover.lines.list[*other].action == line.action);
    Some((if is_same { Idle::Redundant } else { Idle::Shadowed }, by))
}

fn among_kubernetes(cover: &Cover<'_>, at: usize) -> Option<(Idle, Vec<usize>)> {
    let line = &cover.lines.list[at];
    if let Some(by) = cover.of(at, |other| other.stage == Stage::Kubernetes) {
        return Some((Idle::Redundant, by));
    }
    // A policy without a list of types may isolate by having rules of egress alone.
    if line.direction == Direction::Out {
        return None;
    }
    let first_pass = cover.lines.first_pass(line.direction);
    let decides = |other: &Line| {
        other.stage == Stage::Tiers
            && first_pass.is_none_or(|pass| other.comes_before(&cover.lines.list[pass]))
    };
    cover.of(at, decides).map(|by| (Idle::Unused, by))
}

/// Baseline rules for those whom some Kubernetes policy isolates.
fn isolated(cover: &Cover<'_>, at: usize) -> Option<(Idle, Vec<usize>)> {
    cover.isolation(at).map(|by| (Idle::Unused, by))
}

fn finding(engine: &Engine, lines: &Lines, line: &Line, problem: Idle, by: &[usize]) -> Finding {
    let told = |other: &usize| {
        let other = &lines.list[*other];
        let policy = engine.object_id(other.policy);
        match problem {
            Idle::Unused if line.stage == Stage::Baseline && other.stage == Stage::Kubernetes => {
                format!("{policy} isolates all that it is applied to")
            }
            _ => format!("{} of {policy}{}", other.path(), other.acts()),
        }
    };
    let mut proof: Vec<String> = by.iter().map(told).collect();
    proof.sort();
    proof.dedup();
    Finding { policy: engine.object_id(line.policy), rule: Some(line.path()), problem, proof }
}
