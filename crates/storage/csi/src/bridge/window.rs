//! What is between the kernel and the storage (pure).
//!
//! In: requests of the kernel, answers of the server, lost connections. Out: what to send, what to answer. Holds: requests that are not
//! answered, and changes that are answered and not known to be on the server's disk: those are sent again to a server that comes back, before
//! anything else and in their order, since it may have lost them with its power. Each request is answered once.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::line::{FLUSH, Head, IO, TRIM, WRITE, WRITE_ZEROES};

/// Bytes written that may not be on the server's disk: from half of it on the bridge asks for that itself, beyond it nothing
/// more is taken.
const MOST: usize = 64 << 20;
/// What each change counts beside its bytes.
const OVERHEAD: usize = 256;

#[derive(Clone, Debug)]
pub(crate) struct Op {
    /// With the kernel's cookie.
    pub(crate) head: Head,
    pub(crate) data: Arc<Vec<u8>>,
}

impl Op {
    fn changes(&self) -> bool {
        matches!(self.head.command, WRITE | TRIM | WRITE_ZEROES)
    }

    fn weight(&self) -> usize {
        self.data.len() + OVERHEAD
    }
}

struct Waiting {
    op: Op,
    /// Asked by the bridge itself: nobody waits for the answer.
    own: bool,
    /// Of a flush: the changes that were answered when it was sent.
    covers: u64,
}

/// What the kernel is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) cookie: u64,
    pub(crate) error: u32,
}

#[derive(Default)]
pub(crate) struct Window {
    next: u64,
    /// By our number, which is the order in which they came.
    waiting: BTreeMap<u64, Waiting>,
    unsent: VecDeque<u64>,
    /// Changes that were answered, and their numbers in the order of their answers.
    answered: VecDeque<(u64, Op)>,
    changes: u64,
    weight: usize,
    own_flush: bool,
    /// Something that was answered could not be sent again: the next flush says so.
    lost: bool,
}

impl Window {
    /// Takes a request of the kernel.
    pub(crate) fn take(&mut self, op: Op) {
        self.put(op, false);
    }

    fn put(&mut self, op: Op, own: bool) {
        self.next += 1;
        self.waiting.insert(self.next, Waiting { op, own, covers: 0 });
        self.unsent.push_back(self.next);
    }

