//! Pace: how many operations and bytes a consumer may have served in a second.
//!
//! In: what a session is about to serve, and the time. Out: how long it waits first. Holds: what was used of the
//! present allowance. The clock is an argument.
//!
//! A bucket for operations and one for bytes, each refilled steadily and holding what a quarter of a second brings: a
//! consumer that was quiet may be quick for a moment. What is taken may put a bucket in debt, so that one large write
//! is served whole and paid for after; all sessions of the consumer wait for the same buckets.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use storage_provider::Rates;

/// What a full bucket holds.
const BURST: Duration = Duration::from_millis(250);
/// Nobody waits longer at once: a limit may be raised meanwhile, and a session be told to end.
const LONGEST: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(crate) struct Pace {
    /// There is a limit at all.
    limited: AtomicBool,
    buckets: Mutex<Buckets>,
}

#[derive(Default)]
struct Buckets {
    rates: Rates,
    operations: Option<Bucket>,
    bytes: Option<Bucket>,
}

struct Bucket {
    /// In a second.
    rate: u64,
    /// When all that was taken is paid for; a full bucket was empty [`BURST`] ago.
    paid: Instant,
}

impl Bucket {
    fn new(rate: u64, now: Instant) -> Self {
        Self { rate, paid: now.checked_sub(BURST).unwrap_or(now) }
    }

    /// How long until it is not in debt.
    fn wait(&self, now: Instant) -> Duration {
        self.paid.saturating_duration_since(now)
    }

    fn take(&mut self, amount: u64, now: Instant) {
        let full = now.checked_sub(BURST).unwrap_or(now);
        let cost = Duration::from_secs_f64(amount as f64 / self.rate as f64);
        self.paid = self.paid.max(full) + cost;
    }
}

impl Pace {
    /// From now on.
    pub(crate) fn set(&self, rates: Rates, now: Instant) {
        let mut buckets = self.buckets.lock();
        buckets.rates = rates;
        let Buckets { operations, bytes, .. } = &mut *buckets;
        for (bucket, rate) in [(operations, rates.operations), (bytes, rates.bytes)] {
            match (bucket.as_mut(), rate.filter(|rate| *rate > 0)) {
                (Some(known), Some(rate)) => known.rate = rate,
                (_, rate) => *bucket = rate.map(|rate| Bucket::new(rate, now)),
            }
        }
        let limited = buckets.operations.is_some() || buckets.bytes.is_some();
        self.limited.store(limited, Ordering::Release);
    }

    pub(crate) fn rates(&self) -> Rates {
        self.buckets.lock().rates
    }

    /// Takes one operation and its bytes, or says how long to wait before asking again.
    pub(crate) fn take(&self, bytes: u64, now: Instant) -> Result<(), Duration> {
        if !self.limited.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut buckets = self.buckets.lock();
        let both = [&buckets.operations, &buckets.bytes];
        let wait = both.into_iter().flatten().map(|bucket| bucket.wait(now)).max().unwrap_or_default();
        if wait > Duration::ZERO {
            return Err(wait.min(LONGEST));
        }
        if let Some(bucket) = &mut buckets.operations {
            bucket.take(1, now);
        }
        if let Some(bucket) = &mut buckets.bytes {
            bucket.take(bytes, now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many operations of so many bytes are served within a time, by a client that asks whenever it may.
    fn served(pace: &Pace, bytes: u64, begin: Instant, time: Duration) -> u64 {
        let (mut now, mut served) = (begin, 0);
        while now < begin + time {
            match pace.take(bytes, now) {
                Ok(()) => served += 1,
                Err(wait) => now += wait,
            }
        }
        served
    }

    #[test]
    fn nobody_is_served_more_than_the_rate_and_a_short_burst() {
        let (pace, begin) = (Pace::default(), Instant::now());
        assert!((0..1000).all(|_| pace.take(1 << 30, begin).is_ok()), "no limit");
        pace.set(Rates { operations: Some(1000), bytes: None }, begin);
        let ten = served(&pace, 1 << 20, begin, Duration::from_secs(10));
        assert!((10_000..=10_300).contains(&ten), "{ten}");
        // Raised while it is in debt.
        let later = begin + Duration::from_secs(10);
        pace.set(Rates { operations: Some(5000), bytes: None }, later);
        let second = served(&pace, 0, later, Duration::from_secs(1));
        assert!((5000..=6300).contains(&second), "{second}");
    }

    #[test]
    fn bytes_and_operations_are_bounded_each_and_a_large_one_is_paid_for_after() {
        let (pace, begin) = (Pace::default(), Instant::now());
        pace.set(Rates { operations: Some(1_000_000), bytes: Some(10 << 20) }, begin);
        let small = served(&pace, 4096, begin, Duration::from_secs(4));
        assert!((10_240..=11_000).contains(&small), "{small}");
        let later = begin + Duration::from_secs(100);
        assert!(pace.take(40 << 20, later).is_ok(), "served whole");
        assert!(pace.take(1, later + Duration::from_secs(3)).is_err());
        assert!(pace.take(1, later + Duration::from_secs(4)).is_ok());
        pace.set(Rates::default(), later);
        assert!(pace.take(1 << 40, later).is_ok(), "taken away again");
        // A limit of nothing is none: nobody is shut out by it.
        pace.set(Rates { operations: Some(0), bytes: None }, later);
        assert!(pace.take(1, later).is_ok());
    }
}
