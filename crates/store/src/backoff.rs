//! How long to wait before the next try. Pure.

use std::time::Duration;

/// Doubles with each failure, up to a bound.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The pause before the next try; the one after it is longer.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        pause
    }

    /// It worked: begin anew.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    pub fn longest(&self) -> Duration {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_a_bound_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        let pauses: Vec<_> = (0..8).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        backoff.reset();
        assert_eq!(backoff.pause(), Duration::from_millis(50));
    }
}
