//! What clients do with a volume, counted.
//!
//! In: each request that was answered, with how long that took. Out: counts. Holds: the counts since the process started.
//! Not here: who looks at them (`server`'s metrics).

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use storage_backend::{LATENCIES, OperationFigures};

use crate::protocol::Command;

#[derive(Default)]
pub(crate) struct Figures {
    reads: Counted,
    writes: Counted,
    flushes: Counted,
    trims: Counted,
    /// Seconds since 1970; 0: never.
    last_used: AtomicU64,
}

#[derive(Default)]
struct Counted {
    bytes: AtomicU64,
    errors: AtomicU64,
    nanoseconds: AtomicU64,
    /// How many took up to each bound, and longer than all of them.
    took: [AtomicU64; LATENCIES.len() + 1],
}

impl Counted {
    fn add(&self, bytes: u64, took: Duration, good: bool) {
        let add = |figure: &AtomicU64, by: u64| figure.fetch_add(by, Ordering::Relaxed);
        match good {
            true => add(&self.bytes, bytes),
            false => add(&self.errors, 1),
        };
        add(&self.nanoseconds, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let bucket = LATENCIES.iter().position(|bound| took <= *bound).unwrap_or(LATENCIES.len());
        add(&self.took[bucket], 1);
    }

    fn told(&self, kind: &'static str) -> OperationFigures {
        let told = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        OperationFigures {
            kind,
            bytes: told(&self.bytes),
            errors: told(&self.errors),
            spent: Duration::from_nanos(told(&self.nanoseconds)),
            took: self.took.each_ref().map(told),
        }
    }
}

impl Figures {
    /// A request was answered.
    pub(crate) fn count(&self, command: Command, bytes: u64, took: Duration, good: bool) {
        let counted = match command {
            Command::Read | Command::Cache => &self.reads,
            Command::Write => &self.writes,
            Command::Flush => &self.flushes,
            Command::Trim | Command::WriteZeroes => &self.trims,
            Command::BlockStatus | Command::Disconnect | Command::Unknown => return,
        };
        counted.add(bytes, took, good);
    }

    /// A client is at it.
    pub(crate) fn used(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.last_used.store(now, Ordering::Relaxed);
    }

    pub(crate) fn last_used(&self) -> Option<u64> {
        Some(self.last_used.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    pub(crate) fn told(&self) -> [OperationFigures; 4] {
        [
            self.reads.told("read"),
            self.writes.told("write"),
            self.flushes.told("flush"),
            self.trims.told("trim"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_counts_as_an_error_and_moves_no_bytes() {
        let figures = Figures::default();
        figures.count(Command::Write, 4096, Duration::from_micros(50), true);
        figures.count(Command::Write, 4096, Duration::from_secs(9), false);
        figures.count(Command::BlockStatus, 4096, Duration::ZERO, true);
        let [reads, writes, ..] = figures.told();
        assert_eq!((reads.operations(), writes.operations()), (0, 2));
        assert_eq!((writes.bytes, writes.errors), (4096, 1));
        assert_eq!((writes.took[0], writes.took[LATENCIES.len()]), (1, 1));
        assert_eq!(figures.last_used(), None);
        figures.used();
        assert!(figures.last_used().is_some());
    }
}
