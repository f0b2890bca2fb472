//! The plan: what must be made and removed so that the clouds are as the intent says.
//!
//! In: an [`Intent`] (what users want, with the tag graph) and an [`Inventory`] (what was made, with the addresses
//! and numbers that were chosen for it). Out: a [`Plan`]: steps with their order, and problems that a user must
//! solve. Holds: nothing; the same input gives the same plan. Not here: carrying it out (`execute`).
//!
//! ```text
//!   permissions ─┐
//!   rules + tags ┴─► lists: entries per resource ──► verdicts: what policies ──► places: which networks each
//!                                                    leave of them, and add            entry joins
//!                                                                  │                       │
//!                                                                  ▼                       ▼
//!                                                             Close, Open          peerings, gateways, links, NAT:
//!                                                                                  wanted − there, there − wanted
//! ```
//!
//! A link is made when some connection is permitted at both of its ends (`agreement`), or when a rule says that it is reason
//! enough by itself; once it is ready it stays as long as either end asks for it. A permission that only one end gives is
//! told (`halves`).
//!
//! What keeps it safe:
//! - A tag that is unknown or resolves to nothing gives no entry, never an empty one, and a problem that says so.
//! - Closing waits for nothing. Opening is another step, so that no failure elsewhere delays a revocation.
//! - An address is given back only after no list anywhere permits it through a tag: a resource is deleted after the
//!   lists that named it are closed.
//! - A network that somebody else made is adopted where no network overlaps it, is let go and never deleted, and gets
//!   no NAT: how it reaches public addresses is its owner's.
//! - What a record is about that cannot be read is neither made nor removed, and nothing is chosen that the record may
//!   hold.
//! - An address space, an AS number and a pair of BGP addresses belong to their record in the inventory from before
//!   the first call to a cloud until after the last.

mod adopt;
mod agreement;
mod asn;
mod bgp;
mod build;
mod display;
mod effort;
mod halves;
mod in_force;
mod intent;
mod inventory;
mod lists;
mod paths;
mod permissions;
mod places;
mod policies;
mod region;
mod space;
mod step;
#[cfg(test)]
pub(crate) mod tests;
mod unreadable;
mod verdicts;

pub(crate) use adopt::adoptable;
pub use asn::{NoAsnLeft, find_asn};
pub use bgp::{NoBgpLeft, find_bgp};
pub use effort::{Undertaking, undertaking};
pub use halves::{Half, halves};
pub use in_force::{Lack, Origin, RuleStanding, Scope, rules_in_force};
pub use intent::{Intent, ResourceIntent};
pub use inventory::{
    GatewayRecord, Inventory, LinkRecord, NetworkRecord, Phase, ResourceRecord, SimpleRecord,
};
pub use lists::{List, PermitChange, difference};
pub(crate) use permissions::given;
pub use places::{Class, Places};
pub use policies::{Groups, PolicyFault, PolicyMeaning, PolicyView, verdicts};
pub use region::{Match, Region};
pub(crate) use space::overlap;
pub use space::{DEFAULT_SIZE, NoSpaceLeft, PoolError, Pools};
pub use step::{Action, Plan, Problem, ProblemKind, Step, StepId};
pub use unreadable::{Record as UnreadableRecord, Subject, Unreadable};
pub use verdicts::{Draft, Sided, TooManyPieces, Verdict, Verdicts};

/// Works out what to do. O((resources + entries × targets) · log networks).
pub fn plan(intent: &Intent, inventory: &Inventory) -> Plan {
    let intent = unreadable::with_what_is_made(intent, inventory);
    build::Builder::new(&intent, inventory).build()
}
