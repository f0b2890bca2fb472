//! The Azure plugin: virtual networks, machines, network security groups and VPN gateways of a resource group.
//!
//! In: calls of the `Cloud` contract. Out: requests to Azure's resource manager. Holds: nothing but locks; what is there
//! is read every time, and recognised by name and tags. Not here: HTTP, credentials, retries (`cloud-http`).
//!
//! ```text
//!   network     virtual network per site and region, one subnet, no way out by itself               networks, adopt
//!   resource    machine, interface, and a security group that is closed before the interface exists;
//!               or a managed cluster, in a network of its own with a subnet that is in such a group
//!                                                                      resources: machines, attach, clusters, description
//!   permit list the group's rules, all of them in one request                                       lists, rules
//!   peering     a peering at each side                                                              peerings
//!   NAT         NAT gateway with a public address, set on the subnet                                nat
//!   gateway     a virtual network of its own (the hub) with an active-active VPN gateway; networks
//!               are peered with it                                                                  gateway, hub
//!   link        per tunnel: a local network gateway, which is the peer, and a connection to it      connections
//! ```
//!
//! `cloud` hands a call to one of these, with the `Place` it is for: a site's resource group, names and client. They read what is
//! there by `site` (its networks) and `border` (whether a cluster's network is closed). Below are `kinds` (each kind of object
//! in one line), `types` (what they look like) and `arm` (requests, and the operations they start).

mod adopt;
mod arm;
mod attach;
mod border;
mod cloud;
mod clusters;
mod connections;
mod description;
mod gateway;
mod hub;
mod kinds;
mod listing;
mod lists;
mod machines;
mod names;
mod nat;
mod networks;
mod options;
mod peerings;
mod place;
mod resources;
pub mod rules;
mod site;
mod space;
mod types;

pub use cloud::AzureCloud;
pub use options::AzureOptions;
