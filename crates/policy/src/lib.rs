//! The policy engine: from Kubernetes and Antrea objects to groups, spans and deltas, at the cost of the change.
//!
//! In: [`Event`]s, one object at a time, from one writer. Out: [`Engine::poll_update`], which yields the
//! difference since it was last empty, in an order in which nothing named is ever missing; [`explain`], which says
//! why a connection is permitted or denied; [`survey`], which says what is open between many ends; [`lint`], which says
//! what of the policies does nothing; and [`suggest`], which writes policies for connections that were seen. Holds: the groups, their
//! members, their spans, and nothing it can look up.
//! Not here: watching a cluster (`kube`), frames and watchers (`server`), storing objects (`store`).
//!
//! This room is pure: no I/O, no clock, no randomness. `docs/policy.md` has the drawing and the invariants.

mod engine;
pub mod explain;
pub mod lint;
mod selection;
pub mod suggest;
pub mod survey;
mod translate;

pub use engine::{Engine, Event, GroupMembers, GroupView, NamedGroup, Size, View};
pub use selection::{GroupRef, Scope, Selection, name_uuid};
pub use translate::{
    GroupRefs, Resolved, TranslatedRule, Translation, World, antrea_policy, kubernetes_policy, resolve,
};
