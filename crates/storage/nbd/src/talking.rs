//! Who talks: how many sessions of one consumer have a thread, and how those threads stand beside others.
//!
//! In: threads that begin and end. Out: their priority. Holds: a count.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Sessions of one consumer that have a thread now.
#[derive(Clone, Default)]
pub(crate) struct Talking(Arc<AtomicUsize>);

/// So many threads of one consumer run like everybody's. Further ones run when nobody else wants the processor: by
/// opening more sessions nobody gets more of it, and others find it free.
const ALIKE: usize = 4;
/// The lowest priority.
const LAST: i32 = 19;

pub(crate) struct Place(Talking);

impl Talking {
    /// A thread of a session begins to work; it has a place as long as it does.
    pub(crate) fn begin(self) -> Place {
        if self.0.fetch_add(1, Ordering::Relaxed) >= ALIKE {
            // Of this thread alone, which ends with its client's silence. Where it is refused, all run alike.
            let _ = rustix::process::setpriority_process(None, LAST);
        }
        Place(self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
