//! Syncs: one sync of the disk serves everybody who asked before it began.
//!
//! In: whoever wants what was written to last. Out: their answers. Holds: who waits for the next sync. Not here: the
//! threads that wait for the disk (`disk`).
//!
//! ```text
//!   nobody is syncing: one write that is to last is synced alone, which costs its own range only
//!   somebody is: write to the cache, wait for the sync after this one, with all others who do
//! ```

use std::sync::{Arc, atomic::Ordering};

use parking_lot::Mutex;

use super::Volume;
use crate::protocol::Errno;

type Waiter = Box<dyn FnOnce(Result<(), Errno>) + Send>;

#[derive(Default)]
pub(super) struct Syncs {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Somebody sees to it that all who wait are served.
    running: bool,
    waiting: Vec<Waiter>,
}

impl Volume {
    /// When this returns, all writes acknowledged before it was called are on disk.
    pub(crate) fn flush(&self) -> Result<(), Errno> {
        if self.read_only {
            return self.check_open();
        }
        self.check_writable()?;
        // After a failed sync the kernel forgets which pages were lost, and a second sync would lie.
        self.top.load().sync().map_err(|_| {
            self.broken.store(true, Ordering::Release);
            Errno::Io
        })
    }

    /// Whether nobody is syncing. If so it is the caller's turn now: it must call [`Self::sync_waiting`] in the end.
    pub(crate) fn take_sync(&self) -> bool {
        !std::mem::replace(&mut self.syncs.state.lock().running, true)
    }

    /// Waits for the next sync. `true` when it is the caller's turn to call [`Self::sync_waiting`].
    pub(crate) fn join_sync(&self, waiter: impl FnOnce(Result<(), Errno>) + Send + 'static) -> bool {
        let mut state = self.syncs.state.lock();
        state.waiting.push(Box::new(waiter));
        !std::mem::replace(&mut state.running, true)
    }

    /// Serves all who wait, if any do. `true` when others have come meanwhile: call it again, after giving others their
    /// turn. Otherwise the turn is over.
    pub(crate) fn sync_waiting(self: &Arc<Self>) -> bool {
        let waiting = std::mem::take(&mut self.syncs.state.lock().waiting);
        if !waiting.is_empty() {
            let synced = self.flush();
            waiting.into_iter().for_each(|waiter| waiter(synced));
        }
        let mut state = self.syncs.state.lock();
        state.running = !state.waiting.is_empty();
        state.running
    }
}
