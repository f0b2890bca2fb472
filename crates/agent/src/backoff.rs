//! How long to wait before the next try. Pure: randomness is an argument.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);

/// Doubles with each failure and spreads, so that ten thousand agents do not come back at once.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// It worked: begin anew.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// At least the next wait is a long one: the other side said that trying soon is of no use.
    pub fn discourage(&mut self) {
        self.failures = self.failures.max(6);
    }

    /// The next wait; `random` is from 0 to 1.
    pub fn next(&mut self, random: f64) -> Duration {
        let ceiling = FIRST.saturating_mul(1 << self.failures.min(20)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        // From half to all of it: never at once, never much later than said.
        ceiling.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_spread() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..12).map(|_| backoff.next(1.0)).collect();
        assert_eq!((waits[0], waits[1], waits[11]), (FIRST, FIRST * 2, LONGEST));
        assert!(waits.is_sorted());
        assert_eq!(backoff.next(0.0), LONGEST / 2);
        backoff.reset();
        assert_eq!(backoff.next(0.0), FIRST / 2);
        backoff.discourage();
        assert!(backoff.next(0.0) > Duration::from_secs(5));
        for _ in 0..1000 {
            assert!(backoff.next(f64::NAN.max(2.0)) <= LONGEST);
        }
    }
}
