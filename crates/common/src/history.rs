//! The newest changes, in order, for readers that must see each of them: one history, a cursor per reader. Pure.
//!
//! ```text
//!       floor                         head
//!   …────┤ change change change change │        cursor from floor to head: what follows is here
//!        └────────── kept ─────────────┘        cursor below floor: it is not, and the reader begins anew
//! ```
//!
//! Nothing here belongs to one reader, so that a slow one costs nobody anything.

use std::collections::VecDeque;

#[derive(Debug)]
pub struct History<T> {
    kept: VecDeque<Kept<T>>,
    bytes: usize,
    floor: u64,
    head: u64,
    bounds: Bounds,
}

#[derive(Debug)]
struct Kept<T> {
    revision: u64,
    bytes: usize,
    change: T,
}

/// What is kept at most.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub changes: usize,
    pub bytes: usize,
    /// Whether the newest is kept however large it is.
    pub newest_stays: bool,
}

impl<T> History<T> {
    /// Begins after a revision.
    pub fn new(floor: u64, bounds: Bounds) -> Self {
        Self { kept: VecDeque::new(), bytes: 0, floor, head: floor, bounds }
    }

    /// Takes a change that is newer than all before. What is no longer kept is handed out: to drop it may take a while.
    #[must_use = "what is no longer kept may be large; drop it where nobody waits"]
    pub fn push(&mut self, revision: u64, bytes: usize, change: T) -> Vec<T> {
        self.bytes += bytes;
        self.kept.push_back(Kept { revision, bytes, change });
        self.head = revision;
        let least = usize::from(self.bounds.newest_stays);
        let mut dropped = Vec::new();
        while self.kept.len() > least
            && (self.kept.len() > self.bounds.changes || self.bytes > self.bounds.bytes)
        {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= oldest.bytes;
            self.floor = oldest.revision;
            dropped.push(oldest.change);
        }
        dropped
    }

    /// Up to here there was nothing more to keep.
    pub fn advance(&mut self, revision: u64) {
        self.head = revision;
    }

    /// The newest revision.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Everything after a cursor, oldest first; none if it is not all here.
    pub fn after(&self, cursor: u64) -> Option<impl Iterator<Item = (u64, &T)>> {
        let first = self.kept.partition_point(|kept| kept.revision <= cursor);
        let all = self.kept.range(first..).map(|kept| (kept.revision, &kept.change));
        (cursor >= self.floor).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { changes: 3, bytes: 100, newest_stays: false };

    fn after(history: &History<&'static str>, cursor: u64) -> Option<Vec<(u64, &'static str)>> {
        history.after(cursor).map(|all| all.map(|(revision, change)| (revision, *change)).collect())
    }

    #[test]
    fn a_reader_sees_every_change_or_is_told_that_it_cannot() {
        let mut history = History::new(10, BOUNDS);
        assert_eq!(after(&history, 10), Some(vec![]));
        assert_eq!(after(&history, 9), None);
        for (revision, name) in [(12, "a"), (13, "b"), (15, "c")] {
            assert!(history.push(revision, 1, name).is_empty());
        }
        history.advance(16);
        assert_eq!((history.head(), after(&history, 16)), (16, Some(vec![])));
        assert_eq!(after(&history, 10), Some(vec![(12, "a"), (13, "b"), (15, "c")]));
        assert_eq!(after(&history, 13), Some(vec![(15, "c")]));
        assert_eq!(history.push(17, 1, "d"), ["a"]);
        assert_eq!(after(&history, 11), None);
        assert_eq!(after(&history, 12), Some(vec![(13, "b"), (15, "c"), (17, "d")]));
    }

    #[test]
    fn bytes_are_bounded_too_and_the_newest_may_stay() {
        let mut history = History::new(0, BOUNDS);
        assert!(history.push(1, 60, "a").is_empty());
        assert_eq!(history.push(2, 60, "b"), ["a"]);
        assert_eq!(history.push(3, 101, "c"), ["b", "c"]);
        assert_eq!((after(&history, 2), after(&history, 3)), (None, Some(vec![])));
        let mut stays = History::new(0, Bounds { newest_stays: true, ..BOUNDS });
        assert!(stays.push(1, 60, "a").is_empty());
        assert_eq!(stays.push(2, 1000, "b"), ["a"]);
        assert_eq!(after(&stays, 1), Some(vec![(2, "b")]));
    }
}
