//! What one side decides about many others.
//!
//! The others begin in one part. Each rule, and each entry of a permit list, takes those it is about into a part of their
//! own; in the end a part has met the same rules and entries, and is decided once. Cost: O(others that are met), whatever
//! the number of others that are not.

use std::{rc::Rc, sync::Arc};

use ipnet::IpNet;
use model::{Open, PermitEntry, permit_list, policy::output::Direction};
use rustc_hash::FxHashMap;

use super::{
    LocalSide, Survey, count_of,
    index::Index,
    parts::{Beginning, Beginnings, NOWHERE, Parts, Row, Tile},
    side::Met,
};

/// What is known is dropped when it is more than this.
const MOST_KNOWN: usize = 200_000;
/// Longer lists of what was met are not worth remembering.
const LONGEST: usize = 64;

/// Works out rows, and numbers the answers.
pub(super) struct Rows<'a> {
    survey: &'a Survey,
    index: &'a Index,
    answers: Vec<Arc<Open>>,
    numbers: FxHashMap<Arc<Open>, u32>,
    both: FxHashMap<(u32, u32), u32>,
    known: FxHashMap<(u32, Beginning, Vec<u32>), u32>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(survey: &'a Survey) -> Self {
        let (numbers, both, known) = Default::default();
        let mut rows = Self { survey, index: survey.index(), answers: Vec::new(), numbers, both, known };
        rows.number(Open::all());
        rows.number(Open::none());
        rows
    }

    pub(super) const ALL: u32 = 0;
    const NONE: u32 = 1;

    pub(super) fn open(&self, answer: u32) -> &Arc<Open> {
        &self.answers[answer as usize]
    }

    fn number(&mut self, open: Open) -> u32 {
        if let Some(number) = self.numbers.get(&open) {
            return *number;
        }
        let (number, open) = (count_of(self.answers.len()), Arc::new(open));
        self.answers.push(Arc::clone(&open));
        self.numbers.insert(open, number);
        number
    }

    /// What is open where both sides must open it.
    pub(super) fn intersect(&mut self, a: u32, b: u32) -> u32 {
        if a == b || b == Self::ALL || a == Self::NONE {
            return a;
        }
        if a == Self::ALL || b == Self::NONE {
            return b;
        }
        let key = (a.min(b), a.max(b));
        if let Some(known) = self.both.get(&key) {
            return *known;
        }
        let open = self.open(a).intersect(self.open(b));
        let number = self.number(open);
        self.both.insert(key, number);
        number
    }

    pub(super) fn row(&mut self, number: u32, tile: &mut Tile) -> Row {
        let side = &self.survey.sides[number as usize];
        if side.is_silent() || tile.others.is_empty() {
            return Row { usual: Self::ALL, except: Vec::new() };
        }
        let beginnings = self.beginnings(side, tile);
        let mut of = std::mem::take(&mut tile.parts);
        let mut parts = Parts::new(&beginnings, &mut of);
        self.meet_all(side, tile, &beginnings.each, &mut parts);
        let mut decided: Vec<Option<u32>> = vec![None; parts.parts.len()];
        let mut answer = |part: u32| match decided[part as usize] {
            Some(answer) => answer,
            None => {
                let (beginning, met) = parts.story(part);
                *decided[part as usize].insert(self.decide(number, beginning, met))
            }
        };
        let usual = answer(0);
        let mut except: Vec<(u32, u32)> =
            parts.moved.iter().map(|place| (*place, answer(parts.of[*place as usize]))).collect();
        except.retain(|(_, answer)| *answer != usual);
        except.sort_unstable();
        let moved = std::mem::take(&mut parts.moved);
        moved.into_iter().for_each(|place| of[place as usize] = NOWHERE);
        tile.parts = of;
        Row { usual, except }
    }

    fn beginnings(&self, side: &LocalSide, tile: &mut Tile) -> Rc<Beginnings> {
        let names_ports = side.direction == Direction::Out && side.rules.names_ports();
        let key = (side.direction, side.shape, names_ports);
        if let Some(known) = tile.beginnings.get(&key) {
            return Rc::clone(known);
        }
        let beginning = |end: &u32| {
            let Some(end) = &self.survey.ends[*end as usize] else { return (None, 0) };
            let family = match side.direction {
                Direction::Out => side.shape.meet(end.shape)[1],
                Direction::In => end.shape.meet(side.shape)[0],
            };
            (family, if names_ports { end.ports } else { 0 })
        };
        let made = Rc::new(Beginnings::new(tile.others.iter().map(beginning).collect()));
        tile.beginnings.insert(key, Rc::clone(&made));
        made
    }

    fn meet_all(&self, side: &LocalSide, tile: &Tile, beginnings: &[Beginning], parts: &mut Parts<'_>) {
        let (Some(first), Some(last)) = (tile.others.first(), tile.others.last()) else { return };
        for (at, rule) in side.rules.iter().enumerate() {
            let (by_group, by_block) = (count_of(2 * at), count_of(2 * at + 1));
            for group in &rule.groups {
                for (end, six) in self.index.members(*group, *first, *last) {
                    if let Some(place) = tile.place(*end).filter(|at| beginnings[*at].0 == Some(*six)) {
                        parts.meet(place, by_group);
                    }
                }
            }
            for block in &rule.detail.ip_blocks {
                self.inside(block.cidr, tile, beginnings, |place, face| {
                    if block.contains(face.addr()) {
                        parts.meet(place, by_block);
                    }
                });
            }
        }
        let rules = side.rules.len();
        for (at, entry) in side.entries() {
            for target in entry.targets() {
                self.inside(target.net(), tile, beginnings, |place, face| {
                    if target.net().contains(&face) {
                        parts.meet(place, count_of(2 * rules + at));
                    }
                });
            }
        }
    }

    /// Calls for the others that have an address in a network, with all their addresses in the family they are met in.
    fn inside(&self, net: IpNet, tile: &Tile, beginnings: &[Beginning], mut call: impl FnMut(usize, IpNet)) {
        let six = net.addr().is_ipv6();
        let mut look = |place: usize| {
            let end = self.survey.ends[tile.others[place] as usize].as_ref();
            let face = end.and_then(|end| {
                let face = end.faces[usize::from(six)].as_ref()?;
                Some(end.block.map_or_else(|| IpNet::from(face.address), |block| block.net()))
            });
            if let Some(face) = face.filter(|_| beginnings[place].0 == Some(six)) {
                call(place, face);
            }
        };
        let inside = self.index.inside(net);
        if inside.len() > tile.others.len() {
            (0..tile.others.len()).for_each(look);
        } else {
            inside.iter().filter_map(|(_, end)| tile.place(*end)).for_each(&mut look);
        }
    }

    fn decide(&mut self, number: u32, beginning: Beginning, met: Vec<u32>) -> u32 {
        let key = (number, beginning, met);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let answer = self.number(self.survey.sides[number as usize].open(self.survey, beginning, &key.2));
        if key.2.len() <= LONGEST {
            if self.known.len() >= MOST_KNOWN {
                self.known.clear();
            }
            self.known.insert(key, answer);
        }
        answer
    }
}

