//! When leases end. In memory, on the monotonic clock: a step of the wall clock ends nothing.
//!
//! In: the writer tells of grants, keep-alives and ends; time is an argument. Out: which leases are due. Holds: one
//! deadline per lease. The times to live are in the file; after a restart each lease has its full time again,
//! because nobody could keep it alive meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use crate::api::LeaseId;

#[derive(Debug, Default)]
pub(super) struct Leases {
    by_id: BTreeMap<LeaseId, Instant>,
    by_deadline: BTreeSet<(Instant, LeaseId)>,
}

impl Leases {
    /// Starts the lease's time, anew if it was running.
    pub(super) fn insert(&mut self, lease: LeaseId, ttl: Duration, now: Instant) {
        self.remove(lease);
        // A time to live beyond the clock's range never ends.
        let Some(deadline) = now.checked_add(ttl) else { return };
        self.by_id.insert(lease, deadline);
        self.by_deadline.insert((deadline, lease));
    }

    pub(super) fn remove(&mut self, lease: LeaseId) {
        if let Some(deadline) = self.by_id.remove(&lease) {
            self.by_deadline.remove(&(deadline, lease));
        }
    }

    pub(super) fn due(&self, now: Instant, most: usize) -> Vec<LeaseId> {
        let due = self.by_deadline.iter().take_while(|(deadline, _)| *deadline <= now);
        due.take(most).map(|(_, lease)| *lease).collect()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_due_after_its_time_unless_kept_alive() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut leases = Leases::default();
        leases.insert(LeaseId(1), Duration::from_secs(10), at(0));
        leases.insert(LeaseId(2), Duration::from_secs(20), at(0));
        assert_eq!(leases.next_deadline(), Some(at(10)));
        assert_eq!(leases.due(at(9), 10), []);
        leases.insert(LeaseId(1), Duration::from_secs(10), at(9));
        assert_eq!(leases.due(at(18), 10), []);
        assert_eq!(leases.due(at(19), 10), [LeaseId(1)]);
        assert_eq!(leases.due(at(20), 1), [LeaseId(1)]);
        leases.remove(LeaseId(1));
        assert_eq!(leases.due(at(30), 10), [LeaseId(2)]);
    }
}
