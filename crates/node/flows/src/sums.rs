//! Rows, of which there are never more than so many.
//!
//! ```text
//!   from, to, port      ports of a pair beyond the first ones ─┐
//!   from, to, any port ◄───────────────────────────────────────┘   destinations of a source beyond the first ones ─┐
//!   from, anybody      ◄───────────────────────────────────────────────────────────────────────────────────────────┘
//!   anybody, anybody   ◄── whatever comes when the rows are full
//! ```
//!
//! A port scan has as many rows as a pair may have ports, a sweep of a network as many as a source may have destinations, a flood from
//! made-up sources as many as there may be. Counts are exact in all of them.

use std::{hash::Hash, net::IpAddr};

use rustc_hash::FxHashMap;

use crate::{Key, Sum};

/// How many rows there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub rows: usize,
    /// Destinations that one source may have rows for.
    pub destinations: u32,
    /// Ports that one source and destination may have rows for.
    pub ports: u32,
}

impl Default for Limits {
    /// Some three megabytes when full.
    fn default() -> Self {
        Self { rows: 16_384, destinations: 1_024, ports: 64 }
    }
}

#[derive(Clone, Debug)]
pub struct Sums<L> {
    limits: Limits,
    rows: FxHashMap<Key<L>, Sum>,
    /// Rows with a port, by source and destination.
    pairs: FxHashMap<(IpAddr, IpAddr), u32>,
    /// Pairs, by source.
    sources: FxHashMap<IpAddr, u32>,
}

