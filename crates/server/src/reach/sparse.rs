//! The matrix of many groups, of which only what is unusual is written down.
//!
//! In: groups and their cells. Out: for each group what most others may do with it, and a way for each pair of which that is
//! not so. Nothing is lost: a pair without a way is as usual. Pure.
//!
//! Where most are let in, a way says who is not; where few are, it says who is. Namespaces and sites are looked at apart:
//! most workloads may talk to each other until a policy says no, and resources may not until a rule says yes.

use std::collections::HashMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::{Cell, Group, PlaceKind};

/// Fewer sources that agree are no usage: each has its own way.
const FEW_SOURCES: usize = 3;

/// How much is open between two groups, in a word.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[schema(as = MapWord)]
pub struct Word {
    /// `none`, `some` or `all` of what is asked about, for all pairs of ends.
    pub share: &'static str,
    /// What is open, as in a cell of the matrix; absent if nothing is, or if pairs differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<String>,
}

impl Word {
    /// None where the two have no pair of ends.
    fn of(cell: &Cell) -> Option<Self> {
        let share = match cell {
            Cell { pairs: 0, .. } => return None,
            Cell { open: 0, partly: 0, .. } => "none",
            Cell { pairs, open, .. } if pairs == open => "all",
            _ => "some",
        };
        let ports = cell.ports.clone().filter(|_| share == "some");
        Some(Self { share, ports })
    }
}

/// Each word once. The first is `none`.
#[derive(Debug)]
pub struct Words {
    list: Vec<Word>,
    places: HashMap<Word, usize>,
}

impl Default for Words {
    fn default() -> Self {
        let none = Word { share: "none", ports: None };
        Self { list: vec![none.clone()], places: HashMap::from([(none, NONE)]) }
    }
}

/// The place of the word `none`.
const NONE: usize = 0;

impl Words {
    fn place(&mut self, word: Word) -> usize {
        *self.places.entry(word).or_insert_with_key(|word| {
            self.list.push(word.clone());
            self.list.len() - 1
        })
    }

    pub fn into_list(self) -> Vec<Word> {
        self.list
    }
}

/// What is so of groups; words by their place.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sparse {
    /// For each group, what most groups of namespaces and most of sites may do with it.
    pub usual: Vec<[usize; 2]>,
    /// Among the ends of each group; none where there are no two.
    pub within: Vec<Option<usize>>,
    /// From, to, word.
    pub ways: Vec<[usize; 3]>,
    /// Ways that are not told because there are too many.
    pub left_out: usize,
}

/// `cells` has a row for each group and a column for each.
pub fn sparse(groups: &[Group], cells: &[Vec<Cell>], most: usize, words: &mut Words) -> Sparse {
    let mut sparse = Sparse::default();
    for (to, own) in cells.iter().enumerate() {
        let mut column: [Vec<(usize, usize)>; 2] = Default::default();
        for (from, group) in groups.iter().enumerate().filter(|(from, _)| *from != to) {
            if let Some(word) = Word::of(&cells[from][to]) {
                column[side(group)].push((from, words.place(word)));
            }
        }
        let usual = column.each_ref().map(|sources| usual(sources));
        for (sources, usual) in column.iter().zip(usual) {
            let unusual = sources.iter().filter(|(_, word)| *word != usual);
            sparse.ways.extend(unusual.map(|(from, word)| [*from, to, *word]));
        }
        sparse.usual.push(usual);
        sparse.within.push(Word::of(&own[to]).map(|word| words.place(word)));
    }
    sparse.left_out = sparse.ways.len().saturating_sub(most);
    sparse.ways.truncate(most);
    sparse
}

fn side(group: &Group) -> usize {
    match group.place.0 {
        PlaceKind::Namespace => 0,
        PlaceKind::Site => 1,
    }
}

/// What more than half of them may, if that is not only a few; else nothing.
fn usual(sources: &[(usize, usize)]) -> usize {
    let mut counts: HashMap<usize, usize> = HashMap::new();
    sources.iter().for_each(|(_, word)| *counts.entry(*word).or_default() += 1);
    let most = counts.into_iter().find(|(_, count)| *count >= FEW_SOURCES && *count * 2 > sources.len());
    most.map_or(NONE, |(word, _)| word)
}

/// The places that groups are in, and the cells between them, put together from those of the groups.
pub fn of_places(groups: &[Group], cells: &[Vec<Cell>]) -> (Vec<Group>, Vec<Vec<Cell>>) {
    let mut places: Vec<Group> = Vec::new();
    let mut place_of = Vec::with_capacity(groups.len());
    for group in groups {
        let id = group.place_id();
        match places.last_mut() {
            // Sorted: the groups of a place stand together.
            Some(last) if last.id == id => last.ends.extend(&group.ends),
            _ => places.push(Group {
                id,
                name: group.place.1.clone(),
                place: group.place.clone(),
                ends: group.ends.clone(),
            }),
        }
        place_of.push(places.len() - 1);
    }
    let mut sums: Vec<Vec<Option<Cell>>> = vec![vec![None; places.len()]; places.len()];
    for (from, row) in cells.iter().enumerate() {
        for (to, cell) in row.iter().enumerate().filter(|(_, cell)| cell.pairs > 0) {
            let sum = &mut sums[place_of[from]][place_of[to]];
            *sum = Some(sum.take().map_or_else(|| cell.clone(), |sum| sum.with(cell)));
        }
    }
    let cells = sums.into_iter().map(|row| row.into_iter().map(Option::unwrap_or_default).collect());
    (places, cells.collect())
}

