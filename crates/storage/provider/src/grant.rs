//! Grants: how much of what is left a consumer gets.
//!
//! In: what is asked, what the storage holds in all, what is promised already. Out: a grant, above zero, that keeps
//! the sum of promises within the storage. Holds: nothing; the sum lives in one stored record, the [`Ledger`], which
//! every change of a grant rewrites in the same transaction, so no two of them can promise the same bytes.

use serde::{Deserialize, Serialize};

/// The sum of all grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    pub granted: u64,
}

/// Why nothing can be granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    #[error(
        "no storage is left to grant: {granted} of {total} bytes are promised, beside what the provider keeps in reserve; add storage, keep less in reserve, or put off a consumer"
    )]
    NothingLeft { total: u64, granted: u64 },
    #[error("the ticket allows no storage at all")]
    TicketAllowsNothing,
}

/// The books do not balance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the ledger says {granted} bytes are granted, which cannot change from {from} to {to}; rebuild it from the consumers"
)]
pub struct LedgerError {
    granted: u64,
    from: u64,
    to: u64,
}

impl Ledger {
    /// The ledger after one grant changed from `from` to `to` bytes.
    pub fn moved(self, from: u64, to: u64) -> Result<Self, LedgerError> {
        let granted = self.granted.checked_sub(from).and_then(|rest| rest.checked_add(to));
        granted.map(|granted| Self { granted }).ok_or(LedgerError { granted: self.granted, from, to })
    }
}

/// `min(requested, what is left, what the ticket allows)`, above zero. `own` is what the asker holds already.
pub fn grant(
    requested: u64,
    total: u64,
    ledger: Ledger,
    own: u64,
    ticket: Option<u64>,
) -> Result<u64, GrantError> {
    let others = ledger.granted.saturating_sub(own);
    let left = total.saturating_sub(others);
    match (requested.min(left).min(ticket.unwrap_or(u64::MAX)), ticket) {
        (0, Some(0)) => Err(GrantError::TicketAllowsNothing),
        (0, _) => Err(GrantError::NothingLeft { total, granted: ledger.granted }),
        (granted, _) => Ok(granted),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_grant_is_what_is_asked_or_what_is_left() {
        let ledger = Ledger { granted: 60 };
        assert_eq!(grant(10, 100, ledger, 0, None), Ok(10));
        assert_eq!(grant(50, 100, ledger, 0, None), Ok(40));
        assert_eq!(grant(50, 100, ledger, 60, None), Ok(50));
        assert_eq!(grant(50, 100, ledger, 0, Some(7)), Ok(7));
        assert_eq!(grant(50, 100, ledger, 0, Some(0)), Err(GrantError::TicketAllowsNothing));
        assert_eq!(grant(1, 60, ledger, 0, None), Err(GrantError::NothingLeft { total: 60, granted: 60 }));
        // The storage shrank under the promises: nothing more is given, nothing wraps.
        assert!(grant(1, 10, ledger, 0, None).is_err());
    }

    proptest! {
        #[test]
        fn promises_never_exceed_the_storage(total: u64, asks in proptest::collection::vec((any::<u64>(), any::<bool>(), 0usize..8), 1..60)) {
            let mut grants: Vec<u64> = Vec::new();
            let mut ledger = Ledger::default();
            for (ask, resize, which) in asks {
                let own = if resize { grants.get(which).copied().unwrap_or(0) } else { 0 };
                let Ok(granted) = grant(ask.max(1), total, ledger, own, None) else { continue };
                ledger = ledger.moved(own, granted).unwrap();
                match grants.get_mut(which) {
                    Some(held) if resize => *held = granted,
                    _ => grants.push(granted),
                }
                prop_assert!(granted > 0);
                prop_assert!(ledger.granted <= total);
                if !resize || own > 0 {
                    prop_assert_eq!(u128::from(ledger.granted), grants.iter().map(|g| u128::from(*g)).sum::<u128>());
                }
            }
        }
    }
}
