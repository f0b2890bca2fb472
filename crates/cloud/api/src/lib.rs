//! The contract between the orchestrator and a cloud.
//!
//! In: calls from the orchestrator, in our own types. Out: what the cloud did. Holds: the [`Cloud`] trait and its parts;
//! its adapters to gRPC, so that a plugin may live in this process or in another; a conformance suite that any plugin
//! must pass ([`conformance`]); and [`FakeCloud`], a cloud in memory with faults on demand.
//! Not here: decisions of any kind (`orchestrator::plan`), real clouds (`cloud/*`).
//!
//! ```text
//!   orchestrator ── dyn Cloud ──► a cloud in this process
//!                       ├───────► RemoteCloud ── invisinetspb.CloudPlugin + trestle.v1.CloudExtension ──► PluginService ── dyn Cloud
//!                       └───────► OriginalCloud ── invisinetspb.CloudPlugin ──► a plugin of Paraglider's protocol
//! ```
//!
//! # What a plugin promises
//!
//! - Every call may be repeated: making what is there, or deleting what is not, succeeds and changes nothing.
//! - A new resource is closed: nothing passes until an entry permits it.
//! - It touches only what it made, and recognises that after a restart.
//! - A site's gateway serves all networks of the site, whichever came first, adopted ones among them.
//! - What somebody else made is let go as it was: what is attached gets back what it had, an adopted network loses what
//!   was put into it, and neither is ever deleted.

pub mod conformance;
mod contract;
mod fake;
pub mod grpc;
mod kinds;
mod lists;
pub mod rules;
pub mod twin;

pub use contract::{
    At, Attachment, Attachments, Cloud, CloudError, CloudErrorKind, Links, Listing, Networks, PeeringSpec,
    PermitLists, ResourceSpec, Resources, Result,
};
pub use fake::{Dice, FakeCloud, Faults, Machine, reaches};
pub use kinds::{
    cluster_network, clusters_allowed, endpoints_allowed, field_among, network_of_cluster, only_inbound,
};
pub use lists::list_after;

/// The contract's traits, for whoever calls a cloud of a known type.
pub mod prelude {
    pub use crate::contract::{Attachments, Cloud, Links, Networks, PermitLists, Resources};
}