impl LocalSide {
    /// Nothing here decides about anybody.
    fn is_silent(&self) -> bool {
        self.list.is_none() && self.rules.len() == 0
    }

    /// The entries of this direction.
    fn entries(&self) -> impl Iterator<Item = (usize, &PermitEntry)> {
        let direction = match self.direction {
            Direction::Out => model::Direction::Outbound,
            Direction::In => model::Direction::Inbound,
        };
        let list = self.list.iter().flat_map(|list| list.iter().enumerate());
        list.filter(move |(_, entry)| entry.traffic.direction == direction)
    }

    /// What is open with others that have met this, rules and entries.
    fn open(&self, survey: &Survey, (family, ports): Beginning, what: &[u32]) -> Open {
        let rules = self.rules.len();
        let (of_rules, of_entries) = what.split_at(what.partition_point(|one| (*one as usize) < 2 * rules));
        let mut met: Vec<Met> = Vec::with_capacity(of_rules.len());
        for one in of_rules {
            let (rule, in_group) = (one / 2, one % 2 == 0);
            match met.last() {
                // By a group and by a block: the group has the names.
                Some(last) if last.rule == rule => {}
                _ => met.push(Met { rule, in_group }),
            }
        }
        let ports = match self.direction {
            Direction::In => self.ports,
            Direction::Out => ports,
        };
        let open = self.rules.open(&met, self.direction, &survey.ports[ports as usize]);
        match &self.list {
            None => open,
            Some(list) => {
                let entries = of_entries.iter().map(|one| &list[*one as usize - 2 * rules]);
                open.intersect(&permit_list::open(entries, family == Some(true)))
            }
        }
    }
}
