//! Which controller is tried next, how soon, and for how long. Pure: randomness is an argument.
//!
//! In: which one failed, and that one was in sync. Out: the next one, and the pause before it. The next one is always
//! the one that failed longest ago, so whoever failed is not returned to before all others were tried; among those
//! that never did, any, so that agents spread over the controllers.

use std::time::Duration;

use common::Backoff;

/// Between tries, of a controller and of the kernel alike; spread, so that ten thousand agents do not come back at once.
pub const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
/// A controller's neighbours are tried almost at once, and yet not by all its nodes in the same moment.
const HASTE: Duration = Duration::from_millis(300);
/// How long a controller may take to let a node in: for TCP with TLS, and for the answer to the call. Longer with
/// each round in which all have failed: it may be that they are slow because everybody comes back at once.
const ATTEMPT: Duration = Duration::from_secs(4);
const LONGEST_ATTEMPT: Duration = Duration::from_secs(15);

#[derive(Clone, Debug)]
pub struct Servers {
    /// For each controller the number, counted over all, of its last failure; 0 if it never failed.
    failed: Vec<u64>,
    failures: u64,
    /// Failures since a controller was last in sync with this node.
    in_a_row: usize,
    backoff: Backoff,
}

impl Servers {
    pub fn new(count: usize) -> Self {
        Self { failed: vec![0; count], failures: 0, in_a_row: 0, backoff: BACKOFF }
    }

    /// The one to try; `random` is from 0 to 1.
    pub fn next(&self, random: f64) -> usize {
        let oldest = self.failed.iter().min().copied().unwrap_or_default();
        let equal: Vec<usize> = (0..self.failed.len()).filter(|one| self.failed[*one] == oldest).collect();
        equal[((equal.len() as f64 * random) as usize).min(equal.len() - 1)]
    }

    /// How long the next try may take.
    pub fn patience(&self) -> Duration {
        let rounds = (self.in_a_row / self.failed.len()).min(8) as u32;
        ATTEMPT.saturating_mul(1 << rounds).min(LONGEST_ATTEMPT)
    }

    /// Whether there is another one to go to.
    pub fn has_other(&self) -> bool {
        self.failed.len() > 1
    }

    /// One has failed. How long to wait before the next: a moment while there are others that have not failed, and the
    /// longer the more often all have. With `soon_is_no_use`, long in any case.
    pub fn fail(&mut self, server: usize, soon_is_no_use: bool, random: f64) -> Duration {
        self.failures += 1;
        self.failed[server] = self.failures;
        self.in_a_row += 1;
        if soon_is_no_use {
            self.backoff.discourage();
        } else if !self.in_a_row.is_multiple_of(self.failed.len()) {
            return HASTE.mul_f64(random.clamp(0.0, 1.0));
        }
        self.backoff.spread(random)
    }

    /// A controller has brought the node to its present.
    pub fn synced(&mut self) {
        self.in_a_row = 0;
        self.backoff.reset();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn one_that_failed_is_not_returned_to_before_all_others_were_tried() {
        let mut servers = Servers::new(4);
        for _ in 0..50 {
            let mut round = BTreeSet::new();
            for _ in 0..4 {
                let next = servers.next(fastrand::f64());
                assert!(round.insert(next), "{next} was tried before all others");
                servers.fail(next, false, fastrand::f64());
            }
        }
    }

    #[test]
    fn one_that_worked_until_now_comes_after_one_that_failed_before() {
        let mut servers = Servers::new(2);
        servers.fail(0, false, 0.5);
        servers.synced();
        servers.fail(1, false, 0.5);
        assert_eq!(servers.next(0.9), 0);
    }

    #[test]
    fn agents_spread_over_controllers() {
        let servers = Servers::new(3);
        let first: Vec<_> = [0.0, 0.4, 0.9, 1.0].into_iter().map(|random| servers.next(random)).collect();
        assert_eq!(first, [0, 1, 2, 2]);
    }

    #[test]
    fn another_is_tried_within_a_moment_and_all_again_after_waits_that_grow() {
        let mut servers = Servers::new(2);
        let waits: Vec<_> = (0..8).map(|turn| servers.fail(turn % 2, false, 1.0)).collect();
        let whole_rounds: Vec<_> = waits.iter().skip(1).step_by(2).collect();
        assert!(waits.iter().step_by(2).all(|wait| *wait <= HASTE), "{waits:?}");
        assert!(whole_rounds.is_sorted() && *whole_rounds[3] > Duration::from_secs(1), "{waits:?}");
        servers.synced();
        assert!(servers.fail(0, false, 1.0) <= HASTE);
        assert!(servers.fail(1, true, 0.0) > Duration::from_secs(5), "it said that soon is of no use");
    }

    #[test]
    fn tries_are_bounded_and_last_longer_when_all_fail() {
        let mut servers = Servers::new(2);
        assert_eq!(servers.patience(), ATTEMPT);
        servers.fail(0, false, 0.0);
        assert_eq!(servers.patience(), ATTEMPT, "the other has had no chance yet");
        for turn in 0..100 {
            servers.fail(turn % 2, false, 0.0);
        }
        assert_eq!(servers.patience(), LONGEST_ATTEMPT);
        servers.synced();
        assert_eq!(servers.patience(), ATTEMPT);
    }
}
