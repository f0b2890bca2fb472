//! Flushes: one sync of the disk serves everybody who asked before it began.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Volume;
use crate::protocol::Errno;

#[derive(Default)]
pub(super) struct Flushes {
    /// Tickets handed out.
    asked: AtomicU64,
    /// Tickets below this are served.
    served: Mutex<u64>,
}

impl Volume {
    /// When this returns, all writes acknowledged before it was called are on disk.
    pub(crate) fn flush(&self) -> Result<(), Errno> {
        self.check_writable()?;
        let ticket = self.flushes.asked.fetch_add(1, Ordering::SeqCst);
        let mut served = self.flushes.served.lock();
        if *served > ticket {
            // A sync began after we asked; if it had failed, the volume would be broken.
            return self.check_writable();
        }
        let covered = self.flushes.asked.load(Ordering::SeqCst);
        // After a failed sync the kernel forgets which pages were lost, and a second sync would lie.
        let synced = rustix::fs::fdatasync(&self.file).map_err(|_| {
            self.broken.store(true, Ordering::Release);
            Errno::Io
        });
        *served = covered;
        synced
    }
}
