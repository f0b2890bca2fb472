//! The elements that ought to be in the table, and which of them changed.

use std::collections::{BTreeMap, btree_map::Entry};

use node_nft::{Element, Elements, Limits, Op, Set, Table, Transaction};
use rustc_hash::FxHashMap;

use crate::layout::{Place, constants};

#[derive(Default)]
pub struct Mirror {
    sets: BTreeMap<Place, Elements>,
    /// What changed since the last [`Self::take`], with the value before.
    touched: FxHashMap<(Place, Box<[u8]>), Option<Element>>,
    /// Nobody will ask what changed.
    pub quiet: bool,
}

/// One element, before and after; they differ.
#[derive(Clone, Debug)]
pub struct Delta {
    pub place: Place,
    pub key: Box<[u8]>,
    pub before: Option<Element>,
    pub after: Option<Element>,
}

impl Mirror {
    pub fn put(&mut self, place: Place, key: impl Into<Box<[u8]>>, element: Element) {
        let elements = self.sets.entry(place).or_default();
        match elements.entry(key.into()) {
            Entry::Occupied(known) if *known.get() == element => {}
            Entry::Occupied(mut known) => {
                let key = known.key().clone();
                let before = known.insert(element);
                self.touch(place, key, Some(before));
            }
            Entry::Vacant(new) if self.quiet => {
                new.insert(element);
            }
            Entry::Vacant(new) => {
                let key = new.key().clone();
                new.insert(element);
                self.touch(place, key, None);
            }
        }
    }

    pub fn remove(&mut self, place: Place, key: impl Into<Box<[u8]>>) {
        let key = key.into();
        if let Some(before) = self.sets.get_mut(&place).and_then(|elements| elements.remove(&key)) {
            self.touch(place, key, Some(before));
        }
    }

    fn touch(&mut self, place: Place, key: Box<[u8]>, before: Option<Element>) {
        if !self.quiet {
            self.touched.entry((place, key)).or_insert(before);
        }
    }

    pub fn get(&self, place: Place, key: &[u8]) -> Option<&Element> {
        self.sets.get(&place)?.get(key)
    }

    /// Sets without elements are there too.
    pub fn fill(&self, table: &mut Table) {
        for place in Place::all() {
            let mut set = Set::new(place.schema());
            set.elements = Some(match place {
                Place::Decisions => constants(),
                _ => self.sets.get(&place).cloned().unwrap_or_default(),
            });
            table.set(place.name(), set);
        }
    }

    /// What changed since the last call, in order.
    pub fn take(&mut self) -> Vec<Delta> {
        let mut deltas = Vec::with_capacity(self.touched.len());
        for ((place, key), before) in std::mem::take(&mut self.touched) {
            let after = self.sets.get(&place).and_then(|elements| elements.get(&key)).cloned();
            if before != after {
                deltas.push(Delta { place, key, before, after });
            }
        }
        deltas.sort_unstable_by(|a, b| (a.place, &a.key).cmp(&(b.place, &b.key)));
        deltas
    }
}

/// A part of a step.
pub enum Phase {
    /// Nothing that is decided changes, only what it is worked out from: may be torn into pieces.
    Neutral(Vec<Delta>),
    /// One transaction, always.
    Switch(Vec<Delta>),
}

/// Everything in one transaction if it fits, else phase by phase.
pub fn transactions(phases: Vec<Phase>, limits: Limits) -> Vec<Transaction> {
    let weight: usize = phases.iter().flat_map(Phase::deltas).map(weight).sum();
    if weight <= limits.elements {
        return vec![at_once(&net(phases))].into_iter().filter(|one| !one.ops.is_empty()).collect();
    }
    let mut transactions = Vec::new();
    for phase in phases {
        match phase {
            Phase::Neutral(deltas) => transactions.extend(in_pieces(deltas, limits)),
            Phase::Switch(deltas) => transactions.push(at_once(&deltas)),
        }
    }
    transactions.retain(|one| !one.ops.is_empty());
    transactions
}

impl Phase {
    fn deltas(&self) -> &[Delta] {
        match self {
            Self::Neutral(deltas) | Self::Switch(deltas) => deltas,
        }
    }
}

fn weight(delta: &Delta) -> usize {
    usize::from(delta.before.is_some()) + usize::from(delta.after.is_some())
}

/// Before and after.
type Change = (Option<Element>, Option<Element>);

fn net(phases: Vec<Phase>) -> Vec<Delta> {
    let mut all: BTreeMap<(Place, Box<[u8]>), Change> = BTreeMap::new();
    for phase in phases {
        let (Phase::Neutral(deltas) | Phase::Switch(deltas)) = phase;
        for Delta { place, key, before, after } in deltas {
            all.entry((place, key)).and_modify(|known| known.1 = after.clone()).or_insert((before, after));
        }
    }
    let deltas = all.into_iter().map(|((place, key), (before, after))| Delta { place, key, before, after });
    deltas.filter(|delta| delta.before != delta.after).collect()
}

/// Old elements go first: a range that is in the way would make the kernel refuse its successor.
fn at_once(deltas: &[Delta]) -> Transaction {
    let mut ops = Vec::new();
    for group in deltas.chunk_by(|a, b| a.place == b.place) {
        let elements = of(group, |delta| delta.before.as_ref());
        let (set, schema) = (group[0].place.name(), group[0].place.schema());
        ops.extend((!elements.is_empty()).then_some(Op::DeleteElements { set, schema, elements }));
    }
    for group in deltas.chunk_by(|a, b| a.place == b.place) {
        let elements = of(group, |delta| delta.after.as_ref());
        let (set, schema) = (group[0].place.name(), group[0].place.schema());
        ops.extend((!elements.is_empty()).then_some(Op::AddElements { set, schema, elements }));
    }
    Transaction { ops }
}

fn of(deltas: &[Delta], which: impl Fn(&Delta) -> Option<&Element>) -> Vec<(Box<[u8]>, Element)> {
    deltas.iter().filter_map(|delta| Some((delta.key.clone(), which(delta)?.clone()))).collect()
}

/// Decisions about classes that nobody has yet; then addresses change their class; then decisions about classes that
/// nobody has any more.
fn in_pieces(deltas: Vec<Delta>, limits: Limits) -> Vec<Transaction> {
    let (moves, decisions): (Vec<_>, Vec<_>) =
        deltas.into_iter().partition(|delta| delta.place.is_of_peers());
    let (gone, new): (Vec<_>, Vec<_>) = decisions.into_iter().partition(|delta| delta.after.is_none());
    let (blocks, addresses): (Vec<_>, Vec<_>) =
        moves.into_iter().partition(|delta| matches!(delta.place, Place::Blocks(_)));
    // A change is two elements.
    let size = (limits.elements / 2).max(1);
    let pieces = |deltas: Vec<Delta>| deltas.chunks(size).map(at_once).collect::<Vec<_>>();
    // Ranges depend on each other.
    [pieces(new), pieces(addresses), vec![at_once(&blocks)], pieces(gone)].concat()
}
