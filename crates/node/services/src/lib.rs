//! The service proxy of one node: services and endpoints in, what to change in the kernel out.
//!
//! In: services, endpoint slices and facts about the node, as a full state or one by one ([`Store`]).
//! Out: [`ServiceEndpointsPatch`]es, and for each data plane the kernel operations that carry them out, in an order
//! that never takes away what packets still need ([`nftables::Plane`], [`ipvs::Plane`]).
//! Holds: the last state, what each plane has made of it, and counts of what several services share.
//! Not here: netlink (`node-kernel`), Kubernetes (`kube`), the wire (`wire`).
//!
//! ```text
//!  1. register               2. prepare: what to do              3. execute: how to do it
//!
//!  Service ──┐               ┌─ select endpoints ─┐              ┌─► nftables::Plane ─► transactions
//!  Slice  ───┼──► Store ─────┤                    ├─► patches ───┤
//!  Node   ───┘    (dirty)    └─ settle frontends ─┘              └─► ipvs::Plane ─────► ordered operations
//! ```
//!
//! A patch holds everything that one port of a service needs; patches do not depend on each other. What they share
//! (an address that several ports use, a hairpin entry) is counted by the plane.

#[cfg(any(test, feature = "cases"))]
pub mod cases;
pub mod conntrack;
mod endpoint;
pub mod evaluate;
pub mod ipvs;
mod known;
pub mod nftables;
mod node;
mod patch;
mod port;
mod refs;
mod select;
mod store;
#[cfg(test)]
mod testing;

pub use endpoint::EndpointInfo;
pub use model::service::{
    Ingress, IngressMode, Protocol, Service, ServiceKind, ServiceName, ServicePort, Slice, SliceEndpoint,
    SlicePort, parse_address, parse_prefix,
};
pub use node::Node;
pub use patch::{EndpointPatch, Operation, ServiceEndpointsPatch, ServicePatch};
pub use port::{Frontend, FrontendKind, PortId, ServicePortInfo};
pub use refs::Refs;
pub use select::Judged;
pub use store::{Conflict, HealthCheck, Store};
