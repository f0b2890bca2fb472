//! Why a connection is permitted or denied: the steps of the decision on both sides, and what would change it.
//!
//! In: a [`Query`]. Out: an [`Explanation`], as of the last drain. Holds: nothing; it reads the engine's own indexes,
//! so its answer is what nodes were told. Cost: O(rules of the policies applied to the two ends).
//!
//! ```text
//!  each side:  tiers before baseline ─first match─► Allow, Drop, Reject
//!                   │ no match, or Pass
//!                   ▼
//!              Kubernetes policies ─ isolated? ─yes─► permitted by any rule, else denied
//!                   │ not isolated
//!                   ▼
//!              baseline tier ─first match─► Allow, Drop, Reject
//!                   │ no match
//!                   ▼
//!              permitted
//! ```
//!
//! The connection is permitted when egress at the source and ingress at the destination both are. Not here: names
//! (`fqdn`), `toServices` and layer 7, which only the node that sees the packets can decide; they are noted.

pub(crate) mod decide;
pub(crate) mod ends;
mod evaluate;
pub(crate) mod meets;

use std::{fmt, net::IpAddr};

use model::policy::{
    ObjectId,
    output::{Action, Direction, MemberKind, Protocol},
};
use thiserror::Error;

pub use evaluate::Evaluation;

use meets::Asked;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub source: Endpoint,
    pub destination: Endpoint,
    /// Absent: one that no rule can name.
    pub protocol: Option<Protocol>,
    /// The destination port. Absent: any, which only rules without ports permit.
    pub port: Option<u16>,
    pub source_port: Option<u16>,
    /// Type and code, for ICMP.
    pub icmp: Option<(u8, u8)>,
    /// Which family two dual-stack ends use; absent: the first they share, in the source's order.
    pub family: Option<Family>,
}

impl Query {
    fn asked(&self) -> Asked {
        let Self { protocol, port, source_port, icmp, .. } = *self;
        Asked { protocol, port, source_port, icmp }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    Workload { kind: MemberKind, namespace: String, name: String },
    Address(IpAddr),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExplainError {
    #[error("{0} is not known here; look at its name and namespace, or give its address")]
    Unknown(Endpoint),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    pub allowed: bool,
    pub source: End,
    pub destination: End,
    /// At the source.
    pub egress: Side,
    /// At the destination.
    pub ingress: Side,
    /// What the reader must know to trust the answer.
    pub notes: Vec<String>,
    /// What would have to change; empty when permitted.
    pub remedies: Vec<String>,
}

/// One end as policies see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// All workloads meant: more than one when several claim the address.
    pub workloads: Vec<String>,
    pub address: Option<IpAddr>,
    /// Where its policies are enforced; empty when nobody enforces any.
    pub enforced_on: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Side {
    pub allowed: bool,
    /// In order; the last one decides.
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub stage: Stage,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Loopback,
    Tiers,
    Kubernetes,
    Baseline,
    Default,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A rule decides, or passes on.
    Rule(RuleRef),
    /// Kubernetes policies isolate this end and none of their rules permits the connection.
    Isolated {
        by: Vec<ObjectId>,
        near_misses: Vec<NearMiss>,
    },
    NoMatch,
    Permitted,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RuleRef {
    pub policy: ObjectId,
    pub tier_priority: Option<i32>,
    pub priority: Option<f64>,
    pub direction: Direction,
    /// Its rank among the policy's rules of this direction; -1 where rules have no order.
    pub order: i32,
    /// Its place among the policy's rules as nodes see them.
    pub index: usize,
    pub name: String,
    pub action: Action,
}

/// A rule that would permit the connection but for one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct NearMiss {
    pub rule: RuleRef,
    pub misses: Miss,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Miss {
    Peer,
    Port,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Workload { kind, namespace, name } => write!(f, "{kind:?} {namespace}/{name}"),
            Endpoint::Address(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.direction {
            Direction::In => "ingress",
            Direction::Out => "egress",
        };
        write!(f, "{side} rule {}", self.index)?;
        if !self.name.is_empty() {
            write!(f, " `{}`", self.name)?;
        }
        write!(f, " ({:?}) of {}", self.action, self.policy)
    }
}
