//! The policy plane: what the controller says applies to this node's workloads, as an nftables table.
//!
//! In: [`Change`]s (applied-to sets, address sets, policies, as the node protocol delivers them) and [`LocalChange`]s
//! (which workload has which interface and addresses). Out: a [`Step`] of transactions per change, or the whole
//! [`Plane::table`]; and the objects that cannot be enforced as they are written.
//! Holds: the objects, and the elements that follow from them.
//! Not here: netlink (`node-kernel`), the stream from the controller and the registry (`agent`).
//!
//! ```text
//!   address sets, ip blocks ─► features ─► class of each peer address          peers, blocks
//!                                            │
//!   policies × applied-to sets ─► program of each workload × class ─► decision   ports, ranges, protocols, peers
//! ```
//!
//! Addresses that no rule can tell apart form a class. For each local workload and each class that its rules mention, the
//! decision is worked out beforehand for all ports; the kernel looks the class up by address and the decision by workload,
//! class, protocol and port. The number of rules is constant, and a packet takes at most a dozen lookups however many
//! policies there are. [`mod@layout`] draws the table; `docs/policy-plane.md` tells how to read it.

mod compile;
mod function;
mod functions;
mod l4;
pub mod layout;
mod mirror;
pub mod naive;
mod number;
mod object;
mod options;
mod overlay;
mod peers;
mod phases;
mod plane;
mod program;
mod programs;
mod retreat;
mod sets;
mod shutter;
mod sweep;
pub mod units;

pub use l4::{Decision, L4};
pub use object::{
    Change, LocalChange, ObjectError, ObjectId, ObjectKind, Permit, SetKind, Workload, WorkloadId,
};
pub use options::{LOCKDOWN_TIERS, Options, SPARE_TABLE, TABLE};
pub use plane::{Counts, Packet, Passage, Plane, Ruling, Step, Subject};
pub use retreat::retreat;
pub use shutter::{ClosedHost, SHUTTER, Shutter};
