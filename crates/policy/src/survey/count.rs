//! Groups of ends against groups of ends: how many pairs have what open.
//!
//! ```text
//!                 destinations, 1,024 at a time
//!               ┌────────────────────────────┐
//!    sources,   │ row of a source: what it   │   usual ∩ usual, for all pairs at once,
//!    1,024      │ may send to each of them   │   into the tally of the two groups; then
//!    at a time  │ column of a destination:   │   pairs of which one end says something
//!               │ what it may take from each │   else are taken out and put in again
//!               └────────────────────────────┘
//! ```

use std::{rc::Rc, sync::Arc};

use model::Open;
use rustc_hash::{FxHashMap, FxHashSet};
use thiserror::Error;

use super::{
    Survey, count_of,
    parts::{Row, Tile},
    rows::Rows,
};
use crate::engine::tables::EntityId;

/// Ends on either side of what is looked at together; few where tests should see several tiles.
const TILE: usize = if cfg!(debug_assertions) { 16 } else { 1024 };
/// Pairs of kinds of ends: some seconds of work.
const MOST_PAIRS: usize = 500_000_000;

/// Of two groups: what is open, and for how many pairs of different ends.
pub type Tally = Vec<(Arc<Open>, u64)>;

/// More is asked than is answered at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "{0} pairs of ends that differ are more than the {MOST_PAIRS} that are looked at: ask about a part of them"
)]
pub struct TooManyPairs(usize);

/// Ends of one kind in one group.
#[derive(Clone, Copy)]
struct Entry {
    group: u32,
    /// The first end of the kind.
    end: u32,
    many: u64,
}

impl Survey {
    /// A row for each group of sources. Groups of ends of the two sides are either the same or have no end in common.
    pub fn count(
        &self,
        sources: &[&[usize]],
        destinations: &[&[usize]],
    ) -> Result<Vec<Vec<Tally>>, TooManyPairs> {
        let kinds = self.kinds();
        let (from, to) = (entries(&kinds, sources), entries(&kinds, destinations));
        let pairs = from.len().saturating_mul(to.len());
        if pairs > MOST_PAIRS {
            return Err(TooManyPairs(pairs));
        }
        let is_same = |a: u32, b: u32| sources[a as usize] == destinations[b as usize];
        let twins: FxHashSet<(u32, u32)> = (0..count_of(sources.len()))
            .flat_map(|a| (0..count_of(destinations.len())).map(move |b| (a, b)))
            .filter(|(a, b)| is_same(*a, *b))
            .collect();
        let mut counting = Counting {
            survey: self,
            shared: self.shared(),
            rows: Rows::new(self),
            twins,
            tallies: vec![vec![Vec::new(); destinations.len()]; sources.len()],
        };
        for from in from.chunks(TILE) {
            for to in to.chunks(TILE) {
                counting.tile(from, to);
            }
        }
        let Counting { rows, tallies, .. } = counting;
        let told = |tally: Vec<(u32, u64)>| {
            let some = tally.into_iter().filter(|(_, pairs)| *pairs > 0);
            some.map(|(answer, pairs)| (Arc::clone(rows.open(answer)), pairs)).collect()
        };
        Ok(tallies.into_iter().map(|row| row.into_iter().map(told).collect()).collect())
    }
}

/// Ascending by group; in a group by end.
fn entries(kinds: &[Option<u32>], groups: &[&[usize]]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (group, ends) in groups.iter().enumerate() {
        let mut many: FxHashMap<u32, u64> = FxHashMap::default();
        for end in ends.iter().filter_map(|end| kinds.get(*end).copied().flatten()) {
            *many.entry(end).or_default() += 1;
        }
        let mut many: Vec<(u32, u64)> = many.into_iter().collect();
        many.sort_unstable();
        entries.extend(many.into_iter().map(|(end, many)| Entry { group: count_of(group), end, many }));
    }
    entries
}

struct Counting<'a> {
    survey: &'a Survey,
    shared: FxHashSet<EntityId>,
    rows: Rows<'a>,
    /// Groups of sources that are groups of destinations too.
    twins: FxHashSet<(u32, u32)>,
    tallies: Vec<Vec<Vec<(u32, u64)>>>,
}

/// The entries of one side of a tile, by place among the ends that the other side looks at: a kind may be in several
/// groups.
struct Edge {
    tile: Tile,
    entries: Vec<Vec<Entry>>,
}

impl Edge {
    fn new(entries: &[Entry]) -> Self {
        let mut ends: Vec<u32> = entries.iter().map(|entry| entry.end).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut places: Vec<Vec<Entry>> = vec![Vec::new(); ends.len()];
        for entry in entries {
            places[ends.partition_point(|end| *end < entry.end)].push(*entry);
        }
        Self { tile: Tile::new(ends), entries: places }
    }
}

