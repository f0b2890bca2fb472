//! The Azure plugin: virtual networks, machines, network security groups and VPN gateways of a resource group.
//!
//! In: calls of the `Cloud` contract. Out: requests to Azure's resource manager. Holds: nothing but locks; what is there
//! is read every time, and recognised by name and tags. Not here: HTTP, credentials, retries (`cloud-http`).
//!
//! ```text
//!   network     virtual network per site and region, one subnet, no way out by itself
//!   resource    machine, interface, and a security group that is closed before the interface exists;
//!               or a managed cluster, in a network of its own with a subnet that is in such a group
//!   permit list the group's rules, all of them in one request
//!   peering     a peering at each side
//!   NAT         NAT gateway with a public address, set on the subnet
//!   gateway     a virtual network of its own (the hub) with an active-active VPN gateway; networks are peered with it
//!   link        per tunnel: a local network gateway, which is the peer, and a connection to it
//! ```

mod adopt;
mod api;
mod attach;
mod cloud;
mod clusters;
mod connections;
mod description;
mod gateway;
mod hub;
mod kinds;
mod lists;
mod names;
mod nat;
mod networks;
mod peerings;
mod resources;
pub mod rules;

pub use api::AzureOptions;
pub use cloud::AzureCloud;
