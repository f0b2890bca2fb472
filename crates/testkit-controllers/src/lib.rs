//! What tests share that stands on whole rooms: a controller in this process with clients for it, nodes and agents that
//! connect to it. A dev dependency, as `testkit`, which says why there are two.
//!
//! ```text
//!   controllers   controller.rs  a controller on free ports, REST and gRPC     nodes.rs  the same with a source of objects
//!   agents        agents.rs      agents against it, and parts that write down, or fall
//! ```
//!
//! Not here: the orchestrator's house, which is `orchestrator::testing`. The unit tests of that room look into its memory, and
//! from here they would get a second copy of their own types.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[cfg(feature = "agents")]
pub mod agents;
#[cfg(feature = "controllers")]
pub mod controller;
#[cfg(feature = "controllers")]
pub mod nodes;
