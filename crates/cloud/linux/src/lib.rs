//! The Linux cloud: networks, resources and VPN gateways as network namespaces of this machine.
//!
//! In: calls of the orchestrator. Out: namespaces, veths, routes, nftables and daemons that do what they say.
//! Holds: a state file, which is the truth; the kernel is made from it, again whenever this cloud is opened, so that
//! a crash or a reboot leaves nothing that is not repaired. Everything it makes is recognised by its name (`names`).
//!
//! ```text
//!   resource namespace              network namespace (routing, default deny)            network namespace
//!   eth0 10.0.0.1/32 ───────────── r0a000001  ┐
//!   default via 169.254.1.1                   ├─ forward: egress list ─ ingress list ─ p0 ──────── p0
//!   eth0 10.0.0.2/32 ───────────── r0a000002  ┘                                    └─ gw ──────── the site's edge
//! ```
//!
//! Every endpoint has a /32 and the network's namespace as its router, so that no packet passes from one resource
//! to another without both permit lists. A packet in the original direction of a connection is judged each time, so
//! that a rule that is taken away ends what it had let through.
//!
//! Not here: decisions (`orchestrator::plan`). It needs root.

mod attach;
mod cloud;
mod command;
mod daemon;
mod edge;
mod erase;
#[cfg(fuzzing)]
pub mod fuzzing;
mod names;
pub mod namespace;
mod network;
mod permit;
pub mod shell;
mod state;
mod supervise;
mod tables;
mod underlay;
mod vpn;

pub use cloud::{LinuxCloud, Options};
pub use erase::erase;
pub use names::mark;
pub use underlay::Uplink;
pub use vpn::charon::require_programs as require_vpn_programs;
