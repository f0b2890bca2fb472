//! The others of a row, in parts that have met the same.

use std::rc::Rc;

use model::policy::output::Direction;
use rustc_hash::FxHashMap;

use super::{Shape, count_of};

pub(super) const NOWHERE: u32 = u32::MAX;

/// Ends on the other side, and where each stands.
pub(super) struct Tile {
    /// Ascending.
    pub(super) others: Vec<u32>,
    /// Of the ends between the first and the last.
    place: Vec<u32>,
    pub(super) beginnings: FxHashMap<(Direction, Shape, bool), Rc<Beginnings>>,
    /// The part each of the others is in while a row is worked out; usually in that of its beginning.
    pub(super) parts: Vec<u32>,
}

impl Tile {
    pub(super) fn new(others: Vec<u32>) -> Self {
        let (first, last) = (others.first().copied().unwrap_or(1), others.last().copied().unwrap_or(0));
        let mut place = vec![NOWHERE; (last + 1).saturating_sub(first) as usize];
        others.iter().enumerate().for_each(|(at, end)| place[(end - first) as usize] = count_of(at));
        let parts = vec![NOWHERE; others.len()];
        Self { others, place, beginnings: FxHashMap::default(), parts }
    }

    pub(super) fn place(&self, end: u32) -> Option<usize> {
        let at = *self.place.get(end.checked_sub(*self.others.first()?)? as usize)?;
        (at != NOWHERE).then_some(at as usize)
    }
}

/// Answers about the others of a tile: the usual one, and those that differ, ascending by place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) usual: u32,
    pub(super) except: Vec<(u32, u32)>,
}

impl Row {
    pub(super) fn at(&self, place: u32) -> u32 {
        let found = self.except.binary_search_by_key(&place, |(place, _)| *place);
        found.map_or(self.usual, |at| self.except[at].1)
    }
}

/// What others are, before anything is met: the family in which they are met, and their named ports if that matters.
pub(super) type Beginning = (Option<bool>, u32);

/// How the others of a tile begin for one kind of side.
pub(super) struct Beginnings {
    pub(super) each: Vec<Beginning>,
    /// The different ones, the most frequent first.
    pub(super) kinds: Vec<Beginning>,
}

impl Beginnings {
    pub(super) fn new(each: Vec<Beginning>) -> Self {
        let mut many: FxHashMap<Beginning, usize> = FxHashMap::default();
        each.iter().for_each(|one| *many.entry(*one).or_default() += 1);
        let mut kinds: Vec<(usize, Beginning)> = many.into_iter().map(|(one, many)| (many, one)).collect();
        kinds.sort_unstable_by(|a, b| b.cmp(a));
        Self { each, kinds: kinds.into_iter().map(|(_, one)| one).collect() }
    }
}

/// The parts of the others: each but the first ones has met one thing more than the part it came from.
pub(super) struct Parts<'t> {
    pub(super) of: &'t mut [u32],
    pub(super) parts: Vec<(Origin, u32)>,
    next: FxHashMap<(u32, u32), u32>,
    /// Places that are no longer in the first part.
    pub(super) moved: Vec<u32>,
}

#[derive(Clone, Copy)]
pub(super) enum Origin {
    Begins(Beginning),
    From(u32),
}

impl<'t> Parts<'t> {
    pub(super) fn new(beginnings: &Beginnings, of: &'t mut [u32]) -> Self {
        let parts = beginnings.kinds.iter().map(|one| (Origin::Begins(*one), NOWHERE)).collect();
        let mut parts = Self { of, parts, next: FxHashMap::default(), moved: Vec::new() };
        if beginnings.kinds.len() > 1 {
            for (place, one) in beginnings.each.iter().enumerate() {
                let kind = beginnings.kinds.iter().position(|kind| kind == one).unwrap_or_default();
                if kind > 0 {
                    parts.of[place] = count_of(kind);
                    parts.moved.push(count_of(place));
                }
            }
        }
        parts
    }

    /// What is met comes in ascending order; twice is once.
    pub(super) fn meet(&mut self, place: usize, what: u32) {
        let part = match self.of[place] {
            NOWHERE => {
                self.moved.push(count_of(place));
                0
            }
            part => part,
        };
        if self.parts[part as usize].1 != what {
            let new = count_of(self.parts.len());
            let next = *self.next.entry((part, what)).or_insert(new);
            if next == new {
                self.parts.push((Origin::From(part), what));
            }
            self.of[place] = next;
        }
    }

    /// How it began and what it has met, ascending.
    pub(super) fn story(&self, mut part: u32) -> (Beginning, Vec<u32>) {
        let mut met = Vec::new();
        loop {
            match self.parts[part as usize] {
                (Origin::Begins(beginning), _) => {
                    met.reverse();
                    return (beginning, met);
                }
                (Origin::From(before), what) => {
                    met.push(what);
                    part = before;
                }
            }
        }
    }
}
