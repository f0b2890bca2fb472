//! API servers of Kubernetes, read: what each cluster has, kind by kind, for as long as somebody listens.
//!
//! ```text
//!   kubeconfig, or the Pod's own ─► access ─► client ─┬─ follow: one kind ─┐
//!                                                     ├─ follow: one kind ─┼─► Told ─► whoever started it
//!                                                     └─ …                 ┘      │
//!                                      cluster: how each kind stands, since when ◄┘
//! ```
//!
//! In: where an API server is ([`Access`]). Out: documents as it has them ([`Told`]), a kind's first state as a whole and then
//! what changes, with back-pressure: an object is here while it is handed over, and no longer. Holds: how each kind stands
//! ([`Cluster::state`]), and how far each watch is, so that a break costs what has changed meanwhile and no new list.
//!
//! What a cluster needs so that all of it runs there is [`install`]'s.
//!
//! What is written back is what becomes of policies: statuses and Events ([`Cluster::write_status`], [`Cluster::report`]). What all this
//! must be allowed is [`rbac`].
//!
//! A fault takes nothing away: what was told stays true until the API server says otherwise. Absent and failed are different
//! answers: a kind that is not installed is an empty one, and is asked for again, so that it is found when it comes.
//!
//! Not here: what a document means (`model`, `policy`), who is told of it (`drivers`).

mod access;
mod cluster;
mod fault;
mod follow;
pub mod install;
pub mod rbac;
mod resource;
mod standing;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

#[cfg(test)]
mod tests;
mod write;

pub use access::{Access, AccessError};
pub use cluster::{Cluster, ClusterState};
pub use follow::Told;
pub use resource::{RESOURCES, Resource};
pub use standing::{KindState, Standing};
pub use write::{Event, WriteError};
