//! The record of flows: what nodes have seen, named, kept for a while, and read by time.
//!
//! In: flows as they come, with the names their ends had then. Out: those that a filter is about, newest first, or added up. Holds: files
//! in one directory, of which the oldest go when there are too many bytes or days; and what rules have decided (`uses`), which stays.
//! [`otlp`] and [`ipfix`] are the same flows in the words of others' collectors.
//! Not here: who tells flows, who may read them, who sends them on (`drivers`, `server`).
//!
//! ```text
//!   append ─► frame ─► newest file ─ full, or old ─► sealed: rows of one minute that are the same become one ─ too old ─► gone
//!                          └────────────────┬──────────┘
//!   find ◄── files whose time is asked about, newest first
//! ```
//!
//! A frame is what came at once, with a checksum; a file that a crash has cut short ends with its last whole frame. Nothing is synced but
//! what is sealed: a power cut may cost what came since.

mod filter;
mod frame;
pub mod ipfix;
pub mod otlp;
mod record;
mod top;
mod uses;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

pub use filter::{Ask, EndFilter, FilterError};
pub use record::{Found, Limits, Opened, Reading, Record, RecordError};
pub use top::top;
pub use uses::{Counted, Use, Uses, policy_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    Allowed,
    Denied,
    /// It would be denied, and passes.
    Observed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    In,
    Out,
    /// Between others than the node and its workloads.
    Through,
}

/// Who it was, when it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct End {
    /// `None`: many.
    pub address: Option<IpAddr>,
    /// `Pod shop/web-1`; empty: nobody that was known.
    pub workload: String,
    /// In order.
    pub labels: Vec<(String, String)>,
    /// In order.
    pub tags: Vec<String>,
}

/// What is the same of all that a flow stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    pub node: Arc<str>,
    pub verdict: Verdict,
    pub direction: Direction,
    pub from: Arc<End>,
    pub to: Arc<End>,
    pub protocol: u8,
    /// `None`: many, or a protocol that has none.
    pub port: Option<u16>,
    /// Where it was sent to, if it was translated.
    pub service: Option<SocketAddr>,
    /// What decided; empty: nothing, or it cannot be told.
    pub rule: Arc<str>,
}

/// Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    pub kind: Kind,
    /// Connections that were opened; of what was denied, packets.
    pub count: u64,
    /// `None`: nobody counts them.
    pub bytes: Option<u64>,
    pub first: u64,
    pub last: u64,
}

impl Flow {
    /// Takes in another of the same kind.
    pub fn join(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = match (self.bytes, other.bytes) {
            (Some(own), Some(more)) => Some(own.saturating_add(more)),
            (own, more) => own.or(more),
        };
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }
}
