//! Connections that a node has seen, added up.
//!
//! In: what was seen, one connection or packet at a time, with its time. Out: sums by who, to whom, protocol, port, verdict and rule.
//! Holds: a bounded number of rows, whatever the traffic ([`Sums`]).
//! Not here: where they are seen (`node-kernel`), which rule decides (`node-policy`), who the addresses are (the controller).
//!
//! ```text
//!   kernel ─ message ─► Sampler ─ weight ─► Sums by address ─ once a second ─► rules are named ─► Sums that wait for the controller
//! ```
//!
//! Nothing is forgotten: where there is no row left for a connection it is counted in a wider one, which says less of it.

mod sampler;
mod sums;

use std::net::{IpAddr, SocketAddr};

pub use sampler::Sampler;
pub use sums::{Limits, Sums};

/// What is the same of all that is counted in a row. `L` is what else tells rows apart, and what a row is never widened in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key<L> {
    pub label: L,
    /// `None`: many, for which there is no row of their own.
    pub from: Option<IpAddr>,
    /// `None`: many.
    pub to: Option<IpAddr>,
    pub protocol: u8,
    /// The destination port; for ICMP type × 256 + code. `None`: many, or a protocol that has none.
    pub port: Option<u16>,
    /// Where it was sent to, if it was translated.
    pub service: Option<SocketAddr>,
}

/// What is counted. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Connections that were opened; of what is refused, packets.
    pub count: u64,
    /// In both directions, of connections that have ended. `None`: the kernel does not count.
    pub bytes: Option<u64>,
    pub first: u64,
    pub last: u64,
    /// A source port that was seen, since rules may ask for it.
    pub source_port: u16,
}

impl Sum {
    /// One, at this time.
    pub fn one(at: u64) -> Self {
        Self { count: 1, first: at, last: at, ..Self::default() }
    }

    /// What a message stands for, of which only every so-many-th is read.
    #[must_use]
    pub fn times(self, weight: u64) -> Self {
        Self {
            count: self.count.saturating_mul(weight),
            bytes: self.bytes.map(|bytes| bytes.saturating_mul(weight)),
            ..self
        }
    }

    pub fn join(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = match (self.bytes, other.bytes) {
            (Some(own), Some(more)) => Some(own.saturating_add(more)),
            (own, more) => own.or(more),
        };
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }
}
