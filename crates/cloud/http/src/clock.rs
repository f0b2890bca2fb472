//! Time as an argument: pauses of minutes must not take minutes in a test.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

#[async_trait]
pub trait Clock: Send + Sync {
    /// Since 1970.
    fn now(&self) -> Duration;
    async fn sleep(&self, pause: Duration);
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    async fn sleep(&self, pause: Duration) {
        tokio::time::sleep(pause).await;
    }
}
