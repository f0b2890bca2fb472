//! The driver by which orchestrators (Kubernetes, Nomad) use volumes of a consumer: the Container Storage Interface.
//!
//! In: calls of CSI on a unix socket. Out: volumes, snapshots and publications at the controller, called with the consumer's
//! certificate; on a node devices, file systems and mounts. Holds: nothing that matters. The controller knows which volumes there are and
//! whose they are to write to, a node's kernel what is attached and mounted; every call looks there first and does what is missing, so
//! that it may be repeated, break off, and come twice at once.
//!
//! ```text
//!   plan ●         what a call asks for, in the words of volumes: names, sizes, access, nodes
//!   controller     calls that the storage answers        ──► trestle.v1.Storage
//!   node           calls that this machine answers       ──► attach, mounts, file systems
//!   attach         volumes as block devices              ──► one bridge process each
//!   bridge         kernel's nbd device ◄── requests ──► the storage's NBD server, over TLS, as often as it takes
//! ```
//!
//! Not here: how the driver gets its credentials and its flags (`trestle csi`), what Kubernetes needs around it
//! (`kubernetes::install`).

mod account;
pub mod attach;
pub mod bridge;
mod controller;
mod identity;
mod keyed;
mod node;
pub mod plan;
mod serve;

/// CSI's messages and services.
#[allow(clippy::doc_markdown, reason = "generated")]
pub mod proto {
    tonic::include_proto!("csi.v1");
}

pub use account::{Account, AccountError};
pub use serve::{Driver, ServeError, Services, serve};
