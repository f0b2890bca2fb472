//! Google's objects as JSON has them, with the fields that the plugin uses.
//!
//! What is said and what is told of an object is one type. Fields that only we say are not read (`skip_deserializing`);
//! those that only Google tells are not sent (`skip_serializing`). Fields that are not here are ignored, but for those of objects that
//! are written back whole (`rest`). What the API may leave out, because it is empty or does not apply, has a default;
//! what it always tells is needed.

mod cluster;
mod firewall;
mod machine;
mod network;
mod records;
mod router;
mod vpn;

pub(crate) use cluster::{Cluster, Clusters, NewCluster, Pool};
pub use firewall::{Association, Firewall, Flow, Layer4, Match, Policy, Rule, Traffic};
pub(crate) use firewall::{Effective, EffectivePolicy};
pub(crate) use machine::{Address, ForwardingRule, Instance, Interface, Tags};
pub(crate) use network::{AddPeering, GoogleAccess, Order, POLICIES_FIRST, RemovePeering};
pub use network::{Network, Peering, Routing, SecondaryRange, Subnet};
pub(crate) use records::{RecordChange, RecordSet, Visibility, VisibleIn, Zone};
pub(crate) use router::{
    Advertised, Bgp, BgpPeer, Nat, NatSubnet, PatchBgp, PatchNats, Router, RouterInterface, RouterStatus,
    Sessions,
};
pub(crate) use vpn::{ExternalGateway, ExternalInterface, Tunnel, VpnGateway};
