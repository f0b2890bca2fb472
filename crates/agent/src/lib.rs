//! The node agent: a controller's stream in, the kernel's state out, and nothing lost in between.
//!
//! ```text
//!   controller ── stream ──► feed ──► worker ──► parts ──► kernel
//!   attach, detach ──► local ─────────► │ held, endpoints
//!                                       └──► journal, registry on disk
//! ```
//!
//! In: messages of the node protocol (`docs/node-protocol.md`), attachments of Pods, an earlier run's state on disk. Out:
//! what the parts make true, reports, health and metrics. Holds: the objects that concern the node ([`held`]), the Pods
//! attached to it ([`endpoints`]).
//! Not here: what objects mean for the kernel (the `node` rooms, behind [`part::Part`]), flags (`trestle`).

mod agent;
mod backoff;
pub mod endpoints;
mod feed;
mod file;
mod health;
pub mod held;
pub mod journal;
pub mod local;
mod metrics;
pub mod part;
mod status;
pub mod worker;

use part::Part;

/// Why the parts cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    #[error("cannot reach the kernel's netfilter: the agent needs root, and a kernel with nftables")]
    Kernel(#[source] node_kernel::netlink::NetlinkError),
}

/// The parts of an agent on a real node. They act in the network namespace of the calling thread.
pub fn parts(_node: &str) -> Result<Vec<Box<dyn Part>>, PartsError> {
    Ok(Vec::new())
}

pub use agent::{Agent, AgentError, Config, boot};
pub use feed::Uplink;
pub use metrics::Metrics;
pub use status::{Connection, ErrorView, State, StatusView};