impl Cell {
    /// Of both together. What is open is only told where it is the same wherever something is.
    fn with(self, other: &Self) -> Self {
        let is_closed = |cell: &Self| cell.open + cell.partly == 0;
        let ports = match (is_closed(&self), is_closed(other)) {
            (true, _) => other.ports.clone(),
            (false, true) => self.ports,
            (false, false) => self.ports.filter(|ports| other.ports.as_ref() == Some(ports)),
        };
        Self {
            pairs: self.pairs + other.pairs,
            open: self.open + other.open,
            partly: self.partly + other.partly,
            ports,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(place: &str, name: &str, ends: usize) -> Group {
        let kind = if place.contains('.') { PlaceKind::Site } else { PlaceKind::Namespace };
        Group {
            id: format!("{place}/{name}"),
            name: name.to_owned(),
            place: (kind, place.to_owned()),
            ends: (0..ends).collect(),
        }
    }

    fn cell(pairs: u64, open: u64, partly: u64, ports: &str) -> Cell {
        Cell { pairs, open, partly, ports: Some(ports.to_owned()).filter(|ports| !ports.is_empty()) }
    }

    const OPEN: fn() -> Cell = || cell(4, 4, 0, "all");
    const CLOSED: fn() -> Cell = || cell(4, 0, 0, "");
    const WEB: fn() -> Cell = || cell(4, 0, 4, "tcp 80");

    /// What ways and usages come to again, as shares.
    fn whole(groups: &[Group], sparse: &Sparse, words: &[Word]) -> Vec<Vec<Word>> {
        let mut all: Vec<Vec<Word>> = groups
            .iter()
            .map(|from| (0..groups.len()).map(|to| words[sparse.usual[to][side(from)]].clone()).collect())
            .collect();
        for [from, to, word] in &sparse.ways {
            all[*from][*to] = words[*word].clone();
        }
        all
    }

    #[test]
    fn what_most_may_is_said_once_and_nothing_is_lost() {
        let groups: Vec<Group> =
            ["a", "b", "c", "d", "e"].iter().map(|name| group("shop", name, 2)).collect();
        // Everybody may talk to everybody, but `e` is closed for `a`, and `d` only answers for the web.
        let mut cells = vec![vec![OPEN(); 5]; 5];
        cells[0][4] = CLOSED();
        cells.iter_mut().for_each(|row| row[3] = WEB());
        let mut words = Words::default();
        let sparse = sparse(&groups, &cells, 100, &mut words);
        let words = words.into_list();
        assert_eq!(words[sparse.usual[0][0]].share, "all");
        assert_eq!(words[sparse.usual[3][0]].ports.as_deref(), Some("tcp 80"));
        assert_eq!(sparse.ways, [[0, 4, NONE]]);
        assert_eq!(sparse.left_out, 0);
        let whole = whole(&groups, &sparse, &words);
        for (from, row) in cells.iter().enumerate() {
            for (to, cell) in row.iter().enumerate().filter(|(to, _)| *to != from) {
                assert_eq!(Some(&whole[from][to]), Word::of(cell).as_ref(), "{from} to {to}");
            }
        }
    }

    #[test]
    fn a_few_that_agree_are_told_one_by_one() {
        let groups = [group("shop", "web", 1), group("shop", "db", 1), group("default.a", "vm", 1)];
        let mut cells = vec![vec![CLOSED(); 3]; 3];
        cells[0][1] = WEB();
        cells[2][2] = cell(0, 0, 0, "");
        let mut words = Words::default();
        let sparse = sparse(&groups, &cells, 100, &mut words);
        assert_eq!(sparse.usual, [[NONE, NONE]; 3]);
        assert_eq!(sparse.ways.len(), 1);
        assert_eq!(sparse.within[2], None);
        assert_eq!(words.into_list()[sparse.ways[0][2]].ports.as_deref(), Some("tcp 80"));
    }

    #[test]
    fn too_many_ways_are_counted() {
        let groups: Vec<Group> = (0..4).map(|n| group("shop", &n.to_string(), 2)).collect();
        let mut cells = vec![vec![CLOSED(); 4]; 4];
        (0..4).for_each(|n| cells[n][(n + 1) % 4] = OPEN());
        let sparse = sparse(&groups, &cells, 3, &mut Words::default());
        assert_eq!((sparse.ways.len(), sparse.left_out), (3, 1));
    }

    #[test]
    fn places_are_the_sums_of_their_groups() {
        let groups = [group("a", "web", 2), group("a", "db", 2), group("b", "web", 2)];
        let mut cells = vec![vec![CLOSED(); 3]; 3];
        cells[0][2] = WEB();
        cells[2][0] = OPEN();
        cells[2][1] = OPEN();
        let (places, cells) = of_places(&groups, &cells);
        assert_eq!(
            places.iter().map(|place| place.id.as_str()).collect::<Vec<_>>(),
            ["namespace:a", "namespace:b"]
        );
        assert_eq!(places[0].len(), 4);
        // Where something is open it is this, though not for all.
        assert_eq!(cells[0][1], cell(8, 0, 4, "tcp 80"));
        assert_eq!(cells[1][0], cell(8, 8, 0, "all"));
        assert_eq!(cells[0][0], cell(16, 0, 0, ""));
    }
}