impl Counting<'_> {
    fn tile(&mut self, from: &[Entry], to: &[Entry]) {
        let (mut from, mut to) = (Edge::new(from), Edge::new(to));
        let sent = self.rows(&from, 0, &mut to.tile);
        let taken = self.rows(&to, 1, &mut from.tile);
        self.usual(&from, &sent, &to, &taken);
        for (b, column) in taken.iter().enumerate() {
            for (a, answer) in &column.except {
                let (row, place) = (&sent[*a as usize], count_of(b));
                let answer = self.rows.intersect(row.at(place), *answer);
                self.instead(&from.entries[*a as usize], &to.entries[b], (row.usual, column.usual), answer);
            }
        }
        for (a, row) in sent.iter().enumerate() {
            for (b, answer) in &row.except {
                let (column, place) = (&taken[*b as usize], count_of(a));
                let other = column.at(place);
                // Else it was put in above.
                if other == column.usual {
                    let answer = self.rows.intersect(*answer, other);
                    self.instead(&from.entries[a], &to.entries[*b as usize], (row.usual, other), answer);
                }
            }
        }
        self.but_oneself(&from, &sent, &to, &taken);
    }

    /// What each end says, ends that share a side alike.
    fn rows(&mut self, edge: &Edge, way: usize, others: &mut Tile) -> Vec<Rc<Row>> {
        let mut known: FxHashMap<u32, Rc<Row>> = FxHashMap::default();
        let sides = edge.entries.iter().map(|entries| {
            let end = entries.first().and_then(|entry| self.survey.ends[entry.end as usize].as_ref());
            end.map_or(0, |end| end.sides[way])
        });
        let sides: Vec<u32> = sides.collect();
        sides
            .into_iter()
            .map(|side| Rc::clone(known.entry(side).or_insert_with(|| Rc::new(self.rows.row(side, others)))))
            .collect()
    }

    /// As if nobody made an exception.
    fn usual(&mut self, from: &Edge, sent: &[Rc<Row>], to: &Edge, taken: &[Rc<Row>]) {
        let sum = |edge: &Edge, rows: &[Rc<Row>]| {
            let mut sum: FxHashMap<(u32, u32), u64> = FxHashMap::default();
            for (entries, row) in edge.entries.iter().zip(rows) {
                entries
                    .iter()
                    .for_each(|entry| *sum.entry((entry.group, row.usual)).or_default() += entry.many);
            }
            sum
        };
        let (sources, destinations) = (sum(from, sent), sum(to, taken));
        for ((source, one), many) in &sources {
            for ((destination, other), others) in &destinations {
                let answer = self.rows.intersect(*one, *other);
                self.add((*source, *destination), answer, many * others);
            }
        }
    }

    /// Pairs that have another answer than the usual ones give.
    fn instead(&mut self, from: &[Entry], to: &[Entry], usual: (u32, u32), answer: u32) {
        let usual = self.rows.intersect(usual.0, usual.1);
        if usual != answer {
            for (a, b) in from.iter().flat_map(|a| to.iter().map(move |b| (a, b))) {
                self.remove((a.group, b.group), usual, a.many * b.many);
                self.add((a.group, b.group), answer, a.many * b.many);
            }
        }
    }

    /// No end is a pair with itself, and a workload that several ends stand for talks to itself.
    fn but_oneself(&mut self, from: &Edge, sent: &[Rc<Row>], to: &Edge, taken: &[Rc<Row>]) {
        let mut by_end: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        let mut by_entity: FxHashMap<EntityId, Vec<usize>> = FxHashMap::default();
        let entity = |end: u32| {
            let entity = self.survey.ends[end as usize].as_ref().and_then(|end| end.entity);
            entity.filter(|entity| self.shared.contains(entity))
        };
        for (b, entries) in to.entries.iter().enumerate() {
            let Some(end) = entries.first().map(|entry| entry.end) else { continue };
            by_end.entry(end).or_default().push(b);
            entity(end).into_iter().for_each(|one| by_entity.entry(one).or_default().push(b));
        }
        let mut wrong = Vec::new();
        for (a, entries) in from.entries.iter().enumerate() {
            let Some(end) = entries.first().map(|entry| entry.end) else { continue };
            let same = by_end.get(&end).into_iter().flatten().map(|b| (a, *b, true));
            wrong.extend(same);
            let alike = entity(end).and_then(|one| by_entity.get(&one)).into_iter().flatten();
            wrong.extend(alike.filter(|b| to.entries[**b][0].end != end).map(|b| (a, *b, false)));
        }
        for (a, b, is_itself) in wrong {
            let answer = self.rows.intersect(sent[a].at(count_of(b)), taken[b].at(count_of(a)));
            for (x, y) in from.entries[a].iter().flat_map(|x| to.entries[b].iter().map(move |y| (x, y))) {
                let cell = (x.group, y.group);
                if is_itself && self.twins.contains(&cell) {
                    self.remove(cell, answer, x.many);
                } else if !is_itself {
                    self.remove(cell, answer, x.many * y.many);
                    self.add(cell, Rows::ALL, x.many * y.many);
                }
            }
        }
    }

    fn add(&mut self, (source, destination): (u32, u32), answer: u32, pairs: u64) {
        let tally = &mut self.tallies[source as usize][destination as usize];
        match tally.iter_mut().find(|(known, _)| *known == answer) {
            Some((_, count)) => *count += pairs,
            None => tally.push((answer, pairs)),
        }
    }

    /// Of what was added before.
    fn remove(&mut self, (source, destination): (u32, u32), answer: u32, pairs: u64) {
        let tally = &mut self.tallies[source as usize][destination as usize];
        if let Some((_, count)) = tally.iter_mut().find(|(known, _)| *known == answer) {
            *count -= pairs;
        }
    }
}
