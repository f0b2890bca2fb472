//! The IBM Cloud plugin: VPCs, instances, security groups, transit gateways and VPN gateways with BGP.
//!
//! In: calls of the `Cloud` contract. Out: requests to IBM's VPC, transit gateway and Kubernetes Service APIs. Holds: locks and the list of
//! regions; what is there is read every time and recognised by its name. Not here: HTTP, credentials, retries
//! (`cloud-http`).
//!
//! ```text
//!   network     VPC per site and region; four address prefixes, one per zone and one spare; a subnet per zone in use
//!   resource    instance in a security group of its own, which has no rules at first
//!   endpoint    endpoint gateway with one address, in a security group of its own
//!   cluster     IBM's managed Kubernetes in a VPC of its own, its workers in four groups of ours
//!   permit list rules of that group and of up to four more, and a note that says whose they are
//!   peering     transit gateway per site, or per pair of sites, that the networks are attached to; a note per peering
//!   NAT         public gateway per zone in use
//!   gateway     VPC of its own with a route-mode VPN gateway, attached to the site's transit gateway
//!   link        VPN connection per address of the peer, two tunnels each, BGP inside; a note that says who the peer is
//! ```
//!
//! IBM's objects have a name of 63 letters and no other text. What does not fit stands in notes (`notes`).
//!
//! ```text
//!   cloud ──► a concern each: networks, subnets, instances, endpoints, clusters, adopt, attach, lists, peerings, gateway, …
//!                │ on a site's Ground: API, names, locks; and the security Groups of a VPC
//!                ▼
//!             Collection<Kind> ──► cloud_http: get, is it ours, put, wait ──► Api
//!   kinds     the table of kinds of objects      shapes  what they and their requests look like
//! ```

mod adopt;
mod api;
mod attach;
mod cloud;
mod clusters;
mod connections;
mod described;
mod dialect;
mod endpoints;
mod gateway;
mod ground;
mod groups;
mod instances;
mod kinds;
mod lists;
mod names;
mod networks;
mod notes;
mod objects;
mod peerings;
mod reports;
mod rules;
mod shapes;
mod spread;
mod subnets;
mod transit;
mod vpcs;

pub use api::IbmOptions;
pub use cloud::IbmCloud;

// The words that the concerns have in common.
use api::{Api, Call, Place};
use cloud_api::Result;
use ground::Ground;
use groups::Groups;
use kinds::Listed;
use objects::Collection;
use vpcs::{Home, Vpc, Vpcs};
