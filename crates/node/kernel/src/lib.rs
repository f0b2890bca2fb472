//! The kernel's edge: netlink sockets and kernel settings, and nothing that decides.
//!
//! In: transactions and requests that pure rooms have worked out. Out: what the kernel holds, and typed errors that
//! name the operation it refused. Holds: sockets.
//! Not here: what ought to be in the kernel (`node-nft` plans tables, `node-services` plans services,
//! `node-policy` plans policies).
//!
//! A socket belongs to the network namespace of the thread that opened it, for good: open it where it is to act.
//! All calls block for as long as the kernel works, and no longer than [`netlink::PATIENCE`] when it stays silent.

pub mod conntrack;
pub mod conntrack_events;
pub mod conntrack_settings;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod ipvs;
pub mod link;
pub mod log_group;
pub mod netlink;
pub mod nft;
pub mod policy;
pub mod services;
pub mod sysctl;
mod urgent;
