//! When something was last seen alive, by a clock that nobody sets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Shared by the one that lives and those who look; cheap to clone.
#[derive(Clone, Debug)]
pub struct Pulse(Arc<Beats>);

#[derive(Debug)]
struct Beats {
    began: Instant,
    /// Milliseconds from `began` to the last beat.
    last: AtomicU64,
}

impl Default for Pulse {
    /// The first beat is now.
    fn default() -> Self {
        Self::since(Instant::now())
    }
}

impl Pulse {
    pub fn since(began: Instant) -> Self {
        Self(Arc::new(Beats { began, last: AtomicU64::new(0) }))
    }

    pub fn beat(&self) {
        self.0.last.store(self.0.began.elapsed().as_millis() as u64, Relaxed);
    }

    /// Time since the last beat.
    pub fn age(&self) -> Duration {
        self.0.began.elapsed().saturating_sub(Duration::from_millis(self.0.last.load(Relaxed)))
    }
}
