//! A step as transactions that each hold the kernel's lock for a short time.
//!
//! In: what changes, phase by phase. Out: transactions; between any two of them a packet meets the old policies or the
//! new ones.
//!
//! ```text
//!   Neutral   any pieces, in the right order
//!   Switch    fits ─► one transaction
//!             else    1 what will hold for each address concerned, under keys that nobody asks for     pieces
//!                     2 those addresses are judged by these keys from now on                           small: the switch
//!                     3 what held for them is replaced, unseen                                         pieces
//!                     4 they are judged by the ordinary keys again                                     small
//!                     5 the other keys go                                                              pieces
//! ```
//!
//! An address that was not restricted before needs only 3 and then to be so; one that is restricted no more, only to be
//! not, and then 3.

use std::collections::{BTreeMap, BTreeSet};

use node_nft::{Element, Limits, Transaction};

use crate::{
    layout::{Place, Way, aside},
    mirror::{Delta, Mirror, at_once, sort},
    sweep::sweep,
};

/// What a transaction may hold, and what an element costs of it.
pub struct Budget {
    limits: Limits,
    /// Elements of the sets of which the kernel goes through all whenever one comes or goes.
    ranges: BTreeMap<Place, usize>,
}

impl Budget {
    pub fn new(mirror: &Mirror, limits: Limits) -> Self {
        Self { limits, ranges: mirror.lens(|place| matches!(place, Place::Boxes)) }
    }

    /// For a step between two states.
    pub fn or_more(mut self, other: Self) -> Self {
        for (place, len) in other.ranges {
            let known = self.ranges.entry(place).or_default();
            *known = len.max(*known);
        }
        self
    }

    /// In elements of a hash table; a tree holds both borders of a range. Measured: of 10,000 boxes, one is added in 20 µs and
    /// removed in 1 ms.
    fn weight(&self, delta: &Delta) -> usize {
        let (gone, new) = (usize::from(delta.before.is_some()), usize::from(delta.after.is_some()));
        match self.ranges.get(&delta.place) {
            Some(len) => gone * (1 + len / 32) + new * (1 + len / 512),
            None if matches!(delta.place, Place::Ranges | Place::Sources) => 2 * (gone + new),
            None => gone + new,
        }
    }

    fn weights(&self, deltas: &[Delta]) -> usize {
        deltas.iter().map(|delta| self.weight(delta)).sum()
    }

    fn fits(&self, weight: usize) -> bool {
        weight <= self.limits.elements
    }
}

/// A part of a step.
pub enum Phase {
    /// Nothing that is decided changes, only what it is worked out from: may be torn into pieces.
    Neutral(Vec<Delta>),
    /// Every packet meets all of it or nothing of it.
    Switch(Switch),
}

pub struct Switch {
    deltas: Vec<Delta>,
    /// What will hold for addresses of which too much changes for one transaction.
    aside: Vec<Delta>,
}

/// An address, as bytes of a key, in one direction.
type Judged = (Way, Box<[u8]>);

impl Switch {
    /// What the mirror took down, after the functions that come with it. Must be called before anything else changes.
    pub fn take(mirror: &mut Mirror, limits: Limits) -> [Phase; 2] {
        let (functions, deltas) = mirror.take().into_iter().partition(|delta| delta.place.is_of_functions());
        [Phase::Neutral(functions), Phase::Switch(Self::of(deltas, mirror, limits))]
    }

    fn of(deltas: Vec<Delta>, mirror: &Mirror, limits: Limits) -> Self {
        let budget = Budget::new(mirror, limits);
        let mut aside = Vec::new();
        if !budget.fits(budget.weights(&deltas)) {
            let sorted = Sorted::new(&deltas);
            if !budget.fits(budget.weights(&sorted.kept) + budget.weights(&sorted.small)) {
                for (way, address) in judged(&sorted.kept) {
                    let decisions = mirror.decisions(way, &address).into_iter();
                    aside.extend(decisions.map(|(place, key, element)| staged(way, place, &key, element)));
                }
            }
        }
        Self { deltas, aside }
    }

    fn transactions(self, budget: &Budget) -> Vec<Transaction> {
        if budget.fits(budget.weights(&self.deltas)) {
            return vec![at_once(&self.deltas)];
        }
        let Sorted { fresh, mut small, kept, gone } = Sorted::new(&self.deltas);
        if self.aside.is_empty() {
            small.extend(kept);
            sort(&mut small);
            return [pieces(fresh, budget), vec![at_once(&small)], pieces(gone, budget)].concat();
        }
        let entered: Vec<Delta> = judged(&kept).into_iter().map(entered).collect();
        let left: Vec<Delta> = entered.iter().map(reversed).collect();
        let swept: Vec<Delta> = self.aside.iter().map(reversed).collect();
        small.extend(entered);
        sort(&mut small);
        // A range that is in the way would make the kernel refuse its successor.
        let old = |delta: &Delta| Delta { after: None, ..delta.clone() };
        let new = |delta: &Delta| Delta { before: None, ..delta.clone() };
        [
            pieces([fresh, self.aside].concat(), budget),
            vec![at_once(&small)],
            pieces(kept.iter().filter(|delta| delta.before.is_some()).map(old).collect(), budget),
            pieces(kept.iter().filter(|delta| delta.after.is_some()).map(new).collect(), budget),
            vec![at_once(&left)],
            pieces([swept, gone].concat(), budget),
        ]
        .concat()
    }
}