impl<L: Clone + Eq + Hash> Sums<L> {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            rows: FxHashMap::default(),
            pairs: FxHashMap::default(),
            sources: FxHashMap::default(),
        }
    }

    /// O(1).
    pub fn add(&mut self, mut key: Key<L>, sum: Sum) {
        if let Some(row) = self.rows.get_mut(&key) {
            return row.join(sum);
        }
        if let (Some(from), Some(to)) = (key.from, key.to) {
            let pair = self.pairs.get(&(from, to)).copied();
            let full = pair.is_none()
                && self.sources.get(&from).is_some_and(|many| *many >= self.limits.destinations);
            if full {
                (key.to, key.port, key.service) = (None, None, None);
            } else if pair.is_some_and(|many| many >= self.limits.ports) {
                (key.port, key.service) = (None, None);
            }
        }
        let room = self.rows.len() < self.limits.rows;
        if !room && !self.rows.contains_key(&key) {
            (key.from, key.to, key.port, key.service) = (None, None, None, None);
        }
        if !self.rows.contains_key(&key) {
            self.note(&key);
        }
        match self.rows.get_mut(&key) {
            Some(row) => row.join(sum),
            None => drop(self.rows.insert(key, sum)),
        }
    }

    /// A row that is about to be there.
    fn note(&mut self, key: &Key<L>) {
        let (Some(from), Some(to)) = (key.from, key.to) else { return };
        let pair = self.pairs.entry((from, to)).or_insert_with(|| {
            *self.sources.entry(from).or_default() += 1;
            0
        });
        *pair += 1;
    }

    /// Rows, and the few that stand for all when there is no room: one for each label and protocol.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key<L>, &Sum)> {
        self.rows.iter()
    }

    /// Takes up to so many rows out; those that stay are counted on in.
    pub fn take(&mut self, most: usize) -> Vec<(Key<L>, Sum)> {
        if self.rows.len() <= most {
            let all = std::mem::take(&mut self.rows).into_iter().collect();
            *self = Self::new(self.limits);
            return all;
        }
        let some: Vec<Key<L>> = self.rows.keys().take(most).cloned().collect();
        let taken = some.into_iter().filter_map(|key| self.rows.remove_entry(&key)).collect();
        let rest = std::mem::replace(self, Self::new(self.limits));
        rest.rows.into_iter().for_each(|(key, sum)| self.add(key, sum));
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    type Rows = Sums<&'static str>;

    fn key(from: u32, to: u32, port: u16) -> Key<&'static str> {
        let address = |number: u32| Some(Ipv4Addr::from(0x0a00_0000 + number).into());
        let (from, to) = (address(from), address(to));
        Key { label: "denied", from, to, protocol: 6, port: Some(port), service: None }
    }

    fn total(sums: &Rows) -> u64 {
        sums.iter().map(|(_, sum)| sum.count).sum()
    }

    #[test]
    fn what_is_the_same_is_one_row() {
        let mut sums = Rows::new(Limits::default());
        for at in [5, 3, 9] {
            sums.add(key(1, 2, 80), Sum { bytes: Some(10), ..Sum::one(at) });
        }
        sums.add(key(1, 2, 80), Sum::one(7));
        let expected = Sum { count: 4, bytes: Some(30), first: 3, last: 9, source_port: 0 };
        assert_eq!(sums.take(10), [(key(1, 2, 80), expected)]);
        assert!(sums.is_empty());
    }

    #[test]
    fn a_port_scan_is_a_row_for_each_of_the_first_ports_and_one_for_the_rest() {
        let limits = Limits { ports: 64, ..Limits::default() };
        let mut sums = Rows::new(limits);
        (0..=u16::MAX).for_each(|port| sums.add(key(1, 2, port), Sum::one(0)));
        assert_eq!((sums.len(), total(&sums)), (65, 65_536));
        let rest = sums.iter().find(|(key, _)| key.port.is_none()).unwrap();
        assert_eq!((rest.0.from, rest.0.to, rest.1.count), (key(1, 2, 0).from, key(1, 2, 0).to, 65_536 - 64));
        sums.add(key(1, 3, 80), Sum::one(0));
        sums.add(key(9, 2, 80), Sum::one(0));
        assert_eq!(sums.len(), 67, "others keep their ports");
    }

    #[test]
    fn a_sweep_is_a_row_for_each_of_the_first_destinations_and_one_for_the_rest() {
        let mut sums = Rows::new(Limits { destinations: 100, ..Limits::default() });
        (0..50_000).for_each(|to| sums.add(key(1, to, 22), Sum::one(0)));
        assert_eq!((sums.len(), total(&sums)), (101, 50_000));
        sums.add(key(2, 60_000, 22), Sum::one(0));
        assert_eq!(sums.len(), 102);
    }

    #[test]
    fn a_flood_from_made_up_sources_fills_the_rows_and_no_more() {
        let mut sums = Rows::new(Limits { rows: 1_000, ..Limits::default() });
        (0..200_000).for_each(|from| sums.add(key(from, 1, 80), Sum::one(0)));
        assert_eq!((sums.len(), total(&sums)), (1_001, 200_000));
        assert!(sums.pairs.len() <= 1_000 && sums.sources.len() <= 1_000);
    }

    #[test]
    fn what_is_not_taken_stays_and_goes_on() {
        let mut sums = Rows::new(Limits { ports: 10, ..Limits::default() });
        (0..10).for_each(|port| sums.add(key(1, 2, port), Sum::one(0)));
        let taken = sums.take(6);
        assert_eq!((taken.len(), sums.len(), total(&sums)), (6, 4, 4));
        (100..110).for_each(|port| sums.add(key(1, 2, port), Sum::one(0)));
        assert_eq!(
            (sums.len(), total(&sums)),
            (11, 14),
            "there is room for as many as were taken, and one for the rest"
        );
    }

    /// Whatever comes, in whatever order, everything is counted, and rows are few.
    #[test]
    fn nothing_is_lost() {
        let mut sums = Rows::new(Limits { rows: 50, destinations: 5, ports: 4 });
        let (mut state, mut taken) = (1_u64, 0);
        for number in 0..20_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number);
            let roll = |sides: u64, shift: u32| (state >> shift) % sides;
            let port = u16::try_from(roll(30, 33)).unwrap();
            sums.add(key(roll(40, 20) as u32, roll(40, 45) as u32, port), Sum::one(number));
            assert!(sums.len() <= 51);
            if number % 997 == 0 {
                taken += sums.take(20).iter().map(|(_, sum)| sum.count).sum::<u64>();
            }
        }
        assert_eq!(taken + total(&sums), 20_000);
    }
}
