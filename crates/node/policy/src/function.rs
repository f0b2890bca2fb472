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
        let matches = || (0..).zip(&rows).flat_map(|(row, (_, _, services))| of_row(row, *services));
        let default = decide(&rows, program.isolated, |_| false);
        let mut function = Self::all(default);
        let protocols: BTreeSet<u8> = matches().map(|(_, one)| one.protocol).collect();
        for protocol in protocols {
            let boxes: Vec<(usize, Match)> = matches().filter(|(_, one)| one.protocol == protocol).collect();
            let decide = |open: &[usize]| decide(&rows, program.isolated, |row| open[row] > 0);
            function.protocol(protocol, strips(&boxes, rows.len(), decide));
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

/// The boxes of a row, which has none if it is about every protocol and port. One that ends before it begins is about nothing.
fn of_row(row: usize, services: Option<&[Match]>) -> impl Iterator<Item = (usize, Match)> {
    let is_some = |one: &&Match| one.first.0 <= one.first.1 && one.second.0 <= one.second.1;
    services.into_iter().flatten().filter(is_some).map(move |one| (row, *one))
}

/// First match in the tiers; then any permit of Kubernetes' policies if they isolate; then first match in the baseline. Rows about
/// every protocol and port match always.
fn decide(rows: &[Row<'_>], isolated: bool, matches: impl Fn(usize) -> bool) -> Decision {
    let first = |stage: Stage| {
        let mut of_stage = rows.iter().enumerate().filter(|(_, (of, ..))| *of == stage);
        of_stage
            .find(|(row, (.., services))| services.is_none() || matches(*row))
            .map(|(_, (_, verb, _))| *verb)
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

/// Cells with equal decisions joined: along the second number, then whole strips along the first. Each box is of a row; `decide` is
/// told how many boxes of each row a cell is in, which are counted along the strip.
fn strips(boxes: &[(usize, Match)], rows: usize, decide: impl Fn(&[usize]) -> Decision) -> Vec<Strip> {
    let seconds = cuts(boxes.iter().map(|(_, one)| one.second));
    let mut strips: Vec<Strip> = Vec::new();
    for first in cuts(boxes.iter().map(|(_, one)| one.first)) {
        let here = boxes.iter().filter(|(_, one)| (one.first.0..=one.first.1).contains(&first.0));
        let mut borders: Vec<(u32, usize, bool)> = here
            .flat_map(|(row, one)| {
                [(u32::from(one.second.0), *row, true), (u32::from(one.second.1) + 1, *row, false)]
            })
            .collect();
        borders.sort_unstable();
        let mut borders = borders.into_iter().peekable();
        let mut open = vec![0_usize; rows];
        let mut cells: Vec<(Range, Decision)> = Vec::new();
        for second in &seconds {
            while let Some((_, row, begins)) = borders.next_if(|(at, ..)| *at <= u32::from(second.0)) {
                // One that ends may come before one that begins at the same place, and never before its own beginning.
                open[row] = if begins { open[row] + 1 } else { open[row] - 1 };
            }
            let decision = decide(&open);
            match cells.last_mut() {
                Some((range, same)) if *same == decision => range.1 = second.1,
                _ => cells.push((*second, decision)),
            }
        }
        match strips.last_mut() {
            Some((range, same)) if *same == cells => range.1 = first.1,
            _ => strips.push((first, cells)),
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
