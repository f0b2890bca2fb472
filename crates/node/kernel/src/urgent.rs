//! The calling thread before others, for as long as it holds up everybody.
//!
//! While a transaction is worked off nobody else gets to nftables. A thread that the scheduler sets aside meanwhile, because others
//! want the processor, keeps that lock for as long as it has to wait: on a busy machine that makes a tenth of a second of a few
//! milliseconds. Who may not raise itself (`CAP_SYS_NICE`) goes on as it is.

use rustix::process::{getpriority_process, setpriority_process};

/// The lowest that Linux has.
const NICE: i32 = -20;

/// Ends when it is dropped, on the thread that began it.
pub struct Urgent {
    /// None: nothing was changed.
    usual: Option<i32>,
}

impl Urgent {
    pub fn begin() -> Self {
        // Of no process in particular: of the calling thread.
        let usual = getpriority_process(None).ok();
        Self { usual: usual.filter(|_| setpriority_process(None, NICE).is_ok()) }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if let Some(usual) = self.usual {
            // Everybody may become less urgent.
            let _ = setpriority_process(None, usual);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_as_it_was_when_it_is_over() {
        let of_other = || std::thread::spawn(|| getpriority_process(None).unwrap()).join().unwrap();
        let (before, other) = (getpriority_process(None).unwrap(), of_other());
        let urgent = Urgent::begin();
        let is_allowed = urgent.usual.is_some();
        assert_eq!(getpriority_process(None).unwrap(), if is_allowed { NICE } else { before });
        drop(urgent);
        assert_eq!((getpriority_process(None).unwrap(), of_other()), (before, other));
    }
}
