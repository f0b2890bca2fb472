//! The tag graph: what a tag resolves to, what may be changed, and who must hear of a change.
//!
//! In: requests to be judged ([`Graph::plan`]), and committed facts, one transaction at a time
//! ([`Graph::apply`]). Out: plans of facts to store; resolutions in a fixed order; for each transaction the exact
//! difference of every subscribed tag and who hears of it ([`Change`]).
//! Holds: nothing but [`Graph`], which is a function of the set of stored facts, whatever order they came in.
//! Not here: storage and revisions (`store`), the wire (`wire`), delivery of events (`server`).
//!
//! ```text
//!   request ──► Graph::plan ──► Plan: facts to put and delete      reads the graph, changes nothing
//!                                 │
//!                           one store transaction                  several requests at once: Batch
//!                                 │
//!   readers ◄── clone, O(1) ◄── Graph::apply ──► Change ──► heard: subscriber → differences
//! ```
//!
//! # What the facts mean
//!
//! | fact | one store key each |
//! |---|---|
//! | tag | `name` is a leaf (with its value) or a group |
//! | membership | `member` belongs to `parent` |
//! | subscription | `subscriber` hears of `tag` |
//!
//! [`Graph::plan`] only yields facts that fit together, but `apply` takes any: a foreign writer or a load that is
//! half done may leave gaps. A membership counts if its parent is a group and its member is a literal or an
//! existing tag, and is inert otherwise. A cycle resolves to the leaves around it. A tag that is created by a
//! request starts clean: leftovers that mention its name go in the same plan, so it inherits nobody's place.
//!
//! # Cost
//!
//! With n names in the graph; "above" and "below" count tags and memberships, each once however many paths lead
//! to it. No walk recurses, so depth costs no stack.
//!
//! | operation | time |
//! |---|---|
//! | `clone` | O(1) |
//! | `apply` | O(log n) per fact |
//! | `get`, `subscribers`, `list` | O(log n), then O(1) per item read |
//! | `resolve` | O(below); if several groups hold what is found, plus the smaller of a sort by name and O(n) |
//! | `ancestors` | O(above), plus the sort by name |
//! | `plan` of a leaf or a subscription | O(log n) |
//! | `plan` of a deletion | O(log n) per fact that goes |
//! | `plan` of a group | O(log n) per member, plus the cycle check: O(min(above the group, below the new members)) |
//! | [`Change::heard`], no subscribed tag above the change | O(above) |
//! | [`Change::heard`] otherwise | O(above + below what was attached or detached + min(ascent, descent)) |
//!
//! *Ascent* walks up from each group that directly holds something touched; *descent* resolves every affected
//! subscribed tag before and after. One leaf changed below a million-member group is an ascent of a few steps; a
//! chain of 100,000 groups attached at once is a descent. Both are tried with growing budgets, so the cheaper wins.

mod batch;
mod change;
mod cycle;
mod fact;
mod graph;
mod node;
mod plan;
mod request;
mod view;
mod walk;

pub use batch::Batch;
pub use change::{Change, Difference};
pub use fact::{Fact, Key, Plan, Write};
pub use graph::Graph;
pub use request::{Cycle, Kind, NotFound, Request, RequestError};
pub use view::{Members, Resolved, ResolvedMember, TagView};
