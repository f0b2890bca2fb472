//! An adaptive limiter: a bucket of tokens per scope and kind of access, slower after each throttle.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;

use crate::{Access, Clock};

/// Requests per second to begin with.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub read: f64,
    pub write: f64,
}

/// The slowest a limiter gets: one request in ten seconds.
const SLOWEST: f64 = 0.1;
/// Tokens saved up while idle, in seconds of the rate.
const BURST_SECONDS: f64 = 2.0;

/// One bucket. Pure: time comes in.
#[derive(Clone, Debug)]
struct Bucket {
    highest: f64,
    rate: f64,
    tokens: f64,
    at: Duration,
}

impl Bucket {
    fn new(rate: f64, at: Duration) -> Self {
        Self { highest: rate, rate, tokens: (rate * BURST_SECONDS).max(1.0), at }
    }

    /// Takes a token; answers how long to wait before using it.
    fn take(&mut self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.tokens = (self.tokens + passed * self.rate).min((self.rate * BURST_SECONDS).max(1.0));
        self.tokens -= 1.0;
        if self.tokens >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-self.tokens / self.rate) }
    }

    /// A throttled request halves the rate; what was saved up is gone.
    fn throttled(&mut self) {
        self.rate = (self.rate / 2.0).max(SLOWEST);
        self.tokens = self.tokens.min(0.0);
    }

    /// A request that went through adds a twentieth of the highest rate back.
    fn fine(&mut self) {
        self.rate = (self.rate + self.highest / 20.0).min(self.highest);
    }
}

#[derive(Debug)]
pub(crate) struct Limiter {
    rates: Rates,
    buckets: Mutex<HashMap<(String, bool), Bucket>>,
}

impl Limiter {
    pub(crate) fn new(rates: Rates) -> Self {
        Self { rates, buckets: Mutex::default() }
    }

    fn with<T>(&self, scope: &str, access: Access, now: Duration, act: impl FnOnce(&mut Bucket) -> T) -> T {
        let is_write = access == Access::Write;
        let rate = if is_write { self.rates.write } else { self.rates.read };
        let mut buckets = self.buckets.lock();
        act(buckets.entry((scope.to_owned(), is_write)).or_insert_with(|| Bucket::new(rate, now)))
    }

    pub(crate) async fn admit(&self, scope: &str, access: Access, clock: &dyn Clock) {
        let pause = self.with(scope, access, clock.now(), |bucket| bucket.take(clock.now()));
        if !pause.is_zero() {
            clock.sleep(pause).await;
        }
    }

    pub(crate) fn throttled(&self, scope: &str, access: Access, now: Duration) {
        self.with(scope, access, now, Bucket::throttled);
    }

    pub(crate) fn fine(&self, scope: &str, access: Access, now: Duration) {
        self.with(scope, access, now, Bucket::fine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_keeps_its_rate_and_gives_way_when_throttled() {
        let mut bucket = Bucket::new(10.0, Duration::ZERO);
        let burst = (0..100).take_while(|_| bucket.take(Duration::ZERO).is_zero()).count();
        assert_eq!(burst, 20);
        // Waits grow by a tenth of a second each: ten a second.
        let (first, second) = (bucket.take(Duration::ZERO), bucket.take(Duration::ZERO));
        assert!((second - first).abs_diff(Duration::from_millis(100)) < Duration::from_millis(1));
        bucket.throttled();
        bucket.throttled();
        assert!((bucket.rate - 2.5).abs() < 1e-9);
        for _ in 0..100 {
            bucket.throttled();
        }
        assert!(bucket.rate >= SLOWEST);
        for _ in 0..100 {
            bucket.fine();
        }
        assert!((bucket.rate - 10.0).abs() < 1e-9);
    }
}
