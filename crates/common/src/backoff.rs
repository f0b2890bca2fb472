//! How long to wait before the next try. Pure: randomness is an argument.

use std::time::Duration;

/// Doubles with each failure, up to a bound.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// The pause before the next try; the one after it is longer.
    pub fn pause(&mut self) -> Duration {
        let pause = self.first.saturating_mul(1 << self.failures.min(20)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// The same for one of many, who must not all come back at once: from half to all of it; `random` is from 0 to 1.
    pub fn spread(&mut self, random: f64) -> Duration {
        self.pause().mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }

    /// It worked: begin anew.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// The other side said that trying soon is of no use: the next pause is at least 64 times the first.
    pub fn discourage(&mut self) {
        self.failures = self.failures.max(6);
    }

    pub fn longest(&self) -> Duration {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(2);

    #[test]
    fn pauses_double_to_a_bound_and_begin_anew() {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        let pauses: Vec<_> = (0..8).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert!((0..1000).all(|_| backoff.pause() == LONGEST));
        backoff.reset();
        assert_eq!(backoff.pause(), FIRST);
        backoff.reset();
        backoff.discourage();
        assert_eq!(backoff.pause(), LONGEST);
    }

    #[test]
    fn pauses_of_many_are_spread_between_half_and_all() {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        assert_eq!(backoff.spread(0.0), FIRST / 2);
        assert_eq!(backoff.spread(1.0), FIRST * 2);
        for random in [f64::INFINITY, -3.0, 0.3] {
            let pause = backoff.spread(random);
            assert!((FIRST..=LONGEST).contains(&pause), "{random}: {pause:?}");
        }
    }
}