/// The changes of a switch by what becomes of the address that they are about.
#[derive(Default)]
struct Sorted {
    /// Decisions for addresses that become restricted.
    fresh: Vec<Delta>,
    /// Decisions for addresses that are and remain restricted.
    kept: Vec<Delta>,
    /// Decisions for addresses that are restricted no more.
    gone: Vec<Delta>,
    /// All else: a few elements for each workload.
    small: Vec<Delta>,
}

impl Sorted {
    fn new(deltas: &[Delta]) -> Self {
        let of_subject = |delta: &Delta| match delta.place {
            Place::Subjects(direction, ipv6) => {
                Some(((Way { direction, ipv6 }, delta.key.clone()), delta.after.is_some()))
            }
            _ => None,
        };
        let subjects: BTreeMap<Judged, bool> = deltas.iter().filter_map(of_subject).collect();
        let mut sorted = Self::default();
        for delta in deltas {
            let list = match judged_by(delta).map(|judged| subjects.get(&judged)) {
                None => &mut sorted.small,
                Some(None) => &mut sorted.kept,
                Some(Some(true)) => &mut sorted.fresh,
                Some(Some(false)) => &mut sorted.gone,
            };
            list.push(delta.clone());
        }
        sorted
    }
}

fn judged_by(delta: &Delta) -> Option<Judged> {
    let way = delta.place.decides()?;
    Some((way, delta.key.get(..way.address_len())?.into()))
}

fn judged(deltas: &[Delta]) -> BTreeSet<Judged> {
    deltas.iter().filter_map(judged_by).collect()
}

fn staged(way: Way, place: Place, key: &[u8], element: Element) -> Delta {
    let end = element.end.as_deref().map(|end| aside(way, end));
    Delta { place, key: aside(way, key), before: None, after: Some(Element { end, ..element }) }
}

fn entered((way, address): Judged) -> Delta {
    Delta {
        place: Place::Aside(way.direction, way.ipv6),
        key: address,
        before: None,
        after: Some(Element::member()),
    }
}

fn reversed(delta: &Delta) -> Delta {
    Delta { before: delta.after.clone(), after: delta.before.clone(), ..delta.clone() }
}

/// Everything in one transaction if it fits, else phase by phase.
pub fn transactions(phases: Vec<Phase>, budget: &Budget) -> Vec<Transaction> {
    let weight: usize = phases.iter().map(|phase| budget.weights(phase.deltas())).sum();
    let mut transactions = Vec::new();
    if budget.fits(weight) {
        transactions.push(at_once(&net(phases)));
    } else {
        for phase in phases {
            transactions.extend(match phase {
                Phase::Neutral(deltas) => neutral(deltas, budget),
                Phase::Switch(switch) => switch.transactions(budget),
            });
        }
    }
    transactions.retain(|one| !one.ops.is_empty());
    transactions
}

impl Phase {
    fn deltas(&self) -> &[Delta] {
        match self {
            Self::Neutral(deltas) | Self::Switch(Switch { deltas, .. }) => deltas,
        }
    }
}

/// Before and after.
type Change = (Option<Element>, Option<Element>);

fn net(phases: Vec<Phase>) -> Vec<Delta> {
    let mut all: BTreeMap<(Place, Box<[u8]>), Change> = BTreeMap::new();
    for phase in phases {
        let (Phase::Neutral(deltas) | Phase::Switch(Switch { deltas, .. })) = phase;
        for Delta { place, key, before, after } in deltas {
            all.entry((place, key)).and_modify(|known| known.1 = after.clone()).or_insert((before, after));
        }
    }
    let deltas = all.into_iter().map(|((place, key), (before, after))| Delta { place, key, before, after });
    deltas.filter(|delta| delta.before != delta.after).collect()
}

fn pieces(mut deltas: Vec<Delta>, budget: &Budget) -> Vec<Transaction> {
    sort(&mut deltas);
    let (mut pieces, mut start, mut weight) = (Vec::new(), 0, 0);
    for (index, delta) in deltas.iter().enumerate() {
        let more = budget.weight(delta);
        if index > start && !budget.fits(weight + more) {
            pieces.push(at_once(&deltas[start..index]));
            (start, weight) = (index, 0);
        }
        weight += more;
    }
    pieces.push(at_once(&deltas[start..]));
    pieces
}

/// Decisions about classes that nobody has yet; then addresses change their class; then decisions about classes that
/// nobody has any more.
fn neutral(deltas: Vec<Delta>, budget: &Budget) -> Vec<Transaction> {
    let (moves, decisions): (Vec<_>, Vec<_>) =
        deltas.into_iter().partition(|delta| delta.place.is_of_peers());
    let (gone, new): (Vec<_>, Vec<_>) = decisions.into_iter().partition(|delta| delta.after.is_none());
    let (blocks, addresses): (Vec<_>, Vec<_>) =
        moves.into_iter().partition(|delta| matches!(delta.place, Place::Blocks(_)));
    [pieces(new, budget), pieces(addresses, budget), sweep(&blocks, budget.limits), pieces(gone, budget)]
        .concat()
}
