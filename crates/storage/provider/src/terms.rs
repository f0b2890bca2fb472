//! What a ticket is good for where it does not say.

use crate::grant::Ledger;

/// The most that may be had with a ticket that names no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TicketLimit {
    /// Half of all the storage: one ticket never takes everything.
    #[default]
    Half,
    Bytes(u64),
    Nothing,
}

/// The provider's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    pub limit: TicketLimit,
    /// What a client is granted that names no capacity, with a ticket that names none either.
    pub capacity: u64,
    /// Whatever is stored is encrypted, also where the ticket does not say so.
    pub encrypted: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self { limit: TicketLimit::default(), capacity: 10 << 30, encrypted: false }
    }
}

impl Terms {
    /// No bounds but the storage's.
    pub fn unbounded() -> Self {
        Self { limit: TicketLimit::Nothing, ..Self::default() }
    }

    /// How far a ticket with this limit goes, of so much storage.
    pub fn limit(&self, ticket: Option<u64>, total: u64) -> Option<u64> {
        ticket.or(match self.limit {
            TicketLimit::Half => Some((total / 2).max(1)),
            TicketLimit::Bytes(bytes) => Some(bytes),
            TicketLimit::Nothing => None,
        })
    }
}

/// The storage as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    pub total: u64,
    pub ledger: Ledger,
}
