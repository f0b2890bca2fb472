//! The elements that ought to be in the table, and which of them changed.

use std::collections::{BTreeMap, btree_map::Entry};

use node_nft::{Element, Elements, Op, Set, Table, Transaction};
use rustc_hash::FxHashMap;

use crate::layout::{Place, Way, constants};

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

    /// How many elements the sets have of which this is asked.
    pub fn lens(&self, which: impl Fn(&Place) -> bool) -> BTreeMap<Place, usize> {
        self.sets.iter().filter(|(place, _)| which(place)).map(|(place, set)| (*place, set.len())).collect()
    }

    /// Everything that is decided for an address in one direction.
    pub fn decisions(&self, way: Way, address: &[u8]) -> Vec<(Place, Box<[u8]>, Element)> {
        let place = way.place();
        let elements = self.sets.get(&place).into_iter().flat_map(|set| set.range(Box::from(address)..));
        let of_address = elements.take_while(|(key, _)| key.starts_with(address));
        of_address.map(|(key, element)| (place, key.clone(), element.clone())).collect()
    }

    /// Sets without elements are there too.
    pub fn fill(&self, table: &mut Table, observe: bool) {
        for place in Place::all() {
            let mut set = Set::new(place.schema());
            set.elements = Some(self.sets.get(&place).cloned().unwrap_or_default());
            table.set(place.name(), set);
        }
        for (place, elements) in constants(observe) {
            let mut set = Set::new(place.schema());
            set.elements = Some(elements);
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
        sort(&mut deltas);
        deltas
    }
}

pub fn sort(deltas: &mut [Delta]) {
    deltas.sort_unstable_by(|a, b| (a.place, &a.key).cmp(&(b.place, &b.key)));
}

/// Old elements go first: a range that is in the way would make the kernel refuse its successor.
pub fn at_once(deltas: &[Delta]) -> Transaction {
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
