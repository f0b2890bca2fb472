//! Services on the controller: objects in, what nodes must know of services out; and where a packet would go.
//!
//! In: Services, EndpointSlices, Pods and Nodes as users wrote them ([`Catalog::apply`]).
//! Out: [`Change`]s, only of what differs ([`Catalog::take_changes`]), and answers to "where does a packet to this
//! address go from that node, and why" ([`explain`]); addresses and node ports for Services without ([`allot`]).
//! Holds: the objects it needs, slices made from Pods, and what was told last.
//! Not here: streams to nodes (`transport`), which endpoints a node uses and how (`node-services`).
//!
//! ```text
//!  Service ─────────┐                    ┌─► Change::Service ─┐
//!  EndpointSlice ───┼─► Catalog ─────────┼─► Change::Slice ───┼─► every node, one frame for all of them
//!  Pod ─► derived ──┤   (dirty services) └─► Change::Node ────┴─► that node
//!  Node ────────────┘
//! ```
//!
//! All nodes get all endpoints: any Pod on any node may use any service, and whether a service has endpoints somewhere
//! else decides between silence and refusal. What differs between nodes (locality, hints) is a matter of comparing
//! names, done by each node for itself; so a change costs the controller one encoding, however many nodes there are.

pub mod allot;
mod catalog;
pub mod explain;

pub use catalog::{Catalog, Change, Entry, MANAGER};
