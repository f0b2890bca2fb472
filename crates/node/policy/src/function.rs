//! Decisions over the whole plane of what packets say: a [`Function`] is every protocol's two numbers, cut into decisions.

use std::collections::BTreeSet;

use crate::{
    l4::{ALL, Decision, L4, Match},
    program::{Program, Stage, Verb},
};

/// Both ends included.
pub type Range = (u16, u16);

/// Neighbouring ports up to this many are told one by one: an exact match is cheaper for the kernel than a range.
const SINGLY: u32 = 8;

/// The decision for every packet of one workload with one class of peers.
///
/// Looked up from the narrow to the wide: `ports`, `ranges`, `sources` and `boxes` (disjoint), `protocols`, `default`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    pub default: Decision,
    pub protocols: Vec<(u8, Decision)>,
    /// By protocol and destination port, whatever the first number is.
    pub ports: Vec<(u8, u16, Decision)>,
    /// The same for ranges of destination ports.
    pub ranges: Vec<(u8, Range, Decision)>,
    /// By protocol and a range of the first number (source port, or type and code), whatever the second is.
    pub sources: Vec<(u8, Range, Decision)>,
    /// What only both numbers together tell.
    pub boxes: Vec<(Match, Decision)>,
}

/// One rule as far as a class of peers is concerned: `None` is every protocol and port.
type Row<'a> = (Stage, &'a Verb, Option<&'a [Match]>);

impl Function {
    /// What the program says to peers that these parts of it are about. O(parts × cells that their ports cut the plane into).
    pub fn new(program: &Program, parts: &[u32]) -> Self {
        let rows: Vec<Row<'_>> = program.rows(parts).collect();
        let matches = || rows.iter().filter_map(|(_, _, services)| *services).flatten();
        let default = decide(&rows, program.isolated, |services| services.is_none());
        let mut function = Self::all(default);
        let protocols: BTreeSet<u8> = matches().map(|one| one.protocol).collect();
        for protocol in protocols {
            let boxes = || matches().filter(|one| one.protocol == protocol);
            let firsts = cuts(boxes().map(|one| one.first));
            let seconds = cuts(boxes().map(|one| one.second));
            let strips = strips(&firsts, &seconds, |first, second| {
                let packet = L4 { protocol, first, second };
                decide(&rows, program.isolated, |services| {
                    services.is_none_or(|services| services.iter().any(|one| one.covers(packet)))
                })
            });
            function.protocol(protocol, strips);
        }
        function
    }

    /// Decides the same on everything.
    fn all(default: Decision) -> Self {
        let (protocols, ports, ranges, sources, boxes) = Default::default();
        Self { default, protocols, ports, ranges, sources, boxes }
    }

    fn protocol(&mut self, protocol: u8, strips: Vec<Strip>) {
        let usual = usual(&strips);
        if usual != self.default {
            self.protocols.push((protocol, usual));
        }
        for (first, cells) in strips {
            for (second, decision) in cells {
                if decision == usual {
                    continue;
                }
                if first == ALL && len(second) <= SINGLY {
                    self.ports.extend((second.0..=second.1).map(|port| (protocol, port, decision)));
                } else if first == ALL {
                    self.ranges.push((protocol, second, decision));
                } else if second == ALL {
                    self.sources.push((protocol, first, decision));
                } else {
                    self.boxes.push((Match { protocol, first, second }, decision));
                }
            }
        }
    }

    /// As the kernel looks it up.
    pub fn decide(&self, packet: L4) -> Decision {
        let port = self
            .ports
            .iter()
            .find(|(protocol, port, _)| (*protocol, *port) == (packet.protocol, packet.second));
        let within = |ranges: &[(u8, Range, Decision)], number: u16| {
            let of = |(protocol, (low, high), _): &&(u8, Range, Decision)| {
                *protocol == packet.protocol && (*low..=*high).contains(&number)
            };
            ranges.iter().find(of).map(|(_, _, decision)| *decision)
        };
        let ranges = || within(&self.ranges, packet.second).or_else(|| within(&self.sources, packet.first));
        let both = || self.boxes.iter().find(|(one, _)| one.covers(packet)).map(|(_, decision)| *decision);
        let protocol =
            || self.protocols.iter().find(|(one, _)| *one == packet.protocol).map(|(_, decision)| *decision);
        port.map(|(_, _, decision)| *decision)
            .or_else(ranges)
            .or_else(both)
            .or_else(protocol)
            .unwrap_or(self.default)
    }
}

/// First match in the tiers; then any permit of Kubernetes' policies if they isolate; then first match in the baseline.
fn decide(rows: &[Row<'_>], isolated: bool, matches: impl Fn(Option<&[Match]>) -> bool) -> Decision {
    let first = |stage: Stage| {
        rows.iter().find(|(of, _, services)| *of == stage && matches(*services)).map(|(_, verb, _)| *verb)
    };
    let decided = |verb: Option<&Verb>| match verb {
        Some(Verb::Decide(decision)) => Some(*decision),
        Some(Verb::Pass) | None => None,
    };
    if let Some(decision) = decided(first(Stage::Tiers)) {
        return decision;
    }
    if isolated {
        return if first(Stage::Kubernetes).is_some() { Decision::Permit } else { Decision::Drop };
    }
    decided(first(Stage::Baseline)).unwrap_or(Decision::Permit)
}

type Strip = (Range, Vec<(Range, Decision)>);

fn len((low, high): Range) -> u32 {
    u32::from(high) - u32::from(low) + 1
}

/// The ranges that the borders of others cut the whole into.
fn cuts(ranges: impl Iterator<Item = Range>) -> Vec<Range> {
    let mut starts = BTreeSet::from([0_u16]);
    for (low, high) in ranges {
        starts.insert(low);
        starts.extend(high.checked_add(1));
    }
    let ends = starts.iter().skip(1).map(|start| start - 1).chain([u16::MAX]);
    starts.iter().copied().zip(ends).collect()
}

/// Cells with equal decisions joined: along the second number, then whole strips along the first.
fn strips(firsts: &[Range], seconds: &[Range], decide: impl Fn(u16, u16) -> Decision) -> Vec<Strip> {
    let mut strips: Vec<Strip> = Vec::new();
    for first in firsts {
        let mut cells: Vec<(Range, Decision)> = Vec::new();
        for second in seconds {
            let decision = decide(first.0, second.0);
            match cells.last_mut() {
                Some((range, same)) if *same == decision => range.1 = second.1,
                _ => cells.push((*second, decision)),
            }
        }
        match strips.last_mut() {
            Some((range, same)) if *same == cells => range.1 = first.1,
            _ => strips.push((*first, cells)),
        }
    }
    strips
}

/// The decision that covers most of the plane.
fn usual(strips: &[Strip]) -> Decision {
    let area = |decision: Decision| -> u64 {
        let cells = strips.iter().flat_map(|(first, cells)| cells.iter().map(move |cell| (first, cell)));
        cells
            .filter(|(_, (_, of))| *of == decision)
            .map(|(first, (second, _))| u64::from(len(*first)) * u64::from(len(*second)))
            .sum()
    };
    [Decision::Drop, Decision::Reject, Decision::Permit]
        .into_iter()
        .max_by_key(|decision| area(*decision))
        .expect("there are three")
}