    /// Whether more may be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.weight < MOST
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.answered.is_empty()
    }

    /// Asks for everything that was answered to be on the server's disk.
    pub(crate) fn settle(&mut self) {
        if !self.own_flush {
            self.own_flush = true;
            let head = Head { flags: 0, command: FLUSH, cookie: 0, offset: 0, length: 0 };
            self.put(Op { head, data: Arc::default() }, true);
        }
    }

    /// What is to be sent next, under our number.
    pub(crate) fn next(&mut self) -> Option<(Head, Arc<Vec<u8>>)> {
        let number = self.unsent.pop_front()?;
        let changes = self.changes;
        let waiting = self.waiting.get_mut(&number)?;
        waiting.covers = changes;
        Some((Head { cookie: number, ..waiting.op.head }, Arc::clone(&waiting.op.data)))
    }

    /// Of a request that was sent: its command, and how many bytes it asked for.
    pub(crate) fn asked(&self, number: u64) -> Option<(u16, u32)> {
        self.waiting.get(&number).map(|waiting| (waiting.op.head.command, waiting.op.head.length))
    }

    /// The server's answer; what to tell the kernel.
    pub(crate) fn answered(&mut self, number: u64, error: u32) -> Option<Answer> {
        let Waiting { op, own, covers } = self.waiting.remove(&number)?;
        let mut error = error;
        if op.head.command == FLUSH && error == 0 {
            while self.answered.front().is_some_and(|(change, _)| *change <= covers) {
                self.weight -= self.answered.pop_front().map(|(_, op)| op.weight()).unwrap_or_default();
            }
            if !own && std::mem::take(&mut self.lost) {
                error = IO;
            }
        }
        let answer = (!own).then_some(Answer { cookie: op.head.cookie, error });
        if own {
            self.own_flush = false;
        }
        if op.changes() && error == 0 {
            self.changes += 1;
            self.weight += op.weight();
            self.answered.push_back((self.changes, op));
            if self.weight > MOST / 2 {
                self.settle();
            }
        }
        answer
    }

    /// The connection is gone: what is to be sent again first, in this order. Everything that is not answered follows by itself.
    pub(crate) fn broke(&mut self) -> Vec<Op> {
        self.unsent = self.waiting.keys().copied().collect();
        self.answered.iter().map(|(_, op)| op.clone()).collect()
    }

    /// Some of that was not taken again.
    pub(crate) fn lose(&mut self) {
        self.lost = true;
    }

    /// Gives all up: everything that waits is answered with an error.
    pub(crate) fn fail(&mut self) -> Vec<Answer> {
        self.unsent.clear();
        self.answered.clear();
        (self.weight, self.own_flush) = (0, false);
        let waiting = std::mem::take(&mut self.waiting).into_values();
        waiting.filter(|one| !one.own).map(|one| Answer { cookie: one.op.head.cookie, error: IO }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::line::READ, *};

    fn op(command: u16, cookie: u64, bytes: usize) -> Op {
        let head = Head { flags: 0, command, cookie, offset: cookie * 4096, length: bytes as u32 };
        Op { head, data: Arc::new(vec![0; if command == WRITE { bytes } else { 0 }]) }
    }

    fn sent(window: &mut Window) -> Vec<u64> {
        std::iter::from_fn(|| window.next()).map(|(head, _)| head.cookie).collect()
    }

    fn again(window: &mut Window) -> Vec<u64> {
        window.broke().iter().map(|op| op.head.cookie).collect()
    }

    #[test]
    fn what_is_not_answered_is_sent_again_and_answered_once() {
        let mut window = Window::default();
        window.take(op(READ, 100, 512));
        window.take(op(WRITE, 101, 512));
        assert_eq!(sent(&mut window), [1, 2]);
        assert_eq!(window.answered(1, 0), Some(Answer { cookie: 100, error: 0 }));
        assert_eq!(again(&mut window), [0; 0], "nothing was answered that changes something");
        window.take(op(READ, 102, 512));
        assert_eq!(sent(&mut window), [2, 3]);
        assert_eq!(window.answered(1, 0), None, "an old answer");
        assert_eq!(window.answered(2, 28), Some(Answer { cookie: 101, error: 28 }));
        assert_eq!(window.answered(2, 0), None);
    }

    #[test]
    fn changes_are_kept_until_a_flush_that_was_sent_after_their_answer() {
        let mut window = Window::default();
        window.take(op(WRITE, 1, 512));
        sent(&mut window);
        window.answered(1, 0);
        window.take(op(WRITE, 2, 512));
        window.take(op(FLUSH, 3, 0));
        sent(&mut window);
        // The second change is answered while the flush is under way, which need not cover it.
        window.answered(2, 0);
        assert_eq!(again(&mut window), [1, 2]);
        sent(&mut window);
        window.take(op(TRIM, 4, 8192));
        sent(&mut window);
        window.answered(4, 0);
        assert_eq!(window.answered(3, 0), Some(Answer { cookie: 3, error: 0 }));
        assert_eq!(
            again(&mut window),
            [4],
            "sent again after the break, the flush covers both writes and not the trim"
        );
        assert!(!window.is_settled());
    }

    #[test]
    fn a_flush_that_failed_settles_nothing() {
        let mut window = Window::default();
        window.take(op(WRITE, 1, 512));
        sent(&mut window);
        window.answered(1, 0);
        window.take(op(FLUSH, 2, 0));
        sent(&mut window);
        assert_eq!(window.answered(2, IO), Some(Answer { cookie: 2, error: IO }));
        assert_eq!(again(&mut window), [1]);
        window.lose();
        window.take(op(FLUSH, 3, 0));
        sent(&mut window);
        assert_eq!(
            window.answered(3, 0),
            Some(Answer { cookie: 3, error: IO }),
            "what was lost is told once"
        );
        window.take(op(FLUSH, 4, 0));
        sent(&mut window);
        assert_eq!(window.answered(4, 0), Some(Answer { cookie: 4, error: 0 }));
    }

    #[test]
    fn the_bridge_asks_for_a_flush_before_it_has_no_room() {
        let mut window = Window::default();
        let mut number = 0;
        while window.is_settled() || sent(&mut window).is_empty() {
            number += 1;
            window.take(op(WRITE, number, 1 << 20));
            sent(&mut window);
            assert!(window.answered(number, 0).is_some());
            assert!(window.has_room() && number < 64, "{number}");
        }
        // Its own flush was sent last.
        assert_eq!(window.answered(number + 1, 0), None, "nobody waits for it");
        assert!(window.is_settled());
    }

    #[test]
    fn who_gives_up_answers_everything() {
        let mut window = Window::default();
        window.take(op(WRITE, 1, 512));
        window.take(op(READ, 2, 512));
        window.settle();
        sent(&mut window);
        let failed: Vec<_> = window.fail().iter().map(|answer| (answer.cookie, answer.error)).collect();
        assert_eq!(failed, [(1, IO), (2, IO)]);
        assert!(window.fail().is_empty() && window.broke().is_empty());
    }
}
