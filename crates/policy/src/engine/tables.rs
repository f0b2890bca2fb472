//! The small data structures the engine is made of: dense ids, rows with free lists, sorted sets, counted sets.

use std::{marker::PhantomData, ops};

use smallvec::SmallVec;

pub(crate) trait Id: Copy + Ord {
    fn from_index(index: usize) -> Self;
    fn index(self) -> usize;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) struct $name(u32);

        impl Id for $name {
            fn from_index(index: usize) -> Self {
                $name(u32::try_from(index).expect("fewer than 2^32 rows fit in memory"))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }
    )* };
}

ids! {
    /// A label key, a label value.
    Symbol,
    /// A span key.
    NodeId,
    NamespaceId,
    /// An interned namespace selector.
    NamespaceSelectorId,
    EntityId,
    /// A set of labels some entities of one namespace share.
    ProfileId,
    SelectorId,
    GroupId,
    /// A row of counted nodes.
    SpanId,
    PolicyId,
}

/// Rows that keep their index for life; freed ones are used again. They lie in chunks: a table that grows does not move a
/// hundred thousand rows, nor ask for the memory of as many again.
#[derive(Debug, Clone)]
pub(crate) struct Slab<I, T> {
    /// All full but the last.
    chunks: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    _id: PhantomData<I>,
}

const CHUNK: usize = 1024;

impl<I: Id, T> Slab<I, T> {
    pub(crate) fn new() -> Self {
        Slab { chunks: Vec::new(), free: Vec::new(), _id: PhantomData }
    }

    pub(crate) fn insert(&mut self, row: T) -> I {
        if let Some(index) = self.free.pop() {
            let index = index as usize;
            self.chunks[index / CHUNK][index % CHUNK] = Some(row);
            return I::from_index(index);
        }
        let last = match self.chunks.last() {
            Some(last) if last.len() < CHUNK => self.chunks.len() - 1,
            first => {
                // A table of a few rows takes the room of a few rows.
                let room = first.map_or(0, |_| CHUNK);
                self.chunks.push(Vec::with_capacity(room));
                self.chunks.len() - 1
            }
        };
        self.chunks[last].push(Some(row));
        I::from_index(last * CHUNK + self.chunks[last].len() - 1)
    }

    pub(crate) fn remove(&mut self, id: I) -> T {
        let index = id.index();
        self.free.push(index as u32);
        self.chunks[index / CHUNK][index % CHUNK].take().expect("only live rows are removed")
    }

    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.chunks.get(id.index() / CHUNK)?.get(id.index() % CHUNK)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.chunks.get_mut(id.index() / CHUNK)?.get_mut(id.index() % CHUNK)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        let rows = self.chunks.iter().flatten().enumerate();
        rows.filter_map(|(i, row)| row.as_ref().map(|row| (I::from_index(i), row)))
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum::<usize>() - self.free.len()
    }
}

impl<I: Id, T> ops::Index<I> for Slab<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        self.get(id).expect("ids point at live rows")
    }
}

impl<I: Id, T> ops::IndexMut<I> for Slab<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        self.get_mut(id).expect("ids point at live rows")
    }
}

/// Ascending ids. Four fit without an allocation, which is what most rows have; a change is a binary search and a move
/// of 4 bytes per later element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdSet<I: Id>(SmallVec<[I; 4]>);

impl<I: Id> IdSet<I> {
    pub(crate) fn new() -> Self {
        IdSet(SmallVec::new())
    }

    /// True when it was not in the set.
    pub(crate) fn insert(&mut self, id: I) -> bool {
        if self.0.last().is_none_or(|last| *last < id) {
            self.0.push(id);
            return true;
        }
        match self.0.binary_search(&id) {
            Ok(_) => false,
            Err(at) => {
                self.0.insert(at, id);
                true
            }
        }
    }

    pub(crate) fn remove(&mut self, id: I) -> bool {
        match self.0.binary_search(&id) {
            Ok(at) => {
                self.0.remove(at);
                true
            }
            Err(_) => false,
        }
    }

    pub(crate) fn contains(&self, id: I) -> bool {
        self.0.binary_search(&id).is_ok()
    }

    pub(crate) fn intersects(&self, other: &IdSet<I>) -> bool {
        let (few, many) = if self.0.len() < other.0.len() { (self, other) } else { (other, self) };
        few.0.iter().any(|id| many.contains(*id))
    }
}

impl<I: Id> ops::Deref for IdSet<I> {
    type Target = [I];
    fn deref(&self) -> &[I] {
        &self.0
    }
}

impl<I: Id> FromIterator<I> for IdSet<I> {
    fn from_iter<T: IntoIterator<Item = I>>(ids: T) -> Self {
        let mut ids: SmallVec<[I; 4]> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        ids.shrink_to_fit();
        IdSet(ids)
    }
}

/// Ids with a count above zero, ascending. What enters or leaves the set is told by the return value, which is the
/// moment a span changes.
#[derive(Debug, Clone)]
pub(crate) struct CountedSet<I: Id>(SmallVec<[(I, u32); 2]>);

impl<I: Id> CountedSet<I> {
    pub(crate) fn new() -> Self {
        CountedSet(SmallVec::new())
    }

    /// True when the id entered the set.
    pub(crate) fn increment(&mut self, id: I) -> bool {
        if self.0.last().is_none_or(|(last, _)| *last < id) {
            self.0.push((id, 1));
            return true;
        }
        match self.0.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => {
                self.0[at].1 += 1;
                false
            }
            Err(at) => {
                self.0.insert(at, (id, 1));
                true
            }
        }
    }

    /// True when the id left the set.
    pub(crate) fn decrement(&mut self, id: I) -> bool {
        let at =
            self.0.binary_search_by_key(&id, |(id, _)| *id).expect("what is counted down was counted up");
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.remove(at);
            return true;
        }
        false
    }

    pub(crate) fn ids(&self) -> impl ExactSizeIterator<Item = I> {
        self.0.iter().map(|(id, _)| *id)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counted_set_tells_the_crossings_only() {
        let mut set = CountedSet::new();
        let [a, b] = [NodeId::from_index(7), NodeId::from_index(3)];
        assert!(set.increment(a));
        assert!(!set.increment(a));
        assert!(set.increment(b));
        assert_eq!(set.ids().collect::<Vec<_>>(), [b, a]);
        assert!(!set.decrement(a));
        assert!(set.decrement(a));
        assert_eq!(set.ids().collect::<Vec<_>>(), [b]);
    }

    #[test]
    fn freed_rows_are_used_again() {
        let mut slab = Slab::<NodeId, &str>::new();
        let first = slab.insert("first");
        slab.insert("second");
        slab.remove(first);
        assert_eq!(slab.insert("third"), first);
        assert_eq!(slab.len(), 2);
    }

    #[test]
    fn rows_are_found_across_chunks() {
        let mut slab = Slab::<NodeId, usize>::new();
        let ids: Vec<NodeId> = (0..3 * CHUNK + 1).map(|row| slab.insert(row)).collect();
        assert!(ids.iter().enumerate().all(|(row, id)| slab[*id] == row));
        slab.remove(ids[CHUNK]);
        assert_eq!((slab.get(ids[CHUNK]), slab.get(NodeId::from_index(9 * CHUNK))), (None, None));
        assert_eq!((slab.len(), slab.iter().count()), (3 * CHUNK, 3 * CHUNK));
        assert_eq!(slab.insert(7), ids[CHUNK]);
        assert_eq!(slab[ids[CHUNK]], 7);
    }
}
