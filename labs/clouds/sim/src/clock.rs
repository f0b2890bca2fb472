//! A clock that jumps: when everybody sleeps and no request is under way, it is already later.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use cloud_http::Clock;
use parking_lot::Mutex;

/// Without requests for this long, everybody is taken to sleep.
const QUIET: Duration = Duration::from_millis(1);
/// When simulated time begins; any date will do.
const START: Duration = Duration::from_secs(1_790_000_000);

pub struct VirtualClock {
    inner: Mutex<Inner>,
    numbers: AtomicU64,
}

struct Inner {
    now: Duration,
    /// When each sleeper wants to wake.
    sleepers: BTreeSet<(Duration, u64)>,
    /// Requests under way, and when the last one began or ended.
    busy: usize,
    touched: Instant,
}

impl Default for VirtualClock {
    fn default() -> Self {
        let inner = Inner { now: START, sleepers: BTreeSet::new(), busy: 0, touched: Instant::now() };
        Self { inner: Mutex::new(inner), numbers: AtomicU64::new(0) }
    }
}

impl VirtualClock {
    /// Since the beginning of the simulation.
    pub fn elapsed(&self) -> Duration {
        self.now() - START
    }

    pub fn advance(&self, by: Duration) {
        self.inner.lock().now += by;
    }

    pub(crate) fn begin(&self) {
        let mut inner = self.inner.lock();
        inner.busy += 1;
        inner.touched = Instant::now();
    }

    pub(crate) fn end(&self) {
        let mut inner = self.inner.lock();
        inner.busy = inner.busy.saturating_sub(1);
        inner.touched = Instant::now();
    }

    /// True when it is time to wake. The first sleeper moves the clock, once all is quiet.
    fn is_due(&self, me: (Duration, u64)) -> bool {
        let mut inner = self.inner.lock();
        if inner.now >= me.0 {
            return true;
        }
        let quiet = inner.busy == 0 && inner.touched.elapsed() >= QUIET;
        if quiet && inner.sleepers.first() == Some(&me) {
            inner.now = me.0;
            return true;
        }
        false
    }
}

/// Takes a sleeper off the list, also when its task is dropped.
struct Asleep<'c> {
    clock: &'c VirtualClock,
    me: (Duration, u64),
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        let mut inner = self.clock.inner.lock();
        inner.sleepers.remove(&self.me);
        inner.touched = Instant::now();
    }
}

#[async_trait]
impl Clock for VirtualClock {
    fn now(&self) -> Duration {
        self.inner.lock().now
    }

    async fn sleep(&self, pause: Duration) {
        let me = (self.now() + pause, self.numbers.fetch_add(1, Ordering::Relaxed));
        self.inner.lock().sleepers.insert(me);
        let _asleep = Asleep { clock: self, me };
        while !self.is_due(me) {
            tokio::time::sleep(QUIET / 2).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleepers_overlap_and_wake_in_order() {
        let clock = VirtualClock::default();
        let order = Mutex::new(Vec::new());
        let sleep = |minutes: u64| {
            let (clock, order) = (&clock, &order);
            async move {
                clock.sleep(Duration::from_secs(60 * minutes)).await;
                order.lock().push(minutes);
            }
        };
        tokio::join!(sleep(30), sleep(10), sleep(20));
        assert_eq!(*order.lock(), [10, 20, 30]);
        assert_eq!(clock.elapsed(), Duration::from_secs(1800));
    }
}
