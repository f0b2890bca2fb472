//! A consumer's account: bytes in use over all its volumes, and the most it may use.
//!
//! In: claims before data is written, releases after it is gone. Out: yes or no, at once.
//! Holds: `used <= limit`, except when a limit was found lower at start than what the files hold.

use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct Account {
    balance: Mutex<Balance>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Balance {
    pub(crate) used: u64,
    pub(crate) limit: u64,
}

impl Account {
    pub(crate) fn balance(&self) -> Balance {
        *self.balance.lock()
    }

    /// Takes `bytes` if the limit allows it.
    pub(crate) fn claim(&self, bytes: u64) -> bool {
        let mut balance = self.balance.lock();
        match balance.used.checked_add(bytes) {
            Some(used) if used <= balance.limit => {
                balance.used = used;
                true
            }
            Some(_) | None => bytes == 0,
        }
    }

    /// Counts bytes that are there already, limit or not.
    pub(crate) fn found(&self, bytes: u64) {
        self.balance.lock().used += bytes;
    }

    pub(crate) fn release(&self, bytes: u64) {
        let mut balance = self.balance.lock();
        balance.used = balance.used.checked_sub(bytes).expect("only what was claimed is released");
    }

    /// Sets the limit unless more is in use; then says how much.
    pub(crate) fn set_limit(&self, limit: u64) -> Result<(), u64> {
        let mut balance = self.balance.lock();
        if limit < balance.used {
            return Err(balance.used);
        }
        balance.limit = limit;
        Ok(())
    }

    /// Sets the limit a record says, whatever is in use: found at start, nothing new may be claimed above it.
    pub(crate) fn restore_limit(&self, limit: u64) {
        self.balance.lock().limit = limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_that_would_cross_the_limit_is_refused_whole() {
        let account = Account::default();
        assert!(account.set_limit(10).is_ok());
        assert!(account.claim(7) && !account.claim(4) && account.claim(3));
        assert_eq!(account.balance(), Balance { used: 10, limit: 10 });
        assert!(account.claim(0) && !account.claim(1) && !account.claim(u64::MAX));
        account.release(5);
        assert!(account.claim(5));
    }

    #[test]
    fn a_limit_does_not_go_below_use_but_a_restored_one_may() {
        let account = Account::default();
        account.found(10);
        assert_eq!(account.set_limit(9), Err(10));
        assert!(account.set_limit(10).is_ok());
        account.restore_limit(5);
        assert!(!account.claim(1) && account.claim(0));
    }
}
