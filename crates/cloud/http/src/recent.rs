//! Reads that may come too early: a cloud may answer for a moment as if a change had not happened.
//!
//! Whoever changes something says so here; whoever then reads the same waits until the moment is over. A decision is
//! never made on a read that could be older than our own last write.

use std::{collections::HashMap, sync::Arc, time::Duration};

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
pub struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

/// Lasts as long as it is held.
pub type Turn = tokio::sync::OwnedMutexGuard<()>;

impl Turns {
    /// Names that nobody holds or waits for are forgotten by whoever comes next.
    pub async fn take(&self, name: &str) -> Turn {
        let lock = {
            let mut locks = self.0.lock();
            // Counts only grow below, under the same lock: one that is alone here is nobody's.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(name.to_owned()).or_default())
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use std::{future, pin::pin};

    use super::*;

    /// What a future has without waiting.
    async fn at_once<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = future::ready(()) => None,
        }
    }

    #[tokio::test]
    async fn names_nobody_waits_for_are_forgotten() {
        let turns = Turns::default();
        for number in 0..1000 {
            drop(turns.take(&format!("machine-{number}")).await);
        }
        assert_eq!(turns.0.lock().len(), 1, "the last one, until somebody comes");
    }

    #[tokio::test]
    async fn a_name_that_is_held_or_waited_for_is_kept() {
        let turns = Turns::default();
        let held = turns.take("a").await;
        let mut waiting = pin!(turns.take("a"));
        assert!(at_once(&mut waiting).await.is_none());
        drop(turns.take("b").await);
        drop(held);
        let second = waiting.await;
        let mut third = pin!(turns.take("a"));
        assert!(at_once(&mut third).await.is_none(), "others have come and gone, and it is still one lock");
        drop(second);
        assert!(at_once(&mut third).await.is_some());
    }
}
