//! Endpoints in places: places have no gaps, and few move when one endpoint comes or goes.

use std::{collections::HashMap, net::IpAddr};

type Socket = (IpAddr, u16);

#[derive(Clone, Debug, Default)]
pub struct Pool {
    places: Vec<Socket>,
}

/// One place, before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub index: u32,
    pub before: Option<Socket>,
    pub after: Option<Socket>,
}

impl Pool {
    pub fn len(&self) -> u32 {
        u32::try_from(self.places.len()).expect("a service has less than 2^32 endpoints")
    }

    pub fn iter(&self) -> impl Iterator<Item = Socket> + '_ {
        self.places.iter().copied()
    }

    /// Sets for each endpoint whether it is in the pool. A newcomer takes the place of one that goes; what is left
    /// over is appended, or filled up from the end.
    pub fn change(&mut self, wanted: &[(Socket, bool)]) -> Vec<Move> {
        if self.places.is_empty() {
            self.places = wanted.iter().filter(|(_, stays)| *stays).map(|(socket, _)| *socket).collect();
            self.places.shrink_to_fit();
            let come = |(index, socket): (u32, &Socket)| Move { index, before: None, after: Some(*socket) };
            return (0..).zip(&self.places).map(come).collect();
        }
        let places: HashMap<Socket, usize> = if wanted.len() > 4 {
            self.places.iter().enumerate().map(|(index, socket)| (*socket, index)).collect()
        } else {
            let find = |socket: &Socket| self.places.iter().position(|one| one == socket);
            wanted.iter().filter_map(|(socket, _)| Some((*socket, find(socket)?))).collect()
        };
        let mut free: Vec<usize> = wanted
            .iter()
            .filter(|(_, stays)| !stays)
            .filter_map(|(socket, _)| places.get(socket).copied())
            .collect();
        free.sort_unstable_by(|a, b| b.cmp(a));
        let newcomers = || wanted.iter().filter(|(socket, stays)| *stays && !places.contains_key(socket));
        // There are many pools, and most stay as they are: no room to grow.
        self.places.reserve_exact(newcomers().count().saturating_sub(free.len()));
        let old_len = self.places.len();
        let mut before: HashMap<usize, Option<Socket>> = HashMap::new();
        for (socket, _) in newcomers() {
            // The lowest free place is the last of the list.
            if let Some(index) = free.pop() {
                before.insert(index, Some(self.places[index]));
                self.places[index] = *socket;
            } else {
                before.insert(self.places.len(), None);
                self.places.push(*socket);
            }
        }
        // From the highest free place down, so that what moves into a gap is never itself a gap.
        for index in free {
            before.entry(index).or_insert(Some(self.places[index]));
            let last = self.places.len() - 1;
            before.entry(last).or_insert(Some(self.places[last]));
            self.places.swap_remove(index);
        }
        debug_assert!(before.keys().all(|index| *index < old_len.max(self.places.len())));
        let mut moves: Vec<_> = before
            .into_iter()
            .map(|(index, before)| Move {
                index: u32::try_from(index).expect("a service has less than 2^32 endpoints"),
                before,
                after: self.places.get(index).copied(),
            })
            .collect();
        moves.sort_unstable_by_key(|one| one.index);
        moves
    }

    /// Puts endpoints where they already are according to `known`, as far as they are in the pool.
    pub fn align(&mut self, known: impl Fn(u32) -> Option<Socket>) {
        let mut at: HashMap<Socket, usize> =
            self.places.iter().enumerate().map(|(index, socket)| (*socket, index)).collect();
        for index in 0..self.places.len() {
            let Some(socket) = u32::try_from(index).ok().and_then(&known) else { continue };
            let Some(&from) = at.get(&socket) else { continue };
            let displaced = self.places[index];
            self.places.swap(index, from);
            at.insert(displaced, from);
            at.insert(socket, index);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn socket(number: u8) -> Socket {
        ([10, 0, 0, number].into(), 80)
    }

    proptest! {
        #[test]
        fn moves_lead_from_the_old_places_to_the_new_ones(steps in proptest::collection::vec(
            proptest::collection::btree_map(0_u8..12, any::<bool>(), 0..8), 0..12)
        ) {
            let mut pool = Pool::default();
            let mut model: BTreeMap<u8, ()> = BTreeMap::new();
            let mut kernel: BTreeMap<u32, Socket> = BTreeMap::new();
            for step in steps {
                let wanted: Vec<_> = step.iter().map(|(number, stays)| (socket(*number), *stays)).collect();
                for one in pool.change(&wanted) {
                    prop_assert_eq!(kernel.get(&one.index).copied(), one.before);
                    match one.after {
                        Some(after) => { kernel.insert(one.index, after); }
                        None => { kernel.remove(&one.index); }
                    }
                }
                for (number, stays) in step {
                    if stays { model.insert(number, ()); } else { model.remove(&number); }
                }
                let places: Vec<_> = kernel.values().copied().collect();
                prop_assert_eq!(&places, &pool.places);
                prop_assert!(kernel.keys().copied().eq(0..pool.len()));
                let mut sorted = places;
                sorted.sort_unstable();
                prop_assert_eq!(sorted, model.keys().map(|number| socket(*number)).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn one_endpoint_that_replaces_another_moves_nothing_else() {
        let mut pool = Pool::default();
        pool.change(&[(socket(1), true), (socket(2), true), (socket(3), true)]);
        let moves = pool.change(&[(socket(2), false), (socket(9), true)]);
        assert_eq!(moves, [Move { index: 1, before: Some(socket(2)), after: Some(socket(9)) }]);
    }

    #[test]
    fn alignment_takes_over_the_order_found() {
        let mut pool = Pool::default();
        pool.change(&[(socket(1), true), (socket(2), true), (socket(3), true)]);
        pool.align(|index| [socket(3), socket(9), socket(1)].get(index as usize).copied());
        assert_eq!(pool.places, [socket(3), socket(2), socket(1)]);
    }
}
