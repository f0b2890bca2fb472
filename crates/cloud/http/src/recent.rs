//! Reads that may come too early: a cloud may answer for a moment as if a change had not happened.
//!
//! Whoever changes something says so here; whoever then reads the same waits until the moment is over. A decision is
//! never made on a read that could be older than our own last write.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;

use crate::Clock;

/// How long a read may lag behind a write.
const LAG: Duration = Duration::from_secs(3);

/// When each thing was last changed from here.
#[derive(Debug, Default)]
pub struct Recent(Mutex<HashMap<String, Duration>>);

impl Recent {
    /// Something of this name was changed, or perhaps changed.
    pub fn touch(&self, name: &str, clock: &dyn Clock) {
        let now = clock.now();
        let mut touched = self.0.lock();
        touched.retain(|_, at| *at + LAG > now);
        touched.insert(name.to_owned(), now);
    }

    /// Waits until a read of it shows what was last written.
    pub async fn settle(&self, name: &str, clock: &dyn Clock) {
        let ready = self.0.lock().get(name).map(|at| *at + LAG);
        if let Some(pause) = ready.and_then(|ready| ready.checked_sub(clock.now())) {
            clock.sleep(pause).await;
        }
    }
}

/// One lock per name. Calls that change parts of one thing take turns; others do not meet.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<String, std::sync::Arc<tokio::sync::Mutex<()>>>>);

/// Lasts as long as it is held.
pub type Turn = tokio::sync::OwnedMutexGuard<()>;

impl Turns {
    pub async fn take(&self, name: &str) -> Turn {
        let lock = std::sync::Arc::clone(self.0.lock().entry(name.to_owned()).or_default());
        lock.lock_owned().await
    }
}
